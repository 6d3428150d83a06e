"""audit.html: one self-contained page, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from importlib import resources

from privbench.record import Audit
from privbench.report import utility, words
from privbench.report.figure import leakage_over_releases


def html(audit: Audit) -> str:
    """The page; every value of the record is escaped, only the figure is trusted markup."""
    import jinja2
    from markupsafe import Markup

    source = (resources.files("privbench.report") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    figure = Markup(leakage_over_releases(audit)) if audit.series else None
    return environment.from_string(source).render(audit=audit, words=words, utility=utility, figure=figure)

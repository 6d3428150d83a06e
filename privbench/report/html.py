"""audit.html: one self-contained page, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from privbench.record import Audit
from privbench.report import answers, detail, estimates, families, notes, setting, utility, words
from privbench.report.figure import leakage_over_releases

if TYPE_CHECKING:
    from jinja2 import Template


def html(audit: Audit) -> str:
    """The page of one record."""
    from markupsafe import Markup

    figure = leakage_over_releases(audit) if _is_curve(audit) else None
    drawn = estimates.figure(audit)
    people = None if drawn is None else Markup(drawn)
    return page(
        "page.html.j2",
        figure,
        answers=answers.respondents(audit),
        answers_title=answers.TITLE,
        audit=audit,
        detail=detail,
        estimates=estimates,
        families=families,
        notes=notes,
        setting=setting,
        utility=utility,
        words=words,
        people=people,
    )


def _is_curve(audit: Audit) -> bool:
    """Whether some series has two points, or a bound to be held against: one point alone is no figure."""
    return any(len(line.x) > 1 or name.startswith("bound ") for name, line in audit.series.items())


def page(template: str, figure: str | None, **values: Any) -> str:
    """A template of this package, filled in; every value is escaped, only the figure is trusted markup."""
    from markupsafe import Markup

    return _template(template).render(figure=None if figure is None else Markup(figure), **values)


@cache
def _template(name: str) -> Template:
    """Read and compiled once: that takes as long as to fill it in."""
    import jinja2

    source = (resources.files("privbench.report") / name).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)

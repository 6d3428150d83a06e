"""The pages that stand beside a record, by format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from privbench.record import Audit
from privbench.report.html import html
from privbench.report.markdown import markdown

PAGES: Mapping[str, tuple[str, Callable[[Audit], str]]] = {
    "html": ("audit.html", html),
    "md": ("audit.md", markdown),
}


def render(audit: Audit, formats: Iterable[str]) -> dict[str, str]:
    """File name to text, for these formats."""
    return {PAGES[name][0]: PAGES[name][1](audit) for name in formats}

"""The pages that stand beside a record, by format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from privbench.record import Audit, write_aside
from privbench.report.html import html
from privbench.report.markdown import markdown

PAGES: Mapping[str, tuple[str, Callable[[Audit], str]]] = {
    "html": ("audit.html", html),
    "md": ("audit.md", markdown),
}


def render(audit: Audit, formats: Iterable[str]) -> dict[str, str]:
    """File name to text, for these formats."""
    return {PAGES[name][0]: PAGES[name][1](audit) for name in formats}


def write_pages(pages: Mapping[str, bytes], out: Path) -> None:
    """Files into a folder: each whole or not at all, the last of them last."""

    def put(aside: Path) -> list[str]:
        for name, content in pages.items():
            (aside / name).write_bytes(content)
        return list(pages)

    write_aside(out, put)

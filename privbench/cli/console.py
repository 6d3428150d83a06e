"""The console that reports are printed on."""

from __future__ import annotations

import sys

from rich.console import Console

_LOG_WIDTH = 110


def plain_console() -> Console:
    """Stdout as it is on a terminal; in a pipe or a log a fixed width, so that tables do not fold."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _LOG_WIDTH)


def note(text: str) -> None:
    """A line on stderr, beside the report and never part of it."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(text, style="dim", markup=False)

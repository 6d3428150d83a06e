"""The errors that a user can act on. Anything else that escapes is a fault of privbench."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OK, EXCEEDED, USAGE, INCOMPLETE = 0, 1, 2, 3
"""Exit codes (README): no check exceeded, one was, bad input, something failed or is missing."""


class PrivbenchError(Exception):
    """Base of the errors that are reported in one or two lines, without a traceback.

    What was given is quoted in them: characters that a terminal would obey are shown, not sent.
    """

    def __init__(self, message: str) -> None:
        shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in message)
        super().__init__(shown)


class InputError(PrivbenchError):
    """Bad usage or bad input (exit code 2): says what was given, what is allowed, what to do."""


class RecordError(PrivbenchError):
    """A record that cannot be read: damaged, incomplete or of an unknown schema (exit code 2)."""


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """An `InputError` for an unknown name, with near matches."""
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names) or 'none'}."
    return InputError(f"unknown {kind} '{given}'; {hint}")

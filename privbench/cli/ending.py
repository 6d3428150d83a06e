"""How a command that did not go well ends: a line or two on stderr, and an exit code."""

from __future__ import annotations

import click
import typer

from privbench.errors import INCOMPLETE, USAGE, InputError, PrivbenchError, RecordError

INTERRUPTED = 130
"""What typer makes of Ctrl-C; privbench's own codes end at 3."""


def explain(error: BaseException) -> int:
    """Say on stderr what went wrong; the exit code that goes with it."""
    if isinstance(error, click.exceptions.Exit):
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return _say("interrupted; no record was written.", INCOMPLETE)
    if isinstance(error, click.ClickException):
        return _say(error.format_message(), USAGE)
    if isinstance(error, InputError | RecordError):
        return _say(str(error), USAGE)
    if isinstance(error, PrivbenchError):
        return _say(str(error), INCOMPLETE)
    return _say(
        f"a fault of privbench: {type(error).__name__}: {error}. Please report it with the output of --debug.",
        INCOMPLETE,
    )


def _say(text: str, code: int) -> int:
    typer.echo(f"privbench: {text}", err=True)
    return code

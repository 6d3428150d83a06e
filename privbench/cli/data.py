"""`privbench data`: looks at data before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(help="Look at data before it is used.", no_args_is_help=True)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@data_app.callback()
def _root() -> None:
    """Look at data before it is used."""


@data_app.command()
def check(
    spec: Annotated[str, typer.Argument(help="A survey, such as osmi:FILE or survey:FILE.csv; see `list datasets`.")],
    outcome: Annotated[str | None, typer.Option(help="The outcome: its name, or a column.")] = None,
    save_schema: Annotated[str | None, typer.Option(help="Write the schema to this new TOML file.")] = None,
    debug: Debug = False,
) -> None:
    """Rows, questions, outcomes, what is dropped and why, duplicates, groups, two samples of invented persons."""
    from privbench.cli.survey import run_check

    run_check(spec, outcome, Path(save_schema) if save_schema else None)

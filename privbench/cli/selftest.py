"""`privbench selftest`: the table of checks, and an exit code."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from privbench import selftest
from privbench.cli.console import plain_console

_UNITS = (
    "Rates are counts of runs; tightness is the distance from the truth as a share of it, planning a factor on the "
    "fewest records, all others a distance from the right answer."
)


def run_selftest_command(*, quick: bool, as_json: bool) -> int:
    """Print every check, those that failed with their details; 0 when all passed, else 1."""
    with _progress() as report:
        result = selftest.run_selftest(quick=quick, progress=report)
    if as_json:
        _print_json(result, quick)
    else:
        _print_table(result)
    return 0 if result.passed else 1


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None] | None]:
    """A bar on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("selftest", total=1.0)
        yield lambda label, share: bars.update(task, description=label, completed=share)


def _print_table(result: selftest.SelfTest) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("estimator", "mechanism", "check"):
        table.add_column(column, overflow="fold")
    for column in ("observed", "limit", "runs"):
        table.add_column(column, justify="right")
    table.add_column("result")
    for row in result.rows:
        sign = ">=" if row.what == "verdict power" else "<="
        table.add_row(
            row.estimator,
            row.mechanism,
            row.what,
            _number(row.observed),
            f"{sign} {_number(row.limit)}",
            f"{row.runs:,}" if row.runs else "exact",
            "ok" if row.passed else "FAILED",
        )
    console = plain_console()
    failed = [row for row in result.rows if not row.passed]
    console.print(f"{len(result.rows) - len(failed)} of {len(result.rows)} checks passed.", markup=False)
    console.print(table, markup=False)
    for row in failed:
        console.print(f"FAILED {row.estimator}, {row.mechanism}, {row.what}: {row.detail}", markup=False)
    console.print(_UNITS, markup=False)


def _print_json(result: selftest.SelfTest, quick: bool) -> None:
    """Plain JSON on stdout; a number that is not finite has no place in it and reads null."""
    import typer

    rows = [
        {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(row).items()
        }
        for row in result.rows
    ]
    typer.echo(json.dumps({"passed": result.passed, "quick": quick, "rows": rows}, indent=1))


def _number(value: float) -> str:
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3f}" if not 0 < abs(value) < 0.0005 else f"{value:.0e}"

"""A sweep on a terminal, and in a log."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from privbench.report.sweep_lines import Line, lines
from privbench.report.sweep_pages import NOTE, headline, named, table_of
from privbench.report.words import MARKS
from privbench.sweep.record import Sweep


def show(sweep: Sweep, console: Console) -> None:
    """Print the headline, a table of each line, and the cells without a record."""
    console.print(headline(sweep), markup=False, style="bold")
    for line in lines(sweep):
        console.print()
        console.print(_table(line))
    console.print()
    console.print(NOTE, markup=False)
    for row in sweep.rows:
        if row.status != "done":
            console.print(f"{row.status}: {named(row)}: {row.reason or 'no record'}", markup=False)


def _table(line: Line) -> Table:
    head, body = table_of(line)
    result = Table(
        title=line.name, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim"
    )
    for name in head:
        broken = name.replace("/", "/\n")  # else narrow columns break within words
        result.add_column(broken, justify="left" if name == "verdicts" else "right", overflow="fold")
    for row in body:
        # By their marks: words would fold the table. NOTE says which is which.
        marked = row[-1]
        for verdict, mark in MARKS.items():
            marked = marked.replace(f" {verdict}", mark)
        result.add_row(*row[:-1], marked)
    return result

"""The report on a terminal, and in a log: the same lines with and without colour."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from privbench.record import Audit, Finding
from privbench.report import notes, utility, words
from privbench.report.words import number
from privbench.verdict import Verdict

_STYLES: Mapping[str, str] = {
    Verdict.EXCEEDED: "bold red",
    Verdict.WITHIN: "bold green",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.FAILED: "bold red",
}


def show(audit: Audit, console: Console) -> None:
    """Print the whole report."""
    console.print()
    console.print(Text(words.headline(audit), style="bold"))
    _note(console, notes.locality_note(audit))
    console.print(Text(words.setting(audit), style="dim"))
    _heading(console, "Who attacks")
    for threat in audit.threats:
        console.print(Padding(Text(f"{threat['label']}: {threat['description']}."), (0, 0, 0, 2)))
    for note in notes.secret_notes(audit):
        console.print(Padding(Text(note), (0, 0, 0, 2)))
    if audit.utility:
        _heading(console, "Utility")
        console.print(_utility(audit))
        _note(console, utility.note(audit))
    _heading(console, "Every epsilon by name")
    if audit.epsilons:
        console.print(_epsilons(audit))
    else:
        _note(console, notes.no_epsilon(audit))
    _note(console, notes.claim_note(audit))
    _heading(console, "Findings that count")
    for finding in words.confirmatory(audit):
        console.print(_line(finding, audit))
    if not words.confirmatory(audit):
        _note(console, "None: no bound speaks about what was measured.")
    _note(console, notes.planning_note(audit))
    _heading(console, "Findings for information")
    for finding in words.descriptive(audit):
        console.print(_line(finding, audit))
    _note(console, notes.rho_note(audit))
    _flags_and_notes(console, audit)
    _note(console, notes.one_release_note(audit))
    for note in notes.interval_notes(audit):
        _note(console, note)
    if words.confirmatory(audit):
        _note(console, "WITHIN means that these attacks did not exceed the bound; it is never a proof of safety.")
    console.print()


def _flags_and_notes(console: Console, audit: Audit) -> None:
    if audit.flags:
        _heading(console, "Flags")
        for flag in audit.flags:
            text = Text.assemble((words.flag_name(flag, audit), "bold"), f": {flag['means']}.")
            console.print(Padding(text, (0, 0, 0, 2)))
    if audit.notes:
        _heading(console, "About the data and the run")
        for said in audit.notes:
            console.print(Padding(Text(said), (0, 0, 0, 2)))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold underline"))


def _note(console: Console, text: str | None) -> None:
    if text:
        console.print(Padding(Text(text, style="dim"), (0, 0, 0, 2)))


def _line(finding: Finding, audit: Audit) -> Padding:
    mark = Text(f"{words.MARKS[finding.verdict]} ", style=_STYLES.get(finding.verdict, "dim"))
    text = Text.assemble(mark, words.sentence(finding, audit))
    style = _STYLES.get(finding.verdict)
    if style:
        text.highlight_words([str(finding.verdict)], style)
    return Padding(text, (0, 0, 0, 2))


def _table(*columns: str) -> Table:
    """Cells fold where the terminal is narrow; nothing is ever cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _utility(audit: Audit) -> Table:
    table = _table("task", "metric", "value", *utility.beside(audit), "gain", "n")
    for item in audit.utility:
        table.add_row(
            item["task"],
            item["metric"],
            f"{number(item['value'])} {words.interval(item['low'], item['high'])}",
            *utility.compared(item, audit),
            utility.gain(item),
            f"{item['n']:,}",
        )
    return table


def _epsilons(audit: Audit) -> Table:
    table = _table("name", "eps", "neighbours", "sampling", "speaks for")
    for item in audit.epsilons:
        table.add_row(item["name"], words.epsilon_value(item), item["neighbours"], item["sampling"], item["speaks_for"])
    return table

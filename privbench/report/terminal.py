"""The report on a terminal, and in a log: the same lines with and without colour."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from privbench.record import Audit, Finding
from privbench.report import detail, families, notes, setting, utility, words
from privbench.report.words import number
from privbench.verdict import Verdict

_STYLES: Mapping[str, str] = {
    Verdict.EXCEEDED: "bold red",
    Verdict.WITHIN: "bold green",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.FAILED: "bold red",
}
_WIDE, _WIDEST = 100, 118
_BESIDE: Mapping[str, int | None] = {
    "attack": None, "adversary": None, "value": 20, "chance": 6, "baseline": 8, "control": 11, "strength": 8,
    "verdict": 14,
}  # fmt: skip
_BELOW: Mapping[str, int | None] = {
    "attack,\nadversary": None, "value": 14, "chance,\nbaseline": 8, "control": 8, "strength": 8, "verdict": 14,
}  # fmt: skip
"""Columns of the comparison with their widths, on a terminal of _WIDE characters and on a narrower one; None: what is
left. It takes _WIDEST at most.
"""


def show(audit: Audit, console: Console) -> None:
    """Print the whole report."""
    console.print()
    console.print(Text(words.headline(audit), style="bold"))
    _note(console, notes.locality_note(audit))
    console.print(Text(setting.setting(audit), style="dim"))
    _heading(console, "Who attacks")
    for threat in audit.threats:
        console.print(Padding(Text(f"{threat['label']}: {threat['description']}."), (0, 0, 0, 2)))
    for note in notes.secret_notes(audit):
        console.print(Padding(Text(note), (0, 0, 0, 2)))
    _compared(console, audit)
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
    for said in words.not_run(audit):
        _note(console, f"{words.MARKS[Verdict.NOT_APPLICABLE]} {said}")
    if not words.descriptive(audit) and not words.not_run(audit):
        _note(console, "None.")
    _note(console, notes.rho_note(audit))
    _details(console, audit)
    _flags_and_notes(console, audit)
    _note(console, notes.one_release_note(audit))
    for note in notes.interval_notes(audit):
        _note(console, note)
    if words.confirmatory(audit):
        _note(console, "WITHIN means that these attacks did not exceed the bound; it is never a proof of safety.")
    console.print()


def _compared(console: Console, audit: Audit) -> None:
    """The attacks side by side; families share their columns' widths."""
    _heading(console, "What was read, by whom")
    for group in families.groups(audit):
        console.print()
        console.print(Text(group.family.name, style="bold"))
        for said in group.failed:
            console.print(Padding(Text(f"! {said}", style=_STYLES[Verdict.FAILED]), (0, 0, 0, 2)))
        for reason in group.silent:
            console.print(Padding(Text(f"UNCOVERED: {reason}."), (0, 0, 0, 2)))
        _note(console, f"Value: {group.explained}")
        console.print(_side_by_side(group, console.width))


def _side_by_side(group: families.Group, width: int) -> Table:
    """Where the terminal is narrow, the adversary stands below its attack and the interval below its value."""
    columns = _BESIDE if width >= _WIDE else _BELOW
    table = _table(padding=(0, 1, 0, 0))
    table.width = min(width, _WIDEST)
    for name, wide in columns.items():
        table.add_column(name, width=wide, ratio=None if wide else 1, overflow="fold")
    for row in group.rows:
        judged = f"{words.MARKS[row.finding.verdict]} {row.verdict}" + (f"\n{row.bound}" if row.bound != "none" else "")
        if columns is _BESIDE:
            who, value, held = [row.attack, row.adversary], row.value, [row.chance, row.baseline]
        else:
            value = row.value.replace(" [", "\n[")
            who, held = [f"{row.attack},\n{row.adversary}"], [f"{row.chance},\n{row.baseline}"]
        table.add_row(*_cells(*who, value, *held, row.control, row.strength, judged))
    return table


def _cells(*texts: str) -> list[Text]:
    """What broke or was exceeded is red."""
    return [Text(text, style=_STYLES[Verdict.FAILED] if detail.loud(text) else "") for text in texts]


def _details(console: Console, audit: Audit) -> None:
    """Further metrics, inputs by feature, and what acting attacks did to the tasks."""
    for more in detail.further(audit):
        _heading(console, more.name)
        for said in more.notes:
            _note(console, said)
        console.print(_grid(more.table))
    features, harms = detail.by_feature(audit, detail.best_of_each(audit)), detail.harms(audit)
    if features:
        _heading(console, "Inputs by feature")
        _note(console, f"{detail.FEATURE_NOTE} Here the best attack of each adversary; the pages show all.")
        console.print(_grid(features))
    if harms:
        _heading(console, "What acting did to the tasks")
        _note(console, detail.HARM_NOTE)
        console.print(_grid(harms))


def _grid(table: detail.Table) -> Table:
    """A head and rows; what broke is red."""
    made = _table(*table[0])
    for row in table[1:]:
        made.add_row(*_cells(*row))
    return made


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


def _table(*columns: str, padding: tuple[int, int, int, int] = (0, 1, 0, 1)) -> Table:
    """Cells fold where the terminal is narrow; nothing is ever cut."""
    table = Table(box=None, pad_edge=False, padding=padding, header_style="dim")
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

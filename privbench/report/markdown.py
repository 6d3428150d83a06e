"""audit.md: the record as text, for a pull request or an appendix."""

from __future__ import annotations

from privbench.record import Audit
from privbench.report import answers, detail, families, notes, setting, utility, words
from privbench.report.words import number


def markdown(audit: Audit) -> str:
    """The whole report; every number is the record's."""
    lines = [f"# Privacy audit: {audit.findings[0].target if audit.findings else 'nothing'}", ""]
    lines += [f"**{words.headline(audit)}**", "", f"{setting.setting(audit)}.", ""]
    for note in (notes.locality_note(audit), notes.claim_note(audit)):
        if note:
            lines += [note, ""]
    lines += _respondents(audit)
    lines += ["## Threat model", ""]
    lines += [f"- {threat['label']}: {threat['description']}." for threat in audit.threats]
    for said in notes.secret_notes(audit):
        lines += ["", said]
    lines += _compared(audit)
    if audit.utility:
        lines += ["", "## Utility", ""]
        lines += [
            f"| task | metric | value | 95% interval | {' | '.join(utility.beside(audit))} | gain | n |",
            f"|---|---|---|---|{'---|' * len(utility.beside(audit))}---|---|",
        ]
        lines += [
            f"| {item['task']} | {item['metric']} | {number(item['value'])} "
            f"| {words.interval(item['low'], item['high'])} | {' | '.join(utility.compared(item, audit))} "
            f"| {utility.gain(item)} | {item['n']:,} |"
            for item in audit.utility
        ]
        lines += ["", utility.note(audit)]
    lines += ["", "## Every epsilon by name", ""]
    if audit.epsilons:
        lines += [
            "| name | eps | delta | neighbours | sampling | accountant | speaks for | assumes |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {item['name']} | {words.epsilon_value(item)} | {item['delta']:g} | {item['neighbours']} "
            f"| {item['sampling']} | {item['accountant']} | {item['speaks_for']} | {item['assumes']} |"
            for item in audit.epsilons
        ]
    else:
        lines.append(notes.no_epsilon(audit))
    lines += ["", "## Findings that count", ""]
    lines += [f"- {words.MARKS[item.verdict]} {words.sentence(item, audit)}" for item in words.confirmatory(audit)] or [
        "None: no bound speaks about what was measured."
    ]
    note = notes.planning_note(audit)
    if note:
        lines += ["", note]
    note = notes.one_release_note(audit)
    if note:
        lines += ["", note]
    lines += [
        "",
        *(line for note in notes.interval_notes(audit) for line in (note, "")),
        "## Findings for information",
        "",
    ]
    told = [*(words.sentence(item, audit) for item in words.descriptive(audit)), *words.not_run(audit)]
    lines += [f"- {item}" for item in told] or ["None."]
    note = notes.rho_note(audit)
    if note:
        lines += ["", note]
    lines += _details(audit)
    lines += ["", "## The bounds", ""]
    lines += [f"- {name}: {words.BOUNDS[name]}." for name in words.bounds_shown(audit)] or ["- none speaks here"]
    lines += ["", "## Assumptions of these bounds", ""]
    lines += [f"- {item}" for item in words.assumptions(audit.findings)] or ["- none"]
    lines += ["", "## Flags", ""]
    lines += [
        f"- **{words.flag_name(flag, audit)}**: {flag['means']}. What to do: {flag['what_to_do']}."
        for flag in audit.flags
    ] or ["- none"]
    if audit.notes:
        lines += ["", "## About the data and the run", "", *(f"- {said}" for said in audit.notes)]
    settings = ", ".join(f"{name} {value}" for name, value in setting.configuration(audit))
    lines += ["", "## Configuration", "", f"{settings}."]
    lines += ["", "## What the verdicts mean", ""]
    used = dict.fromkeys(finding.verdict for finding in audit.findings)
    lines += [f"- {words.MARKS[verdict]} {verdict}: {words.MEANINGS[verdict]}." for verdict in used]
    lines += ["", f"Record {audit.cell[:16]}, privbench {audit.manifest['privbench']}.", ""]
    return "\n".join(lines)


def _respondents(audit: Audit) -> list[str]:
    """Invented respondents' answers, and what was read of them."""
    shown = answers.respondents(audit)
    if shown is None:
        return []
    head = ("question", *(f"person {number + 1}" for number in range(shown.people)))
    body = [
        (question, *("" if cell is None else f"{cell.mark} {cell.text}" for cell in cells))
        for question, cells in shown.rows
    ]
    return [f"## {answers.TITLE}", "", shown.caption, "", *_table((head, *body)), ""]


def _compared(audit: Audit) -> list[str]:
    """The attacks side by side, a table for each family."""
    lines = ["", "## What was read, by whom"]
    for group in families.groups(audit):
        lines += ["", f"### {group.family.name}", ""]
        lines += [f"- **! {said}**" for said in group.failed] + ([""] if group.failed else [])
        lines += [f"UNCOVERED: {reason}." for reason in group.silent] + ([""] if group.silent else [])
        lines += [f"Value: {group.explained}", ""]
        lines += _table((families.HEAD, *(row.cells for row in group.rows)))
    return lines


def _details(audit: Audit) -> list[str]:
    """Further metrics, inputs by feature, and what acting attacks did to the tasks."""
    lines = []
    for more in (*detail.further(audit), *detail.by_question(audit)):
        lines += ["", f"## {more.name}", "", *(line for said in more.notes for line in (said, ""))]
        lines += _table(more.table)
    for name, note, table in (
        ("Inputs by feature", detail.FEATURE_NOTE, detail.by_feature(audit)),
        ("What acting did to the tasks", detail.HARM_NOTE, detail.harms(audit)),
    ):
        lines += ["", f"## {name}", "", note, "", *_table(table)] if table else []
    return lines


def _table(table: detail.Table) -> list[str]:
    """What broke or was exceeded stands out."""
    head, *body = table
    rows = (" | ".join(f"**{cell}**" if detail.loud(cell) else cell for cell in row) for row in body)
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {row} |" for row in rows)]

"""The report of `privbench data check`: what a survey is read as, without a line of any respondent."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from privbench.cli.console import note, plain_console
from privbench.data.surveys import toml
from privbench.data.surveys.cells import few
from privbench.data.surveys.check import Check, OutcomeCheck, check
from privbench.data.surveys.read import parse_spec
from privbench.data.surveys.schema import MISSING, Question, Schema
from privbench.data.surveys.survey import Survey
from privbench.errors import InputError

_INDENT = (0, 0, 1, 2)
_MOST_LISTED = 8


def run_check(spec: str, outcome: str | None, save: Path | None) -> None:
    """Print what a survey is read as; `InputError` for what cannot be read."""
    if save is not None and save.exists():
        raise InputError(f"--save-schema {save}: there is such a file; name one that does not exist.")
    result = check(spec if outcome is None else f"{spec},outcome={outcome}")
    if save is not None:
        _save(result.survey.schema, save)
    show(result, plain_console())
    if save is not None:
        note(f"schema written to {save}; read it with survey:{parse_spec(spec).path},schema={save}")


def _save(schema: Schema, file: Path) -> None:
    try:
        file.write_text(toml.dump(schema), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--save-schema {file}: cannot write it ({error.strerror}); name a file elsewhere.") from error


def show(result: Check, console: Console) -> None:
    """The whole report of one survey."""
    survey = result.survey
    account = survey.account
    console.print(Text(survey.schema.title, style="bold"))
    facts = [
        ("rows", f"{account.rows:,}"),
        ("columns", _columns(survey)),
        ("schema", survey.schema.name),
        ("missing", f"{result.missing:.1%} of all answers"),
        ("duplicates", _duplicates(result)),
        ("groups", _groups(result)),
    ]
    if result.alike:
        facts.append(("alike", result.alike))
    table = _table()
    for name, value in facts:
        table.add_row(Text(name, style="dim"), Text(value))
    console.print(Padding(table, _INDENT, expand=False))
    _show_outcomes(result, console)
    _show_questions(survey.schema, console)
    _show_pairs("Dropped", account.dropped, console)
    if account.notes:
        _head("Notes", console)
        for line in account.notes:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
        console.print()
    _show_samples(result, console)


def _columns(survey: Survey) -> str:
    account = survey.account
    return f"{account.columns:,}: {len(survey.schema.questions):,} questions, {len(account.dropped):,} dropped"


def _duplicates(result: Check) -> str:
    return f"{few(result.repeated)} rows have the answers of an earlier one" if result.repeated else "none"


def _groups(result: Check) -> str:
    columns = result.survey.schema.groups
    if not columns and result.groups == len(result.survey):
        return "none named: every row is a person of its own"
    if not columns:
        return f"none named: {result.groups:,} people, since copies that chance does not explain count once"
    return f"{result.groups:,} by {', '.join(columns)}, the largest of {result.largest:,} rows"


def _show_outcomes(result: Check, console: Console) -> None:
    _head("Outcomes", console)
    if not result.outcomes:
        some = ", ".join(result.survey.schema.candidates) or "no column has 2 to 12 answers"
        line = f"None named. Candidates: {some}. Name one by --outcome or ,outcome=NAME."
        console.print(Padding(Text(line), _INDENT, expand=False))
    for item in result.outcomes:
        table = _table("answer", "rows")
        table.columns[-1].justify = "right"
        for answer, count in item.counts:
            if answer is not None or count != "0":
                table.add_row(Text(answer or MISSING), count)
        scale = "ordered" if item.outcome.ordinal else "unordered"
        console.print(
            Padding(Text(f"{item.outcome.name} ({scale}): {item.outcome.question.column}"), (0, 0, 0, 2), expand=False)
        )
        console.print(Padding(table, (0, 0, 0, 4), expand=False))
        _show_leaks(result.survey.schema, item, console)
        console.print()


def _show_leaks(schema: Schema, item: OutcomeCheck, console: Console) -> None:
    if item.outcome.derived:
        line = f"derived from it, never its input: {', '.join(item.outcome.derived)}"
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False))
    if item.note:
        console.print(Padding(Text(item.note, style="dim"), (0, 0, 0, 4), expand=False))
    if not item.leaks:
        return
    asks = {question.column: question.ask for question in schema.questions}
    table = _table("leaks it, dropped by default", "why")
    for leak in item.leaks:
        answer = f": {leak.answer}" if leak.answer is not None else ""
        table.add_row(Text(asks[leak.column] + answer, style="yellow"), Text(leak.reason))
    console.print(Padding(table, (1, 0, 0, 4), expand=False))


def _show_questions(schema: Schema, console: Console) -> None:
    _head("Questions", console)
    table = _table("asked as", "kind", "answers", "column")
    for question in schema.questions:
        table.add_row(Text(question.ask), question.kind, Text(_answers(question)), Text(question.column, style="dim"))
    console.print(Padding(table, _INDENT, expand=False))


def _answers(question: Question) -> str:
    if question.kind == "number":
        low, high = question.low, question.high
        return "any" if low is None or high is None else f"{low:g} to {high:g}"
    mark = " < " if question.kind == "ordinal" else " / "
    more = len(question.answers) - _MOST_LISTED
    return mark.join(question.answers[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _show_pairs(title: str, pairs: tuple[tuple[str, str], ...], console: Console) -> None:
    if not pairs:
        return
    _head(title, console)
    table = _table("column", "why")
    for left, right in pairs:
        table.add_row(Text(left), Text(right))
    console.print(Padding(table, _INDENT, expand=False))


def _show_samples(result: Check, console: Console) -> None:
    """The text of two samples; what they have in common once, the rest side by side."""
    _head("Two samples of invented persons", console)
    line = "Each answer is drawn by itself from its column; any likeness to a respondent is chance. Both begin with:"
    console.print(Padding(Text(line, style="dim"), _INDENT, expand=False))
    first = result.samples[0]
    console.print(Padding(Text(first.header), (0, 0, 0, 4), expand=False))
    table = _table()
    texts = [sample.prompt.removeprefix(sample.header) + f" {sample.answer}" for sample in result.samples]
    for lines in zip(*(text.splitlines() for text in texts), strict=True):
        table.add_row(*(Text(line) for line in lines))
    console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _head(title: str, console: Console) -> None:
    console.print(Text(title, style="bold"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=bool(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table

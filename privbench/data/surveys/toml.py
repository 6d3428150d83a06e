"""A schema as TOML, one line per question.

    name = "example"
    title = "Example"

    [scales]
    frequency = { ordinal = ["never", "sometimes", "often"], codes = { "1" = "never", "2" = "sometimes" } }

    [questions]
    "Age" = { ask = "age", low = 16, high = 100 }
    "Gender" = { ask = "gender", choice = ["female", "male", "other"], codes = { "f" = "female", "*" = "other" } }
    "Q1" = { ask = "felt sad", scale = "frequency" }

    [outcomes]
    "sadness" = { column = "Q1", derived = ["Gender"] }
    "level" = { ask = "level", ordinal = ["low", "high"], items = ["Q1"], cuts = [2] }

    [dropped]
    "Timestamp" = "identifies a person"

The key `ordinal` or `choice` holds the answers, in words; a question with neither is a number. An outcome names a
column of [questions], or is a question of its own, computed from `items` (see `schema.Outcome`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from privbench.data.surveys.schema import MISSING, MOST_CLASSES, Kind, Outcome, Question, Schema
from privbench.data.surveys.table import key
from privbench.errors import InputError, unknown

_TOP = ("name", "title", "rows", "groups", "missing", "scales", "questions", "outcomes", "dropped")
_SCALE = ("ordinal", "choice", "codes")
_QUESTION = ("ask", "scale", *_SCALE, "low", "high", "decimals")
_OUTCOME = ("column", "derived", "items", "cuts", *_QUESTION)
_MOST_DECIMALS = 6


def load(file: Path) -> Schema:
    """Read a schema's file; `InputError` names file, place and what is allowed there."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the schema {file} ({error}); give a TOML file.") from error
    return parse(text, str(file))


def parse(text: str, where: str) -> Schema:
    """A schema from its TOML; `where` is what errors call it."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is no TOML: {error}.") from error
    top = _Part(content, where, _TOP)
    scales = {name: _Part(part, f'{where}, scale "{name}"', _SCALE) for name, part in top.tables("scales").items()}
    questions = {
        column: _question(column, _Part(part, f'{where}, question "{column}"', _QUESTION), scales)
        for column, part in top.tables("questions").items()
    }
    outcomes = tuple(
        _outcome(name, _Part(part, f'{where}, outcome "{name}"', _OUTCOME), questions, scales)
        for name, part in top.tables("outcomes").items()
    )
    defaults = {"missing": top.texts("missing")} if "missing" in content else {}
    schema = Schema(
        name=top.text("name"),
        title=top.text("title"),
        questions=tuple(questions.values()),
        outcomes=outcomes,
        dropped=top.words("dropped"),
        groups=top.texts("groups"),
        rows=top.whole("rows"),
        **defaults,
    )
    _check_names(schema, where)
    return schema


def dump(schema: Schema) -> str:
    """The TOML that `parse` reads back to an equal schema."""
    lines = [f"name = {_toml(schema.name)}", f"title = {_toml(schema.title)}"]
    lines += [] if schema.rows is None else [f"rows = {schema.rows}"]
    lines += [f"missing = {_toml(schema.missing)}"]
    lines += [f"groups = {_toml(schema.groups)}"] if schema.groups else []
    lines += ["", "[questions]", *(f"{_toml(q.column)} = {_toml(_fields(q))}" for q in schema.questions)]
    lines += ["", "[outcomes]", *(f"{_toml(o.name)} = {_toml(_outcome_fields(schema, o))}" for o in schema.outcomes)]
    lines += ["", "[dropped]", *(f"{_toml(column)} = {_toml(why)}" for column, why in schema.dropped.items())]
    return "\n".join(lines) + "\n"


def _fields(question: Question) -> dict[str, Any]:
    fields: dict[str, Any] = {"ask": question.ask}
    if question.kind != "number":
        fields[question.kind] = question.answers
    if question.codes:
        fields["codes"] = question.codes
    limits = {"low": question.low, "high": question.high, "decimals": question.decimals or None}
    return fields | {name: value for name, value in limits.items() if value is not None}


def _outcome_fields(schema: Schema, outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = {"column": outcome.question.column}
    if outcome.question not in schema.questions:
        fields |= _fields(outcome.question)
    lists = {"derived": outcome.derived, "items": outcome.items, "cuts": outcome.cuts}
    return fields | {name: value for name, value in lists.items() if value}


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_bare(name)} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(int(value)) if float(value).is_integer() else repr(float(value))


def _bare(name: str) -> str:
    return name if name in _OUTCOME else _toml(name)


class _Part:
    """One table of the file: typed values, and errors that say where."""

    def __init__(self, content: object, where: str, keys: Iterable[str]) -> None:
        if not isinstance(content, dict):
            raise InputError(f"{where} must be a table, got {content!r}.")
        for name in content:
            if name not in keys:
                raise InputError(f"{where}: {unknown('key', name, keys)}")
        self.content: dict[str, Any] = content
        self.where = where

    def fault(self, name: str, wanted: str) -> InputError:
        given = f"got {self.content[name]!r}" if name in self.content else "it is missing"
        return InputError(f"{self.where}: {name} must be {wanted}; {given}.")

    def text(self, name: str) -> str:
        value = self.content.get(name)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            raise self.fault(name, "one line of text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.content.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fault(name, "a list of texts")
        return tuple(value)

    def words(self, name: str) -> dict[str, str]:
        value = self.content.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise self.fault(name, "a table of texts")
        return value

    def tables(self, name: str) -> dict[str, Any]:
        value = self.content.get(name, {})
        if not isinstance(value, dict):
            raise self.fault(name, "a table")
        return value

    def number(self, name: str) -> float | None:
        value = self.content.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self.fault(name, "a finite number")
        return float(value)

    def whole(self, name: str) -> int | None:
        value = self.content.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise self.fault(name, "a whole number of at least 0")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self.content.get(name, [])
        if not isinstance(value, list) or not all(type(item) in (int, float) and isfinite(item) for item in value):
            raise self.fault(name, "a list of finite numbers")
        return tuple(float(item) for item in value)


def _question(column: str, part: _Part, scales: Mapping[str, _Part]) -> Question:
    scale = part
    if "scale" in part.content:
        name = part.text("scale")
        if name not in scales:
            raise InputError(f"{part.where}: {unknown('scale', name, scales)}")
        scale = scales[name]
    if "ordinal" in scale.content and "choice" in scale.content:
        raise InputError(f"{scale.where}: give ordinal or choice, not both.")
    kind: Kind = "ordinal" if "ordinal" in scale.content else "choice" if "choice" in scale.content else "number"
    question = Question(
        column=column,
        ask=part.text("ask"),
        kind=kind,
        answers=() if kind == "number" else scale.texts(kind),
        codes=scale.words("codes") | part.words("codes"),
        low=part.number("low"),
        high=part.number("high"),
        decimals=part.whole("decimals") or 0,
    )
    _check_answers(question, part)
    return question


def _check_answers(question: Question, part: _Part) -> None:
    answers = question.answers
    if question.kind == "number":
        if question.low is not None and question.high is not None and question.low > question.high:
            raise part.fault("low", f"at most high ({question.high:g})")
        if question.decimals > _MOST_DECIMALS:
            raise part.fault("decimals", f"at most {_MOST_DECIMALS}")
        return
    if len({key(answer) for answer in answers}) < max(2, len(answers)):
        raise InputError(f"{part.where}: {question.kind} must list at least two answers, all different.")
    for answer in answers:
        if not answer.strip() or "\n" in answer or key(answer) == MISSING:
            raise InputError(f"{part.where}: {answer!r} cannot be an answer; use one line, other than '{MISSING}'.")
    seen: dict[str, str] = {}
    for code, answer in question.codes.items():
        if seen.setdefault(key(code), answer) != answer:
            raise InputError(f"{part.where}: {code!r} is coded twice, since case and blanks do not matter; keep one.")
        if answer and answer not in answers:
            raise InputError(f"{part.where}: code {code!r} stands for {answer!r}, which is none of its answers.")


def _outcome(name: str, part: _Part, questions: Mapping[str, Question], scales: Mapping[str, _Part]) -> Outcome:
    items, cuts = part.texts("items"), part.numbers("cuts")
    if "ask" in part.content:
        column = part.text("column") if "column" in part.content else part.text("ask")
        own = {name: value for name, value in part.content.items() if name in _QUESTION}
        question = _question(column, _Part(own, part.where, _QUESTION), scales)
    else:
        column = part.text("column")
        if column not in questions:
            raise InputError(f"{part.where}: {unknown('question', column, questions)}")
        question = questions[column]
    if question.kind == "number":
        raise InputError(f"{part.where}: {question.column} is a number; an outcome needs ordinal or choice answers.")
    if len(question.answers) > MOST_CLASSES:
        raise InputError(
            f"{part.where}: {question.column} has {len(question.answers)} answers; an outcome has 2 to {MOST_CLASSES}: "
            f"group them by codes."
        )
    if cuts and not items:
        raise part.fault("cuts", "left out where there are no items to add")
    if items and column in questions:
        raise part.fault("column", "a name of its own, since it is computed from items")
    for item in items:
        if item not in questions or questions[item].kind != "ordinal":
            raise InputError(f"{part.where}: item '{item}' must be a column of [questions] with ordinal answers.")
    if items and (len(cuts) != len(question.answers) - 1 or list(cuts) != sorted(set(cuts))):
        raise part.fault("cuts", f"{len(question.answers) - 1} rising numbers, one for each answer but the first")
    return Outcome(name, question, tuple(dict.fromkeys((*part.texts("derived"), *items))), items, cuts)


def _check_names(schema: Schema, where: str) -> None:
    if not schema.questions:
        raise InputError(f"{where} has no [questions]; add one line per column that is used.")
    asks: set[str] = set()
    for question in (*schema.questions, *(o.question for o in schema.outcomes if o.question not in schema.questions)):
        if question.ask in asks:
            raise InputError(f"{where}: '{question.ask}' is asked twice; give each question an ask of its own.")
        asks.add(question.ask)
    columns = [question.column for question in schema.questions]
    for outcome in schema.outcomes:
        for column in outcome.derived:
            if column not in columns and column not in schema.dropped:
                raise InputError(f"{where}, outcome '{outcome.name}': {unknown('derived column', column, columns)}")
    both = [column for column in schema.dropped if column in columns]
    if both:
        raise InputError(f"{where}: column '{both[0]}' is a question and dropped; keep one of the two.")

"""Surveys by name and file: `osmi:FILE`, `dass:FILE`, `student-depression:FILE`, `mental-health:FILE`, `survey:FILE`.

After the file may follow `,outcome=NAME`, and for `survey` also `,schema=S.toml`; without one a schema is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from privbench.data.catalogue import SURVEYS, split_options
from privbench.data.surveys import toml
from privbench.data.surveys.cells import few
from privbench.data.surveys.coding import Objects, coded, computed
from privbench.data.surveys.groups import named, people
from privbench.data.surveys.infer import infer
from privbench.data.surveys.schema import Schema
from privbench.data.surveys.survey import Account, Survey
from privbench.data.surveys.table import Table, key, normal, read_table
from privbench.errors import InputError, unknown

SCHEMAS: Mapping[str, tuple[str, ...]] = {
    "osmi": ("osmi-2014", "osmi-2016", "osmi-2019"),
    "dass": ("dass-items", "dass-tipi"),
    "student-depression": ("student-depression",),
    "mental-health": ("mental-health",),
}
"""Under each name the schemas that a file may have; its headers decide."""

_TYPED = re.compile(r",([a-z_]+)=", re.IGNORECASE)
_MOST_NAMED = 3


@dataclass(frozen=True)
class Spec:
    """A survey as it is named on a command line; schema: a TOML file, outcome: which comes first."""

    name: str
    path: str
    schema: str | None = None
    outcome: str | None = None


def parse_spec(spec: str) -> Spec:
    """Take `NAME:FILE[,schema=S.toml][,outcome=NAME]` apart; `InputError` for other forms."""
    name, _, rest = spec.partition(":")
    if name not in SURVEYS:
        raise unknown("survey", name, SURVEYS)
    path, options = split_options(rest)
    if not path:
        raise InputError(f"survey {name} needs its file: {name}:FILE.csv; got '{spec}'.")
    given: dict[str, str] = {}
    for option in options:
        option_name, _, value = option.partition("=")
        if option_name in given or not value:
            fault = "twice" if option_name in given else "without a value"
            raise InputError(f"'{spec}' gives {option_name} {fault}; write {option_name}=VALUE once.")
        given[option_name] = value
    if "schema" in given and name != "survey":
        raise InputError(
            f"survey {name} has its own schema; with schema= write survey:{path},schema={given['schema']}."
        )
    for file in (path, given.get("schema", "")):
        typed = _TYPED.search(file)
        if typed and not Path(file).exists():  # with a file of that name it is no option
            raise unknown("option of a survey", typed[1], ("outcome", "schema"))
    outcome = given.get("outcome")
    return Spec(name, path, given.get("schema"), None if outcome is None else normal(outcome))


def schema_named(name: str) -> Schema:
    """One of the schemas that are part of the package."""
    text = files("privbench.data.surveys").joinpath("schemas", f"{name}.toml").read_text(encoding="utf-8")
    return toml.parse(text, f"schema {name}")


def read_survey(spec: str) -> Survey:
    """Read a survey in words. `InputError` for a file that is damaged, fits no schema, or has no such outcome."""
    asked = parse_spec(spec)
    table = read_table(asked.path)
    if asked.name == "survey" and asked.schema is None:
        schema = infer(table, asked.outcome)
    else:
        names = SCHEMAS.get(asked.name, ())
        choice = [schema_named(name) for name in names] or [toml.load(Path(str(asked.schema)))]
        table = _aligned(table, choice)
        schema = _fitting(table, choice)
        if asked.outcome is not None:
            schema = schema.led_by(asked.outcome)
    return _with_outcomes(_coded(table, schema), asked.outcome is not None)


def _aligned(table: Table, choice: Sequence[Schema]) -> Table:
    """Headers that differ from a schema's in case only become the schema's."""
    wanted = {key(column): column for schema in choice for column in _columns(schema)}
    present = set(table.frame.columns)
    renamed = {
        column: wanted[key(column)] for column in table.frame.columns if wanted.get(key(column), column) not in present
    }
    return replace(table, frame=table.frame.rename(columns=renamed))


def _columns(schema: Schema) -> list[str]:
    """What a file must have to fit."""
    own = [outcome.question.column for outcome in schema.outcomes if not outcome.items]
    return list(dict.fromkeys([*(question.column for question in schema.questions), *own, *schema.groups]))


def _fitting(table: Table, choice: Sequence[Schema]) -> Schema:
    """The schema whose columns the file has, of several the one that uses most; names what the closest one lacks."""
    lacking = [[column for column in _columns(schema) if column not in table.frame.columns] for schema in choice]
    fits = [schema for schema, lacks in zip(choice, lacking, strict=True) if not lacks]
    if fits:
        return max(fits, key=lambda schema: len(schema.questions))
    closest, lacks = min(zip(choice, lacking, strict=True), key=lambda pair: len(pair[1]) / len(_columns(pair[0])))
    named = ", ".join(f"'{column[:60]}'" for column in lacks[:_MOST_NAMED])
    more = f" and {len(lacks) - _MOST_NAMED} more" if len(lacks) > _MOST_NAMED else ""
    names = ", ".join(schema.name for schema in choice)
    raise InputError(
        f"{table.path} fits no schema of {names}: for {closest.name} it lacks the columns "
        f"{named}{more}; give another file, or survey:FILE to infer a schema."
    )


def _coded(table: Table, schema: Schema) -> Survey:
    notes = list(table.notes)
    persons = people(table.frame, named(table.frame, schema.groups, schema.missing))
    if schema.rows not in (None, len(table)):
        notes.append(f"The public file of {schema.name} has {schema.rows:,} rows, this one {len(table):,}.")
    repeated = int(table.frame.duplicated().sum())
    if repeated:
        notes.append(f"{few(repeated)} rows repeat an earlier one in every column.")
    answers: dict[str, Objects] = {}
    own = [outcome.question for outcome in schema.outcomes if not outcome.items]
    questions = {question.column: question for question in (*schema.questions, *own)}
    for question in questions.values():
        column = coded(table.frame[question.column], question, schema.missing, persons)
        answers[question.column] = column.answers
        notes += column.notes
    for outcome in schema.outcomes:
        if outcome.items:
            answers[outcome.question.column] = computed(answers, outcome, questions)
    dropped = {column: why for column, why in schema.dropped.items() if column in table.frame.columns}
    dropped |= {c: "not in the schema" for c in table.frame.columns if c not in questions and c not in dropped}
    return Survey(
        schema=schema,
        answers=pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in answers.items()}),
        groups=persons,
        index=np.arange(len(table)),
        account=Account(len(table), table.frame.shape[1], tuple(dropped.items()), tuple(notes)),
    )


def _with_outcomes(survey: Survey, asked: bool) -> Survey:
    """Without the outcomes that have one answer in this file; `InputError` where the one asked for, or all, have."""
    keep, notes = [], []
    for outcome in survey.schema.outcomes:
        found = survey.answers[outcome.question.column].dropna().nunique()
        if found > 1:
            keep.append(outcome)
            continue
        what = f"outcome {outcome.name} (column '{outcome.question.column}') has " + (
            "one value" if found else "no value"
        )
        if asked and outcome is survey.schema.outcomes[0]:
            raise InputError(f"{what} in all {len(survey):,} rows; nothing can be learned: name another outcome.")
        notes.append(f"Dropped: {what}.")
    if survey.schema.outcomes and not keep:
        raise InputError(f"survey {survey.schema.name}: {notes[0].removeprefix('Dropped: ')} Give a file with both.")
    account = replace(survey.account, notes=(*survey.account.notes, *notes))
    return replace(survey, schema=replace(survey.schema, outcomes=tuple(keep)), account=account)

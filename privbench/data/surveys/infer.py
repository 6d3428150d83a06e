"""A schema for a file that nobody here has seen: what each column is, and why others are left out.

What is kept are numbers, ordered scales and a few distinct answers; identifiers, dates, free text, constant and empty
columns are dropped with their reason. An answer that fewer than 10 people gave is not named: it counts as "other",
whatever the size of the survey; named are only steps of scales that are nobody's words (never < sometimes < often, 1 to
5, 6-25). People are counted, not rows: by the group columns that are found first, and copies once (`groups.people`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.cells import FEWEST
from privbench.data.surveys.column import FILLING, OPTIONS, WORDY, Column, spaced, unbracketed
from privbench.data.surveys.groups import named, people
from privbench.data.surveys.identifiers import comes_back, identifies
from privbench.data.surveys.scales import agreed, ordered
from privbench.data.surveys.schema import MISSING, MOST_CLASSES, Question, Schema
from privbench.data.surveys.table import Table, key, number
from privbench.errors import InputError

Codes = npt.NDArray[np.int64]

MISSING_WORDS = ("", "na", "n/a", "#n/a", "nan", "null", "?", "-", "--", ".", MISSING)
"""Spellings of a missing answer in a file without a schema; "none" and "prefer not to say" are answers."""

_NUMERIC = 0.95  # share of a number's rows that must be numbers; the others are noise
_COMMON = 0.01  # share of the people, below which a step that is on no scale does not spoil one
_MOST_NAMED = 30  # answers of a question with many, such as a country
_SENTENCE = 60  # characters, on average: longer answers are free text
_ENOUGH = 50  # rows from which a run of different whole numbers is a numbering
_LONG_NUMBER = 6  # digits
_MOST_DECIMALS = 2
_OTHER = "other"
_MOST_WORDS = 6  # of what is asked
_SHORT = 3  # words: a longer header loses the words that only fill
_OLDEST = 120

_CODE = re.compile(r"[a-z]{2}")
_WORD = re.compile(r"[^\W\d_]+")
_BOUNDS = {"less", "fewer", "more", "than", "under", "below", "over", "above", "up", "to", "at", "least", "most"}


def infer(table: Table, outcome: str | None = None) -> Schema:
    """What the columns of a file are, with the reason for each that is dropped.

    outcome: a column, or what it asks; the first outcome then, otherwise there is none. `InputError` where it cannot
    be one, or where no column can be used.
    """
    columns = {name: _column(name, table.frame[name]) for name in table.frame.columns}
    groups = [name for name, column in columns.items() if comes_back(column)]
    persons = people(table.frame, named(table.frame, groups, MISSING_WORDS))
    columns = {name: _counted(column, table.frame[name], persons) for name, column in columns.items()}
    questions: list[Question] = []
    dropped: dict[str, str] = {}
    asks: set[str] = set()
    for name, column in columns.items():
        found = (
            _useless(column)
            or _number(column, outcome is not None and name.casefold() == outcome.casefold())
            or _words(column)
        )
        if isinstance(found, Question):
            questions.append(_named(found, asks))
            continue
        dropped[name] = found.why
    if not questions:
        why = "; ".join(f"'{name[:40]}': {reason}" for name, reason in list(dropped.items())[:3])
        raise InputError(f"{table.path} has no column that can be used ({why}); give a schema: ,schema=S.toml.")
    stem = Path(table.path).name.split(".")[0]
    schema = Schema(
        name=re.sub(r"[\W_]+", "-", stem.lower()).strip("-") or "survey",
        title=spaced(stem).title() or "Survey",
        questions=tuple(questions),
        outcomes=(),
        dropped=dropped,
        groups=tuple(groups),
        missing=MISSING_WORDS,
    )
    if outcome is None:
        return schema
    led = schema.led_by(outcome)
    return _without_few(led, columns[led.outcomes[0].question.column])


def _without_few(schema: Schema, column: Column) -> Schema:
    """No class of few: where fewer than 10 people gave the other answers to the outcome, they count as missing."""
    asked = schema.outcomes[0].question
    rest = [answer for answer in column.people if answer not in asked.answers or answer == _OTHER]
    if asked.codes.get("*") != _OTHER or sum(column.people[answer] for answer in rest) >= FEWEST:
        return schema
    codes = {code: answer for code, answer in asked.codes.items() if code != "*"}
    kept = replace(asked, answers=tuple(answer for answer in asked.answers if answer != _OTHER), codes=codes)
    questions = tuple(kept if question == asked else question for question in schema.questions)
    return replace(schema, questions=questions, outcomes=(replace(schema.outcomes[0], question=kept),))


@dataclass(frozen=True)
class _Drop:
    """Why a column is not used."""

    why: str


def _column(name: str, cells: pd.Series) -> Column:
    rows = np.bincount(cells.cat.codes.to_numpy(), minlength=len(cells.cat.categories))
    everything: Counter[str] = Counter()
    for text, count in zip(cells.cat.categories, rows.tolist(), strict=True):
        everything[key(str(text))] += count
    answers = Counter({text: count for text, count in everything.items() if text not in MISSING_WORDS})
    column = Column(name, answers, {})
    if everything["na"] and "country" in spaced(name).split() and column.mostly(_CODE):
        # Among two-letter country codes NA is Namibia.
        answers["na"] = everything["na"]
        return Column(name, answers, {"na": "na"})
    return column


def _counted(column: Column, cells: pd.Series, persons: Codes) -> Column:
    """With the people who gave each answer."""
    keys = [key(str(text)) for text in cells.cat.categories]
    place = {answer: place for place, answer in enumerate(column.counts)}
    answer = np.array([place.get(text, -1) for text in keys], dtype=np.int64)[cells.cat.codes.to_numpy()]
    given = answer >= 0
    pairs = np.unique(np.stack([answer[given], persons[given]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(place)).tolist()
    return replace(column, people=Counter(dict(zip(place, counts, strict=True))))


def _useless(column: Column) -> _Drop | None:
    if comes_back(column):
        return _Drop("equal values are taken as one person: they come back often")
    if not column.given:
        return _Drop("empty in every row")
    if len(column.counts) == 1:
        return _Drop("the same answer in every row that has one")
    why = identifies(column)
    return None if why is None else _Drop(why)


def _number(column: Column, as_outcome: bool) -> Question | _Drop | None:
    values = {text: value for text in column.counts if (value := number(text)) is not None}
    if sum(column.counts[text] for text in values) < _NUMERIC * column.given or len(values) < 2:
        return None
    whole = all(value.is_integer() for value in values.values())
    if whole and column.distinct and _numbering(list(values.values())):
        return _Drop("different in every row: identifies a person")
    steps = ordered(list(values))
    if steps is None and as_outcome and len(values) <= MOST_CLASSES:
        if min(column.people[text] for text in values) < FEWEST:
            raise InputError(
                f"'{column.name}' cannot be an outcome: fewer than {FEWEST} people gave one of its numbers; group them "
                f"into ranges."
            )
        steps = tuple(sorted(values, key=values.__getitem__))
    if steps is not None:
        return Question(column.name, "", "ordinal", steps)
    decimals = max(len(text.replace(",", ".").partition(".")[2]) for text in values)
    low, high = (0, _OLDEST) if "age" in spaced(column.name).split() else (None, None)
    return Question(column.name, "", "number", low=low, high=high, decimals=min(decimals, _MOST_DECIMALS))


def _numbering(values: list[float]) -> bool:
    dense = len(values) >= _ENOUGH and max(values) - min(values) < 2 * len(values)
    return dense or min(values) >= 10 ** (_LONG_NUMBER - 1)


def _words(column: Column) -> Question | _Drop:
    answers, total = list(column.people), column.people.total()
    common = [answer for answer in answers if column.people[answer] >= max(2, _COMMON * total)]
    for some in (answers, common):
        if len(some) <= OPTIONS and _public(column, some) and (steps := ordered(some)):
            return Question(column.name, "", "ordinal", steps, column.codes)
        if some is answers and (said := agreed(some)):
            return Question(column.name, "", "choice", said, column.codes)
    long = sum(len(answer) * count for answer, count in column.people.items()) / total
    if len(answers) > OPTIONS and (len(answers) > WORDY * total or long > _SENTENCE):
        single = column.distinct and not any(" " in answer for answer in answers)
        return _Drop("different in every row: identifies a person" if single else "free text")
    return _choice(column)


def _public(column: Column, answers: list[str]) -> bool:
    """Whether the steps of a scale say nothing of one person: without digits only known words make a scale; beside
    digits may stand any word, and one of few people must use those of others.
    """
    if not any(character.isdigit() for answer in answers for character in answer):
        return True
    often = {word for answer in answers if column.people[answer] >= FEWEST for word in _WORD.findall(answer)}
    rare = {word for answer in answers if column.people[answer] < FEWEST for word in _WORD.findall(answer)}
    return rare <= often | _BOUNDS


def _choice(column: Column) -> Question | _Drop:
    """The answers that enough people gave; the others are one."""
    people, total = column.people, column.people.total()
    often = [answer for answer, count in people.most_common(_MOST_NAMED) if count >= FEWEST]
    if sum(people[answer] for answer in often) < total / 2:
        return _Drop("free text: most answers are those of few people")
    rest = len(often) < len(people)
    listed = sorted({*often, _OTHER} if rest else often)
    if len(listed) < 2 or (rest and len(often) == 1 and total - people[often[0]] < FEWEST):
        return _Drop("nearly the same answer in every row")
    return Question(column.name, "", "choice", tuple(listed), column.codes | ({"*": _OTHER} if rest else {}))


def _named(question: Question, asks: set[str]) -> Question:
    """With a short question of its own, made of the header."""
    text = spaced(unbracketed(question.column)) or spaced(question.column) or "question"
    words = text.split()
    if len(words) > _SHORT:
        words = [word for word in words if not FILLING.fullmatch(word)] or words
    ask = _free(" ".join(words[:_MOST_WORDS]), asks)
    asks.add(ask)
    return replace(question, ask=ask)


def _free(ask: str, taken: Collection[str]) -> str:
    count = 1
    while (name := ask if count == 1 else f"{ask} {count}") in taken:
        count += 1
    return name

"""What a survey asks and how its answers are coded: the part of a data set that is no person's.

A schema is written by hand for the public surveys (schemas/*.toml) or inferred from a file, printed and saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from privbench.errors import InputError, unknown

Kind = Literal["ordinal", "choice", "number"]

MISSING = "no answer"
"""How a missing answer is said in a sample; no schema may use it as an answer."""

MOST_CLASSES = 12
"""Answers of an outcome."""


@dataclass(frozen=True)
class Question:
    """One column of a survey.

    column   its header in the file, normalised (see `table.normal`)
    ask      the question as a sample says it: short, unique within the survey
    answers  what may be answered, in words; of an ordinal question from the lowest to the highest; () for a number
    codes    answer in the file -> answer in words, where more than case and blanks differ; to "" where it means that
             there is none; "*" stands for every other answer. A code wins over a spelling of a missing answer
    low, high: a number outside is a recording error and counts as missing; decimals: digits kept when it is said
    """

    column: str
    ask: str
    kind: Kind
    answers: tuple[str, ...] = ()
    codes: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    decimals: int = 0


@dataclass(frozen=True)
class Outcome:
    """What is predicted: a question whose answer is the label text.

    derived: columns that are computed from the outcome or say the same in other words; they leave the input.
    items, cuts: of an outcome that is no column of the file but computed: the ranks of these columns' answers (0 for
    the lowest) are added, and the k-th answer begins where the sum reaches the k-th cut; missing where an item is.
    Items are always among `derived`.
    """

    name: str
    question: Question
    derived: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()

    @property
    def ordinal(self) -> bool:
        """Whether the answers have an order that a metric can use: two answers have none."""
        return self.question.kind == "ordinal" and len(self.question.answers) > 2


@dataclass(frozen=True)
class Schema:
    """A survey. `dropped`: column -> why it is not used; `groups`: columns whose equal values mean one person (a survey
    that was blown up); `missing`: spellings of a missing answer, compared without case.
    """

    name: str
    title: str
    questions: tuple[Question, ...]
    outcomes: tuple[Outcome, ...]
    dropped: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    missing: tuple[str, ...] = ("", "na", "n/a", "nan", "?")
    rows: int | None = None
    """How many rows the public file has; None for a file nobody here has seen."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """Columns that may be an outcome: a few answers, in words."""
        return tuple(q.column for q in self.questions if 2 <= len(q.answers) <= MOST_CLASSES)

    def outcome(self, name: str | None) -> Outcome:
        """By name, the first when none is given; `InputError` names those that are there."""
        if not self.outcomes:
            some = ", ".join(f"'{column}'" for column in self.candidates[:5]) or "none of its columns"
            raise InputError(f"survey {self.name} names no outcome; add ,outcome=NAME: {some} can be one.")
        if name is None:
            return self.outcomes[0]
        for item in self.outcomes:
            if item.name == name:
                return item
        raise unknown("outcome", name, [item.name for item in self.outcomes])

    def led_by(self, name: str) -> Schema:
        """With this outcome first: by its name, or a question by its column or what it asks; `InputError` for none."""
        for item in self.outcomes:
            if item.name == name:
                return replace(self, outcomes=(item, *(other for other in self.outcomes if other != item)))
        if name in self.dropped:
            raise InputError(f"'{name}' cannot be an outcome of survey {self.name}: dropped ({self.dropped[name]}).")
        for question in self.questions:
            if name.casefold() in (question.column.casefold(), question.ask.casefold()):
                if question.kind == "number" or len(question.answers) > MOST_CLASSES:
                    count = len(question.answers) or "any number of"
                    raise InputError(f"'{name}' has {count} answers; an outcome has 2 to {MOST_CLASSES}: group them.")
                return replace(self, outcomes=(Outcome(question.ask, question), *self.outcomes))
        known = [*(item.name for item in self.outcomes), *(question.column for question in self.questions)]
        raise unknown("outcome", name, known)

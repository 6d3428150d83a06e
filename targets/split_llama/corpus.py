"""What the tiny base is pretrained on: drills, and samples of random surveys with questions about the answers given.

A document goes on after its features with several questions in the format of an outcome. Most ask again for an answer
that was given, which can only be copied from the line that names the question: the base learns which answer belongs to
which question, whatever both are called. One asks for a real outcome.

A drill is the same without words: lines of random tokens, then the same lines in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.data.surveys.invent import random_survey
from privbench.data.surveys.samples import samples
from privbench.data.surveys.schema import Outcome
from privbench.data.surveys.survey import Survey

_MOST_ANSWERS = 11
"""Of a question that is asked again; a list of countries would fill the context."""
_MOST_TURNS = 8

KNOWN, GUESSED, TEXT, CHANCE = 1.0, 0.25, 0.025, 0.005
"""Weights of a token as a target (our choice): an answer that stands in the text, a real outcome, other text, and what
nothing tells.
"""


@dataclass(frozen=True)
class Turn:
    """A question at the end of a document and its answer; copied: the answer stands in the text."""

    question: str
    answer: str
    copied: bool


@dataclass(frozen=True)
class Document:
    """body: header and features without their last line end; each turn begins with a line end."""

    body: str
    turns: tuple[Turn, ...]

    @property
    def pieces(self) -> tuple[tuple[str, float], ...]:
        """The text in parts that are tokenised alone as they are together, and their weights."""
        parts = [(self.body, TEXT)]
        for turn in self.turns:
            parts += [("\n" + turn.question, TEXT), (" " + turn.answer, KNOWN if turn.copied else GUESSED)]
        return tuple(parts)

    @property
    def text(self) -> str:
        return "".join(part for part, _ in self.pieces)


def documents(
    rng: np.random.Generator, records: int = 1, most_questions: int | None = None, count: int | None = None
) -> Iterator[Document]:
    """This many (None: without end), of so many respondents of each random survey. most_questions: of a survey, few
    being the more frequent; by default as `random_survey` does.
    """
    given = 0
    while count is None or given < count:
        questions = None if most_questions is None else 2 + round((most_questions - 2) * rng.random() ** 1.5)
        for document in asked_again(rng, random_survey(rng, records, questions)):
            yield document
            given += 1
            if given == count:
                return


def asked_again(rng: np.random.Generator, survey: Survey) -> Iterator[Document]:
    """One document per respondent: the first outcome, and some of the answers given, in any order."""
    outcome = survey.schema.outcomes[0]
    # A question about a feature reads as if it were an outcome.
    again = {}
    for place, question in enumerate(survey.inputs(outcome)):
        sample = next(samples(survey, Outcome(question.ask, question)), None)
        if 0 < len(question.answers) <= _MOST_ANSWERS and sample is not None:
            again[place] = sample.question
    for sample in samples(survey, outcome):
        chosen = rng.permutation(list(again))[: rng.integers(1, _MOST_TURNS + 1)].tolist()
        turns = [Turn(again[place], sample.features[place][1], copied=True) for place in chosen]
        turns.insert(int(rng.integers(len(turns) + 1)), Turn(sample.question, sample.answer, copied=False))
        body = sample.header + "".join("".join(part) for part in sample.features)
        yield Document(body.removesuffix("\n"), tuple(turns))


@dataclass(frozen=True)
class Row:
    """One training text. tokens: int64 [T]; weight: float32 [T], of each token as a target."""

    tokens: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Marks:
    """Token ids: start and end of a text, line end, colon."""

    start: int
    end: int
    line: int
    colon: int


def drills(rng: np.random.Generator, vocabulary: int, marks: Marks) -> Iterator[Row]:
    """Without end: rows of 2 to 6 lines `key: value`, said twice. Every id of the vocabulary, special ones and bytes
    among them, is dealt once before any comes again: no token stays untrained.
    """
    dealt: list[int] = []
    while True:
        lines = []
        for _ in range(rng.integers(2, 7)):
            key, value = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2]))
            if len(dealt) < key + value:
                dealt = [*dealt, *rng.permutation(vocabulary).tolist()]
            lines.append((dealt[:key], dealt[key : key + value]))
            dealt = dealt[key + value :]
        tokens, weight = [marks.start], [TEXT]
        for place, known in [(place, CHANCE) for place in range(len(lines))] + [
            (place, KNOWN) for place in rng.permutation(len(lines)).tolist()
        ]:
            name, said = lines[place]
            tokens += [marks.line, *name, marks.colon, *said]
            weight += [TEXT, *[CHANCE] * len(name), TEXT, *[known] * len(said)]
        yield Row(np.array([*tokens, marks.end]), np.array([*weight, TEXT], dtype=np.float32))

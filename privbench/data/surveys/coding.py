"""From the cells of a file to answers in words, by a question's coding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.cells import FEWEST, few
from privbench.data.surveys.schema import Outcome, Question
from privbench.data.surveys.table import key, number

_REST = "*"  # the code that stands for every other answer
_MOST_EXAMPLES = 3

Objects = npt.NDArray[np.object_]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coded:
    """One question's answers [N], None where missing, and sentences on what was not taken as it stands."""

    answers: Objects
    notes: tuple[str, ...] = ()


def coded(cells: pd.Series, question: Question, missing: Iterable[str], people: Codes | None = None) -> Coded:
    """Answers of a categorical column (see `table.Table`); each distinct text is looked at once.

    people: whose each row is [N], for what may be said of it; each row its own person where not given
    """
    texts = [str(text) for text in cells.cat.categories]
    places = cells.cat.codes.to_numpy()
    persons = np.arange(len(places)) if people is None else people
    absent = {key(text) for text in missing}
    codes = {key(code): word for code, word in question.codes.items()}
    said = _number(question) if question.kind == "number" else _listed(question)

    # "" is a missing answer, None one that the question does not know.
    words: list[str | None] = []
    rest = np.zeros(len(texts), dtype=np.bool_)
    for place, text in enumerate(texts):
        short = key(text)
        word = codes.get(short)
        if word is None:
            word = "" if short in absent else said(text)
        if word is None and _REST in codes:
            word, rest[place] = codes[_REST], True
        words.append(word)
    answers = np.array([word or None for word in words], dtype=object)[places]
    notes = []
    outside = np.array([word is None for word in words], dtype=np.bool_)[places]
    if outside.any():
        often = _often(cells[outside], persons[outside])
        notes.append(_outside(question, _few(persons, outside), often))
    if rest.any() and codes[_REST]:
        notes.append(f"{question.column}: {_few(persons, rest[places])} other answers count as '{codes[_REST]}'.")
    return Coded(answers, tuple(notes))


def _few(persons: Codes, rows: npt.NDArray[np.bool_]) -> str:
    return few(int(rows.sum()), len(np.unique(persons[rows])))


def _often(cells: pd.Series, persons: Codes) -> list[str]:
    """Texts that at least 10 people gave, the most frequent first."""
    given = pd.DataFrame({"text": cells.astype(str).to_numpy(), "person": persons}).drop_duplicates()
    counts = given["text"].value_counts()
    return sorted(counts.index[counts >= FEWEST], key=lambda text: (-counts[text], text))[:_MOST_EXAMPLES]


def _listed(question: Question) -> Callable[[str], str | None]:
    known = {key(answer): answer for answer in question.answers}
    return lambda text: known.get(key(text))


def _number(question: Question) -> Callable[[str], str | None]:
    low = float("-inf") if question.low is None else question.low
    high = float("inf") if question.high is None else question.high

    def said(text: str) -> str | None:
        value = number(text)
        if value is None or not low <= value <= high:
            return None
        return f"{round(value, question.decimals) + 0.0:.{question.decimals}f}"

    return said


def _outside(question: Question, count: str, often: Sequence[str]) -> str:
    """A sentence on the answers that were set to missing; rare ones are counted, never quoted."""
    examples = f" (such as {', '.join(repr(text[:40]) for text in often)})" if often else ""
    kind = "outside the plausible range" if question.kind == "number" else "that it does not list"
    return f"{question.column}: {count} answers {kind} count as missing{examples}."


def computed(answers: Mapping[str, Objects], outcome: Outcome, questions: Mapping[str, Question]) -> Objects:
    """The outcome of every respondent from its items' ranks (see `schema.Outcome`); None where an item is missing."""
    total = np.zeros(len(next(iter(answers.values()))))
    for item in outcome.items:
        ranks: dict[object, float] = {answer: rank for rank, answer in enumerate(questions[item].answers)}
        total += np.array([ranks.get(answer, np.nan) for answer in answers[item].tolist()])
    level = np.searchsorted(np.array(outcome.cuts), total, side="right")
    found = np.array(outcome.question.answers, dtype=object)[np.minimum(level, len(outcome.cuts))]
    found[np.isnan(total)] = None
    return found

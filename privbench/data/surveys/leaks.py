"""Columns and answers that give the outcome away: a survey that asks twice, or asks only those who have it.

Two rules, each with the chance of a false alarm held to 1% over a whole survey (all columns, answers and classes):

- *A column that predicts a class nearly alone.* The records of each class go to two folds in turn; each answer, a
  missing one included, is scored by the share of the class among the other fold's records with it; the AUC of class
  against rest is averaged over the folds. Found when it is above .8 and above what Hoeffding's inequality (1963, for
  two-sample U-statistics) allows a column that is independent of the outcome: .5 + sqrt(ln(2 m / .01) / (2 k)), k the
  smaller side's records in a fold, m the columns times classes. It holds at every size and for every distribution; a
  class of fewer than some 30 records is therefore never found. Numbers are cut at their quantiles first. Of an ordinal
  outcome the mean over its levels is taken: the ends of a scale are told apart by all that goes along with it.
- *An answer that nearly decides the outcome.* Found when the exact one-sided lower limit (Clopper and Pearson 1934) for
  the share of one class among those who gave it is above .9 and more than half way from the class's base rate to 1. Of
  a missing answer and of one that says that the question does not apply ("Not applicable to me (I do not have ...)"),
  above .7: it is no opinion but a consequence of the answer to another question. The error rate is divided by the
  answers tested times classes.

A sound question can be a good predictor: on the public surveys suicidal thoughts (student depression, AUC .77), DASS
items of the other scales (.78) and family history (.68) stay below .8; columns that restate the outcome lie at .82 and
above. The folds are the same in every call. Records of one group count once: a survey that was blown up would otherwise
make every rare answer look certain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from privbench.data.surveys.schema import MISSING, Outcome, Question
from privbench.data.surveys.survey import Survey
from privbench.errors import InputError

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

ERROR = 0.01
"""Chance of any false alarm of each rule, over all columns, answers and classes of a survey without a leak."""

ALONE = 0.8
PURE = 0.9
PURE_WHERE_SKIPPED = 0.7

_TESTED = 30
"""Fewest respondents of an answer that is tested: fewer could hardly be found, and each test costs the others."""
_BINS = 20
_SKIPPED = re.compile(r"not applicable|does(n't| not) apply|\bn/a\b|i (do not|don't) have|i have no\b", re.IGNORECASE)


@dataclass(frozen=True)
class Leak:
    """What gives the outcome away. answer: in words, "no answer" where it is missing; None for the whole column."""

    column: str
    answer: str | None
    reason: str


@dataclass(frozen=True)
class _Table:
    """One question: the answers' names, answer of each record [N], respondents by answer and class [A, K]."""

    column: str
    names: tuple[str, ...]
    codes: Codes
    counts: Array


def find(survey: Survey, outcome: Outcome) -> tuple[Leak, ...]:
    """The leaks of this outcome among the questions that would be its input, in the survey's order.

    Raises `InputError` when the survey lacks the outcome's column.
    """
    if outcome.question.column not in survey.answers.columns:
        raise InputError(
            f"outcome {outcome.name}: survey {survey.schema.name} has no column {outcome.question.column}."
        )
    known = np.flatnonzero(survey.answers[outcome.question.column].notna())
    _, first = np.unique(survey.groups[known], return_index=True)
    people = survey.take(known[np.sort(first)])
    classes, labels = _factorize(people.answers[outcome.question.column])
    if len(classes) < 2:
        return ()
    tables = [_table(people, question, labels, len(classes)) for question in people.inputs(outcome)]
    tests = sum(int((table.counts.sum(1) >= _TESTED).sum()) for table in tables) * len(classes)
    return tuple(
        leak
        for table in tables
        for leak in (
            *_whole(table, labels, classes, len(tables), outcome.ordinal),
            *_single(table, labels, classes, tests),
        )
    )


def drop(survey: Survey, leaks: tuple[Leak, ...]) -> Survey:
    """Without the columns of these leaks, whole also where a single answer leaks; the account names each with why."""
    reasons: dict[str, str] = {}
    for leak in leaks:
        reasons.setdefault(leak.column, leak.reason)
    return replace(
        survey,
        answers=survey.answers.drop(columns=list(reasons)),
        account=replace(survey.account, dropped=(*survey.account.dropped, *reasons.items())),
    )


def _table(people: Survey, question: Question, labels: Codes, classes: int) -> _Table:
    answers = people.answers[question.column]
    names, codes = _factorize(_binned(answers) if question.kind == "number" else answers)
    return _Table(question.column, names, codes, _count(codes, labels, len(names), classes))


def _factorize(answers: pd.Series[str]) -> tuple[tuple[str, ...], Codes]:
    codes, values = pd.factorize(answers, use_na_sentinel=False)
    return tuple(MISSING if pd.isna(value) else str(value) for value in values), codes.astype(np.int64)


def _binned(answers: pd.Series[str]) -> pd.Series[str]:
    """Numbers as the quantile ranges that they lie in: single values are too rare to be looked at."""
    numbers = pd.to_numeric(answers)
    if numbers.nunique() <= _BINS:
        return answers
    ranges = pd.qcut(numbers, _BINS, duplicates="drop")
    return ranges.map(lambda cut: f"{cut.left:g} to {cut.right:g}", na_action="ignore").astype(object)


def _count(codes: Codes, labels: Codes, answers: int, classes: int) -> Array:
    flat = np.bincount(codes * classes + labels, minlength=answers * classes)
    return flat.reshape(answers, classes).astype(np.float64)


def _whole(table: _Table, labels: Codes, classes: tuple[str, ...], columns: int, ordinal: bool) -> Iterator[Leak]:
    fold = _alternate(labels, len(classes))
    parts = [_count(table.codes[fold == f], labels[fold == f], len(table.names), len(classes)) for f in (0, 1)]
    aucs = (_auc(parts[0], parts[1]) + _auc(parts[1], parts[0])) / 2
    sizes = np.array([part.sum(0) for part in parts])
    smaller = np.minimum(sizes, sizes.sum(1, keepdims=True) - sizes).min(0)
    chance = 0.5 + np.sqrt(math.log(2 * columns * len(classes) / ERROR) / (2 * np.maximum(smaller, 0.5)))
    bars = np.maximum(ALONE, chance)
    said = [f"'{name}'" for name in classes]
    if ordinal:
        aucs, bars, said = aucs.mean(keepdims=True), bars.mean(keepdims=True), ["the level"]
    best = int(np.argmax(aucs - bars))
    if aucs[best] > bars[best]:
        yield Leak(
            table.column,
            None,
            f"predicts {said[best]} alone with AUC {aucs[best]:.2f} "
            f"({len(labels)} respondents, cross-fitted; above {bars[best]:.2f} is a leak)",
        )


def _alternate(labels: Codes, classes: int) -> Codes:
    """Fold 0 or 1: the records of each class in turn, so that both folds hold the same classes."""
    fold = np.zeros(len(labels), dtype=np.int64)
    for k in range(classes):
        rows = np.flatnonzero(labels == k)
        fold[rows] = np.arange(len(rows)) % 2
    return fold


def _auc(fitted: Array, held: Array) -> Array:
    """Class against rest on the counts [A, K] of one fold, answers scored by the shares of the other; .5 without both.

    An answer that the other fold lacks has the base rate; one it has once is drawn towards it.
    """
    base = fitted.sum(0) / max(fitted.sum(), 1)
    scores = (fitted + base) / (fitted.sum(1, keepdims=True) + 1)
    aucs = np.full(len(base), 0.5)
    for k in range(len(base)):
        _, rank = np.unique(scores[:, k], return_inverse=True)
        inside = np.bincount(rank, held[:, k])
        outside = np.bincount(rank, held.sum(1) - held[:, k])
        pairs = inside.sum() * outside.sum()
        if pairs:
            aucs[k] = inside @ (np.cumsum(outside) - outside / 2) / pairs
    return aucs


def _single(table: _Table, labels: Codes, classes: tuple[str, ...], tests: int) -> Iterator[Leak]:
    base = np.bincount(labels, minlength=len(classes)) / len(labels)
    totals = table.counts.sum(1)
    for a in np.flatnonzero(totals >= _TESTED):
        top = int(np.argmax(table.counts[a]))
        right, n = table.counts[a, top], totals[a]
        low = float(stats.beta.ppf(ERROR / tests, right, n - right + 1))
        name = table.names[a]
        bar = PURE_WHERE_SKIPPED if name == MISSING or _SKIPPED.search(name) else PURE
        if low > max(bar, (1 + base[top]) / 2):
            yield Leak(
                table.column,
                name,
                f"'{name}' means '{classes[top]}' for {right / n:.0%} of {n:.0f} respondents, {base[top]:.0%} of all "
                f"(lower limit {low:.2f}, above {max(bar, (1 + base[top]) / 2):.2f} is a leak)",
            )

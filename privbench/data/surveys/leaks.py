"""Columns and answers that give the outcome away: a survey that asks twice, or asks only those who have it.

Two rules, each with the chance of a false alarm held to 1% over a whole survey (all columns, answers and classes):

- *A column that predicts a class nearly alone.* The records of each class go to two folds in turn; each answer, a
  missing one included, is scored by the share of the class among the other fold's records with it; the AUC of class
  against rest is averaged over the folds. Found when it is above .8 and above what Hoeffding's inequality (1963, for
  two-sample U-statistics) allows a column that is independent of the outcome: .5 + sqrt(ln(2 m / .005) / (2 k)), k the
  smaller side's records in a fold, m the columns times classes. It holds at every size and for every distribution; a
  class of fewer than some 30 records is therefore never found. Numbers are cut at their quantiles first. Of an ordinal
  outcome the mean over its levels is taken: the ends of a scale are told apart by all that goes along with it.
- *An answer that nearly decides the outcome.* Found when the exact one-sided lower limit (Clopper and Pearson 1934) for
  the share of one class among those who gave it is above .9 and more than half way from the class's base rate to 1. Of
  a missing answer and of one that says that the question does not apply ("Not applicable to me (I do not have ...)"),
  above .7: it is no opinion but a consequence of the answer to another question. The error rate is divided by the
  answers tested times classes.

Both rules also ask *who was asked*: answered against missing is one more two-valued column of each that has missing
answers, with the bar of .7 under the second rule. Of an ordinal outcome it is held against every class, "at least level
j" and "below level j", for which the mean over the levels has no eye.

In a small survey Hoeffding's bound is out of reach. There the first rule finds *a copy*: an answer that 95% of a class
give, and of those who give it 95% are of the class, where Fisher's exact test (1922) rejects independence. The rule's
1% is halved between bound and test. `Search.note` says where only a copy, or not even that, could be found.

A sound question can be a good predictor: on the public surveys suicidal thoughts (student depression, AUC .77), DASS
items of the other scales (.78) and family history (.68) stay below .8; columns that restate the outcome lie at .82 and
above. The folds are the same in every call. Copies count once, whether the survey names its people or not: of records
of one group, or that agree in all but one question where chance does not explain it (`groups.people`), one is taken. A
survey that was blown up would otherwise make every rare answer look certain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from privbench.data.surveys.cells import few
from privbench.data.surveys.groups import firsts, people
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
COPY = 0.95

_TESTED = 30
"""Fewest respondents of an answer that is tested: fewer could hardly be found, and each test costs the others."""
_BINS = 20
_ANSWERED = "any answer"
_SKIPPED = re.compile(r"not applicable|does(n't| not) apply|\bn/a\b|i (do not|don't) have|i have no\b", re.IGNORECASE)


@dataclass(frozen=True)
class Leak:
    """What gives the outcome away. answer: in words, "no answer" where it is missing; None for the whole column."""

    column: str
    answer: str | None
    reason: str


@dataclass(frozen=True)
class Search:
    """The leaks of one outcome, in the survey's order; note: what so few respondents cannot show, "" where they can."""

    leaks: tuple[Leak, ...]
    note: str


@dataclass(frozen=True)
class _Table:
    """One question: the answers' names, answer of each record [N], respondents by answer and class [A, K]."""

    column: str
    names: tuple[str, ...]
    codes: Codes
    counts: Array

    @property
    def tested(self) -> Codes:
        return np.flatnonzero(self.counts.sum(1) >= _TESTED)

    def asked(self) -> _Table | None:
        """Missing against answered; None where all or none is."""
        if MISSING not in self.names or len(self.names) == 1:
            return None
        absent = self.names.index(MISSING)
        counts = np.stack([self.counts[absent], self.counts.sum(0) - self.counts[absent]])
        return _Table(self.column, (MISSING, _ANSWERED), (self.codes != absent).astype(np.int64), counts)


@dataclass(frozen=True)
class _Targets:
    """Sets of classes [T, K] that a table is held against, and what a sentence calls each."""

    sets: Array
    said: tuple[str, ...]


@dataclass(frozen=True)
class _Tests:
    """The outcome's classes [K] and the class of each record [N], and how many tests share a rule's error."""

    labels: Codes
    classes: tuple[str, ...]
    ordinal: bool
    columns: int = 1
    answers: int = 1
    copies: int = 1

    @property
    def single(self) -> _Targets:
        return _Targets(np.eye(len(self.classes)), tuple(f"'{name}'" for name in self.classes))

    @property
    def levels(self) -> _Targets:
        """Each class; of an ordinal outcome also what lies at or above, and below, each but the lowest."""
        if not self.ordinal:
            return self.single
        upper = np.triu(np.ones((len(self.classes),) * 2))[1:]
        said = [f"{side} '{name}'" for side in ("at least", "below") for name in self.classes[1:]]
        return _Targets(np.concatenate([self.single.sets, upper, 1 - upper]), (*self.single.said, *said))

    def shared(self, tables: Sequence[_Table]) -> _Tests:
        """With all tests of these columns counted."""
        parts = [(table, len(self.classes)) for table in tables]
        parts += [(asked, len(self.levels.said)) for table in tables if (asked := table.asked())]
        return replace(
            self,
            columns=max(1, sum(targets for _, targets in parts)),
            answers=max(1, sum(len(table.tested) * targets for table, targets in parts)),
            copies=max(1, sum(len(table.names) * targets for table, targets in parts)),
        )

    def leaks(self, table: _Table) -> Iterator[Leak]:
        found = [*_whole(table, self, self.single, mean=self.ordinal), *_pure(table, self, self.single)]
        if not found and (asked := table.asked()):
            found = [*_whole(asked, self, self.levels, mean=False), *_pure(asked, self, self.levels)]
            found = found or [*_copy(asked, self, self.levels)]
        yield from found or _copy(table, self, self.single)

    def note(self) -> str:
        sizes = np.bincount(self.labels, minlength=len(self.classes))
        bars = _chance(np.minimum(sizes, len(self.labels) - sizes) // 2, self.columns)
        if float(np.mean(bars) if self.ordinal else np.min(bars)) < 1:
            return ""
        found = np.min(stats.hypergeom.pmf(sizes, len(self.labels), sizes, sizes)) <= ERROR / 2 / self.copies
        what = "hardly more than a copy of the outcome" if found else "not even a copy of it"
        return f"Too few respondents to look for leaks ({few(len(self.labels))}): {what} can be found."


def find(survey: Survey, outcome: Outcome) -> tuple[Leak, ...]:
    """The leaks that `search` finds; the same errors."""
    return search(survey, outcome).leaks


def search(survey: Survey, outcome: Outcome) -> Search:
    """The leaks of this outcome among the questions that would be its input.

    Raises `InputError` when the survey lacks the outcome's column.
    """
    column = outcome.question.column
    if column not in survey.answers.columns:
        raise InputError(f"outcome {outcome.name}: survey {survey.schema.name} has no column {column}.")
    known = survey.take(np.flatnonzero(survey.answers[column].notna()))
    questions = survey.inputs(outcome)
    known = known.take(firsts(known.groups))
    inputs = known.answers[[question.column for question in questions]]
    known = known.take(firsts(people(inputs, known.groups, near=True)))
    given = set(known.answers[column])
    classes = tuple(answer for answer in outcome.question.answers if answer in given)
    if len(classes) < 2:
        return Search((), "")
    labels = pd.Categorical(known.answers[column], classes).codes.astype(np.int64)
    tables = [_table(known, question, labels, len(classes)) for question in questions]
    tests = _Tests(labels, classes, outcome.ordinal).shared(tables)
    return Search(tuple(leak for table in tables for leak in tests.leaks(table)), tests.note())


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
    cuts = list(ranges.cat.categories)
    # The ends are somebody's own values: they are not named.
    inner = {cut: f"{cut.left:g} to {cut.right:g}" for cut in cuts[1:-1]}
    ends = {cuts[0]: f"up to {cuts[0].right:g}", cuts[-1]: f"above {cuts[-1].left:g}"} if len(cuts) > 1 else {}
    return ranges.astype(object).map(inner | ends, na_action="ignore")


def _count(codes: Codes, labels: Codes, answers: int, classes: int) -> Array:
    flat = np.bincount(codes * classes + labels, minlength=answers * classes)
    return flat.reshape(answers, classes).astype(np.float64)


def _whole(table: _Table, tests: _Tests, targets: _Targets, *, mean: bool) -> Iterator[Leak]:
    """The first rule's bound, for the best of these targets or the mean over them."""
    fold = _alternate(tests.labels, len(tests.classes))
    shape = len(table.names), len(tests.classes)
    parts = [_count(table.codes[fold == f], tests.labels[fold == f], *shape) for f in (0, 1)]
    aucs = (_auc(parts[0], parts[1], targets) + _auc(parts[1], parts[0], targets)) / 2
    inside = np.array([targets.sets @ part.sum(0) for part in parts])
    total = np.array([[part.sum()] for part in parts])
    bars = np.maximum(ALONE, _chance(np.minimum(inside, total - inside).min(0), tests.columns))
    said = targets.said
    if mean:
        aucs, bars, said = aucs.mean(keepdims=True), bars.mean(keepdims=True), ("the level",)
    best = int(np.argmax(aucs - bars))
    if aucs[best] > bars[best]:
        yield Leak(
            table.column,
            None,
            f"{_subject(table)}predicts {said[best]} alone with AUC {aucs[best]:.2f} "
            f"({len(tests.labels):,} respondents, cross-fitted; above {bars[best]:.2f} is a leak)",
        )


def _subject(table: _Table) -> str:
    return "whether it was answered " if table.names == (MISSING, _ANSWERED) else ""


def _chance(smaller: npt.NDArray[Any], tests: int) -> Array:
    """What an independent column's AUC exceeds with the rule's share of the error, by the smaller side of a fold."""
    return np.asarray(0.5 + np.sqrt(math.log(2 * tests / (ERROR / 2)) / (2 * np.maximum(smaller, 0.5))))


def _alternate(labels: Codes, classes: int) -> Codes:
    """Fold 0 or 1: the records of each class in turn, so that both folds hold the same classes."""
    fold = np.zeros(len(labels), dtype=np.int64)
    for k in range(classes):
        rows = np.flatnonzero(labels == k)
        fold[rows] = np.arange(len(rows)) % 2
    return fold


def _auc(fitted: Array, held: Array, targets: _Targets) -> Array:
    """Target against rest on the counts [A, K] of one fold, answers scored by the shares of the other; .5 without both.

    An answer that the other fold lacks has the base rate; one it has once is drawn towards it.
    """
    right, hits = fitted @ targets.sets.T, held @ targets.sets.T
    base = right.sum(0) / max(fitted.sum(), 1)
    scores = (right + base) / (fitted.sum(1, keepdims=True) + 1)
    aucs = np.full(len(base), 0.5)
    for k in range(len(base)):
        _, rank = np.unique(scores[:, k], return_inverse=True)
        inside = np.bincount(rank, hits[:, k])
        outside = np.bincount(rank, held.sum(1) - hits[:, k])
        pairs = inside.sum() * outside.sum()
        if pairs:
            aucs[k] = inside @ (np.cumsum(outside) - outside / 2) / pairs
    return aucs


def _pure(table: _Table, tests: _Tests, targets: _Targets) -> Iterator[Leak]:
    """The second rule: of each answer the target that it says most."""
    base = targets.sets @ table.counts.sum(0) / table.counts.sum()
    for a in table.tested:
        name, right, n = table.names[a], targets.sets @ table.counts[a], table.counts[a].sum()
        skipped = name in (MISSING, _ANSWERED) or _SKIPPED.search(name)
        bars = np.maximum(PURE_WHERE_SKIPPED if skipped else PURE, (1 + base) / 2)
        lows = np.where(right > 0, stats.beta.ppf(ERROR / tests.answers, np.maximum(right, 1), n - right + 1), 0.0)
        top = int(np.argmax(lows - bars))
        if lows[top] > bars[top]:
            yield Leak(
                table.column,
                None if name == _ANSWERED else name,
                f"'{name}' means {targets.said[top]} for {right[top] / n:.0%} of {n:,.0f} respondents, "
                f"{base[top]:.0%} of all (lower limit {lows[top]:.2f}, above {bars[top]:.2f} is a leak)",
            )


def _copy(table: _Table, tests: _Tests, targets: _Targets) -> Iterator[Leak]:
    """The first rule's exact test: the answer that goes with a target and hardly with anything else."""
    hits, totals = table.counts @ targets.sets.T, table.counts.sum(1)
    everyone, sizes = int(totals.sum()), hits.sum(0)
    for k in range(len(targets.said)):
        a = int(np.argmax(hits[:, k]))
        right = hits[a, k]
        chance = stats.hypergeom.sf(right - 1, everyone, int(sizes[k]), int(totals[a]))
        if right >= COPY * max(sizes[k], totals[a]) and chance <= ERROR / 2 / tests.copies:
            yield Leak(
                table.column,
                None,
                f"copies the outcome: one answer goes with {targets.said[k]} for at least {COPY:.0%} of each "
                f"({everyone:,} respondents, chance {chance:.1g} if independent)",
            )
            return

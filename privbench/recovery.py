"""Score reconstructed inputs against the secrets: how much of what respondents said did an attack read?

Only answers count. The template (survey, questions, scales) is public: an attack that returned nothing else would
read most tokens of a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, Inversion
from privbench.counts import COUNTS, by_constant, in_common
from privbench.stats.shares import share_interval

Floats = npt.NDArray[np.float64]
Said = Sequence[Mapping[int, tuple[int, ...]]]
"""Of each record, the tokens of its answer by question."""

T = TypeVar("T")

METRICS = Inversion.metrics


@dataclass(frozen=True)
class Recovered:
    """One metric of one reconstruction. Sums over records alone: what a record adds would tell its answers.

    value     what was read; shuffled: when each record is compared with the answers of another; baseline: the most that
              any reply reads which says the same of every record, which takes no leak at all
    squares   sum of the squared weights of the records, or rounds of them, which sum to 1
    n         guesses: tokens, or answers
    """

    value: float
    shuffled: float
    baseline: float
    squares: float
    records: int
    n: int

    def interval(self) -> tuple[float, float]:
        """Two-sided 95% over records."""
        return share_interval(self.value, self.records, self.squares)


@dataclass(frozen=True)
class Asked:
    """One question: how many different answers were given to it, and the share that was read, each of them counting the
    same.
    """

    question: int
    answers: int
    read: float


@dataclass(frozen=True)
class Truth:
    """The answers of the scored records. tokens, answers int64 [m, L]: token ids, and the number of the question that a
    token answers, -1 in the template; answer tokens of one question stand in order. rounds [m]: in which each was
    trained on, where updates tell of them; rounds are the units of intervals then.
    """

    tokens: Index
    answers: Index
    rounds: Index | None = None

    def said(self, tokens: Index) -> Said:
        """These tokens [m, L] at the places where the answers stand."""
        return [
            {int(q): tuple(map(int, row[where == q])) for q in np.unique(where[where >= 0])}
            for row, where in zip(tokens, self.answers, strict=True)
        ]

    def by_question(self, guess: Index) -> tuple[Asked, ...]:
        """answer-accuracy of a reconstruction [m, L], question by question: its mean over them is that metric."""
        given: dict[int, Counter[tuple[int, ...]]] = {}
        right: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for record, read in zip(self.said(self.tokens), self.said(guess), strict=True):
            for question, answer in record.items():
                given.setdefault(question, Counter())[answer] += 1
                right[question, answer] += read[question] == answer
        return tuple(
            Asked(q, len(counts), sum(right[q, answer] / n for answer, n in counts.items()) / len(counts))
            for q, counts in sorted(given.items())
        )

    def score(self, guess: Index, metric: str, order: Index) -> Recovered:
        """A reconstruction [m, L] in one of METRICS, or COUNTS. order [m]: whose answers a record is compared with when
        shuffled.

        token-accuracy: the share of a record's answer tokens that are right, averaged over records.
        answer-accuracy: whole answers, balanced: averaged over the answers given to a question, then over questions.
        count-accuracy: how many of a round gave each answer to the last question (`privbench.counts`).
        """
        truth, read = self.said(self.tokens), self.said(guess)
        if metric == COUNTS:
            return self._count(truth, read, order)
        by_token = metric == "token-accuracy"
        shares, always = (_token_shares, _common_tokens) if by_token else (_answer_shares, _common_answers)
        weights, gains = shares(truth, read)
        _, shuffled = shares(truth, [read[i] for i in order])
        _, common = shares(truth, [always(truth)] * len(truth))
        n = sum(len(span) if by_token else 1 for record in truth for span in record.values())
        value, other, base = (min(float(row.sum()), 1.0) for row in (gains, shuffled, common))
        # What is said of one round's respondents rests on one update: they are right together.
        apart = weights if self.rounds is None else np.bincount(self.rounds, weights)
        return Recovered(value, other, base, float((apart**2).sum()), len(truth), n)

    def _count(self, truth: Said, read: Said, order: Index) -> Recovered:
        """Rounds are the units: squares is of their weights."""
        if self.rounds is None:
            raise ValueError("counts of a round are asked where no rounds are known.")
        rounds, last = self.rounds, int(self.answers.max())
        given, said = ([record.get(last) for record in records] for records in (truth, read))
        sizes, m = np.unique(rounds, return_counts=True)[1], len(truth)
        value, shuffled = (
            float(in_common(given, [said[i] for i in rows], rounds).sum()) / m for rows in (np.arange(m), order)
        )
        return Recovered(value, shuffled, by_constant(given, rounds) / m, float((sizes**2).sum()) / m**2, m, m)


def _common_tokens(truth: Said) -> dict[int, tuple[int, ...]]:
    """The token that adds most at each place of each question's answers: no constant reply reads more tokens, and no
    reply that goes by another record's answers does on average.
    """
    added: dict[int, list[dict[int, float]]] = {}
    for record in truth:
        weight = 1 / sum(map(len, record.values()))
        for question, answer in record.items():
            places = added.setdefault(question, [])
            places += [{} for _ in range(len(answer) - len(places))]
            for place, token in zip(places, answer, strict=False):
                place[token] = place.get(token, 0.0) + weight
    return {q: tuple(_most(place) for place in places) for q, places in added.items()}


def _common_answers(truth: Said) -> dict[int, tuple[int, ...]]:
    """One answer to each question, the most frequent: any other reads as much where all answers count the same."""
    counts: dict[int, Counter[tuple[int, ...]]] = {}
    for record in truth:
        for question, answer in record.items():
            counts.setdefault(question, Counter())[answer] += 1
    return {q: _most(found) for q, found in counts.items()}


def _most(counts: Mapping[T, float]) -> T:
    """The most frequent; of equals the first that was met."""
    return max(counts, key=lambda item: counts[item])


def _token_shares(truth: Said, read: Said) -> tuple[Floats, Floats]:
    weights = np.full(len(truth), 1 / len(truth))
    gains = np.zeros(len(truth))
    for i, (record, guess) in enumerate(zip(truth, read, strict=True)):
        total = sum(map(len, record.values()))
        right = sum(a == b for q, answer in record.items() for a, b in zip(answer, guess.get(q, ()), strict=False))
        gains[i] = weights[i] * right / total
    return weights, gains


def _answer_shares(truth: Said, read: Said) -> tuple[Floats, Floats]:
    counts: Counter[tuple[int, tuple[int, ...]]] = Counter(item for record in truth for item in record.items())
    answers: Counter[int] = Counter(question for question, _ in counts)
    weights, gains = np.zeros(len(truth)), np.zeros(len(truth))
    for i, (record, guess) in enumerate(zip(truth, read, strict=True)):
        for question, answer in record.items():
            share = 1 / (len(answers) * answers[question] * counts[question, answer])
            weights[i] += share
            gains[i] += share * (guess.get(question) == answer)
    return weights, gains

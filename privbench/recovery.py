"""Score reconstructed inputs against the secrets: how much of what respondents said did an attack read?

Only answers count. The template (survey, questions, scales) is public: an attack that returned nothing else would
read most tokens of a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.attack import Index
from privbench.stats.shares import share_interval

Floats = npt.NDArray[np.float64]
Said = Sequence[Mapping[int, tuple[int, ...]]]
"""Of each record, the tokens of its answer by question."""

METRICS = ("token-accuracy", "answer-accuracy")


@dataclass(frozen=True)
class Recovered:
    """One metric of one reconstruction, as what each record adds to it, [m] each; `value` is the sum of gains.

    weights   what a record adds when all its answers are read; they sum to 1
    gains     what it adds; shuffled: when compared with the answers of another record; modes: when each question is
              answered by the most frequent answer among these records, which takes no leak at all
    n         guesses: tokens, or answers
    """

    weights: Floats
    gains: Floats
    shuffled: Floats
    modes: Floats
    n: int

    @property
    def value(self) -> float:
        return min(float(self.gains.sum()), 1.0)

    @property
    def baseline(self) -> float:
        return min(float(self.modes.sum()), 1.0)

    def interval(self) -> tuple[float, float]:
        """Two-sided 95% over records."""
        return share_interval(self.gains, self.weights)


@dataclass(frozen=True)
class Truth:
    """The answers of the scored records. tokens, answers int64 [m, L]: token ids, and the number of the question that a
    token answers, -1 in the template; answer tokens of one question stand in order.
    """

    tokens: Index
    answers: Index

    def said(self, tokens: Index) -> Said:
        """These tokens [m, L] at the places where the answers stand."""
        return [
            {int(q): tuple(map(int, row[where == q])) for q in np.unique(where[where >= 0])}
            for row, where in zip(tokens, self.answers, strict=True)
        ]

    def score(self, guess: Index, metric: str, order: Index) -> Recovered:
        """A reconstruction [m, L] in one of METRICS. order [m]: whose answers a record is compared with when shuffled.

        token-accuracy: the share of a record's answer tokens that are right, averaged over records.
        answer-accuracy: whole answers, balanced: averaged over the answers given to a question, then over questions.
        """
        truth, read = self.said(self.tokens), self.said(guess)
        modes = _modes(truth)
        shares = _token_shares if metric == "token-accuracy" else _answer_shares
        weights, gains = shares(truth, read)
        shuffled = shares(truth, [read[i] for i in order])[1]
        always = shares(truth, [modes] * len(truth))[1]
        count = sum(len(span) if metric == "token-accuracy" else 1 for record in truth for span in record.values())
        return Recovered(weights, gains, shuffled, always, count)


def _modes(truth: Said) -> dict[int, tuple[int, ...]]:
    """The most frequent answer to each question; of equally frequent ones the first in order of tokens."""
    counts: dict[int, Counter[tuple[int, ...]]] = {}
    for record in truth:
        for question, answer in record.items():
            counts.setdefault(question, Counter())[answer] += 1
    return {q: min(found, key=lambda answer: (-found[answer], answer)) for q, found in counts.items()}


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

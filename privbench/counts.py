"""Score counts: how many respondents of a round gave each answer to the outcome's question.

A round counts by its respondents. Read is the share of them that the counts have in common: sum_k min(n_k, n'_k) / N.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.int64]

COUNTS = "count-accuracy"


def apportioned(shares: Floats, whole: int) -> Index:
    """Counts that sum to `whole`, as near to these shares [K] as can be: largest remainders, of equals the first."""
    exact = shares * whole
    counts: Index = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: whole - int(counts.sum())]] += 1
    return counts


def in_common(truth: Sequence[Hashable], read: Sequence[Hashable], rounds: Index) -> Floats:
    """Of each round how many of its respondents both counts have in common. rounds [m]: of each respondent."""
    found = []
    for number in np.unique(rounds):
        rows = np.flatnonzero(rounds == number).tolist()
        found.append((Counter(truth[i] for i in rows) & Counter(read[i] for i in rows)).total())
    return np.array(found, np.float64)


def by_constant(truth: Sequence[Hashable], rounds: Index) -> float:
    """How many are in common with the better of two guesses that are the same for every round: that all answers are as
    frequent, or as frequent as they are among all respondents, which takes to know that.
    """
    counts = Counter(truth)
    answers = list(counts)
    overall = np.array([counts[answer] for answer in answers]) / len(truth)
    best = 0.0
    for shares in (overall, np.full(len(answers), 1 / len(answers))):
        read = list[Hashable](truth)
        for number in np.unique(rounds):
            rows = np.flatnonzero(rounds == number)
            said = np.repeat(np.arange(len(answers)), apportioned(shares, len(rows)))
            for i, k in zip(rows, said, strict=True):
                read[i] = answers[k]
        best = max(best, float(in_common(truth, read, rounds).sum()))
    return best

"""Score counts: how many respondents of a round gave each answer to the outcome's question.

A round counts by its respondents. Read is the share of them that the counts have in common: sum_k min(n_k, n'_k) / N.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

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


def likeliest(shares: Floats, whole: int) -> Index:
    """The counts [K] that a draw of `whole` answers with these shares has most in common with, on average.

    Answer k said c times brings sum over i <= c of P(n_k >= i), each less than the one before: the largest are taken.
    """
    brings = stats.binom.sf(np.arange(whole), whole, shares[:, None])
    taken = np.argsort(-brings, axis=None, kind="stable")[:whole]
    counts: Index = np.bincount(taken // whole, minlength=len(shares))
    return counts


def by_constant(truth: Sequence[Hashable], rounds: Index) -> float:
    """How many are in common with the better of two guesses that are the same for every round of a size: that all
    answers are as frequent, or what is best for who knows how frequent each is among all respondents.
    """
    frequent = Counter(truth)
    answers = list(frequent)
    overall = np.array([frequent[answer] for answer in answers]) / len(truth)
    even = np.full(len(answers), 1 / len(answers))
    sizes = np.unique(rounds, return_counts=True)[1]
    best = 0.0
    for guesses in ({n: likeliest(overall, n) for n in sizes}, {n: apportioned(even, n) for n in sizes}):
        read = list[Hashable](truth)
        for number in np.unique(rounds):
            rows = np.flatnonzero(rounds == number)
            said = np.repeat(np.arange(len(answers)), guesses[len(rows)])
            for i, k in zip(rows, said, strict=True):
                read[i] = answers[k]
        best = max(best, float(in_common(truth, read, rounds).sum()))
    return best

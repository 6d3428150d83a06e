"""Score guesses against the secrets. Only this module and the runner ever hold both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Guess, Scores
from privbench.stats import binomial

CONTROL_LEVEL = 0.999
POSITIVE_CONTROL = 0.9
"""Accuracy on noise-free releases below which an attack is too weak for its silence to mean anything."""


@dataclass(frozen=True)
class Control:
    """A control's accuracy with its exact interval, and whether it passed."""

    value: float
    low: float
    high: float
    n: int
    passed: bool


@dataclass(frozen=True)
class Leakage:
    """Right guesses of fair coins: accuracy with a two-sided 95% Clopper-Pearson interval, chance exactly 1/2.

    n counts guesses, canaries counts records: pooled over releases, n = canaries * T.
    """

    value: float
    low: float
    high: float
    level: float
    n: int
    right: int
    canaries: int
    chance: float = 0.5


@dataclass(frozen=True)
class ScoredGuess:
    """All score vectors of one (attack, secret, number of releases), aligned with `coins` [m].

    scores    [m], or [T, m] where releases are pooled
    clean     the same attack on the noise-free releases of the same run; None where none were recorded
    shuffled  [m]: the same attack with coins permuted, reordered to match `coins`
    """

    coins: npt.NDArray[np.uint8]
    scores: Scores
    clean: Scores | None
    shuffled: Scores

    def leakage(self) -> Leakage:
        right, n = count_right(self.scores, self.coins)
        low, high = binomial.clopper_pearson(right, n)
        return Leakage(right / n, low, high, 0.95, n, right, len(self.coins))

    def positive(self) -> Control | None:
        """Passes when the attack reads the coins from noise-free releases."""
        if self.clean is None:
            return None
        control = _control(self.clean, self.coins)
        return Control(*control, passed=control[0] >= POSITIVE_CONTROL)

    def negative(self) -> Control:
        """Passes when the 99.9% interval on shuffled coins holds chance."""
        control = _control(self.shuffled, self.coins)
        return Control(*control, passed=control[1] <= 0.5 <= control[2])


def count_right(scores: npt.NDArray[Any], coins: npt.NDArray[Any]) -> tuple[int, int]:
    """Right guesses and guesses; a score above 0 says coin 1. Every scored record is guessed, none abstains."""
    right = (scores > 0) == (coins == 1)
    return int(right.sum()), int(right.size)


def one_release_each(guess: Guess, rng: np.random.Generator) -> Scores:
    """One release per record, drawn independently of the data: m exact trials, whatever the attack."""
    releases, records = guess.single.shape
    return np.asarray(guess.single[rng.integers(0, releases, records), np.arange(records)])


def _control(scores: Scores, coins: npt.NDArray[np.uint8]) -> tuple[float, float, float, int]:
    right, n = count_right(scores, coins)
    low, high = binomial.clopper_pearson(right, n, CONTROL_LEVEL)
    return right / n, low, high, n

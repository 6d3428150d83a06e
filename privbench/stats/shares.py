"""Limits of shares that are means over independent records, whatever the distribution of one record's share."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special


def upper_mean(mean: float, n: int, alpha: float) -> float:
    """Upper confidence limit of a mean of n independent values in [0, 1], whatever their distribution.

    Hoeffding's inequality in its relative-entropy form (Hoeffding 1963, theorem 1): the u with n KL(mean, u) =
    log(1 / alpha). A Student limit misses rare large values, and this one feeds exact tests.
    """
    target = math.log(1 / alpha) / n

    def excess(u: float) -> float:
        return float(special.rel_entr(mean, u) + special.rel_entr(1 - mean, 1 - u)) - target

    top = float(np.nextafter(1.0, 0.0))
    if mean >= top or excess(top) <= 0:
        return 1.0
    return float(optimize.brentq(excess, max(mean, 0.0), top))


def share_interval(value: float, records: int, squares: float, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of a share that independent records add up to, each between 0 and its weight.

    The weights sum to 1 and their squares to `squares`. Equal weights (squares = 1 / records): the relative-entropy
    limits of a mean, close where the share is near 0 or 1. Unequal ones: Hoeffding 1963, theorem 2, half-width
    sqrt(squares log(2 / (1 - level)) / 2). The choice rests on the weights alone, so that the level holds. Raises
    ValueError for what is no share or no such weights.
    """
    if not 0 <= value <= 1 or records < 1 or not 1 / records <= squares * (1 + 1e-9) <= 1 + 1e-6:
        raise ValueError(f"{value} is no share of {records} records whose weights' squares sum to {squares}.")
    alpha = (1 - level) / 2
    if math.isclose(squares * records, 1):
        return 1 - upper_mean(1 - value, records, alpha), upper_mean(value, records, alpha)
    half = math.sqrt(squares * math.log(1 / alpha) / 2)
    return max(value - half, 0.0), min(value + half, 1.0)

"""Limits of shares that are means over independent records, whatever the distribution of one record's share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
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


def share_interval(gains: npt.NDArray[Any], weights: npt.NDArray[Any], level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of sum(gains), where record i adds between 0 and weights[i], and the weights sum to 1.

    gains, weights [m]. Equal weights: the mean's relative-entropy limits, close where the share is near 0 or 1. Unequal
    ones: Hoeffding 1963, theorem 2, half-width sqrt(sum(weights^2) log(2 / (1 - level)) / 2). The choice rests on the
    weights alone, so that the level holds. Raises ValueError for gains outside their weights.
    """
    if len(gains) != len(weights) or not len(gains) or not math.isclose(float(weights.sum()), 1.0, abs_tol=1e-6):
        raise ValueError("weights must be one per record and sum to 1.")
    if (gains < 0).any() or (gains > weights * (1 + 1e-9)).any():
        raise ValueError("a record's gain lies between 0 and its weight.")
    value, alpha = min(float(gains.sum()), 1.0), (1 - level) / 2
    if np.allclose(weights, weights[0]):
        n = len(weights)
        return 1 - upper_mean(1 - value, n, alpha), upper_mean(value, n, alpha)
    half = math.sqrt(float((weights**2).sum()) * math.log(1 / alpha) / 2)
    return max(value - half, 0.0), min(value + half, 1.0)

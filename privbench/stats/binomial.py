"""Exact binomial statements about right guesses of fair coins.

On m scored canaries the number of right guesses is at most Binomial(m, p) in distribution when the bound p holds
(docs/bounds.md); every decision here is therefore an exact tail, never a normal approximation. Counts, rates and error
rates outside their ranges, NaN among them, raise ValueError.
"""

from __future__ import annotations

import bisect

import numpy as np
from scipy import stats

_BLOCK = 256
"""Numbers of trials that are looked at in one go."""


def clopper_pearson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided exact interval for a proportion (Clopper and Pearson 1934)."""
    _check_inside("level", level)
    tail = (1 - level) / 2
    return lower_limit(right, n, tail), upper_limit(right, n, tail)


def upper_limit(right: int, n: int, alpha: float) -> float:
    """One-sided exact upper limit at error rate alpha."""
    _check(right, n)
    _check_rate("alpha", alpha)
    return 1.0 if right == n else float(stats.beta.isf(alpha, right + 1, n - right))


def lower_limit(right: int, n: int, alpha: float) -> float:
    """One-sided exact lower limit at error rate alpha."""
    _check(right, n)
    _check_rate("alpha", alpha)
    return 0.0 if right == 0 else float(stats.beta.ppf(alpha, right, n - right + 1))


def p_value(right: int, n: int, bound: float) -> float:
    """P[Binomial(n, bound) >= right]: how surprising the count is if the bound holds.

    Under unequal success rates whose mean is at most the bound the tail holds for counts of at least
    n * bound + 1 (Hoeffding 1956); below that the p-value is not small anyway.
    """
    _check(right, n)
    _check_rate("bound", bound)
    return float(stats.binom.sf(right - 1, n, bound))


def critical_count(n: int, bound: float, alpha: float) -> int:
    """Smallest count whose p-value is at most alpha; n + 1 when no count is."""
    _check(0, n)
    _check_rate("bound", bound)
    _check_rate("alpha", alpha)
    count = int(stats.binom.isf(alpha, n, bound)) + 1
    while count > 0 and stats.binom.sf(count - 2, n, bound) <= alpha:
        count -= 1
    while count <= n and stats.binom.sf(count - 1, n, bound) > alpha:
        count += 1
    return count


def power(n: int, bound: float, truth: float, alpha: float) -> float:
    """Probability that a mechanism whose accuracy is `truth` exceeds `bound` at level alpha."""
    _check_rate("truth", truth)
    return float(stats.binom.sf(critical_count(n, bound, alpha) - 1, n, truth))


def records_needed(bound: float, truth: float, alpha: float, wanted: float, limit: int = 10_000_000) -> int | None:
    """Smallest n with the wanted power, or None above `limit`.

    Power over n is a saw-tooth: a larger n may fall short again by a tooth. The search starts where the most powerful
    test, which no count alone can beat and which grows with n, reaches the wanted power.
    """
    _check_rate("bound", bound)
    _check_rate("truth", truth)
    _check_inside("alpha", alpha)
    _check_inside("wanted power", wanted)
    if not truth > bound or bound >= 1 or _most_power(limit, bound, truth, alpha) < wanted:
        return None
    first = bisect.bisect_left(range(1, limit), wanted, key=lambda n: _most_power(n, bound, truth, alpha)) + 1
    for start in range(max(first - _BLOCK // 4, 1), limit + 1, _BLOCK):  # a little earlier: float tails are not exact
        n = np.arange(start, min(start + _BLOCK, limit + 1))
        # Smallest count whose tail is at most alpha, for all n at once.
        count = stats.binom.isf(alpha, n, bound) + 1
        reached = np.flatnonzero(stats.binom.sf(count - 1, n, truth) >= wanted)
        if len(reached):
            return int(n[reached[0]])
    return None


def _most_power(n: int, bound: float, truth: float, alpha: float) -> float:
    """Power of the test of exact level alpha, which draws lots at the last count (Neyman and Pearson 1933)."""
    last = critical_count(n, bound, alpha) - 1
    spare, weight = alpha - stats.binom.sf(last, n, bound), stats.binom.pmf(last, n, bound)
    share = min(spare / weight, 1.0) if weight > 0 else 0.0
    return float(stats.binom.sf(last, n, truth) + share * stats.binom.pmf(last, n, truth))


def _check(right: int, n: int) -> None:
    if n < 1 or not 0 <= right <= n:
        raise ValueError(f"need 0 <= right <= n and n >= 1, got right = {right}, n = {n}.")


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}.")


def _check_inside(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value}.")

"""Exact binomial statements about right guesses of fair coins.

On m scored canaries the number of right guesses is at most Binomial(m, p) in distribution when the bound p holds
(bounds.md, 5); every decision here is therefore an exact tail, never a normal approximation.
"""

from __future__ import annotations

from scipy import optimize, stats


def clopper_pearson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided exact interval for a proportion (Clopper and Pearson 1934)."""
    tail = (1 - level) / 2
    return lower_limit(right, n, tail), upper_limit(right, n, tail)


def upper_limit(right: int, n: int, alpha: float) -> float:
    """One-sided exact upper limit at error rate alpha."""
    _check(right, n)
    return 1.0 if right == n else float(stats.beta.isf(alpha, right + 1, n - right))


def lower_limit(right: int, n: int, alpha: float) -> float:
    """One-sided exact lower limit at error rate alpha."""
    _check(right, n)
    return 0.0 if right == 0 else float(stats.beta.ppf(alpha, right, n - right + 1))


def p_value(right: int, n: int, bound: float) -> float:
    """P[Binomial(n, bound) >= right]: how surprising the count is if the bound holds.

    Under unequal success rates whose mean is at most the bound the tail holds for counts of at least
    n * bound + 1 (Hoeffding 1956); below that the p-value is not small anyway.
    """
    _check(right, n)
    return float(stats.binom.sf(right - 1, n, bound))


def critical_count(n: int, bound: float, alpha: float) -> int:
    """Smallest count whose p-value is at most alpha; n + 1 when no count is."""
    count = int(stats.binom.isf(alpha, n, bound)) + 1
    while count > 0 and stats.binom.sf(count - 2, n, bound) <= alpha:
        count -= 1
    while count <= n and stats.binom.sf(count - 1, n, bound) > alpha:
        count += 1
    return count


def power(n: int, bound: float, truth: float, alpha: float) -> float:
    """Probability that a mechanism whose accuracy is `truth` exceeds `bound` at level alpha."""
    return float(stats.binom.sf(critical_count(n, bound, alpha) - 1, n, truth))


def records_needed(bound: float, truth: float, alpha: float, wanted: float, limit: int = 10_000_000) -> int | None:
    """Smallest n (to the binomial's saw-tooth) with the wanted power, or None above `limit`."""
    if not truth > bound:
        return None

    def shortfall(log_n: float) -> float:
        return power(round(2**log_n), bound, truth, alpha) - wanted

    top = 1.0
    while shortfall(top) < 0:
        top += 1
        if 2**top > limit:
            return None
    if top == 1.0:
        return 2
    return round(2 ** float(optimize.brentq(shortfall, top - 1, top, xtol=1e-4)))


def _check(right: int, n: int) -> None:
    if n < 1 or not 0 <= right <= n:
        raise ValueError(f"need 0 <= right <= n and n >= 1, got right = {right}, n = {n}.")

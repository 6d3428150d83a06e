"""One adversary, several units: what a signal ratio s allows in each.

Comparing a number with another unit's bound is the commonest false alarm of the field, so a bound is always asked in
a unit. s is half the distance between the two hypotheses in units of the noise: accuracy Phi(s) on a fair coin.
"""

from __future__ import annotations

import math
import re

from scipy import special

from privbench.errors import InputError

_TPR = re.compile(r"tpr@(.+)")
_SMALLEST_RATE = 1e-300
"""Below it floats lose their digits."""

SAFE_FOR_AVERAGES = ("accuracy", "auc", "advantage")
"""Units concave in s^2: a bound at an averaged rho holds on average. A TPR at a small FPR and mu are not: they need
the largest rho (rho_i = +-.6, C = sigma, FPR .001: pooled TPR .181, averaged bound .138)."""


def check_unit(unit: str) -> None:
    """`InputError` unless the unit is accuracy, auc, advantage, mu or tpr@F with F in [1e-300, 1)."""
    if unit in (*SAFE_FOR_AVERAGES, "mu"):
        return
    false_positive_rate(unit)


def false_positive_rate(unit: str) -> float:
    """F of "tpr@F"."""
    found = _TPR.fullmatch(unit)
    try:
        rate = float(found.group(1)) if found else math.nan
    except ValueError:
        rate = math.nan
    if not _SMALLEST_RATE <= rate < 1:
        raise InputError(
            f"unit is '{unit[:40]}'; allowed: accuracy, auc, advantage, mu, tpr@F with F in (0, 1) and at least "
            f"{_SMALLEST_RATE:g}."
        )
    return rate


def in_unit(s: float, unit: str) -> float:
    """The most that an adversary with signal ratio s reaches.

    accuracy Phi(s); auc Phi(sqrt 2 s); advantage (max TPR - FPR) 2 Phi(s) - 1; tpr@F Phi(Phi^-1(F) + 2 s);
    mu = 2 s, of Gaussian DP (Dong, Roth, Su 2019).
    """
    if unit == "accuracy":
        return cdf(s)
    if unit == "auc":
        return cdf(math.sqrt(2) * s)
    if unit == "advantage":
        return float(special.erf(s / math.sqrt(2)))  # 2 Phi(s) - 1 without its cancellation
    if unit == "mu":
        return 2 * s
    return cdf(float(special.ndtri(false_positive_rate(unit))) + 2 * s)


def cdf(x: float) -> float:
    """Phi, to the last digits also in its lower tail."""
    return float(special.ndtr(x))

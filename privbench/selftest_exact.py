"""What the self-test need not simulate: golden values (statistics.md) and right answers found in another way.

Sums of probabilities written out, all subsets, integrals on a grid: slow and plain, and none of the product's code.
An error rate catches what is wrong on average; these catch a constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy import integrate, stats

from privbench.accounting import gdp_delta, gdp_eps, gdp_mu
from privbench.bounds.base import BoundValue
from privbench.stats import binomial
from privbench.stats.holm import holm
from privbench.stats.shares import upper_mean
from privbench.verdict import ALPHA, ConfirmatoryTest, Verdict, judge

DELTA = 1e-5
ROUNDED = 6e-5
"""Golden values have four digits."""
EXACT = 1e-9


@dataclass(frozen=True)
class Exact:
    """One check: `distance` from the right answer, at most `limit`."""

    estimator: str
    case: str
    what: Literal["golden", "closed form", "simulated"]
    limit: float
    distance: Callable[[], float]


def worst(found: Sequence[float], right: Sequence[float]) -> float:
    """Largest difference of two lists of one length; infinite where the lengths differ, NaN where a value is."""
    if len(found) != len(right):
        return math.inf
    return float(np.max(np.abs(np.asarray(found, dtype=float) - np.asarray(right, dtype=float)), initial=0.0))


# Binomial tails


def mass(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def _limits(n: int) -> float:
    """A limit is the p at which the tail of what was seen is alpha."""
    gaps = []
    for k in range(n + 1):
        for alpha in (0.025, 0.2):
            low, high = binomial.lower_limit(k, n, alpha), binomial.upper_limit(k, n, alpha)
            gaps.append(abs(sum(mass(n, low)[k:]) - alpha) if k else low)
            gaps.append(abs(sum(mass(n, high)[: k + 1]) - alpha) if k < n else 1 - high)
    return max(gaps)


def _coverage(n: int) -> float:
    """How far the coverage of a 95% interval falls below .95 anywhere, and 0 for an interval that is never narrow."""
    intervals = [binomial.clopper_pearson(k, n) for k in range(n + 1)]
    short = 0.0
    for p in np.linspace(0.01, 0.99, 99):
        held = sum(m for m, (low, high) in zip(mass(n, float(p)), intervals, strict=True) if low <= p <= high)
        short = max(short, 0.95 - held)
    return short


def _tails(n: int) -> float:
    found = [binomial.p_value(k, n, p) for p in (0.3, 0.731) for k in range(n + 1)]
    return worst(found, [sum(mass(n, p)[k:]) for p in (0.3, 0.731) for k in range(n + 1)])


def _power(n: int) -> float:
    gaps: list[float] = []
    for bound, truth, alpha in ((0.55, 0.8, 0.05), (0.7, 0.9, 0.01), (0.5, 0.6, 0.2)):
        tails = [sum(mass(n, bound)[k:]) for k in range(n + 2)]
        critical = next(k for k, tail in enumerate(tails) if tail <= alpha)
        gaps.append(abs(binomial.critical_count(n, bound, alpha) - critical))
        gaps.append(abs(binomial.power(n, bound, truth, alpha) - sum(mass(n, truth)[critical:])))
    return float(max(gaps))


def _mean_limit() -> float:
    """n KL(mean, u) = log(1 / alpha); in closed form at a mean of 0."""
    gaps = [abs(upper_mean(0.0, n, a) - (1 - a ** (1 / n))) for n in (5, 700) for a in (0.005, 0.05)]
    for mean, n in ((0.3, 50), (0.8, 700)):
        u = upper_mean(mean, n, 0.005)
        divergence = mean * math.log(mean / u) + (1 - mean) * math.log((1 - mean) / (1 - u))
        gaps.append(abs(n * divergence - math.log(200)))
    return float(max(gaps))


# Many tests together


def _closed(values: Sequence[float], alpha: float) -> list[bool]:
    """i is rejected when Bonferroni rejects every set of hypotheses that i is part of (Marcus et al. 1976)."""
    sets = [s for size in range(len(values)) for s in itertools.combinations(range(len(values)), size + 1)]
    kept = [s for s in sets if min(values[i] for i in s) > alpha / len(s)]
    return [not any(i in s for s in kept) for i in range(len(values))]


def _holm() -> float:
    """The second passes at alpha / (m - 1) only; and nothing passes after one that does not."""
    cases = ([0.01, 0.024, 0.9], [0.02, 0.024, 0.03], [0.9, 0.04, 0.01, 0.0124], [0.012, 0.0125, 0.02, 0.06], [0.05])
    found = [float(item.rejected) for case in cases for item in holm(case, ALPHA)]
    shares = [item.share for item in holm([0.01, 0.024, 0.9], ALPHA)]
    right = [float(item) for case in cases for item in _closed(case, ALPHA)]
    return worst([*found, *shares], [*right, ALPHA / 3, ALPHA / 2, ALPHA])


def _verdicts() -> float:
    """Verdicts and shares of counts whose answer is plain: how many are not as they should be."""

    def test(right: int, controls: str | None = None, void: str | None = None) -> ConfirmatoryTest:
        return ConfirmatoryTest(right, 400, 400, BoundValue("b", "accuracy", 0.6, 0.2533), controls, void, optimal=True)

    # P[Bin(400, .6) >= 260] = .022: exceeded alone, and in a set of two whose first is, but not beside two planned
    # ones that could not be run; those keep their shares.
    absent = judge([test(260)], ALPHA, 3)[0]
    wrong = [
        judge([test(260)], ALPHA)[0].verdict != Verdict.EXCEEDED,
        absent.verdict != Verdict.INCONCLUSIVE or abs(absent.share - ALPHA / 3) > EXACT,
        judge([test(260), test(300)], ALPHA)[0].verdict != Verdict.EXCEEDED,
        judge([test(260), test(240)], ALPHA)[0].verdict != Verdict.EXCEEDED,
        judge([test(300)], ALPHA, 50)[0].verdict != Verdict.EXCEEDED,
        judge([test(200)], ALPHA)[0].verdict != Verdict.WITHIN,
        judge([test(240)], ALPHA)[0].verdict == Verdict.EXCEEDED,
        judge([test(200, controls="weak")], ALPHA)[0].verdict != Verdict.INCONCLUSIVE,
        judge([test(200, void="off")], ALPHA)[0].verdict != Verdict.FAILED,
    ]
    return float(sum(wrong))


# Gaussian differential privacy


def _delta_integral(mu: float, eps: float) -> float:
    """The hockey-stick divergence of N(mu, 1) from N(0, 1), from its definition."""
    at = eps / mu + mu / 2
    density = stats.norm.pdf
    value, _ = integrate.quad(lambda x: density(x - mu) - math.exp(eps) * density(x), at, at + 40, epsabs=1e-14)
    return float(value)


_GDP = [(mu, eps) for mu in (0.3, 1.0, 4.0) for eps in (0.0, 0.5, 3.0)]


def _gdp_delta() -> float:
    """As a share of the value."""
    pairs = [(gdp_delta(mu, eps), _delta_integral(mu, eps)) for mu, eps in _GDP]
    return max(abs(found / right - 1) for found, right in pairs if right > 1e-12)


def _gdp_inverse() -> float:
    """eps of mu and mu of eps undo the integral; eps(1) at 1e-5 is 4.3772."""
    gaps = [abs(gdp_eps(1.0, DELTA) - 4.3772)]
    gaps += [abs(gdp_eps(mu, _delta_integral(mu, eps)) - eps) for mu, eps in _GDP if _delta_integral(mu, eps) > 1e-9]
    return max(gaps + [abs(gdp_mu(gdp_eps(mu, DELTA), DELTA) - mu) for mu in (0.3, 1.0, 4.0)])


PROBABILITIES: tuple[Exact, ...] = (
    *(Exact("binomial limits", f"every count of {n}", "closed form", EXACT, partial(_limits, n)) for n in (1, 7, 40)),
    *(Exact("binomial limits", f"coverage, n = {n}", "closed form", EXACT, partial(_coverage, n)) for n in (3, 10, 40)),
    *(Exact("binomial p-value", f"every count of {n}", "closed form", EXACT, partial(_tails, n)) for n in (1, 9, 40)),
    *(Exact("binomial power", f"{n} guesses", "closed form", EXACT, partial(_power, n)) for n in (8, 40)),
    Exact("limit of a mean", "Hoeffding's u", "closed form", 1e-6, _mean_limit),
    Exact("Holm", "closed testing over all subsets", "closed form", EXACT, _holm),
    Exact("verdicts", "counts with a plain answer", "closed form", 0.0, _verdicts),
    Exact("Gaussian DP, delta", "the divergence, integrated", "closed form", 1e-6, _gdp_delta),
    Exact("Gaussian DP, eps and mu", "4.3772, and the divergence inverted", "golden", ROUNDED, _gdp_inverse),
)

"""Exact rows of the self-test about limits of epsilon: golden values, formulas written out, integrals on a grid."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from privbench.selftest_exact import DELTA, EXACT, ROUNDED, Exact, mass, worst
from privbench.stats.epsilon import EpsilonBound, Family, eps_from_counts, eps_on_ranks, eps_on_split, rank_grid
from privbench.stats.one_run import Guesses, fdp_eps, steinke_eps, steinke_p_value, top_guesses
from privbench.verdict import ALPHA

Array = npt.NDArray[np.float64]


# Limits of epsilon


def _from_counts() -> float:
    """Golden, and the formulas with limits from scipy's other interface."""
    found = [
        eps_from_counts(900, 1000, 1, 1000, delta=DELTA).eps,
        eps_from_counts(0, 500, 0, 500, delta=0, alpha=0.01).eps,
    ]
    right = [2.692477, 4.5419]
    for fn, fp, delta in ((40, 9, 0.1), (9, 40, 0.1), (12, 180, 0.02), (95, 3, DELTA)):
        fnr, fpr = (float(stats.beta.ppf(1 - ALPHA / 2, k + 1, 200 - k)) for k in (fn, fp))
        found.append(eps_from_counts(fn, 200, fp, 200, delta=delta).eps)
        ratio = max((1 - fnr - delta) / fpr, (1 - fpr - delta) / fnr)
        right.append(max(0.0, math.log(ratio)) if ratio > 0 else 0.0)
        mu = max(0.0, float(stats.norm.isf(fpr) - stats.norm.ppf(fnr)))
        found.append(eps_from_counts(fn, 200, fp, 200, delta=delta, family="gaussian").mu or 0.0)
        right.append(mu)
    return worst(found, right)


def _fnr(family: Family, fpr: Array, parameter: float, delta: float) -> Array:
    """The trade-off functions from their definitions (Dong, Roth, Su 2019)."""
    if family == "gaussian":
        return np.asarray(stats.norm.cdf(stats.norm.isf(fpr) - parameter))
    steep, flat = 1 - delta - math.exp(parameter) * fpr, math.exp(-parameter) * (1 - delta - fpr)
    return np.maximum(0.0, np.maximum(steep, flat))


def _rank_limit(family: Family, rank: int, sides: tuple[int, int], fn: int, delta: float, share: float) -> float:
    """Parameter at which P[Binomial(n1, f(FPR)) <= fn], FPR ~ Beta(rank, n0 - rank + 1), is `share`; 0 if none is."""
    n1, n0 = sides
    above = np.geomspace(1e-9, 1, 2000)
    fpr = stats.beta.isf(above, rank, n0 - rank + 1)

    def excess(parameter: float) -> float:
        tail = stats.binom.cdf(fn, n1, _fnr(family, fpr, parameter, delta))
        return float(np.trapezoid(tail, above)) - share

    return float(optimize.brentq(excess, 0.0, 12.0, xtol=1e-6)) if excess(0.0) < 0 else 0.0


def _sample(n: int, kind: str) -> tuple[Array, Array]:
    """Scores [2 n] and labels without chance: normal quantiles, and a third of a class far away, or all shifted."""
    base = stats.norm.ppf((np.arange(n) + 0.5) / n)
    leaking = np.where(np.arange(n) >= 0.65 * n, base + 10, base)
    positive, negative = {
        "members stand out": (leaking, base),
        "outsiders stand out": (-base, -leaking),
        "shifted": (base + 1.5, base),
        "far apart": (base + 100, base),
    }[kind]
    return np.concatenate([positive, negative]), np.repeat([1.0, 0.0], n)


_CASES: list[tuple[str, Family, float]] = [
    ("members stand out", "dp", 0.1),
    ("outsiders stand out", "dp", 0.1),
    ("shifted", "dp", DELTA),
    ("shifted", "gaussian", DELTA),
    ("far apart", "dp", DELTA),
]


def _parameter(result: EpsilonBound) -> float:
    return result.eps if result.mu is None else result.mu


def _on_ranks(n: int, case: tuple[str, Family, float]) -> float:
    """The best exact limit of the grid, and never above it: above counts 300 times."""
    kind, family, delta = case
    scores, labels = _sample(n, kind)
    ranks, negatives = rank_grid(n), np.sort(scores[n:])
    misses = [int(np.sum(scores[:n] <= negatives[n - rank])) for rank in ranks]
    exact = max(
        _rank_limit(family, int(rank), (n, n), fn, delta, ALPHA / len(ranks))
        for rank, fn in zip(ranks, misses, strict=True)
    )
    found = _parameter(eps_on_ranks(scores, labels, delta=delta, family=family))
    return max(exact - found, 300 * (found - exact))


def _split_of_a_perfect_attack(n: int) -> float:
    """An eighth chooses and is not measured: the counts say so, and so does the limit at the same share of the rest."""
    labels = np.repeat([1.0, 0.0], n)
    result = eps_on_split(labels, labels, np.random.default_rng(0), delta=DELTA)
    left = n - math.ceil(n / 8)
    exact = {
        _rank_limit("dp", max(1, round(int(rank) / (n - left) * left)), (left, left), 0, DELTA, ALPHA)
        for rank in rank_grid(n - left)
    }
    off = abs(result.point.n1 - left) + abs(result.point.n0 - left)
    return off + min(max(item - result.eps, 300 * (result.eps - item)) for item in exact)


def _golden_epsilons() -> float:
    """What this version gives on scores without chance, each within its exact limit by the rows beside this one."""
    ranks = [_parameter(eps_on_ranks(*_sample(400, k), delta=d, family=f)) for k, f, d in _CASES]
    rng = np.random.default_rng(0)
    split = [_parameter(eps_on_split(*_sample(400, k), rng, delta=d, family=f)) for k, f, d in _CASES]
    return worst([*ranks, *split], GOLDEN_EPSILONS)


GOLDEN_EPSILONS = (
    *(2.87541, 1.850442, 1.874801, 1.232906, 4.976828),
    *(1.924348, 2.40228, 1.282833, 1.238238, 4.754647),
)


# One run


_GUESSES = (Guesses(1000, 1000, 600), Guesses(1000, 200, 160), Guesses(1000, 100, 100), Guesses(10_000, 1955, 1615))


def _steinke() -> float:
    found = [steinke_eps(item, delta=DELTA).eps for item in _GUESSES] + [steinke_eps(_GUESSES[2], delta=0.0).eps]
    return worst(found, [0.2972, 1.0850, 3.4654, 1.4569, 3.4930])


def _steinke_sum() -> float:
    """p = P[B >= v] + 2 m delta max P[v - i <= B < v] / i, summed as it stands."""
    gaps = []
    for m, r, v, eps, delta in ((60, 40, 30, 0.5, 1e-3), (90, 25, 20, 0.2, 2e-3), (50, 50, 33, 0.0, 1e-3)):
        parts = mass(r, 1 / (1 + math.exp(-eps)))
        most = max(sum(parts[v - i : v]) / i for i in range(1, v + 1))
        gaps.append(
            abs(steinke_p_value(Guesses(m, r, v), eps, delta) - min(1.0, sum(parts[v:]) + 2 * m * delta * most))
        )
    return max(gaps)


def _f_dp() -> float:
    return worst([fdp_eps(item, delta=DELTA).eps for item in _GUESSES], [0.5835, 1.7292, 5.5490, 2.0980])


def _guesses() -> float:
    """The highest are called 1 and the lowest 0; of equal scores as many are right as a lot gives, on average."""
    rng = np.random.default_rng(0)
    labels = np.repeat([1.0, 0.0], 50)
    plain = top_guesses(labels, labels, rng, guess_in=30, guess_out=20)
    wrong = top_guesses(-labels, labels, rng, guess_in=30, guess_out=20)
    tied = np.mean([top_guesses(np.zeros(100), labels, rng, guess_in=50, guess_out=50).right for _ in range(200)])
    off = worst([plain.right, plain.guessed, plain.m, wrong.right], [50, 50, 100, 0])
    return off + max(0.0, abs(float(tied) - 50) - 4 * 5 / math.sqrt(200))


LIMITS: tuple[Exact, ...] = (
    Exact("Clopper-Pearson, counts", "2.692477, 4.5419 and formulas", "golden", ROUNDED, _from_counts),
    *(
        Exact(
            f"exact ranks, {family}",
            f"{kind}, delta {delta:g}, n = {n}",
            "closed form",
            0.05,
            partial(_on_ranks, n, case),
        )
        for n in (16, 300)
        for case in _CASES
        for kind, family, delta in [case]
    ),
    Exact("exact ranks, split", "a perfect attack", "closed form", 0.05, partial(_split_of_a_perfect_attack, 200)),
    Exact("exact ranks, grid and split", "scores without chance", "golden", 1e-4, _golden_epsilons),
    Exact("one run, eps (Steinke)", "five counts", "golden", ROUNDED, _steinke),
    Exact("one run, eps (Steinke)", "p summed as it stands", "closed form", EXACT, _steinke_sum),
    Exact("one run, f-DP (Mahloujifar)", "four counts", "golden", ROUNDED, _f_dp),
    Exact("one run, guesses", "perfect, reversed and tied scores", "closed form", EXACT, _guesses),
)

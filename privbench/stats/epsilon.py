"""Lower confidence limits of epsilon from the scores of records that were in (label 1) and out (label 0).

Two families. "dp" assumes nothing beyond (eps, delta): TPR <= e^eps FPR + delta and its mirror (Jagielski, Ullman,
Oprea 2020; Nasr et al. 2021). "gaussian" assumes that the mechanism is mu-Gaussian-DP (Dong, Roth, Su 2019; Nasr et
al. 2023): far tighter and wrong where that is wrong. Both take the records for independent trials. Many canaries of
one training are not: call the result an estimate there and decide with `one_run`.

The threshold is given, or chosen on an eighth of the records and used on the others, or searched over a grid of ranks
that n alone fixes. The best threshold of the scored records themselves proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from privbench.accounting import gdp_eps
from privbench.stats.binomial import upper_limit
from privbench.stats.roc import FloatArray, IntArray, OperatingPoint, check_open, split_by_label

Family = Literal["dp", "gaussian"]

ASSUMPTIONS = {
    "dp": "records are independent trials",
    "gaussian": "records are independent trials; the mechanism is Gaussian DP",
}

NODES, LOWER_TAIL, CUT_OFF, TOLERANCE, ROUNDING = 48, 0.03, 0.01, 1e-6, 1e-15
"""Of the sum behind a rank's p-value: together they cost about .001 of eps, .02 with 30 records a class."""


@dataclass(frozen=True)
class EpsilonBound:
    """eps exceeds the truth with probability at most `alpha`, if `assumption` holds.

    mu: the Gaussian DP parameter behind eps; None for the family "dp". ceiling: the eps that a perfect attack on as
    many records would show; a mechanism above it cannot be told from one at it. point: the decision that eps is read
    from, with its counts.
    """

    eps: float
    mu: float | None
    ceiling: float
    delta: float
    alpha: float
    point: OperatingPoint
    assumption: str


def eps_from_counts(
    fn: int, n1: int, fp: int, n0: int, *, delta: float, alpha: float = 0.05, family: Family = "dp"
) -> EpsilonBound:
    """From fn misses among n1 records that were in and fp false alarms among n0 that were out.

    The decision must have been fixed before these records were scored. Both error rates get their exact upper limit
    at alpha / 2 (Clopper, Pearson 1934):
    "dp": eps = max(0, ln((1 - FNR_U - delta) / FPR_U), ln((1 - FPR_U - delta) / FNR_U)).
    "gaussian": mu = max(0, Phi^-1(1 - FPR_U) - Phi^-1(FNR_U)), then the eps of mu at delta. Never |mu|: an attack
    worse than chance shows nothing.
    Raises ValueError for impossible counts, alpha outside (0, 1) or delta outside [0, 1) ((0, 1) if "gaussian").
    """
    return _from_point(OperatingPoint(None, n1 - fn, n1, fp, n0), delta, alpha, family)


def eps_at_threshold(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    threshold: float,
    *,
    delta: float,
    alpha: float = 0.05,
    family: Family = "dp",
) -> EpsilonBound:
    """At the decision score >= threshold, which must not come from these scores [n] and labels [n].

    Errors as in `eps_from_counts` and `roc.split_by_label`; NaN is no threshold.
    """
    if math.isnan(threshold):
        raise ValueError("the threshold must be a number, got NaN.")
    positive, negative = split_by_label(scores, labels)
    return _from_point(_decide(positive, negative, threshold), delta, alpha, family)


def eps_on_split(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    delta: float,
    alpha: float = 0.05,
    family: Family = "dp",
) -> EpsilonBound:
    """A random eighth of each class chooses the rank of the negative that is the cut, the others are measured there.

    The eighth's best rank of `rank_grid` becomes the same share of the measured negatives. It is then as fixed as if
    it had been given, so the exact tail of `eps_on_ranks` holds at the whole alpha. Equal scores are put in a random
    order first: deciding by lot between equal scores adds no information, and no tie block can swallow the cut.
    Errors as in `eps_from_counts` and `roc.split_by_label`; each class needs two records.
    """
    _check(delta, alpha, family)
    sides = split_by_label(scores, labels)
    if min(map(len, sides)) < 2:
        raise ValueError(f"a split needs 2 records a class, got {len(sides[0])} of label 1 and {len(sides[1])} of 0.")
    values = np.concatenate(sides)
    place = np.empty(len(values))
    place[np.lexsort((rng.random(len(values)), values))] = np.arange(len(values))
    positive, negative = (rng.permutation(side) for side in np.split(place, [len(sides[0])]))
    part1, part0 = (math.ceil(len(side) / 8) for side in (positive, negative))
    n0 = len(negative) - part0

    def measured(positive: FloatArray, negative: FloatArray) -> tuple[float, float]:
        chosen = _on_grid(
            positive[:part1], negative[:part0], alpha / 100, delta, family
        )  # a lucky rank of a few is passed over
        share = float(chosen.ranks[np.argmax(chosen.low)]) / part0
        rank = np.array([min(n0, max(1, round(share * n0)))])
        grid = _on_grid(positive[part1:], negative[part0:], alpha, delta, family, rank)
        return _rank_limit(grid, 0, alpha, delta, family), float(grid.cuts[0])

    limit, cut = measured(positive, negative)
    ceiling, _ = measured(np.ones(len(positive)), np.zeros(len(negative)))
    point = _decide(positive[part1:], negative[part0:], _above(positive[part1:], negative[part0:], cut))
    threshold = None if point.threshold is None else float(np.sort(values)[int(point.threshold)])
    return _bound(limit, ceiling, delta, alpha, replace(point, threshold=threshold), family)


def eps_on_ranks(
    scores: npt.ArrayLike, labels: npt.ArrayLike, *, delta: float, alpha: float = 0.05, family: Family = "dp"
) -> EpsilonBound:
    """The best of up to 12 thresholds, each the negative of a rank that `rank_grid` fixes, at alpha / 12.

    Deciding 1 above the k-th largest negative has an FPR that is Beta(k, n0 - k + 1), whatever the distribution
    (ties only make it smaller), and that FPR does not depend on the positives. So the misses have an exact tail
    under a trade-off function f, P[Binomial(n1, f(FPR)) <= fn] averaged over the Beta, and no part of alpha is spent
    on the FPR. The limit is the largest parameter that this tail rejects. Both directions of (eps, delta) are in f.
    Errors as in `eps_from_counts` and `roc.split_by_label`.
    """
    _check(delta, alpha, family)
    positive, negative = split_by_label(scores, labels)
    share = alpha / len(rank_grid(len(negative)))
    grid = _on_grid(positive, negative, share, delta, family)
    best, where = 0.0, int(np.argmax(grid.low))
    for i in np.argsort(-grid.low):
        limit = _rank_limit(grid, i, share, delta, family, best)
        if limit > best:
            best, where = limit, int(i)
    point = _decide(positive, negative, _above(positive, negative, grid.cuts[where]))
    perfect = _on_grid(np.ones(len(positive)), np.zeros(len(negative)), share, delta, family)
    return _bound(best, _rank_limit(perfect, 0, share, delta, family), delta, alpha, point, family)


def rank_grid(n0: int) -> IntArray:
    """At most 12 ranks among n0 negatives, 1 the largest: eight geometric from 1 to the middle, four back from the end.

    Low ranks (small FPR) carry the eps of strong attacks, the middle Gaussian DP, high ranks a small FNR.
    """
    middle = max(1.0, n0 / 2)
    low, high = np.geomspace(1, middle, 8), n0 + 1 - np.geomspace(5, middle, 5)[:-1]
    return np.unique(np.clip(np.round(np.concatenate([low, high])), 1, n0).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Grid:
    """Per rank k: the k-th largest negative, how many positives are not above it, two bounds of its exact limit.

    U ~ Beta(k, n0 - k + 1) is the FPR above the cut; W ~ Beta(fn + 1, n1 - fn) is to the FNR what U is to the FPR.
    """

    n1: int
    n0: int
    ranks: IntArray
    cuts: FloatArray
    fn: IntArray
    low: FloatArray
    high: FloatArray


def _on_grid(
    positive: FloatArray,
    negative: FloatArray,
    share: float,
    delta: float,
    family: Family,
    ranks: IntArray | None = None,
) -> _Grid:
    n1, n0 = len(positive), len(negative)
    ranks = rank_grid(n0) if ranks is None else ranks
    cuts = np.sort(negative)[n0 - ranks]
    fn = np.searchsorted(np.sort(positive), cuts, side="right")

    def excluded(tail: float) -> FloatArray:
        miss = np.where(fn == n1, 1.0, special.betainccinv(fn + 1, np.maximum(n1 - fn, 1), tail))
        return _excluded(miss, special.betainccinv(ranks, n0 - ranks + 1, tail), delta, family)

    # The exact p-value is P[W >= f(U)]. It is at most P[U > u] + P[W > w] and at least P[U > u] P[W > w] for f(u) = w.
    return _Grid(n1, n0, ranks, cuts, fn, low=excluded(share / 2), high=excluded(math.sqrt(share)))


def _excluded(miss: Any, alarm: Any, delta: float, family: Family) -> FloatArray:
    """Largest parameter that an FNR of at most `miss` and an FPR of at most `alarm` exclude; not above 0: none.

    Below 0 it still orders the ranks: the eighth that chooses a rank may show nothing at any of them.
    """
    if family == "gaussian":
        return np.asarray(-special.ndtri(alarm) - special.ndtri(miss))
    ratio = np.maximum((1 - miss - delta) / alarm, (1 - alarm - delta) / miss)
    return np.asarray(np.log(np.maximum(ratio, ROUNDING)))


def _tradeoff(family: Family, delta: float) -> Callable[[FloatArray, float], FloatArray]:
    """f(x, parameter): the smallest FNR that the family allows at FPR x. Both are their own inverse in x."""
    if family == "gaussian":
        return lambda x, mu: special.ndtr(-special.ndtri(x) - mu)
    return lambda x, eps: np.maximum(0.0, np.maximum(1 - delta - np.exp(eps) * x, np.exp(-eps) * (1 - delta - x)))


def _rank_limit(grid: _Grid, i: int, share: float, delta: float, family: Family, best: float = 0.0) -> float:
    """Largest parameter above `best` whose p-value at rank i, P[W >= f(U)], is at most `share`; or `best`.

    P[Binomial(n1, f) <= fn] is P[W >= f], hence that form. The integral over U is an upper sum, so that its error can
    only lower the limit; its cells end at the nodes of U and at those of W carried over by f, its own inverse, because
    either may be the narrower.
    """
    low, high = max(best, float(grid.low[i])), float(grid.high[i])
    if high <= low:
        return low
    u = float(grid.ranks[i]), float(grid.n0 - grid.ranks[i] + 1)
    w = float(grid.fn[i] + 1), float(grid.n1 - grid.fn[i])
    over_u, over_w = _nodes(*u, share * CUT_OFF), _nodes(*w, share * CUT_OFF)
    below_u, above_w = special.betainc(*u, over_u), special.betaincc(*w, over_w)
    tradeoff = _tradeoff(family, delta)

    def excess(parameter: float) -> float:
        carried = tradeoff(over_w, parameter)
        order = np.argsort(np.concatenate([over_u, carried]))
        below = np.concatenate([below_u, special.betainc(*u, carried)])[order]
        above = np.concatenate([special.betaincc(*w, tradeoff(over_u, parameter)), above_w])[order]
        p = np.diff(below, prepend=0.0) @ above + 1 - below[-1] + ROUNDING
        return math.log(p / share)

    if excess(low) >= 0:
        return low
    return high if excess(high) <= 0 else float(optimize.brentq(excess, low, high, xtol=TOLERANCE)) - TOLERANCE


def _nodes(a: float, b: float, cut_off: float) -> FloatArray:
    """Even on the logit scale from the lower tail of Beta(a, b), where nothing happens, to `cut_off`, [NODES]."""
    low, high = special.betaincinv(a, b, LOWER_TAIL), special.betaincinv(b, a, cut_off)
    return np.asarray(special.expit(np.linspace(special.logit(low), -special.logit(high), NODES)))


def _decide(positive: FloatArray, negative: FloatArray, threshold: float | None) -> OperatingPoint:
    tp, fp = (0 if threshold is None else int(np.sum(side >= threshold)) for side in (positive, negative))
    return OperatingPoint(threshold, tp, len(positive), fp, len(negative))


def _above(positive: FloatArray, negative: FloatArray, cut: float) -> float | None:
    """Smallest score above the cut: the same decision written as score >= t, exact in float32 as well."""
    above = [float(side[side > cut].min()) for side in (positive, negative) if np.any(side > cut)]
    return min(above, default=None)


def _from_point(point: OperatingPoint, delta: float, alpha: float, family: Family) -> EpsilonBound:
    _check(delta, alpha, family)
    fn = point.n1 - point.tp
    limit, ceiling = (
        max(
            0.0,
            float(
                _excluded(
                    upper_limit(misses, point.n1, alpha / 2), upper_limit(alarms, point.n0, alpha / 2), delta, family
                )
            ),
        )
        for misses, alarms in ((fn, point.fp), (0, 0))
    )
    return _bound(limit, ceiling, delta, alpha, point, family)


def _bound(
    limit: float, ceiling: float, delta: float, alpha: float, point: OperatingPoint, family: Family
) -> EpsilonBound:
    if family == "dp":
        return EpsilonBound(limit, None, ceiling, delta, alpha, point, ASSUMPTIONS[family])
    eps, top = gdp_eps(limit, delta), gdp_eps(ceiling, delta)
    return EpsilonBound(eps, limit, top, delta, alpha, point, ASSUMPTIONS[family])


def _check(delta: float, alpha: float, family: Family) -> None:
    check_open("alpha", alpha)
    if family not in ASSUMPTIONS:
        raise ValueError(f"unknown family {family!r}; known: {', '.join(ASSUMPTIONS)}.")
    if not 0 <= delta < 1 or (family == "gaussian" and delta == 0):
        allowed = (
            "(0, 1): at delta 0 every Gaussian mechanism has an infinite eps" if family == "gaussian" else "[0, 1)"
        )
        raise ValueError(f"delta must be in {allowed}, got {delta}.")

"""How right categorical answers are, given as text: accuracy, macro F1, balanced accuracy, quadratic kappa, ANLS.

Texts are compared without case and surplus blanks. What was said need not be an option: such an answer is wrong, counts
in every denominator and is never dropped. Where a metric has no value the result says why.

Intervals of accuracy and of its gain are exact or provably conservative (Clopper and Pearson 1934). All others follow
one rule. Every metric is a function of how often each pair of truth and answer occurs; these counts are drawn as in the
Bayesian bootstrap (Rubin 1981: a Gamma for every count) with one unseen respondent added: for the lower limit one whose
answer is wrong (no option, worth 0), for the upper limit one who is right. For one proportion that is Clopper and
Pearson's interval again (so Fay, Proschan and Brittain 2015, whose melded intervals have one in every class), for a
mean the one of Gaffke (2005): one respondent has almost the whole range, n right ones have 3.7 / n, and no interval is
without width. Of metrics that average over k classes each class has 1 / sqrt(k) of an unseen respondent, since their
shifts add up while their errors only do so as roots; kappa has one in all, of any level.

The level is proven for one proportion and measured for the rest: tables of 2 and 5 classes, even, with rare ones, and
nearly all right, 10 to 500 respondents. Of a nominal 5% values missed 0% to 6% (kappa up to 8%) and gains 0% to 6%,
where percentile intervals missed up to 82%. From 100 respondents on values are 2% to 20% wider than these where these
hold (kappa up to 50%), gains 7% to 50% (of rare classes more, since they are unsure for both methods).
A class that is no one's truth in the sample is not spoken of: the average is over the classes seen.

Bad input (no answers, unequal lengths, a truth that is no option, repeated options) raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from privbench.stats.auc import Interval
from privbench.stats.binomial import clopper_pearson, lower_limit

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

RESAMPLES = 2000
NEAR = 0.5
"""Similarity below which ANLS gives nothing, and the credit of its lenient form for an adjacent level."""


@dataclass(frozen=True)
class Undefined:
    """A metric has no value here, and why."""

    reason: str


@dataclass(frozen=True)
class Anls:
    """lenient: with credit for an adjacent level, as published; strict: without."""

    lenient: Interval
    strict: Interval


def accuracy(truth: Sequence[str], said: Sequence[str], options: Sequence[str], level: float = 0.95) -> Interval:
    """Share of right answers with its exact interval."""
    table = _counts(truth, options, said)
    right, n = int(np.trace(table)), len(truth)
    return Interval(right / n, *clopper_pearson(right, n, level), n)


def macro_f1(
    truth: Sequence[str], said: Sequence[str], options: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """F1 averaged over the options that are anyone's truth; one that is never said has 0."""
    return _tabled(_macro_f1, _counts(truth, options, said), rng, level)


def balanced_accuracy(
    truth: Sequence[str], said: Sequence[str], options: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """Recall averaged over the options that are anyone's truth."""
    return _tabled(_balanced_accuracy, _counts(truth, options, said), rng, level)


def quadratic_kappa(
    truth: Sequence[str], said: Sequence[str], scale: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval | Undefined:
    """Agreement beyond chance on an ordinal scale, lowest first, disagreement weighed by its square (Cohen 1968).

    An answer off the scale counts as the level farthest from the truth. 0 when all truths are one level and something
    else is said; `Undefined` when truths and answers are all the same level.
    """
    table = _counts(truth, scale, said)
    if np.isnan(_kappa(table[None].astype(np.float64))).any():
        return Undefined(f"all {len(truth)} truths and answers are the same: no agreement beyond chance can be seen")
    return _tabled(_kappa, table, rng, level)


def anls(
    truth: Sequence[str],
    said: Sequence[str],
    scale: Sequence[str],
    rng: np.random.Generator,
    level: float = 0.95,
) -> Anls:
    """Average normalised Levenshtein similarity (Biten et al. 2019): 1 - distance / longer length, and 0 below .5.

    scale: levels from the lowest to the highest, () where the answers have no order. Its neighbours of the truth are
    worth at least .5 in the lenient form. Both forms flatter: "agree" for "disagree" is worth .63. Never alone, always
    beside accuracy.
    """
    lenient, strict = _similarities(truth, said, scale)
    return Anls(_mean(lenient, 0.0, rng, level), _mean(strict, 0.0, rng, level))


def gain(
    metric: str,
    truth: Sequence[str],
    said: Sequence[str],
    base: Sequence[str],
    options: Sequence[str],
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """How much more right `said` is than `base` about the same respondents, by "accuracy", "macro F1", "balanced
    accuracy", "quadratic kappa", "ANLS" (lenient) or "ANLS strict"; the interval is of respondents with both answers.

    options: from the lowest to the highest for kappa and ANLS, where they have an order. A kappa without a value counts
    as no agreement. The interval in accuracy is provably conservative: above 0 only where the exact McNemar test
    rejects at this level. In the others the unseen respondent is one whom one of the two gets right and the other not.
    """
    if metric == "accuracy":
        return _accuracy_gain(_counts(truth, options, said, base), level)
    if metric in _TABLED:
        return _gain(_TABLED[metric], _counts(truth, options, said, base), rng, level)
    strict = metric == "ANLS strict"
    if not strict and metric != "ANLS":
        known = ", ".join(("accuracy", *_TABLED, "ANLS", "ANLS strict"))
        raise ValueError(f"no gain in '{metric}'; there is one in {known}.")
    ours, theirs = (_similarities(truth, one, options)[strict] for one in (said, base))
    return _mean(ours - theirs, -1.0, rng, level)


def over_seeds(values: Sequence[float], level: float = 0.95) -> Interval | Undefined:
    """Mean over runs that differ in their seed, with Student's t interval; one run has no spread: `Undefined`."""
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"values over seeds must be finite, got {list(values)}.")
    if len(values) < 2:
        return Undefined(f"{len(values)} seeds have no spread; an interval needs 2 or more")
    mean = float(np.mean(values))
    half = float(stats.t.isf((1 - level) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, len(values))


def _similarities(truth: Sequence[str], said: Sequence[str], scale: Sequence[str]) -> tuple[Array, Array]:
    """Lenient and strict similarity of each pair [n]."""
    from rapidfuzz.distance import Levenshtein

    _check(truth, said)
    levels = {_normal(item): number for number, item in enumerate(scale)}
    pairs = [(_normal(t), _normal(s)) for t, s in zip(truth, said, strict=True)]
    near = [Levenshtein.normalized_similarity(t, s) for t, s in pairs]
    strict = np.array([value if value >= NEAR else 0.0 for value in near])
    adjacent = np.array([t in levels and s in levels and abs(levels[t] - levels[s]) == 1 for t, s in pairs])
    return np.where(adjacent, np.maximum(strict, NEAR), strict), strict


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold()


def _check(truth: Sequence[str], said: Sequence[str]) -> None:
    if not truth or len(truth) != len(said):
        raise ValueError(f"need as many answers as truths and at least 1, got {len(said)} and {len(truth)}.")


def _counts(truth: Sequence[str], options: Sequence[str], *answers: Sequence[str]) -> Counts:
    """How often each option [K] was answered by each option, and in the last place by none of them: [K, K + 1] for one
    method's answers, [K, K + 1, K + 1] for two.
    """
    for said in answers:
        _check(truth, said)
    place = {_normal(option): number for number, option in enumerate(options)}
    if len(place) < len(options):
        raise ValueError(f"options must differ (without case and blanks), got {list(options)}.")
    if strange := sorted({t for t in truth if _normal(t) not in place}):
        raise ValueError(f"truth {strange[0]!r} is none of the options {list(options)}.")
    codes = [np.array([place.get(_normal(text), len(place)) for text in texts]) for texts in (truth, *answers)]
    counts = np.zeros((len(place), *[len(place) + 1] * len(answers)), dtype=np.int64)
    np.add.at(counts, tuple(codes), 1)
    return counts


def _accuracy_gain(counts: Counts, level: float) -> Interval:
    """Of d, the share of respondents with one of two answers right, and w, our share of these, the gain is d (2 w - 1).

    Each side's error is split between exact limits of d of n and of w of those counted, given their number. A lower
    limit of w above 1/2 takes the lower limit of d, one below takes the upper. Conservative: below a true w of 1/2 only
    the upper one is ever taken while that of w holds, and above it a negative limit cannot be wrong.
    """
    n, each = int(counts.sum()), np.arange(len(counts))
    both = int(counts[each, each, each].sum())
    wins, losses = int(counts[each, each].sum()) - both, int(counts[each, :, each].sum()) - both
    unlike = wins + losses
    fewest, most = clopper_pearson(unlike, n, (1 + level) / 2)

    def least(won: int) -> float:
        ahead = 2 * lower_limit(won, unlike, (1 - level) / 4) - 1 if unlike else -1.0
        return ahead * (fewest if ahead > 0 else most)

    return Interval((wins - losses) / n, least(wins), -least(losses), n)


def _gain(metric: Callable[[Array], Array], counts: Counts, rng: np.random.Generator, level: float) -> Interval:
    """counts: [K, K + 1, K + 1], of our answers and the baseline's."""

    def gained(drawn: Array) -> Array:
        gain: Array = np.nan_to_num(metric(drawn.sum(3))) - np.nan_to_num(metric(drawn.sum(2)))
        return gain

    each, unseen = np.arange(len(counts)), _unseen(metric, counts)
    worse, better = np.zeros((2, *counts.shape))
    worse[each, -1, each] = better[each, each, -1] = unseen
    return _limits(gained, counts, worse, better, rng, level)


def _tabled(metric: Callable[[Array], Array], table: Counts, rng: np.random.Generator, level: float) -> Interval:
    each, unseen = np.arange(len(table)), _unseen(metric, table)
    worse, better = np.zeros((2, *table.shape))
    worse[:, -1] = better[each, each] = unseen
    return _limits(metric, table, worse, better, rng, level)


def _mean(values: Array, worst: float, rng: np.random.Generator, level: float) -> Interval:
    """Mean over respondents of values between `worst` and 1; those of equal value are exchangeable."""
    distinct, counts = np.unique([*values, worst, 1.0], return_counts=True)
    worse, better = (distinct == end for end in (worst, 1.0))

    def mean(drawn: Array) -> Array:
        weighed: Array = drawn @ distinct / drawn.sum(1)
        return weighed

    return _limits(mean, counts - worse - better, worse.astype(float), better.astype(float), rng, level)


def _unseen(metric: Callable[[Array], Array], counts: Counts) -> Array:
    """How many unseen respondents each option has as their truth [K]."""
    options = len(counts)
    if metric is _kappa:
        return np.full(options, 1 / options)
    seen = counts.reshape(options, -1).any(axis=1)
    share: Array = seen / np.sqrt(seen.sum())
    return share


def _limits(
    metric: Callable[[Array], Array],
    counts: Counts,
    worse: Array,
    better: Array,
    rng: np.random.Generator,
    level: float,
) -> Interval:
    """metric: counts [B, ...] -> [B]; worse, better: the unseen respondents of either limit, shaped as counts."""
    value = float(metric(counts[None].astype(np.float64))[0])
    size = (RESAMPLES, *counts.shape)
    drawn = rng.standard_gamma(counts, size=size)
    tail = (1 - level) / 2
    low = float(np.quantile(metric(drawn + rng.standard_gamma(worse, size=size)), tail))
    high = float(np.quantile(metric(drawn + rng.standard_gamma(better, size=size)), 1 - tail))
    return Interval(value, min(low, value), max(high, value), int(counts.sum()))


def _macro_f1(tables: Array) -> Array:
    right = np.diagonal(tables, axis1=1, axis2=2)
    true, said = tables.sum(2), tables[:, :, :-1].sum(1)
    return _over_seen(2 * right, true + said, true > 0)


def _balanced_accuracy(tables: Array) -> Array:
    right, true = np.diagonal(tables, axis1=1, axis2=2), tables.sum(2)
    return _over_seen(right, true, true > 0)


def _over_seen(part: Array, whole: Array, seen: npt.NDArray[np.bool_]) -> Array:
    """Mean of part / whole [B, K] over the options that are anyone's truth."""
    mean: Array = np.divide(part, whole, out=np.zeros_like(part), where=seen).sum(1) / seen.sum(1)
    return mean


def _kappa(tables: Array) -> Array:
    """An answer off the scale counts as the level farthest from the truth."""
    levels = np.arange(tables.shape[1])
    farthest = np.where(levels < len(levels) / 2, len(levels) - 1, 0)
    tables, strange = tables[:, :, :-1].copy(), tables[:, :, -1]
    tables[:, levels, farthest] += strange
    weight = (levels[:, None] - levels[None]) ** 2
    n = tables.sum((1, 2))
    observed = (weight * tables).sum((1, 2))
    expected = np.einsum("bi,ij,bj->b", tables.sum(2), weight, tables.sum(1)) / n
    kappa: Array = 1 - np.divide(observed, expected, out=np.full(len(tables), np.nan), where=expected > 0)
    return kappa


_TABLED: Mapping[str, Callable[[Array], Array]] = {
    "macro F1": _macro_f1,
    "balanced accuracy": _balanced_accuracy,
    "quadratic kappa": _kappa,
}

"""How right categorical answers are, given as text: accuracy, macro F1, balanced accuracy, quadratic kappa, ANLS.

Texts are compared without case and surplus blanks. What was said need not be an option: such an answer is wrong, counts
in every denominator and is never dropped. Every metric is a function of how often each pair of truth and answer occurs,
so that its bootstrap over respondents (Efron 1979, percentile interval) draws these counts from their multinomial.
Accuracy has its exact interval instead (Clopper and Pearson 1934). Where all answers are right the bootstrap has no
width: accuracy's interval then says what that is worth. Where a metric has no value the result says why.

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
from privbench.stats.binomial import clopper_pearson

Array = npt.NDArray[np.float64]

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
    table = _table(truth, said, options)
    right, n = int(np.trace(table)), len(truth)
    return Interval(right / n, *clopper_pearson(right, n, level), n)


def macro_f1(
    truth: Sequence[str], said: Sequence[str], options: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """F1 averaged over the options that are anyone's truth; one that is never said has 0."""
    return _bootstrap(_macro_f1, _table(truth, said, options), rng, level)


def balanced_accuracy(
    truth: Sequence[str], said: Sequence[str], options: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval:
    """Recall averaged over the options that are anyone's truth."""
    return _bootstrap(_balanced_accuracy, _table(truth, said, options), rng, level)


def quadratic_kappa(
    truth: Sequence[str], said: Sequence[str], scale: Sequence[str], rng: np.random.Generator, level: float = 0.95
) -> Interval | Undefined:
    """Agreement beyond chance on an ordinal scale, lowest first, disagreement weighed by its square (Cohen 1968).

    An answer off the scale counts as the level farthest from the truth. 0 when all truths are one level and something
    else is said; `Undefined` when truths and answers are all the same level. A resample of that kind is taken as -1 for
    the lower limit and as 1 for the upper.
    """
    table = _table(truth, said, scale)
    if table[:, :-1].diagonal().max() == len(truth):
        return Undefined(f"all {len(truth)} truths and answers are the same: no agreement beyond chance can be seen")
    return _bootstrap(_kappa, table, rng, level, widest=(-1.0, 1.0))


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
    return Anls(_mean(lenient, rng, level), _mean(strict, rng, level))


def gain(
    metric: str,
    truth: Sequence[str],
    said: Sequence[str],
    base: Sequence[str],
    options: Sequence[str],
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """How much more right `said` is than `base` about the same respondents, by "accuracy", "macro F1", "quadratic
    kappa", "ANLS" (lenient) or "ANLS strict"; the interval draws respondents with both of their answers.

    options: from the lowest to the highest for kappa and ANLS, where they have an order. A resample without a value, of
    kappa alone, counts as no agreement.
    """
    if metric in _TABLED:
        both = np.stack([_table(truth, base, options), _table(truth, said, options)])
        return _paired(_TABLED[metric], both, _triples(truth, said, base, options), rng, level)
    strict = metric == "ANLS strict"
    if not strict and metric != "ANLS":
        raise ValueError(f"no gain in '{metric}'; there is one in {', '.join((*_TABLED, 'ANLS', 'ANLS strict'))}.")
    ours, theirs = (_similarities(truth, one, options)[strict] for one in (said, base))
    return _mean(ours - theirs, rng, level)


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


def _table(truth: Sequence[str], said: Sequence[str], options: Sequence[str]) -> npt.NDArray[np.int64]:
    """How often each option [K] was answered by each option, and in the last column by none of them [K, K + 1]."""
    _check(truth, said)
    place = {_normal(option): number for number, option in enumerate(options)}
    if len(place) < len(options):
        raise ValueError(f"options must differ (without case and blanks), got {list(options)}.")
    if strange := sorted({t for t in truth if _normal(t) not in place}):
        raise ValueError(f"truth {strange[0]!r} is none of the options {list(options)}.")
    rows = np.array([place[_normal(t)] for t in truth])
    columns = np.array([place.get(_normal(s), len(place)) for s in said])
    table = np.zeros((len(place), len(place) + 1), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _triples(
    truth: Sequence[str], said: Sequence[str], base: Sequence[str], options: Sequence[str]
) -> npt.NDArray[np.int64]:
    """How often each option was answered so by the one and so by the other, [K, K + 1, K + 1]."""
    place = {_normal(option): number for number, option in enumerate(options)}
    codes = [[place.get(_normal(text), len(place)) for text in texts] for texts in (truth, said, base)]
    counts = np.zeros((len(place), len(place) + 1, len(place) + 1), dtype=np.int64)
    np.add.at(counts, tuple(map(np.array, codes)), 1)
    return counts


def _paired(
    metric: Callable[[Array], Array],
    both: npt.NDArray[np.int64],
    triples: npt.NDArray[np.int64],
    rng: np.random.Generator,
    level: float,
) -> Interval:
    """both: tables of the baseline and of what is compared with it."""
    n = int(triples.sum())
    base, ours = np.nan_to_num(metric(both.astype(np.float64)))
    drawn = rng.multinomial(n, triples.ravel() / n, size=RESAMPLES).reshape(-1, *triples.shape).astype(np.float64)
    gains = np.nan_to_num(metric(drawn.sum(3))) - np.nan_to_num(metric(drawn.sum(2)))
    low, high = np.quantile(gains, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(ours - base), float(low), float(high), n)


def _bootstrap(
    metric: Callable[[Array], Array],
    table: npt.NDArray[np.int64],
    rng: np.random.Generator,
    level: float,
    widest: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """metric: [B, K, K'] -> [B]; a resample where it is NaN counts as the two widest values."""
    n = int(table.sum())
    value = float(metric(table[None].astype(np.float64))[0])
    cells = table.ravel() / n
    drawn = metric(rng.multinomial(n, cells, size=RESAMPLES).reshape(-1, *table.shape).astype(np.float64))
    low, high = (np.where(np.isnan(drawn), end, drawn) for end in widest)
    tail = (1 - level) / 2
    return Interval(value, float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail)), n)


def _mean(values: Array, rng: np.random.Generator, level: float) -> Interval:
    """Mean over respondents; respondents of equal value are exchangeable, so their numbers are drawn."""
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(len(values), counts / len(values), size=RESAMPLES) @ distinct / len(values)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high), len(values))


def _macro_f1(tables: Array) -> Array:
    right = np.diagonal(tables, axis1=1, axis2=2)
    true, said = tables.sum(2), tables[:, :, :-1].sum(1)
    f1 = 2 * right / np.maximum(true + said, 1)
    averaged: Array = (f1 * (true > 0)).sum(1) / (true > 0).sum(1)
    return averaged


def _balanced_accuracy(tables: Array) -> Array:
    right, true = np.diagonal(tables, axis1=1, axis2=2), tables.sum(2)
    recall: Array = (right / np.maximum(true, 1)).sum(1) / (true > 0).sum(1)
    return recall


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


def _accuracy(tables: Array) -> Array:
    right: Array = np.trace(tables, axis1=1, axis2=2) / tables.sum((1, 2))
    return right


_TABLED: Mapping[str, Callable[[Array], Array]] = {
    "accuracy": _accuracy,
    "macro F1": _macro_f1,
    "quadratic kappa": _kappa,
}

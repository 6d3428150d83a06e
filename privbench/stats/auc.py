"""Area under the ROC curve with ties counted half, its macro average, and paired differences.

Intervals are asymptotic (DeLong, DeLong, Clarke-Pearson 1988; by midranks, Sun and Xu 2014): they inform and never
decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float
    n: int


def auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any], level: float = 0.95) -> Interval:
    """AUC of scores [N] for labels [N] (1 is positive) with its DeLong interval, on the logit scale.

    Raises ValueError when a class is missing or a score is NaN.
    """
    wins1, wins0 = _placements(scores, labels)
    variance = _mean_variance(wins1) + _mean_variance(wins0)
    smaller = min(len(wins1), len(wins0))
    return _interval(float(wins1.mean()), math.sqrt(variance), level, len(wins1) + len(wins0), smaller)


def macro_auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any], level: float = 0.95) -> Interval:
    """Mean AUC over the columns of scores and labels [N, L]; columns with one class are left out.

    The labels of one record are correlated: the interval sums each record's influence over the columns first.
    """
    values, influence = _macro(scores, labels)
    error = math.sqrt(_mean_variance(influence))
    smaller = int(min(min(column.sum(), len(column) - column.sum()) for column in _two_class(labels).T))
    return _interval(float(values.mean()), error, level, len(influence), smaller)


def macro_gain(
    scores: npt.NDArray[Any], reference: npt.NDArray[Any], labels: npt.NDArray[Any], level: float = 0.95
) -> Interval:
    """Macro AUC of `scores` less that of `reference` on the same records, all [N, L]: paired, shared luck cancels."""
    (values, influence), (other_values, other_influence) = _macro(scores, labels), _macro(reference, labels)
    gain = float(values.mean() - other_values.mean())
    half = _quantile(level) * math.sqrt(_mean_variance(influence - other_influence))
    return Interval(gain, gain - half, gain + half, len(influence))


def _placements(scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Share of negatives that each positive beats [n1], and of positives that beat each negative [n0]; ties half."""
    scores = np.asarray(scores, dtype=np.float64)
    positive = np.asarray(labels) == 1
    n1, n0 = int(positive.sum()), int((~positive).sum())
    if np.isnan(scores).any():
        raise ValueError("scores hold NaN.")
    if n1 == 0 or n0 == 0:
        raise ValueError(f"AUC needs both classes, got {n1} positives and {n0} negatives.")
    overall = stats.rankdata(scores)
    wins1 = (overall[positive] - stats.rankdata(scores[positive])) / n0
    wins0 = 1 - (overall[~positive] - stats.rankdata(scores[~positive])) / n1
    return wins1, wins0


def _macro(scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tuple[Array, Array]:
    """AUC per two-class column [L], and the influence of each record on their mean [N]."""
    kept = [j for j in range(labels.shape[1]) if 0 < (labels[:, j] == 1).sum() < len(labels)]
    if not kept:
        raise ValueError(f"AUC needs both classes in some column; none of {labels.shape[1]} has them.")
    values, influence = np.zeros(len(kept)), np.zeros(len(labels))
    for k, j in enumerate(kept):
        wins1, wins0 = _placements(scores[:, j], labels[:, j])
        values[k] = wins1.mean()
        positive = labels[:, j] == 1
        influence[positive] += (wins1 - values[k]) / positive.mean() / len(kept)
        influence[~positive] += (wins0 - values[k]) / (~positive).mean() / len(kept)
    return values, influence


def _two_class(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    ones = np.asarray(labels) == 1
    return np.asarray(ones[:, ones.any(axis=0) & ~ones.all(axis=0)])


def _mean_variance(values: Array) -> float:
    """Variance of a mean; a single value is given the largest variance a share can have."""
    return float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.25


def _interval(value: float, error: float, level: float, n: int, smaller: int) -> Interval:
    """On the logit scale, so that it stays inside (0, 1). A perfect order of few records proves little: its end is
    the chance at which it happens among the smaller class.
    """
    if value in (0.0, 1.0):
        end = ((1 - level) / 2) ** (1 / max(smaller, 1))
        return Interval(value, end if value == 1 else 0.0, 1.0 if value == 1 else 1 - end, n)
    half = _quantile(level) * error / (value * (1 - value))
    logit = math.log(value / (1 - value))
    return Interval(value, float(special.expit(logit - half)), float(special.expit(logit + half)), n)


def _quantile(level: float) -> float:
    return float(stats.norm.isf((1 - level) / 2))

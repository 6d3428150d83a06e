"""Area under the ROC curve with ties counted half, and its asymptotic interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float
    n: int


def auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any], level: float = 0.95) -> Interval:
    """AUC and its DeLong interval (DeLong, DeLong, Clarke-Pearson 1988; by midranks, Sun and Xu 2014).

    The interval is taken on the logit scale, so that it stays inside (0, 1). It informs and never decides.
    Raises ValueError when a class is missing or a score is NaN.
    """
    scores = np.asarray(scores, dtype=np.float64)
    positive = np.asarray(labels) == 1
    n1, n0 = int(positive.sum()), int((~positive).sum())
    if np.isnan(scores).any():
        raise ValueError("scores hold NaN.")
    if n1 == 0 or n0 == 0:
        raise ValueError(f"AUC needs both classes, got {n1} positives and {n0} negatives.")
    overall = stats.rankdata(scores)
    inside1 = stats.rankdata(scores[positive])
    inside0 = stats.rankdata(scores[~positive])
    share1 = (overall[positive] - inside1) / n0
    share0 = 1 - (overall[~positive] - inside0) / n1
    value = float(share1.mean())
    variance = (np.var(share1, ddof=1) / n1 if n1 > 1 else 0.25) + (np.var(share0, ddof=1) / n0 if n0 > 1 else 0.25)
    if value in (0.0, 1.0):
        return Interval(value, value, value, n1 + n0)
    logit = math.log(value / (1 - value))
    half = float(stats.norm.isf((1 - level) / 2)) * math.sqrt(variance) / (value * (1 - value))
    return Interval(value, _expit(logit - half), _expit(logit + half), n1 + n0)


def mean_interval(intervals: list[Interval]) -> Interval:
    """Macro average; the interval is the mean of the ends, which is wide enough whatever the correlation."""
    return Interval(
        float(np.mean([item.value for item in intervals])),
        float(np.mean([item.low for item in intervals])),
        float(np.mean([item.high for item in intervals])),
        intervals[0].n,
    )


def _expit(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))

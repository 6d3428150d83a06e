"""Points of the ROC curve at the decision score >= t, and nothing between them.

A vertex stands only where a block of equal scores ends: inside a block no threshold separates the records, so a
curve drawn through it depends on the order in which they happen to be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.stats.binomial import clopper_pearson

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

RESOLUTION = 10
"""False positives that a target FPR must allow before TPR at that FPR is a measurement."""

ROUNDING = 1 + 1e-12
"""So that an FPR of .07 on 100 negatives allows 7 false positives, not 6."""


@dataclass(frozen=True, eq=False)
class Roc:
    """Vertices from the empty decision to the full one; all arrays are [V].

    At vertex v every score >= threshold[v] is called 1: tp[v] of the n1 records of label 1 and fp[v] of the n0 of
    label 0. threshold[0] is infinite: nothing is called 1.
    """

    threshold: FloatArray
    tp: IntArray
    fp: IntArray
    n1: int
    n0: int

    @property
    def tpr(self) -> FloatArray:
        return self.tp / self.n1

    @property
    def fpr(self) -> FloatArray:
        return self.fp / self.n0


@dataclass(frozen=True)
class OperatingPoint:
    """One decision score >= threshold and its counts; threshold None: nothing is called 1."""

    threshold: float | None
    tp: int
    n1: int
    fp: int
    n0: int

    @property
    def tpr(self) -> float:
        return self.tp / self.n1

    @property
    def fpr(self) -> float:
        return self.fp / self.n0


@dataclass(frozen=True)
class TprAtFpr:
    """TPR at the last vertex whose FPR is at most `target`; [low, high] is its Clopper-Pearson interval.

    `under_resolved`: fewer than 10 / target negatives. The realised FPR is then mostly luck and TPR reads too high
    (200 negatives at a target of .001: .053 where .018 is true).
    """

    target: float
    point: OperatingPoint
    low: float
    high: float
    under_resolved: bool

    @property
    def value(self) -> float:
        return self.point.tpr


@dataclass(frozen=True)
class Advantage:
    """max over thresholds of TPR - FPR (Yeom et al. 2018), and where it is reached.

    The maximum is picked on the scored records, so it is positive without any leakage: report it, never test with it.
    """

    value: float
    point: OperatingPoint


def split_by_label(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Scores of label 1 [n1] and of label 0 [n0] out of scores [n] and labels [n], each in the order given.

    Raises ValueError when the shapes differ or are not [n], a score is NaN or infinite (no threshold is above an
    infinite score), a label is neither 0 nor 1, or a class is missing.
    """
    values, given = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if values.ndim != 1 or values.shape != given.shape:
        raise ValueError(f"scores and labels must be two vectors of one length, got {values.shape} and {given.shape}.")
    check_finite("scores", values)
    positive = given == 1
    if not np.all(positive | (given == 0)):
        raise ValueError("labels must be 0 or 1 (out or in).")
    if positive.all() or not positive.any():
        n1 = int(positive.sum())
        raise ValueError(f"both classes are needed, got {n1} records of label 1 and {len(values) - n1} of label 0.")
    return values[positive], values[~positive]


def check_finite(name: str, values: npt.NDArray[Any]) -> None:
    """Raises ValueError when an entry is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity; clip infinite values with numpy.clip.")


def roc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> Roc:
    """All vertices for scores [n] and labels [n]; errors as in `split_by_label`."""
    positive, negative = split_by_label(scores, labels)
    values = np.concatenate([positive, negative])
    order = np.argsort(values)[::-1]
    ordered = values[order]
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(values) - 1)
    tp = np.cumsum(order < len(positive))[ends]
    return Roc(
        threshold=np.append(np.inf, ordered[ends]),
        tp=np.append(0, tp),
        fp=np.append(0, ends + 1 - tp),
        n1=len(positive),
        n0=len(negative),
    )


def tpr_at_fpr(scores: npt.ArrayLike, labels: npt.ArrayLike, target: float, level: float = 0.95) -> TprAtFpr:
    """TPR at an FPR of at most `target`, with no interpolation; errors as in `split_by_label`.

    The vertex is found from the negatives alone, so the interval (exact, two-sided, at `level`) holds for the TPR of
    the threshold that was realised. It does not hold for TPR at exactly `target`: see `under_resolved`.
    Raises ValueError when target or level is outside (0, 1).
    """
    check_open("target FPR", target)
    check_open("level", level)
    curve = roc(scores, labels)
    allowed = target * curve.n0 * ROUNDING
    point = _point(curve, int(np.searchsorted(curve.fp, allowed, side="right")) - 1)
    low, high = clopper_pearson(point.tp, point.n1, level)
    return TprAtFpr(target, point, low, high, under_resolved=allowed < RESOLUTION)


def advantage(scores: npt.ArrayLike, labels: npt.ArrayLike) -> Advantage:
    """Largest TPR - FPR over all thresholds, at least 0; errors as in `split_by_label`."""
    curve = roc(scores, labels)
    # In whole records, so that equal gaps compare equal and the highest threshold wins.
    point = _point(curve, int(np.argmax(curve.tp * curve.n0 - curve.fp * curve.n1)))
    return Advantage(point.tpr - point.fpr, point)


def check_open(name: str, value: float) -> None:
    """Raises ValueError unless 0 < value < 1 (NaN included)."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}.")


def _point(curve: Roc, vertex: int) -> OperatingPoint:
    return OperatingPoint(
        threshold=float(curve.threshold[vertex]) if vertex else None,
        tp=int(curve.tp[vertex]),
        n1=curve.n1,
        fp=int(curve.fp[vertex]),
        n0=curve.n0,
    )

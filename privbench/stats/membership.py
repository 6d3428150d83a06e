"""Membership scores from reference models: LiRA (Carlini et al. 2022) and RMIA (Zarifzadeh, Liu, Shokri 2024).

Shapes everywhere: target [N], one number per record from the audited model; references [R, N], the same from R
reference models; member [R, N], bool, whether reference r was trained on record n. Higher scores = more likely in.
LiRA takes scaled logits (`logit_margin`), RMIA probabilities of the true label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.stats.auc import auc
from privbench.stats.roc import check_finite

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Variance = Literal["auto", "pooled", "record"]

FEW = 32
"""References per side below which a record's own variance is noisier than one pooled over all records."""


@dataclass(frozen=True, eq=False)
class Population:
    """Probabilities of Z records that neither the target nor any reference saw: target [Z], references [R, Z]."""

    target: npt.ArrayLike
    references: npt.ArrayLike


def logit_margin(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """phi = z_y - logsumexp of the other logits = log p / (1 - p), stable; logits [..., C], labels [...] -> [...].

    Raises ValueError for fewer than two classes, shapes that do not fit, a label outside 0..C-1 or a logit not finite.
    """
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if z.ndim == 0 or z.shape[-1] < 2 or z.shape[:-1] != y.shape:
        raise ValueError(f"logits must be [..., C] with C >= 2 and labels [...], got {z.shape} and {y.shape}.")
    check_finite("logits", z)
    if not np.issubdtype(y.dtype, np.integer) or np.any((y < 0) | (y >= z.shape[-1])):
        raise ValueError(f"labels must be integers in 0..{z.shape[-1] - 1}.")
    index = y[..., None]
    others = z.copy()
    np.put_along_axis(others, index, -np.inf, axis=-1)
    margin: FloatArray = np.take_along_axis(z, index, axis=-1)[..., 0] - special.logsumexp(others, axis=-1)
    return margin


def lira_online(
    target: npt.ArrayLike, references: npt.ArrayLike, member: npt.ArrayLike, *, variance: Variance = "auto"
) -> FloatArray:
    """log N(phi; IN mean, IN variance) - log N(phi; OUT mean, OUT variance) per record, [N].

    variance: "record" is each record's own (ddof 1), "pooled" one over all records (of deviations from each record's
    mean), "auto" is pooled on a side where some record has fewer than 32 references.
    Raises ValueError when a record has fewer than 2 references on a side, references do not vary at all, an entry is
    not finite or the shapes do not fit.
    """
    phi, scores, mask = _checked(target, references, member)
    (mean_in, var_in), (mean_out, var_out) = (_moments(scores, side, variance) for side in (mask, ~mask))
    return 0.5 * ((phi - mean_out) ** 2 / var_out - (phi - mean_in) ** 2 / var_in + np.log(var_out / var_in))


def lira_offline(
    target: npt.ArrayLike, references: npt.ArrayLike, member: npt.ArrayLike, *, variance: Variance = "auto"
) -> FloatArray:
    """log Phi((phi - OUT mean) / OUT std) per record, [N]; only references that did not see the record count.

    One-sided: a record far below its OUT scores is no member. The log density would call it one.
    `variance` and errors as in `lira_online`.
    """
    phi, scores, mask = _checked(target, references, member)
    mean, var = _moments(scores, ~mask, variance)
    result: FloatArray = special.log_ndtr((phi - mean) / np.sqrt(var))
    return result


def rmia_online(
    target: npt.ArrayLike,
    references: npt.ArrayLike,
    member: npt.ArrayLike,
    population: Population,
    *,
    gamma: float = 2.0,
) -> FloatArray:
    """Share of population records z with [p(x|target) / p(x)] / [p(z|target) / p(z)] >= gamma, [N] in [0, 1].

    p(x) = (IN mean + OUT mean) / 2; p(z), whom no reference saw, is the plain mean.
    Raises ValueError when a record lacks an IN or an OUT reference, an entry is not a probability, gamma is not
    positive or the shapes do not fit.
    """
    p, scores, mask = _probabilities(target, references, member)
    z, z_references = _checked_population(population, len(scores))
    prior = (_mean(scores, mask, "in") + _mean(scores, ~mask, "out")) / 2
    return _share_beaten(p, prior, z, z_references.mean(axis=0), gamma)


def rmia_offline(
    target: npt.ArrayLike,
    references: npt.ArrayLike,
    member: npt.ArrayLike,
    population: Population,
    *,
    offset: float,
    gamma: float = 2.0,
) -> FloatArray:
    """As `rmia_online` with p(x) = ((1 + a) OUT mean + 1 - a) / 2, a = `offset` in [0, 1] (see `tune_offset`), [N].

    The OUT mean is over that record's own OUT references. p(z) is corrected in the same way.
    Raises ValueError as `rmia_online` does (no IN reference is needed) and for an offset outside [0, 1].
    """
    p, scores, mask = _probabilities(target, references, member)
    z, z_references = _checked_population(population, len(scores))
    out, z_out = _mean(scores, ~mask, "out"), z_references.mean(axis=0)
    return _share_beaten(p, _corrected(out, offset), z, _corrected(z_out, offset), gamma)


def tune_offset(
    references: npt.ArrayLike,
    member: npt.ArrayLike,
    population: Population,
    *,
    pseudo_target: int = 0,
    gamma: float = 2.0,
    offsets: Sequence[float] = tuple(np.linspace(0.0, 1.0, 11).tolist()),
) -> float:
    """The offset with the best AUC of `rmia_offline` against one reference, attacked with the others.

    The pseudo-target brings everything of its own: its scores of x and of z and its membership. Nothing of the true
    target enters, least of all who its members are. The first of equally good offsets is taken.
    Raises ValueError as `rmia_offline` does, and for fewer than two references or no offsets.
    """
    scores, mask = np.asarray(references, dtype=np.float64), np.asarray(member)
    if scores.ndim != 2 or not 0 <= pseudo_target < len(scores) or len(scores) < 2 or not offsets:
        raise ValueError(
            f"need references [R, N] with R >= 2, a pseudo-target in 0..R-1 and offsets, got {scores.shape}, "
            f"{pseudo_target} and {len(offsets)} offsets."
        )
    p, scores, mask = _probabilities(scores[pseudo_target], scores, mask)
    _, z_references = _checked_population(population, len(scores))
    others = np.arange(len(scores)) != pseudo_target
    truth, z = mask[pseudo_target], z_references[pseudo_target]
    # A record whose only OUT reference was the pseudo-target has no prior without it: it cannot help to tune.
    usable = ~mask[others].all(axis=0)
    out, z_out = _mean(scores[others][:, usable], ~mask[others][:, usable], "out"), z_references[others].mean(axis=0)

    def quality(offset: float) -> float:
        shares = _share_beaten(p[usable], _corrected(out, offset), z, _corrected(z_out, offset), gamma)
        return auc(shares, truth[usable]).value

    return max(offsets, key=quality)


def _share_beaten(p: FloatArray, prior: FloatArray, z: FloatArray, z_prior: FloatArray, gamma: float) -> FloatArray:
    """By sorting the ratios of z once and searching those of x: no [N, Z] matrix."""
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, got {gamma}.")
    tiny = np.finfo(np.float64).tiny  # p = prior = 0 is a ratio of 0, not NaN
    beaten = np.sort(z / np.maximum(z_prior, tiny))
    return np.searchsorted(beaten, p / np.maximum(prior, tiny) / gamma, side="right") / len(beaten)


def _corrected(out: FloatArray, offset: float) -> FloatArray:
    if not 0 <= offset <= 1:
        raise ValueError(f"the offset must be in [0, 1], got {offset}.")
    return ((1 + offset) * out + 1 - offset) / 2


def _mean(scores: FloatArray, side: BoolArray, name: str) -> FloatArray:
    counts = side.sum(axis=0)
    if counts.min() < 1:
        raise ValueError(f"record {int(counts.argmin())} has no {name.upper()} reference.")
    mean: FloatArray = np.einsum("rn,rn->n", scores, side) / counts
    return mean


def _moments(scores: FloatArray, side: BoolArray, variance: Variance) -> tuple[FloatArray, FloatArray]:
    """Mean and variance [N] per record over the references of one side."""
    counts = side.sum(axis=0)
    if counts.min() < 2:
        raise ValueError(f"record {int(counts.argmin())} has {int(counts.min())} references on a side, 2 are needed.")
    mean = np.einsum("rn,rn->n", scores, side) / counts
    deviation = (scores - mean) * side
    squares = np.einsum("rn,rn->n", deviation, deviation)
    pooled = squares.sum() / (counts - 1).sum()
    # Means are rounded, so scores that agree exactly may still deviate in the last digit.
    if pooled <= (1e-12 * np.abs(mean).max()) ** 2:
        raise ValueError("the references of every record agree exactly: are they copies of one model?")
    if variance not in ("auto", "pooled", "record"):
        raise ValueError(f"variance must be auto, pooled or record, got {variance!r}.")
    if variance == "pooled" or (variance == "auto" and counts.min() < FEW):
        return mean, np.full_like(mean, pooled)
    own = squares / (counts - 1)
    # References of a record that agree exactly (saturated scores) do not show a variance of zero.
    return mean, np.where(own > 1e-12 * pooled, own, pooled)


def _checked(
    target: npt.ArrayLike, references: npt.ArrayLike, member: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    one, many, mask = np.asarray(target, dtype=np.float64), np.asarray(references, dtype=np.float64), np.asarray(member)
    if one.ndim != 1 or one.size == 0 or many.shape[1:] != one.shape or mask.shape != many.shape:
        raise ValueError(
            f"need target [N], references [R, N] and member [R, N], got {one.shape}, {many.shape} and {mask.shape}."
        )
    if mask.dtype != np.bool_:
        if not np.all((mask == 0) | (mask == 1)):
            raise ValueError("member must be bool, or 0 and 1.")
        mask = mask == 1
    check_finite("target", one)
    check_finite("references", many)
    return one, many, mask


def _probabilities(
    target: npt.ArrayLike, references: npt.ArrayLike, member: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    one, many, mask = _checked(target, references, member)
    _check_range("target", one)
    _check_range("references", many)
    return one, many, mask


def _checked_population(population: Population, references: int) -> tuple[FloatArray, FloatArray]:
    one = np.asarray(population.target, dtype=np.float64)
    many = np.asarray(population.references, dtype=np.float64)
    if one.ndim != 1 or one.size == 0 or many.shape != (references, len(one)):
        raise ValueError(f"need a population of [Z] and [{references}, Z], got {one.shape} and {many.shape}.")
    _check_range("population target", one)
    _check_range("population references", many)
    return one, many


def _check_range(name: str, values: npt.NDArray[Any]) -> None:
    # Written so that NaN fails.
    if not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"{name} must be probabilities in [0, 1].")

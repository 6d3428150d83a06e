"""Reconstruction of x from noised activations h = f(x) + N(0, eta^2 I): what is proved, and under which conditions.

No noise, no bound. Every function checks its conditions and answers `Unsupported` where one fails: an inversion
result then stands alone beside its baselines. Numbers that no measurement yields (NaN, no records, no releases) raise
ValueError.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.bounds.base import BoundValue, Unsupported

Array = npt.NDArray[np.float64]

UNBIASED = "the estimator is unbiased; real attackers are biased, so this informs and is never exceeded"
SMOOTH_PRIOR = "the prior has a differentiable density that vanishes at the edge of its support"


def fisher_floor(jacobians: npt.NDArray[Any], eta: float, releases: int = 1) -> BoundValue | Unsupported:
    """Per-entry mean squared error of an unbiased estimator: at least 1 / dFIL (Hannun et al. 2021; Maeng et al. 2023).

    jacobians [N, m, d] of f at the records, in the inputs' units; dFIL = tr(A^T A) / (d eta^2), averaged over records;
    T releases add up.
    """
    _check_releases(releases)
    if not (eta > 0 and 0 < eta * eta < math.inf):
        return Unsupported("eta", "without finite noise the activations carry unbounded information, or none")
    if jacobians.ndim != 3:
        return Unsupported("jacobians", f"shape {jacobians.shape} is not [records, outputs, inputs]")
    _check_measured("jacobians", jacobians)
    information = releases * float((jacobians**2).sum(axis=(1, 2)).mean()) / (jacobians.shape[2] * eta**2)
    floor = math.inf if information == 0 else 1 / information
    return BoundValue("fisher", "mse", floor, math.sqrt(information), {"dFIL": information, "T": releases}, (UNBIASED,))


def van_trees_floor(
    jacobians: npt.NDArray[Any],
    eta: float,
    prior_information: npt.NDArray[Any],
    *,
    prior_vanishes_at_edge: bool,
    continuous: bool,
    releases: int = 1,
) -> tuple[Array, BoundValue] | Unsupported:
    """Mean squared error of *any* estimator under a known smooth prior (van Trees 1968; Gill, Levit 1995).

    prior_information [d, d] is the prior's own Fisher information. Returns the floor per feature, the diagonal of
    (E I_F + I_P)^-1, and per entry, d / tr(E I_F + I_P). A Gaussian with the data's covariance has the *least*
    information of all priors with that covariance and would make the floor too high: use it only where it is known.
    """
    _check_releases(releases)
    if not (eta > 0 and 0 < eta * eta < math.inf):
        return Unsupported("eta", "without finite noise the activations carry unbounded information, or none")
    if not continuous:
        return Unsupported("prior", "tokens and categories have no density: the inequality says nothing about them")
    if not prior_vanishes_at_edge:
        return Unsupported("prior", "the prior's density does not vanish at the edge of its support")
    if jacobians.ndim != 3 or prior_information.shape != (jacobians.shape[2],) * 2:
        return Unsupported("prior", f"information {prior_information.shape} does not fit inputs {jacobians.shape}")
    _check_measured("jacobians", jacobians)
    _check_measured("prior_information", prior_information)
    if not np.allclose(prior_information, prior_information.T) or not _semidefinite(prior_information):
        return Unsupported("prior", "its information is not symmetric and positive semidefinite, as any prior's is")
    gram = np.einsum("nmi,nmj->ij", jacobians, jacobians) / len(jacobians)
    total = releases * gram / eta**2 + prior_information
    if np.linalg.matrix_rank(total, hermitian=True) < len(total):
        return Unsupported("prior", "neither it nor the activations bound some direction of x: the floor is infinite")
    per_feature = np.diag(np.linalg.inv(total))
    per_entry = len(total) / float(np.trace(total))
    inputs = {"trace": float(np.trace(total)), "T": releases}
    return per_feature, BoundValue("van-trees", "mse", per_entry, math.inf, inputs, (SMOOTH_PRIOR,))


def channel_information(covariance: npt.NDArray[Any], eta: float, releases: int = 1) -> BoundValue | Unsupported:
    """I(x; h) in nats for any f: at most 1/2 log det(I + T Cov(f(x)) / eta^2), the Gaussian channel's capacity.

    covariance [m, m] is that of f(x) itself, not A Sigma A^T, which fails for an f that is not linear. The same noise
    is drawn afresh in each of T releases.
    """
    _check_releases(releases)
    if not (eta > 0 and 0 < eta * eta < math.inf):
        return Unsupported("eta", "without finite noise the channel has no finite capacity, or none at all")
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        return Unsupported("covariance", f"shape {covariance.shape} is not [outputs, outputs]")
    _check_measured("covariance", covariance)
    if not np.allclose(covariance, covariance.T) or not _semidefinite(covariance):
        return Unsupported("covariance", "it is not symmetric, or has a negative eigenvalue")
    values = np.maximum(np.linalg.eigvalsh(covariance), 0)
    nats = 0.5 * float(np.log1p(releases * values / eta**2).sum())
    return BoundValue("channel", "nats", nats, math.inf, {"T": releases}, ("the noise is independent of x",))


def entropy_floor(information: float, entropy: float, inputs: int) -> float:
    """Per-entry MSE of any estimator of x with differential entropy >= `entropy` (nats): e^(2 (h - I) / d) / (2 pi e).

    The Gaussian has the largest entropy for a given error covariance (Cover, Thomas 2006). Needs a *lower* bound on h.
    ValueError for fewer than one input, NaN, or a negative information.
    """
    if inputs < 1 or math.isnan(entropy) or not information >= 0:
        raise ValueError(f"need inputs >= 1, information >= 0 and a number, got {inputs}, {information}, {entropy}.")
    return math.exp(2 * (entropy - information) / inputs) / (2 * math.pi * math.e)


def _check_releases(releases: int) -> None:
    if releases < 1:
        raise ValueError(f"releases must be at least 1, got {releases}.")


def _check_measured(name: str, values: npt.NDArray[Any]) -> None:
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold finite numbers and at least one, got shape {values.shape}.")


def _semidefinite(matrix: npt.NDArray[Any]) -> bool:
    """Whether no eigenvalue of this symmetric matrix is below 0, but for rounding."""
    values = np.linalg.eigvalsh(matrix)
    return bool(values.min() >= -1e-9 * np.abs(values).max())

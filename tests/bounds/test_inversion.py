"""Inversion floors against the one case where everything is known: a linear cut of a Gaussian."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from privbench.bounds.base import BoundValue, Unsupported
from privbench.bounds.inversion import channel_information, entropy_floor, fisher_floor, van_trees_floor

Array = npt.NDArray[np.float64]
D, M, ETA = 3, 5, 0.8
A: Array = np.random.default_rng(0).normal(size=(M, D))
SIGMA: Array = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 2.0]])
JACOBIANS = np.broadcast_to(A, (4, M, D))


def draws(seed: int, releases: int, n: int = 40_000) -> tuple[Array, Array]:
    """x [n, d] and the mean of its noised activations [n, m]."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(D), SIGMA, n)
    return x, x @ A.T + rng.normal(size=(n, M)) * ETA / math.sqrt(releases)


@pytest.mark.parametrize("releases", [1, 4])
def test_fisher_floor_is_not_beaten_by_the_best_unbiased_estimator(releases: int) -> None:
    """Least squares is unbiased and efficient: its error is tr((A^T A)^-1) eta^2 / (T d), never below 1 / dFIL."""
    x, h = draws(1, releases)
    error = float(((h @ np.linalg.pinv(A).T - x) ** 2).mean())
    floor = fisher_floor(JACOBIANS, ETA, releases)
    assert isinstance(floor, BoundValue)
    assert error == pytest.approx(np.trace(np.linalg.inv(A.T @ A)) * ETA**2 / D / releases, rel=0.03)
    assert floor.value <= error


def test_fisher_floor_is_attained_by_an_orthogonal_cut() -> None:
    cut = np.linalg.qr(np.random.default_rng(2).normal(size=(M, D)))[0] * 1.7
    floor = fisher_floor(cut[None], ETA)
    assert isinstance(floor, BoundValue)
    assert floor.value == pytest.approx(ETA**2 / 1.7**2)


@pytest.mark.parametrize("releases", [1, 4])
def test_van_trees_is_attained_by_the_posterior_mean(releases: int) -> None:
    """For a linear cut and a Gaussian prior both sides are equal, per feature."""
    x, h = draws(3, releases)
    noise = ETA**2 / releases
    gain = SIGMA @ A.T @ np.linalg.inv(A @ SIGMA @ A.T + noise * np.eye(M))
    errors = ((h @ gain.T - x) ** 2).mean(axis=0)
    answer = van_trees_floor(
        JACOBIANS, ETA, np.linalg.inv(SIGMA), prior_vanishes_at_edge=True, continuous=True, releases=releases
    )
    assert not isinstance(answer, Unsupported)
    per_feature, per_entry = answer
    assert errors == pytest.approx(per_feature, rel=0.04)
    assert per_entry.value <= per_feature.mean()


def test_channel_information_is_exact_for_a_gaussian() -> None:
    answer = channel_information(A @ SIGMA @ A.T, ETA)
    assert isinstance(answer, BoundValue)
    posterior = np.linalg.inv(np.linalg.inv(SIGMA) + A.T @ A / ETA**2)
    assert answer.value == pytest.approx(0.5 * math.log(np.linalg.det(SIGMA) / np.linalg.det(posterior)))


def test_linearised_covariance_would_understate_a_nonlinear_cut() -> None:
    """f(x) = x^2 at mean 0: the Jacobian's version says nothing leaks; the covariance of f(x) does not."""
    x = np.random.default_rng(4).normal(size=20_000)
    honest = channel_information(np.cov(x**2).reshape(1, 1), 0.5)
    linearised = channel_information(np.zeros((1, 1)), 0.5)
    assert isinstance(honest, BoundValue)
    assert isinstance(linearised, BoundValue)
    assert linearised.value == 0
    assert honest.value > 1


def test_entropy_floor_is_below_the_posterior_error() -> None:
    answer = channel_information(A @ SIGMA @ A.T, ETA)
    assert isinstance(answer, BoundValue)
    entropy = 0.5 * math.log(np.linalg.det(2 * math.pi * math.e * SIGMA))
    posterior = np.linalg.inv(np.linalg.inv(SIGMA) + A.T @ A / ETA**2)
    floor = entropy_floor(answer.value, entropy, D)
    assert floor == pytest.approx(np.linalg.det(posterior) ** (1 / D))
    assert floor <= np.trace(posterior) / D


def test_more_noise_and_fewer_releases_raise_the_floor() -> None:
    values = [fisher_floor(JACOBIANS, eta, t) for eta, t in ((2.0, 1), (1.0, 1), (1.0, 9))]
    floors = [value.value for value in values if isinstance(value, BoundValue)]
    assert floors == sorted(floors, reverse=True)
    assert floors[0] == pytest.approx(4 * floors[1])
    assert floors[1] == pytest.approx(9 * floors[2])


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (fisher_floor(JACOBIANS, 0.0), "eta"),
        (fisher_floor(A, 1.0), "jacobians"),
        (channel_information(np.eye(2), 0.0), "eta"),
        (channel_information(-np.eye(2), 1.0), "covariance"),
        (van_trees_floor(JACOBIANS, 0.0, np.eye(D), prior_vanishes_at_edge=True, continuous=True), "eta"),
        (van_trees_floor(JACOBIANS, 1.0, np.eye(D), prior_vanishes_at_edge=False, continuous=True), "prior"),
        (van_trees_floor(JACOBIANS, 1.0, np.eye(D), prior_vanishes_at_edge=True, continuous=False), "prior"),
        (van_trees_floor(JACOBIANS, 1.0, np.eye(D + 1), prior_vanishes_at_edge=True, continuous=True), "prior"),
    ],
)
def test_a_failed_condition_is_named(answer: object, part: str) -> None:
    assert isinstance(answer, Unsupported)
    assert answer.part == part


def test_a_constant_cut_has_no_floor_to_offer_but_infinity() -> None:
    floor = fisher_floor(np.zeros((2, M, D)), 1.0)
    assert isinstance(floor, BoundValue)
    assert floor.value == math.inf

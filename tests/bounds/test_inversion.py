"""Inversion floors against the one case where everything is known: a linear cut of a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable

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
SMOOTH = {"prior_vanishes_at_edge": True, "continuous": True}


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


@pytest.mark.parametrize("releases", [2, 9])
def test_releases_of_a_channel_are_worth_one_with_less_noise(releases: int) -> None:
    """T draws of fresh noise have a sufficient mean, of noise eta / sqrt T: exact for a Gaussian."""
    answer = channel_information(A @ SIGMA @ A.T, ETA, releases)
    assert isinstance(answer, BoundValue)
    posterior = np.linalg.inv(np.linalg.inv(SIGMA) + releases * A.T @ A / ETA**2)
    assert answer.value == pytest.approx(0.5 * math.log(np.linalg.det(SIGMA) / np.linalg.det(posterior)))
    assert answer.inputs["T"] == releases


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
        (van_trees_floor(JACOBIANS, 1.0, -100 * np.eye(D), prior_vanishes_at_edge=True, continuous=True), "prior"),
        (van_trees_floor(JACOBIANS, 1.0, np.triu(np.ones((D, D))), **SMOOTH), "prior"),
        (van_trees_floor(0 * JACOBIANS, 1.0, np.zeros((D, D)), **SMOOTH), "prior"),
        (van_trees_floor(JACOBIANS[:, :2], 1.0, np.diag([0.0, 0, 0]), **SMOOTH), "prior"),
        (fisher_floor(JACOBIANS, math.nan), "eta"),
        (fisher_floor(JACOBIANS, math.inf), "eta"),
        (channel_information(np.array([[1.0, 3.0], [-3.0, 1.0]]), 1.0), "covariance"),
        (channel_information(np.ones((2, 3)), 1.0), "covariance"),
        (channel_information(-1e-12 * np.eye(2), 1.0), "covariance"),
    ],
)
def test_a_failed_condition_is_named(answer: object, part: str) -> None:
    assert isinstance(answer, Unsupported)
    assert answer.part == part


def test_a_constant_cut_has_no_floor_to_offer_but_infinity() -> None:
    floor = fisher_floor(np.zeros((2, M, D)), 1.0)
    assert isinstance(floor, BoundValue)
    assert floor.value == math.inf


HOLE = np.where(np.arange(D) == 0, math.nan, np.eye(D))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (fisher_floor, (JACOBIANS, 1.0, -1)),
        (fisher_floor, (JACOBIANS, 1.0, 0)),
        (fisher_floor, (np.zeros((0, M, D)), 1.0)),
        (fisher_floor, (np.zeros((4, M, 0)), 1.0)),
        (fisher_floor, (JACOBIANS * math.nan, 1.0)),
        (channel_information, (np.eye(2), 1.0, -1)),
        (channel_information, (HOLE, 1.0)),
        (channel_information, (np.zeros((0, 0)), 1.0)),
        (entropy_floor, (1.0, math.nan, 3)),
        (entropy_floor, (-1.0, 1.0, 3)),
        (entropy_floor, (1.0, 1.0, 0)),
    ],
)
def test_numbers_no_measurement_yields_raise(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"at least|finite|need"):
        function(*arguments)


@pytest.mark.parametrize(
    ("jacobians", "prior", "releases"),
    [
        (JACOBIANS, np.eye(D), 0),
        (np.zeros((0, M, D)), np.eye(D), 1),
        (JACOBIANS * math.inf, np.eye(D), 1),
        (JACOBIANS, HOLE, 1),
    ],
)
def test_van_trees_refuses_them_too(jacobians: Array, prior: Array, releases: int) -> None:
    with pytest.raises(ValueError, match=r"at least|finite"):
        van_trees_floor(jacobians, 1.0, prior, **SMOOTH, releases=releases)


def test_a_prior_that_knows_nothing_leaves_the_inverse_of_the_cuts_information() -> None:
    """Rank deficient as a prior, yet no direction of x is free: the least-squares error."""
    answer = van_trees_floor(JACOBIANS, ETA, np.zeros((D, D)), **SMOOTH)
    assert not isinstance(answer, Unsupported)
    assert answer[0] == pytest.approx(np.diag(np.linalg.inv(A.T @ A)) * ETA**2)

"""Limits of shares: closed forms, and coverage whatever the distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privbench.stats.shares import share_interval, upper_mean


def test_nothing_read_has_the_closed_form_upper_limit() -> None:
    # n KL(0, u) = log(1 / alpha) at u = 1 - alpha^(1 / n).
    low, high = share_interval(0.0, 40, 1 / 40)
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 40))


def test_everything_read_mirrors_nothing_read() -> None:
    low, high = share_interval(1.0, 40, 1 / 40)
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / 40))


def test_unequal_weights_have_hoeffdings_width() -> None:
    squares = 0.5**2 + 0.3**2 + 0.2**2
    low, high = share_interval(0.5, 3, squares)
    half = math.sqrt(squares * math.log(40) / 2)
    assert (low, high) == (max(0.5 - half, 0), min(0.5 + half, 1))


@pytest.mark.parametrize("shape", [(0.05, 0.05), (1.0, 9.0), (8.0, 0.5), (2.0, 2.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_cover_the_mean_of_any_beta(shape: tuple[float, float], weighted: bool) -> None:
    """2,000 draws at 95%: more than 5% + 4 standard errors misses happen once in 30,000 honest runs, at most."""
    rng = np.random.default_rng(5)
    weights = np.full(60, 1 / 60)
    if weighted:
        weights = rng.dirichlet(np.full(60, 0.5))
    mean, missed = shape[0] / sum(shape), 0
    for _ in range(2_000):
        low, high = share_interval(float(rng.beta(*shape, 60) @ weights), 60, float(weights @ weights))
        missed += not low <= mean <= high
    assert missed / 2_000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2_000)


def test_a_narrower_interval_would_not_cover_a_rare_value() -> None:
    """Student's t misses a mean that a rare large value carries: the reason for a limit without a distribution."""
    rng, missed, students = np.random.default_rng(6), 0, 0
    for _ in range(2_000):
        values = (rng.random(60) < 0.01).astype(float)
        low, high = share_interval(float(values.mean()), 60, 1 / 60)
        missed += not low <= 0.01 <= high
        half = 2.0 * values.std(ddof=1) / math.sqrt(60)
        students += not values.mean() - half <= 0.01 <= values.mean() + half
    assert missed / 2_000 <= 0.05
    assert students / 2_000 > 0.3


@pytest.mark.parametrize(
    ("value", "records", "squares"),
    [(1.1, 10, 0.1), (-0.1, 10, 0.1), (0.5, 0, 1.0), (0.5, 10, 0.05), (0.5, 10, 1.5), (math.nan, 10, 0.1)],
)
def test_no_shares_and_no_weights_are_refused(value: float, records: int, squares: float) -> None:
    with pytest.raises(ValueError, match="is no share"):
        share_interval(value, records, squares)


def test_the_limit_of_a_mean_grows_with_the_mean_and_shrinks_with_n() -> None:
    assert upper_mean(0.2, 50, 0.05) < upper_mean(0.3, 50, 0.05)
    assert upper_mean(0.2, 200, 0.05) < upper_mean(0.2, 50, 0.05)

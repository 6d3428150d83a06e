"""Means over parts: closed forms, and how often an interval misses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privbench.stats.auc import Interval
from privbench.stats.binomial import clopper_pearson
from privbench.stats.weighted import weighted


def test_one_part_is_its_own_mean() -> None:
    found, part = weighted([Interval(0.7, 0.5, 0.8, 12)]), (0.7, 0.5, 0.8, 12)
    assert (found.value, found.low, found.high, found.n) == pytest.approx(part)


def test_records_weigh_alike() -> None:
    found = weighted([Interval(1.0, 1.0, 1.0, 30), Interval(0.5, 0.5, 0.5, 10)])
    assert (found.value, found.low, found.high, found.n) == (0.875, 0.875, 0.875, 40)


def test_symmetric_parts_add_up_as_variances_do() -> None:
    found = weighted([Interval(value, value - 0.2, value + 0.2, 25) for value in (0.4, 0.5, 0.6, 0.7)])
    assert found.value == pytest.approx(0.55)
    assert (found.low, found.high) == pytest.approx((0.55 - 0.1, 0.55 + 0.1))


def test_a_skewed_part_keeps_its_skew() -> None:
    found = weighted([Interval(1.0, 0.6, 1.0, 8), Interval(0.5, 0.2, 0.8, 8)])
    assert found.high == pytest.approx(0.75 + 0.3 / 2)
    assert found.low == pytest.approx(0.75 - math.hypot(0.4, 0.3) / 2)


def test_no_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        weighted([])


@pytest.mark.parametrize("shares", [(0.5, 0.6, 0.7, 0.8), (0.98, 0.9, 0.95, 0.99)], ids=str)
def test_intervals_of_shares_miss_no_more_than_they_say(shares: tuple[float, ...]) -> None:
    """4,000 samples, a nominal 5%: a rate of 5% or less is rejected once in 100,000."""
    sizes, rng, samples = (45, 26, 16, 13), np.random.default_rng(0), 4_000
    truth = float(np.average(shares, weights=sizes))
    missed = 0
    for right in rng.binomial(sizes, shares, size=(samples, len(sizes))).tolist():
        found = weighted([Interval(k / n, *clopper_pearson(k, n, 0.95), n) for k, n in zip(right, sizes, strict=True)])
        missed += not found.low <= truth <= found.high
    assert missed <= stats.binom.isf(1e-5, samples, 0.05)

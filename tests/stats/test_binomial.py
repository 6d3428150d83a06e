"""Exact binomial statements against sums of exact fractions, enumeration and the design's planning numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.stats import binomial

seeded = settings(derandomize=True, deadline=None, max_examples=100)
proportions = st.floats(0.001, 0.999)
errors = st.floats(1e-4, 0.4)


@st.composite
def counts(draw: st.DrawFn, largest: int = 40) -> tuple[int, int]:
    """(right, n) with 0 <= right <= n."""
    n = draw(st.integers(1, largest))
    return draw(st.integers(0, n)), n


def exact_tail(right: int, n: int, p: float) -> Fraction:
    """P[Binomial(n, p) >= right] without a rounding error: p is the fraction that the float stands for."""
    success = Fraction(p)
    return sum(
        (math.comb(n, k) * success**k * (1 - success) ** (n - k) for k in range(right, n + 1)),
        start=Fraction(0),
    )


def exact_critical_count(n: int, bound: float, alpha: float) -> int:
    return next((k for k in range(n + 1) if exact_tail(k, n, bound) <= Fraction(alpha)), n + 1)


def masses(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def unequal_tail(right: int, rates: list[float]) -> float:
    """P[at least `right` successes] of independent trials with these rates."""
    mass = np.ones(1)
    for rate in rates:
        mass = np.convolve(mass, [1 - rate, rate])
    return float(mass[right:].sum())


@cache
def sawtooth(bound: float, truth: float, alpha: float, wanted: float, longest: int) -> tuple[int, int]:
    """Smallest n that has the wanted power, and the n from which on every n (up to `longest`) has it."""
    sizes = np.arange(1, longest)
    critical = stats.binom.isf(alpha, sizes, bound) + 1
    enough = stats.binom.sf(critical - 1, sizes, truth) >= wanted
    return int(sizes[enough][0]), int(sizes[~enough][-1]) + 1


@seeded
@given(counts(), proportions)
def test_p_value_is_the_exact_tail(count: tuple[int, int], bound: float) -> None:
    right, n = count
    assert binomial.p_value(right, n, bound) == pytest.approx(float(exact_tail(right, n, bound)), rel=1e-9)


@pytest.mark.parametrize(("right", "n", "bound", "p"), [(0, 7, 0.3, 1.0), (7, 7, 0.5, 2**-7), (3, 3, 1.0, 1.0)])
def test_p_value_at_the_ends(right: int, n: int, bound: float, p: float) -> None:
    assert binomial.p_value(right, n, bound) == pytest.approx(p, rel=1e-12)


@seeded
@given(counts(), proportions, proportions)
def test_p_value_falls_with_the_count_and_grows_with_the_bound(count: tuple[int, int], a: float, b: float) -> None:
    right, n = count
    assert binomial.p_value(right, n, min(a, b)) <= binomial.p_value(right, n, max(a, b)) * (1 + 1e-12)
    if right < n:
        assert binomial.p_value(right + 1, n, a) <= binomial.p_value(right, n, a)


@seeded
@given(st.lists(st.floats(0.05, 0.95), min_size=2, max_size=25))
def test_p_value_holds_for_unequal_success_rates(rates: list[float]) -> None:
    """Hoeffding 1956: at counts of at least n p + 1, p the mean rate."""
    n, mean = len(rates), float(np.mean(rates))
    for right in range(math.ceil(n * mean + 1), n + 1):
        assert unequal_tail(right, rates) <= binomial.p_value(right, n, mean) * (1 + 1e-9)


@pytest.mark.parametrize("bound", [math.nan, -0.1, 1.00002])
def test_p_value_of_an_impossible_bound_raises(bound: float) -> None:
    with pytest.raises(ValueError, match="bound"):
        binomial.p_value(5, 10, bound)


@pytest.mark.parametrize(("right", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_counts_raise(right: int, n: int) -> None:
    for refuses in (
        lambda: binomial.p_value(right, n, 0.5),
        lambda: binomial.clopper_pearson(right, n),
        lambda: binomial.upper_limit(right, n, 0.05),
        lambda: binomial.lower_limit(right, n, 0.05),
    ):
        with pytest.raises(ValueError, match="right <= n"):
            refuses()


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.5, 5.0])
def test_rates_and_error_rates_out_of_range_raise(value: float) -> None:
    """Every argument that is a probability, one at a time; scipy would answer NaN, which no comparison refuses."""
    for name, refuses in (
        ("level", lambda: binomial.clopper_pearson(5, 10, value)),
        ("alpha", lambda: binomial.upper_limit(5, 10, value)),
        ("alpha", lambda: binomial.lower_limit(5, 10, value)),
        ("alpha", lambda: binomial.critical_count(10, 0.5, value)),
        ("bound", lambda: binomial.critical_count(10, value, 0.05)),
        ("truth", lambda: binomial.power(10, 0.5, value, 0.05)),
        ("bound", lambda: binomial.power(10, value, 0.5, 0.05)),
        ("alpha", lambda: binomial.power(10, 0.5, 0.6, value)),
        ("bound", lambda: binomial.records_needed(value, 0.9, 0.05, 0.8)),
        ("truth", lambda: binomial.records_needed(0.5, value, 0.05, 0.8)),
        ("alpha", lambda: binomial.records_needed(0.5, 0.6, value, 0.8)),
        ("wanted", lambda: binomial.records_needed(0.5, 0.6, 0.05, value)),
    ):
        with pytest.raises(ValueError, match=name):
            refuses()


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_an_interval_of_level_0_or_1_raises(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        binomial.clopper_pearson(5, 10, level)


def test_critical_count_of_no_trials_raises() -> None:
    with pytest.raises(ValueError, match="n >= 1"):
        binomial.critical_count(0, 0.5, 0.05)


@pytest.mark.parametrize("n", [1, 5, 100])
@pytest.mark.parametrize("alpha", [0.005, 0.05, 0.3])
def test_limits_of_no_and_of_all_successes_are_closed_forms(n: int, alpha: float) -> None:
    assert binomial.lower_limit(0, n, alpha) == 0
    assert binomial.upper_limit(n, n, alpha) == 1
    assert binomial.upper_limit(0, n, alpha) == pytest.approx(1 - alpha ** (1 / n), rel=1e-9)
    assert binomial.lower_limit(n, n, alpha) == pytest.approx(alpha ** (1 / n), rel=1e-9)


@seeded
@given(counts(), errors)
def test_limits_are_where_the_exact_tails_equal_alpha(count: tuple[int, int], alpha: float) -> None:
    right, n = count
    if right > 0:
        low = binomial.lower_limit(right, n, alpha)
        assert float(exact_tail(right, n, low)) == pytest.approx(alpha, rel=1e-6)
    if right < n:
        high = binomial.upper_limit(right, n, alpha)
        assert float(1 - exact_tail(right + 1, n, high)) == pytest.approx(alpha, rel=1e-6)


@seeded
@given(counts(), errors, proportions)
def test_a_bound_below_the_lower_limit_is_a_small_p_value(count: tuple[int, int], alpha: float, bound: float) -> None:
    right, n = count
    low = binomial.lower_limit(right, n, alpha)
    assume(abs(low - bound) > 1e-9)
    assert (binomial.p_value(right, n, bound) < alpha) == (bound < low)


@seeded
@given(counts(), st.floats(0.5, 0.999))
def test_interval_holds_the_proportion_and_mirrors(count: tuple[int, int], level: float) -> None:
    right, n = count
    low, high = binomial.clopper_pearson(right, n, level)
    mirrored = binomial.clopper_pearson(n - right, n, level)
    assert 0 <= low <= right / n <= high <= 1
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@seeded
@given(counts(), st.floats(0.5, 0.99))
def test_interval_widens_with_the_level(count: tuple[int, int], level: float) -> None:
    low, high = binomial.clopper_pearson(*count, level)
    wider_low, wider_high = binomial.clopper_pearson(*count, level + 0.009)
    assert wider_low <= low
    assert high <= wider_high


@pytest.mark.parametrize("n", [1, 2, 5, 30, 100])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.731, 0.99])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_interval_covers_at_least_its_level_by_enumeration(n: int, p: float, level: float) -> None:
    ends = [binomial.clopper_pearson(right, n, level) for right in range(n + 1)]
    covered = sum(mass for mass, (low, high) in zip(masses(n, p), ends, strict=True) if low <= p <= high)
    assert covered >= level - 1e-12


@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize("p", [0.02, 0.5, 0.793])
@pytest.mark.parametrize("alpha", [0.05 / 6, 0.05])
def test_one_sided_limits_miss_at_most_alpha_by_enumeration(n: int, p: float, alpha: float) -> None:
    mass = masses(n, p)
    above = sum(m for right, m in enumerate(mass) if binomial.lower_limit(right, n, alpha) > p)
    below = sum(m for right, m in enumerate(mass) if binomial.upper_limit(right, n, alpha) < p)
    assert max(above, below) <= alpha + 1e-12


@pytest.mark.parametrize(
    ("hits", "false", "n", "alpha", "delta", "eps"),
    [(100, 1, 1000, 0.05, 1e-5, 2.692477), (500, 0, 500, 0.01, 0.0, 4.5419)],
)
def test_golden_epsilon_of_two_upper_limits(
    hits: int, false: int, n: int, alpha: float, delta: float, eps: float
) -> None:
    missed = binomial.upper_limit(n - hits, n, alpha / 2)
    alarms = binomial.upper_limit(false, n, alpha / 2)
    best = max(math.log((1 - missed - delta) / alarms), math.log((1 - alarms - delta) / missed))
    assert best == pytest.approx(eps, abs=5e-5)


@seeded
@given(st.integers(1, 40), proportions, errors)
def test_critical_count_is_the_first_count_with_a_small_exact_tail(n: int, bound: float, alpha: float) -> None:
    critical = exact_critical_count(n, bound, alpha)
    tails = [exact_tail(count, n, bound) for count in (critical - 1, critical)]
    assume(all(abs(float(tail) / alpha - 1) > 1e-9 for tail in tails))
    assert binomial.critical_count(n, bound, alpha) == critical


@pytest.mark.parametrize("n", range(1, 12))
def test_critical_count_counts_a_tail_of_exactly_alpha(n: int) -> None:
    for count in range(n + 1):
        alpha = float(exact_tail(count, n, 0.5))
        assert binomial.critical_count(n, 0.5, alpha) == count


@pytest.mark.parametrize(
    ("n", "bound", "alpha", "count"),
    [(5, 1.0, 0.05, 6), (5, 0.0, 0.05, 1), (5, 0.5, 0.0, 6), (5, 0.5, 1.0, 0), (1, 0.5, 0.05, 2)],
)
def test_critical_count_at_the_ends(n: int, bound: float, alpha: float, count: int) -> None:
    assert binomial.critical_count(n, bound, alpha) == count


@seeded
@given(st.integers(1, 40), proportions, proportions, errors)
def test_power_is_the_mass_of_the_significant_counts(n: int, bound: float, truth: float, alpha: float) -> None:
    significant = [right for right in range(n + 1) if binomial.p_value(right, n, bound) <= alpha]
    expected = sum(masses(n, truth)[right] for right in significant)
    assert binomial.power(n, bound, truth, alpha) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@seeded
@given(st.integers(1, 2000), proportions, errors)
def test_power_on_the_bound_itself_is_at_most_alpha(n: int, bound: float, alpha: float) -> None:
    assert binomial.power(n, bound, bound, alpha) <= alpha


@seeded
@given(st.integers(1, 500), proportions, proportions, proportions, errors)
def test_power_grows_with_the_truth(n: int, bound: float, a: float, b: float, alpha: float) -> None:
    assert binomial.power(n, bound, min(a, b), alpha) <= binomial.power(n, bound, max(a, b), alpha) + 1e-12


PLANS = [(0.78, 0.551, 37), (0.64, 0.551, 265), (0.78, 0.731, 675)]


@pytest.mark.parametrize(("truth", "bound", "planned"), PLANS)
def test_planning_numbers_of_the_design_have_power(truth: float, bound: float, planned: int) -> None:
    """bounds.md, 5. The last is rounded there: 671 is the smallest."""
    smallest, _ = sawtooth(bound, truth, 0.05, 0.9, 1000)
    assert binomial.power(planned, bound, truth, 0.05) >= 0.9
    assert smallest <= planned <= 1.01 * smallest


@pytest.mark.parametrize(("truth", "bound", "planned"), PLANS)
def test_records_needed_are_those_of_the_design(truth: float, bound: float, planned: int) -> None:
    needed = binomial.records_needed(bound, truth, 0.05, 0.9)
    assert needed == pytest.approx(planned, rel=0.01)
    assert binomial.power(needed, bound, truth, 0.05) >= 0.9


@pytest.mark.parametrize("wanted", [0.8, 0.9])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 6])
@pytest.mark.parametrize(
    ("bound", "truth"), [(0.5, 0.9), (0.5, 0.6), (0.551, 0.564), (0.6, 0.963), (0.793, 0.846), (0.951, 0.996)]
)
class TestRecordsNeeded:
    def test_have_the_wanted_power(self, bound: float, truth: float, alpha: float, wanted: float) -> None:
        needed = binomial.records_needed(bound, truth, alpha, wanted)
        assert needed is not None
        assert binomial.power(needed, bound, truth, alpha) >= wanted

    def test_are_the_smallest_but_for_the_sawtooth(
        self, bound: float, truth: float, alpha: float, wanted: float
    ) -> None:
        needed = binomial.records_needed(bound, truth, alpha, wanted)
        smallest, settled = sawtooth(bound, truth, alpha, wanted, 30_000)
        assert needed is not None
        assert smallest <= needed <= settled


@pytest.mark.parametrize(("bound", "truth"), [(0.5, 0.5), (0.7, 0.6), (1.0, 1.0), (0.5, 0.50001)])
def test_no_number_of_records_shows_what_is_not_there_or_too_small(bound: float, truth: float) -> None:
    assert binomial.records_needed(bound, truth, 0.05, 0.8) is None


@pytest.mark.parametrize(("margin", "n", "power"), [(1.25, 700, 0.89), (1.2, 700, 0.69), (1.2, 1150, 0.90)])
def test_power_of_the_default_audit(margin: float, n: int, power: float) -> None:
    """bounds.md, 5: 6 tests, s_T .816."""
    bound, truth = (float(stats.norm.cdf(0.816 * times)) for times in (1, margin))
    assert binomial.power(n, bound, truth, 0.05 / 6) == pytest.approx(power, abs=0.015)

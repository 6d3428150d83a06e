"""Paired differences against scipy, and the error rate of nine cells tested together on methods that do not differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.stats.answers import Undefined
from privbench.stats.holm import adjusted, holm
from privbench.stats.paired import Difference, difference, judge_cells

GRIDS, CELLS, SEEDS, RESPONDENTS, ALPHA = 200, 9, 5, 500, 0.05
# Of 200 grids whose methods do not differ, more than this many alarms at a rate of 5% have probability below .001.
MOST_ALARMS = int(stats.binom.isf(0.001, GRIDS, ALPHA))
Grid = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
seeded = settings(derandomize=True, deadline=None, max_examples=100)
shares = st.floats(0, 1).map(lambda value: round(value, 3))


@seeded
@given(st.lists(st.tuples(shares, shares), min_size=2, max_size=12))
def test_a_difference_is_scipys_paired_test(pairs: list[tuple[float, float]]) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    found = difference(first, second)
    if np.ptp(np.subtract(first, second)) < 1e-9:
        assert isinstance(found, Undefined)
        return
    assert isinstance(found, Difference)
    theirs = stats.ttest_rel(first, second)
    limits = theirs.confidence_interval(0.95)
    assert found.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    assert (found.interval.low, found.interval.high) == pytest.approx((limits.low, limits.high), abs=1e-9)


def test_differences_without_a_spread_are_no_certainty() -> None:
    for gap in (0.0, 0.1):
        found = difference([0.1 + gap, 0.2 + gap, 0.3 + gap], [0.1, 0.2, 0.3])
        assert isinstance(found, Undefined) and f"{gap:+.3g}" in found.reason
    assert judge_cells({"a": ([0.5, 0.6], [0.4, 0.5])})["a"].corrected == 1.0


def test_one_seed_has_no_test_and_values_must_fit() -> None:
    assert isinstance(difference([0.5], [0.4]), Undefined)
    with pytest.raises(ValueError, match="2 and 3"):
        difference([0.5, 0.6], [0.4, 0.5, 0.6])
    with pytest.raises(ValueError, match="finite"):
        difference([0.5, math.nan], [0.4, 0.5])


@seeded
@given(st.lists(st.floats(0, 1), max_size=8))
def test_corrected_values_reject_what_holm_rejects(values: list[float]) -> None:
    found = adjusted(values)
    assert all(mended >= value for mended, value in zip(found, values, strict=True))
    for alpha in (0.03, 0.2):
        if all(abs(mended - alpha) > 1e-12 for mended in found):
            assert [mended <= alpha for mended in found] == [item.rejected for item in holm(values, alpha)]


def grid(rng: np.random.Generator, training: float, ahead: float = 0.0) -> Grid:
    """Right answers of two methods [cells, seeds, respondents]: a respondent is as easy for one as for the other, and
    each training is luckier or less by `training`; their names could be swapped, but for `ahead`, by which the first
    one is better.
    """
    easy = rng.beta(2, 1.2, (CELLS, SEEDS, RESPONDENTS))
    luck = rng.normal(0, training, (2, CELLS, SEEDS, 1))
    luck[0] += ahead
    right = (rng.random((2, CELLS, SEEDS, RESPONDENTS)) < easy + luck).astype(float)
    return right[0], right[1]


def by_seeds(right: Grid) -> bool:
    """Whether ours raises an alarm in any cell."""
    means = [side.mean(axis=-1).tolist() for side in right]
    cells = {str(number): values for number, values in enumerate(zip(*means, strict=True))}
    return any(item.differs(ALPHA) for item in judge_cells(cells).values())


def uncorrected(right: Grid) -> bool:
    means = [side.mean(axis=-1) for side in right]
    return bool((stats.ttest_rel(*means, axis=1).pvalue <= ALPHA).any())


def pooled(right: Grid) -> bool:
    """Every respondent of every seed as an independent trial, corrected by Holm."""
    gaps = (right[0] - right[1]).reshape(CELLS, -1)
    z = gaps.mean(axis=1) / (gaps.std(axis=1, ddof=1) / math.sqrt(gaps.shape[1]))
    return any(item.rejected for item in holm((2 * stats.norm.sf(np.abs(z))).tolist(), ALPHA))


def alarms(test: Callable[[Grid], bool], training: float, ahead: float = 0.0) -> int:
    rng = np.random.default_rng(20)
    return sum(test(grid(rng, training, ahead)) for _ in range(GRIDS))


@pytest.mark.parametrize("training", [0.0, 0.03])
def test_methods_that_do_not_differ_raise_no_more_alarms_than_they_may(training: float) -> None:
    assert alarms(by_seeds, training) <= MOST_ALARMS


def test_without_correction_or_without_seeds_the_same_grids_raise_many() -> None:
    assert alarms(uncorrected, 0.0) > 2 * MOST_ALARMS
    assert alarms(pooled, 0.03) > 2 * MOST_ALARMS


def test_a_method_that_is_ahead_is_found() -> None:
    assert alarms(by_seeds, 0.01, ahead=0.08) >= 0.9 * GRIDS

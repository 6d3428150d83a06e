"""Holm's step-down test against closed testing over all subsets."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.stats.holm import holm

seeded = settings(derandomize=True, deadline=None, max_examples=200)
# Halves and thirds of alpha are drawn often: that is where "at most" and "below" differ.
p_values = st.lists(st.one_of(st.floats(0, 0.1), st.sampled_from([0.0, 0.05, 0.05 / 2, 0.05 / 3, 1.0])), max_size=6)


def rejected(values: list[float], alpha: float = 0.05) -> list[bool]:
    return [decision.rejected for decision in holm(values, alpha)]


def closed_testing(values: list[float], alpha: float) -> list[bool]:
    """Reject i when Bonferroni rejects every intersection of hypotheses that i is part of."""
    indices = range(len(values))
    subsets = [subset for size in indices for subset in combinations(indices, size + 1)]
    kept = [subset for subset in subsets if min(values[i] for i in subset) > alpha / len(subset)]
    return [not any(i in subset for subset in kept) for i in indices]


@seeded
@given(p_values, st.sampled_from([0.01, 0.05, 0.3]))
def test_decisions_are_those_of_closed_testing(values: list[float], alpha: float) -> None:
    assert rejected(values, alpha) == closed_testing(values, alpha)


@seeded
@given(p_values.filter(bool), st.randoms(use_true_random=False))
def test_decisions_follow_their_p_values_in_any_order(values: list[float], random: Random) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    assert rejected([values[i] for i in order]) == [rejected(values)[i] for i in order]


@seeded
@given(p_values.filter(bool))
def test_holm_rejects_what_bonferroni_rejects_and_nothing_above_alpha(values: list[float]) -> None:
    for p, decision in zip(values, holm(values, 0.05), strict=True):
        assert decision.rejected >= (p <= 0.05 / len(values))
        assert decision.rejected <= (p <= 0.05)


@seeded
@given(p_values.filter(bool), st.data())
def test_a_smaller_p_value_never_loses_a_rejection(values: list[float], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(values) - 1))
    smaller = [*values[:i], values[i] / 2, *values[i + 1 :]]
    assert all(after >= before for before, after in zip(rejected(values), rejected(smaller), strict=True))


def test_shares_are_alpha_over_the_hypotheses_left() -> None:
    decisions = holm([0.04, 0.001, 0.012, 0.9], 0.06)
    assert [decision.share for decision in decisions] == pytest.approx([0.03, 0.015, 0.02, 0.06])
    assert [decision.rejected for decision in decisions] == [False, True, True, False]


def test_once_one_is_kept_all_larger_ones_are_kept() -> None:
    assert rejected([0.03, 0.03, 0.049]) == [False, False, False]


@pytest.mark.parametrize(("values", "decisions"), [([], []), ([0.05], [True]), ([0.0501], [False])])
def test_families_of_none_and_of_one(values: list[float], decisions: list[bool]) -> None:
    assert rejected(values) == decisions


@pytest.mark.parametrize("values", [[math.nan, 0.001], [0.001, math.nan]])
def test_a_missing_p_value_raises(values: list[float]) -> None:
    """Sorted by accident, it would silently keep the hypotheses that come after it."""
    with pytest.raises(ValueError, match=r"(?i)nan|p-value"):
        holm(values, 0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_error_rate_over_true_nulls_under_dependence(correlation: float) -> None:
    """2,000 families of 6; fails by chance with probability .001."""
    rng = np.random.default_rng(20)
    shared, own = rng.standard_normal((2000, 1)), rng.standard_normal((2000, 6))
    families = stats.norm.sf(math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own)
    wrong = sum(any(rejected(list(family))) for family in families)
    assert wrong <= stats.binom.isf(0.001, 2000, 0.05)

"""ROC vertices against counting at every threshold, TPR at a small FPR, and what ties and few negatives do."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.stats.auc import auc
from privbench.stats.binomial import clopper_pearson
from privbench.stats.roc import advantage, roc, split_by_label, tpr_at_fpr

Array = npt.NDArray[np.float64]
Sample = tuple[Array, npt.NDArray[np.int64]]

seeded = settings(derandomize=True, deadline=None, max_examples=100)
MONOTONE = pytest.mark.parametrize(
    "monotone", [np.exp, np.cbrt, lambda x: 3 * x - 7, stats.rankdata], ids=["exp", "cube root", "affine", "ranks"]
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Scores with many ties, and labels of both classes."""
    labels = [1] * draw(st.integers(1, 12)) + [0] * draw(st.integers(1, 12))
    scores = draw(st.lists(st.integers(-4, 4), min_size=len(labels), max_size=len(labels)))
    order = draw(st.permutations(range(len(labels))))
    return np.array(scores, dtype=float)[order], np.array(labels)[order]


def counted(sample: Sample) -> list[tuple[float, int, int]]:
    """(threshold, TP, FP) at every threshold that makes a difference, by counting."""
    scores, labels = sample
    points = [(math.inf, 0, 0)]
    for t in sorted(set(scores.tolist()), reverse=True):
        called = [label for score, label in zip(scores, labels, strict=True) if score >= t]
        points.append((t, called.count(1), called.count(0)))
    return points


@seeded
@given(samples())
def test_vertices_are_the_decisions_that_some_threshold_makes(sample: Sample) -> None:
    curve = roc(*sample)
    assert list(zip(curve.threshold, curve.tp, curve.fp, strict=True)) == counted(sample)
    assert (curve.n1, curve.n0) == ((sample[1] == 1).sum(), (sample[1] == 0).sum())
    assert (curve.tpr[-1], curve.fpr[-1]) == (1, 1)


@seeded
@given(samples())
def test_area_under_the_vertices_is_the_auc(sample: Sample) -> None:
    curve = roc(*sample)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(auc(*sample).value, abs=1e-12)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["in first", "out first"])
def test_a_coin_flip_with_ties_lies_on_the_diagonal(order: slice) -> None:
    """statistics.md: read as AUC .375 elsewhere, because a curve was drawn through the inside of a tie block."""
    scores, labels = np.tile([0.0, 1.0], 20), np.repeat([1, 0], 20)
    curve = roc(scores[order], labels[order])
    assert curve.tpr.tolist() == curve.fpr.tolist() == [0, 0.5, 1]


@seeded
@given(samples(), st.floats(0.01, 0.99))
def test_tpr_is_that_of_the_best_decision_within_the_target(sample: Sample, target: float) -> None:
    result = tpr_at_fpr(*sample, target)
    n1, n0 = int(sample[1].sum()), int((1 - sample[1]).sum())
    within = [(tp, fp, t) for t, tp, fp in counted(sample) if fp / n0 <= target]
    tp, fp, t = within[-1]
    point = result.point
    assert (point.tp, point.n1, point.fp, point.n0) == (tp, n1, fp, n0) == (max(within)[0], n1, max(within)[1], n0)
    assert point.threshold == (None if t == math.inf else t)
    assert (result.value, point.fpr) == (tp / n1, fp / n0)
    assert (result.low, result.high) == clopper_pearson(tp, n1)
    assert result.under_resolved == (n0 < 10 / target)


@pytest.mark.parametrize(("target", "n0", "allowed"), [(0.07, 100, 7), (0.29, 100, 29), (0.001, 3000, 3), (0.3, 10, 3)])
def test_a_target_that_falls_on_a_count_allows_it(target: float, n0: int, allowed: int) -> None:
    scores = np.concatenate([np.arange(n0), [-1.0]])
    assert tpr_at_fpr(scores, np.append(np.zeros(n0), 1), target).point.fp == allowed


@pytest.mark.parametrize(("n0", "flag"), [(999, True), (1000, False), (1001, False)])
def test_fewer_than_ten_over_fpr_negatives_are_flagged(n0: int, flag: bool) -> None:
    scores, labels = np.arange(n0 + 1.0), np.append(np.zeros(n0), 1)
    assert tpr_at_fpr(scores, labels, 0.01).under_resolved is flag


def test_200_negatives_read_too_high_and_say_so() -> None:
    """statistics.md: at .1% FPR 200 negatives read about .053 where .018 is true."""
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [2000, 200])
    results = [tpr_at_fpr(rng.standard_normal(2200) + labels, labels, 0.001) for _ in range(400)]
    truth = stats.norm.sf(stats.norm.isf(0.001) - 1)
    assert truth == pytest.approx(0.018, abs=5e-4)
    assert np.mean([result.value for result in results]) == pytest.approx(0.053, abs=0.006)
    assert all(result.under_resolved for result in results)


def test_interval_covers_the_tpr_of_the_threshold_it_names() -> None:
    """1,000 samples of 300 + 300 at an FPR of .05; fails by chance with probability below .001."""
    rng = np.random.default_rng(1)
    labels = np.repeat([1, 0], 300)
    results = [tpr_at_fpr(rng.standard_normal(600) + labels, labels, 0.05) for _ in range(1000)]
    # Between the named score and the next lower negative no positive lies: both ends make the same decision.
    truths = [stats.norm.sf(result.point.threshold - 1) for result in results]
    missed = sum(not result.low <= truth <= result.high for result, truth in zip(results, truths, strict=True))
    assert missed <= stats.binom.isf(0.001, 1000, 0.05)


@seeded
@given(samples())
def test_advantage_is_the_largest_gap(sample: Sample) -> None:
    result = advantage(*sample)
    n1, n0 = int(sample[1].sum()), int((1 - sample[1]).sum())
    gaps = [tp / n1 - fp / n0 for _, tp, fp in counted(sample)]
    assert result.value == pytest.approx(max(gaps), abs=1e-12)
    assert result.value == result.point.tp / n1 - result.point.fp / n0 >= 0


def test_advantage_is_positive_without_leakage() -> None:
    """Why it is reported and never tested with: by luck alone its mean is sqrt(pi / 8) sqrt(2 / n) (Smirnov)."""
    rng = np.random.default_rng(2)
    labels = np.repeat([1, 0], 200)
    values = [advantage(rng.standard_normal(400), labels).value for _ in range(1000)]
    assert np.mean(values) == pytest.approx(math.sqrt(math.pi / 8) * math.sqrt(2 / 200), abs=0.007)


@MONOTONE
@seeded
@given(sample=samples())
def test_a_strictly_increasing_map_moves_thresholds_only(monotone: Callable[[Array], Array], sample: Sample) -> None:
    scores, labels = sample
    straight, mapped = roc(scores, labels), roc(monotone(scores), labels)
    assert straight.tp.tolist() == mapped.tp.tolist()
    assert straight.fp.tolist() == mapped.fp.tolist()
    assert advantage(scores, labels).value == advantage(monotone(scores), labels).value


@seeded
@given(samples(), st.data())
def test_order_of_the_records_does_not_matter(sample: Sample, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(sample[0]))))
    turned = sample[0][order], sample[1][order]
    assert tpr_at_fpr(*turned, 0.3) == tpr_at_fpr(*sample, 0.3)
    assert advantage(*turned) == advantage(*sample)
    assert roc(*turned).threshold.tolist() == roc(*sample).threshold.tolist()


@seeded
@given(samples())
def test_turned_scores_and_labels_mirror_the_curve(sample: Sample) -> None:
    scores, labels = sample
    curve, mirrored = roc(scores, labels), roc(-scores, 1 - labels)
    assert (curve.n0 - curve.fp)[::-1].tolist() == mirrored.tp.tolist()
    assert (curve.n1 - curve.tp)[::-1].tolist() == mirrored.fp.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, bool])
def test_other_number_types_give_the_same_counts(dtype: npt.DTypeLike) -> None:
    scores, labels = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1])
    curve = roc(scores.astype(dtype), labels.astype(dtype))
    assert (curve.tp.tolist(), curve.fp.tolist()) == ([0, 2, 3], [0, 1, 2])


def test_all_equal_scores_leave_two_decisions() -> None:
    scores, labels = np.full(6, 3.0), np.array([0, 1, 1, 0, 1, 0])
    curve = roc(scores, labels)
    assert (curve.tp.tolist(), curve.fp.tolist()) == ([0, 3], [0, 3])
    assert tpr_at_fpr(scores, labels, 0.5).point.threshold is None
    assert advantage(scores, labels).value == 0


def test_one_record_a_class() -> None:
    assert tpr_at_fpr([2.0, 1.0], [1, 0], 0.1).value == 1
    assert tpr_at_fpr([1.0, 1.0], [1, 0], 0.1).value == 0
    assert advantage([0.0, 1.0], [1, 0]).value == 0


def test_a_million_scores() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat([1, 0], 500_000)
    result = tpr_at_fpr(rng.standard_normal(1_000_000) + labels, labels, 0.001)
    assert result.value == pytest.approx(stats.norm.sf(stats.norm.isf(0.001) - 1), abs=0.002)
    assert not result.under_resolved


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        roc([0.0, bad, 1.0], [0, 1, 1])


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match="both classes"):
        roc(np.arange(3.0), np.full(3, label))


@pytest.mark.parametrize(
    ("scores", "labels"), [([1.0, 2.0], [1]), ([[1.0, 2.0]], [[0, 1]]), (1.0, 1), ([1.0, 2.0], [[0, 1]])]
)
def test_shapes_that_do_not_fit_are_refused(scores: npt.ArrayLike, labels: npt.ArrayLike) -> None:
    with pytest.raises(ValueError, match="two vectors of one length"):
        split_by_label(scores, labels)


@pytest.mark.parametrize("labels", [[-1, 1], [0, 2], [0.5, 1.0], [math.nan, 1.0]])
def test_labels_other_than_zero_and_one_are_refused(labels: list[float]) -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        split_by_label([0.0, 1.0], labels)


def test_no_records_are_refused() -> None:
    with pytest.raises(ValueError, match="both classes"):
        split_by_label([], [])


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_target_fpr_outside_zero_and_one_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="FPR"):
        tpr_at_fpr([0.0, 1.0], [0, 1], target)
    with pytest.raises(ValueError, match="level"):
        tpr_at_fpr([0.0, 1.0], [0, 1], 0.5, level=target)


@seeded
@given(samples())
def test_input_is_left_as_it_was(sample: Sample) -> None:
    assume(len(sample[0]) > 2)
    scores, labels = sample[0].copy(), sample[1].copy()
    roc(*sample)
    assert scores.tolist() == sample[0].tolist()
    assert labels.tolist() == sample[1].tolist()

"""AUC against counting all pairs, its invariances, and DeLong's interval against the definition."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.stats.auc import auc, macro_auc, macro_gain

Array = npt.NDArray[np.float64]

seeded = settings(derandomize=True, deadline=None, max_examples=100)


@st.composite
def samples(draw: st.DrawFn, least: int = 1) -> tuple[Array, Array]:
    """Scores with many ties, and labels of both classes."""
    labels = [1] * draw(st.integers(least, 12)) + [0] * draw(st.integers(least, 12))
    scores = draw(st.lists(st.integers(-4, 4), min_size=len(labels), max_size=len(labels)))
    order = draw(st.permutations(range(len(labels))))
    return np.array(scores, dtype=float)[order], np.array(labels)[order]


def wins(scores: Array, labels: Array) -> Array:
    """[n1, n0]: 1 where the positive scores higher, 1/2 for a tie."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    return np.array([[(a > b) + (a == b) / 2 for b in negative] for a in positive], dtype=float)


def delong(scores: Array, labels: Array, level: float) -> tuple[float, float]:
    """DeLong, DeLong, Clarke-Pearson 1988 from the placements, on the logit scale."""
    psi = wins(scores, labels)
    value = psi.mean()
    spread = math.sqrt(sum(psi.mean(axis=axis).var(ddof=1) / psi.shape[1 - axis] for axis in (0, 1)))
    half = stats.norm.ppf((1 + level) / 2) * spread / (value * (1 - value))
    centre = math.log(value / (1 - value))
    return tuple(1 / (1 + math.exp(-(centre + sign * half))) for sign in (-1, 1))


@seeded
@given(samples())
def test_value_is_the_share_of_pairs_won_with_ties_half(sample: tuple[Array, Array]) -> None:
    assert auc(*sample).value == pytest.approx(wins(*sample).mean(), abs=1e-12)


@seeded
@given(samples())
def test_value_is_the_mann_whitney_statistic(sample: tuple[Array, Array]) -> None:
    scores, labels = sample
    won = stats.mannwhitneyu(scores[labels == 1], scores[labels == 0]).statistic
    assert auc(*sample).value == pytest.approx(won / ((labels == 1).sum() * (labels == 0).sum()), abs=1e-12)


@pytest.mark.parametrize(
    "monotone",
    [np.exp, np.cbrt, lambda x: 3 * x - 7, lambda x: np.where(x > 0, x + 100, x), stats.rankdata],
    ids=["exp", "cube root", "affine", "gap", "ranks"],
)
@seeded
@given(sample=samples())
def test_a_strictly_increasing_map_changes_nothing(
    sample: tuple[Array, Array], monotone: Callable[[Array], Array]
) -> None:
    scores, labels = sample
    assert auc(monotone(scores), labels) == auc(scores, labels)


@seeded
@given(samples())
def test_turned_scores_and_turned_labels_mirror_the_value(sample: tuple[Array, Array]) -> None:
    scores, labels = sample
    value = auc(scores, labels).value
    assert auc(-scores, labels).value == pytest.approx(1 - value, abs=1e-12)
    assert auc(scores, 1 - labels).value == pytest.approx(1 - value, abs=1e-12)


@seeded
@given(samples(), st.randoms(use_true_random=False))
def test_order_of_the_records_does_not_matter(sample: tuple[Array, Array], random: Random) -> None:
    scores, labels = sample
    order = list(range(len(scores)))
    random.shuffle(order)
    turned, straight = auc(scores[order], labels[order]), auc(scores, labels)
    assert (turned.value, turned.low, turned.high) == pytest.approx((straight.value, straight.low, straight.high))


@seeded
@given(samples(least=2), st.sampled_from([0.8, 0.95, 0.999]))
def test_interval_is_delongs_on_the_logit_scale(sample: tuple[Array, Array], level: float) -> None:
    result = auc(*sample, level)
    if 0 < result.value < 1:
        assert (result.low, result.high) == pytest.approx(delong(*sample, level), abs=1e-9)


@seeded
@given(samples())
def test_interval_holds_the_value_and_stays_inside_zero_and_one(sample: tuple[Array, Array]) -> None:
    result = auc(*sample)
    assert 0 <= result.low <= result.value <= result.high <= 1
    assert result.n == len(sample[0])


def test_interval_covers_the_true_value() -> None:
    """1,000 samples of 60 + 40; coverage of a nominal 95% is held within .93 to .975 (4 standard errors at .95)."""
    rng = np.random.default_rng(21)
    labels = np.repeat([1, 0], [60, 40])
    results = [auc(rng.standard_normal(100) + labels, labels) for _ in range(1000)]
    truth = stats.norm.cdf(math.sqrt(0.5))
    assert 0.93 <= np.mean([result.low <= truth <= result.high for result in results]) <= 0.975


def test_a_coin_flip_with_ties_is_at_one_half() -> None:
    """statistics.md: a coin-flip attack read .375 elsewhere because of ties."""
    scores, labels = np.tile([0.0, 1.0], 20), np.repeat([0, 1], 20)
    assert auc(scores, labels).value == 0.5


@pytest.mark.parametrize("scores", [[2.0, 1.0], [math.inf, -math.inf], [1e308, -1e308], [1 + 1e-15, 1.0]])
def test_one_record_a_class_in_order(scores: list[float]) -> None:
    assert auc(np.array(scores), np.array([1, 0])).value == 1


def test_one_record_a_class_tied() -> None:
    assert auc(np.zeros(2), np.array([1, 0])).value == 0.5


def test_two_records_prove_nothing() -> None:
    """A perfect order of two records happens by chance half of the time: no interval may be the point 1."""
    assert auc(np.array([1.0, 0.0]), np.array([1, 0])).low < 1


def test_an_extreme_value_of_few_positives_raises_no_warning() -> None:
    scores = np.concatenate([[1.0, 0.0], np.full(999, 2.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = auc(scores, np.array([1] + [0] * 1000))
    assert result.value == pytest.approx(0.001)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_raises(label: int) -> None:
    with pytest.raises(ValueError, match="both classes"):
        auc(np.arange(5.0), np.full(5, label))


def test_nan_raises() -> None:
    with pytest.raises(ValueError, match="NaN"):
        auc(np.array([0.0, math.nan, 1.0]), np.array([0, 1, 1]))


def _two_models(seed: int, n: int = 400) -> tuple[Array, Array, Array]:
    """Correlated labels and two correlated score matrices [N, 3]; the first model is the better one."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    labels = (common + rng.normal(size=(n, 3)) > 1).astype(int)
    noise = rng.normal(size=(n, 3))
    return labels + noise, 0.8 * labels + noise, labels


def test_macro_of_one_column_is_the_auc() -> None:
    scores, _, labels = _two_models(0)
    macro, single = macro_auc(scores[:, :1], labels[:, :1]), auc(scores[:, 0], labels[:, 0])
    assert macro.value == pytest.approx(single.value)
    assert (macro.low, macro.high) == pytest.approx((single.low, single.high), abs=1e-3)


def test_macro_averages_the_columns_with_both_classes() -> None:
    scores, _, labels = _two_models(1)
    constant = np.zeros((len(labels), 1), int)
    columns = [auc(scores[:, j], labels[:, j]).value for j in range(3)]
    widened = macro_auc(np.hstack([scores, scores[:, :1]]), np.hstack([labels, constant]))
    assert widened.value == pytest.approx(np.mean(columns))


def test_macro_and_gain_intervals_cover_the_truth() -> None:
    """300 draws at nominal 95%: fewer than 268 (89%) hits has probability below 1e-4."""
    draws = [_two_models(seed) for seed in range(300)]
    large = [_two_models(10_000 + seed, 20_000) for seed in range(5)]
    truth = np.mean([macro_auc(a, y).value for a, _, y in large])
    gain = np.mean([macro_gain(a, b, y).value for a, b, y in large])
    hits = sum(found.low <= truth <= found.high for found in (macro_auc(a, y) for a, _, y in draws))
    gains = sum(found.low <= gain <= found.high for found in (macro_gain(a, b, y) for a, b, y in draws))
    assert hits >= 268
    assert gains >= 268


def test_a_paired_gain_is_seen_where_separate_intervals_overlap() -> None:
    scores, reference, labels = _two_models(2)
    ours, theirs = macro_auc(scores, labels), macro_auc(reference, labels)
    assert ours.low < theirs.high
    assert macro_gain(scores, reference, labels).low > 0


def test_a_model_gains_nothing_over_itself() -> None:
    scores, _, labels = _two_models(3)
    found = macro_gain(scores, scores, labels)
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_macro_without_a_two_class_column_raises() -> None:
    with pytest.raises(ValueError, match="both classes"):
        macro_auc(np.zeros((4, 2)), np.ones((4, 2), int))

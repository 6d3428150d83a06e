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

Draw = Callable[[np.random.Generator], tuple[Array, Array]]

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
    positive, negative = scores[labels == 1][:, None], scores[labels == 0]
    return np.asarray((positive > negative) + (positive == negative) / 2)


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


@pytest.mark.parametrize(("n", "most"), [(200, 1.08), (2000, 1.02)])
@pytest.mark.parametrize("distance", [0.0, 0.75, 1.8])
def test_many_records_have_delongs_interval(n: int, most: float, distance: float) -> None:
    """The exact limits and the pseudo-records of few records cost little where there are many."""
    rng = np.random.default_rng(11)
    labels = np.repeat([1, 0], n)
    scores = rng.standard_normal(2 * n) + distance * labels
    result, (low, high) = auc(scores, labels), delong(scores, labels, 0.95)
    assert 1 <= (result.high - result.low) / (high - low) <= most
    assert (result.low, result.high) == pytest.approx((low, high), abs=0.08 * (high - low))


@seeded
@given(samples(), st.sampled_from([0.8, 0.95, 0.99]))
def test_interval_widens_with_the_level(sample: tuple[Array, Array], level: float) -> None:
    inner, outer = auc(*sample, level), auc(*sample, 0.999)
    assert outer.low <= inner.low <= inner.high <= outer.high


@seeded
@given(samples())
def test_interval_holds_the_value_and_stays_inside_zero_and_one(sample: tuple[Array, Array]) -> None:
    result = auc(*sample)
    assert 0 <= result.low <= result.value <= result.high <= 1
    assert result.n == len(sample[0])


def test_interval_covers_the_true_value() -> None:
    """1,000 samples of 60 + 40; coverage of a nominal 95% is held within .93 to .99: exact limits cover a bit more."""
    rng = np.random.default_rng(21)
    labels = np.repeat([1, 0], [60, 40])
    results = [auc(rng.standard_normal(100) + labels, labels) for _ in range(1000)]
    truth = stats.norm.cdf(math.sqrt(0.5))
    assert 0.93 <= np.mean([result.low <= truth <= result.high for result in results]) <= 0.99


def normals(n1: int, n0: int, distance: float, spread: float = 1.0) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[Array, Array]:
        return spread * rng.standard_normal(n1) + distance, rng.standard_normal(n0)

    return draw


def coins(n1: int, n0: int, p1: float, p0: float) -> Draw:
    """Scores 0 or 1: 1 with probability p1 and p0, AUC (1 + p1 - p0) / 2."""

    def draw(rng: np.random.Generator) -> tuple[Array, Array]:
        return (rng.random(n1) < p1).astype(float), (rng.random(n0) < p0).astype(float)

    return draw


APART = math.sqrt(2) * float(stats.norm.ppf(0.96))
"""Distance of two standard normals with AUC .96."""
WIDE = math.sqrt(10) * float(stats.norm.ppf(0.96))
"""The same where the positives' standard deviation is 3."""


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (normals(2, 50, 0.0), 0.5),
        (normals(2, 50, APART), 0.96),
        (normals(3, 3, APART), 0.96),
        (normals(5, 200, WIDE, 3.0), 0.96),
        (normals(20, 200, WIDE, 3.0), 0.96),
        (normals(20, 2000, APART), 0.96),
        (normals(20, 2000, WIDE, 3.0), 0.96),
        (normals(50, 200, WIDE, 3.0), 0.96),
        (normals(50, 50, APART), 0.96),
        (coins(20, 200, 0.96, 0.04), 0.96),
        (coins(20, 200, 0.9, 0.1), 0.9),
        (coins(50, 50, 0.02, 0.0), 0.51),
        (coins(50, 50, 0.01, 0.01), 0.5),
        (coins(2, 5, 0.01, 0.0), 0.505),
        (coins(200, 200, 0.03, 0.0), 0.515),
    ],
)
def test_interval_covers_where_records_are_few_or_tied_or_in_order(draw: Draw, truth: float) -> None:
    """1,500 samples: at least .94 less 4 standard errors (.0245), and where DeLong's fell to .87, .80 and .01."""
    rng = np.random.default_rng(31)
    hits = 0
    for _ in range(1500):
        positive, negative = draw(rng)
        labels = np.repeat([1, 0], [len(positive), len(negative)])
        found = auc(np.concatenate([positive, negative]), labels)
        hits += found.low <= truth <= found.high
    assert hits / 1500 >= 0.94 - 0.0245


def test_equal_scores_prove_nothing() -> None:
    """All tied: AUC .5, and positives that stand out once in 50 were as good as sure to be missed."""
    found = auc(np.zeros(100), np.repeat([1, 0], 50))
    assert found.low <= 0.48
    assert found.value == 0.5
    assert found.high >= 0.52


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


@pytest.mark.parametrize(
    ("scores", "labels", "match"),
    [
        (np.arange(4.0), np.array([0, 2, 0, 2]), "0 or 1"),
        (np.arange(4.0), np.array([0.0, math.nan, 1.0, 1.0]), "0 or 1"),
        (np.arange(4.0), np.array([0, 1, 1]), "one length"),
        (np.zeros((2, 2)), np.array([[0, 1], [1, 0]]), "one length"),
        (np.zeros(0), np.zeros(0), "both classes"),
        (np.zeros(()), np.zeros(()), "one length"),
    ],
)
def test_what_is_no_two_vectors_of_scores_and_labels_raises(scores: Array, labels: Array, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        auc(scores, labels)


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -0.1, math.nan])
def test_a_level_outside_0_and_1_raises(level: float) -> None:
    scores, reference, labels = _two_models(0)
    for refuses in (
        lambda: auc(scores[:, 0], labels[:, 0], level),
        lambda: macro_auc(scores, labels, level),
        lambda: macro_gain(scores, reference, labels, level),
    ):
        with pytest.raises(ValueError, match="level"):
            refuses()


@pytest.mark.parametrize(
    ("scores", "labels", "match"),
    [
        (np.zeros((4, 2)), np.array([0, 1, 0, 1]), "one shape"),
        (np.zeros((4, 2)), np.array([[0, 1]] * 3), "one shape"),
        (np.zeros((4, 2)), np.array([[0, 2], [1, 0], [1, 0], [0, 2]]), "0 or 1"),
        (np.full((2, 1), math.nan), np.array([[0], [1]]), "NaN"),
    ],
)
def test_macro_refuses_what_is_no_two_matrices(scores: Array, labels: Array, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        macro_auc(scores, labels)
    with pytest.raises(ValueError, match=match):
        macro_gain(scores, scores, labels)


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
    """The value is 0, the interval small and no point: equal ranks of 400 records are not equal models."""
    scores, _, labels = _two_models(3)
    found, separate = macro_gain(scores, scores, labels), macro_auc(scores, labels)
    assert found.value == 0
    assert found.low < 0 < found.high
    assert found.high - found.low < 0.6 * (separate.high - separate.low)


def test_gains_of_either_side_mirror() -> None:
    scores, reference, labels = _two_models(4)
    one, other = macro_gain(scores, reference, labels), macro_gain(reference, scores, labels)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))


@pytest.mark.parametrize(
    ("n1", "n0", "ours", "theirs", "correlation"),
    [
        (2, 2, 2.5, 2.4, 0.5),
        (2, 50, 2.5, 1.0, 0.9),
        (5, 5, 2.5, 2.4, 0.5),
        (20, 20, 0.7, 0.7, 0.9),
        (50, 50, 2.5, 1.0, 0.9),
    ],
)
def test_gain_interval_covers_where_records_are_few(
    n1: int, n0: int, ours: float, theirs: float, correlation: float
) -> None:
    """1,000 samples of two correlated normal scores: at least .94 less 4 standard errors (.03); paired DeLong's covers
    .19 of them at 2 and 2 records, where both models seem perfect.
    """
    rng = np.random.default_rng(41)
    labels = np.repeat([1, 0], [n1, n0])[:, None]
    truth = stats.norm.cdf(ours / math.sqrt(2)) - stats.norm.cdf(theirs / math.sqrt(2))
    hits = 0
    for _ in range(1000):
        noise = rng.standard_normal((n1 + n0, 1))
        other = correlation * noise + math.sqrt(1 - correlation**2) * rng.standard_normal((n1 + n0, 1))
        found = macro_gain(noise + ours * labels, other + theirs * labels, labels)
        assert -1 <= found.low <= found.value <= found.high <= 1
        hits += found.low <= truth <= found.high
    assert hits / 1000 >= 0.91


def test_macro_without_a_two_class_column_raises() -> None:
    with pytest.raises(ValueError, match="both classes"):
        macro_auc(np.zeros((4, 2)), np.ones((4, 2), int))


def test_a_perfect_and_a_reversed_column_have_a_mean_between() -> None:
    """No record's place varies, so that the smaller class alone says how sure the mean is."""
    labels = np.array([[0, 0], [1, 1]] * 20)
    found = macro_auc(np.column_stack([labels[:, 0], -labels[:, 1]]).astype(float), labels)
    assert found.value == 0.5
    assert 0 < found.low < 0.5 < found.high < 1

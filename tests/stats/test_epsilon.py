"""Lower limits of epsilon: golden values, formulas written out, exact and simulated validity, and known mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from privbench.accounting import gdp_eps, gdp_mu
from privbench.stats.epsilon import (
    EpsilonBound,
    Family,
    _tradeoff,
    eps_at_threshold,
    eps_from_counts,
    eps_on_ranks,
    eps_on_split,
    rank_grid,
)
from privbench.stats.roc import roc

Array = npt.NDArray[np.float64]
Estimator = Callable[[Array, Array, np.random.Generator], EpsilonBound]

seeded = settings(derandomize=True, deadline=None, max_examples=60)
FAMILIES = pytest.mark.parametrize("family", ["dp", "gaussian"])
DELTA, ALPHA = 1e-5, 0.05
TRUTH = 4.3772
"""eps of N(1, 1) against N(0, 1), mu = 1, at delta 1e-5."""


def estimators(family: Family, delta: float = DELTA, threshold: float = 0.5) -> dict[str, Estimator]:
    return {
        "threshold": lambda s, y, rng: eps_at_threshold(s, y, threshold, delta=delta, family=family),
        "split": lambda s, y, rng: eps_on_split(s, y, rng, delta=delta, family=family),
        "ranks": lambda s, y, rng: eps_on_ranks(s, y, delta=delta, family=family),
    }


EVERY = pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in ("dp", "gaussian") for name in ("threshold", "split", "ranks")]
)


def slack(runs: int, rate: float = ALPHA) -> int:
    """Most events that an honest error rate shows, but for one time in a thousand."""
    return int(stats.binom.isf(0.001, runs, rate))


def gaussians(rng: np.random.Generator, n: int, mu: float) -> tuple[Array, Array]:
    labels = np.repeat([1.0, 0.0], n)
    return rng.standard_normal(2 * n) + mu * labels, labels


def allowed_fnr(family: Family, fpr: Array | float, parameter: float, delta: float) -> Array:
    """The trade-off functions, from their definitions."""
    if family == "gaussian":
        return stats.norm.cdf(stats.norm.isf(fpr) - parameter)
    steep, flat = 1 - delta - math.exp(parameter) * fpr, math.exp(-parameter) * (1 - delta - fpr)
    return np.maximum(0, np.maximum(steep, flat))


def rank_p_value(family: Family, rank: int, n0: int, fn: int, n1: int, parameter: float, delta: float) -> float:
    """P[Binomial(n1, f(FPR)) <= fn], FPR ~ Beta(rank, n0 - rank + 1), integrated over the upper tail of the FPR."""
    above = np.geomspace(1e-9, 1, 4000)
    fpr = special.betainccinv(rank, n0 - rank + 1, above)
    return float(np.trapezoid(special.bdtr(fn, n1, allowed_fnr(family, fpr, parameter, delta)), above))


# Golden values


@pytest.mark.parametrize(
    ("fn", "n1", "fp", "n0", "alpha", "delta", "eps", "digits"),
    [(900, 1000, 1, 1000, 0.05, 1e-5, 2.692477, 6), (0, 500, 0, 500, 0.01, 0.0, 4.5419, 4)],
)
def test_golden_clopper_pearson(
    fn: int, n1: int, fp: int, n0: int, alpha: float, delta: float, eps: float, digits: int
) -> None:
    result = eps_from_counts(fn, n1, fp, n0, delta=delta, alpha=alpha)
    assert round(result.eps, digits) == eps
    assert result.mu is None


def test_golden_truth() -> None:
    assert round(gdp_eps(1, DELTA), 4) == TRUTH


def test_golden_case_over_seeds() -> None:
    """statistics.md: on the ranks about 2.0 to 2.2 ("dp") and 3.9 to 4.1 ("gaussian") of a true 4.3772.

    The exact tail is the tighter one: Clopper-Pearson at alpha / 24 for both rates gives 1.8 to 1.9 and 3.9.
    """
    rng = np.random.default_rng(4)
    samples = [gaussians(rng, 5000, 1) for _ in range(200)]
    dp = np.array([eps_on_ranks(*sample, delta=DELTA).eps for sample in samples])
    gaussian = np.array([eps_on_ranks(*sample, delta=DELTA, family="gaussian").eps for sample in samples])
    assert 2.0 <= dp.mean() <= 2.2
    assert 3.9 <= np.median(gaussian) <= 4.15
    assert np.mean(gaussian >= 0.9 * TRUTH) >= 0.85  # tight: within 10% at 10,000 canaries
    assert dp.max() < TRUTH
    assert np.sum(gaussian > TRUTH) <= slack(200)


# Formulas


@seeded
@given(st.data(), st.sampled_from([0.0, 1e-5, 0.05]), st.sampled_from([0.01, 0.05, 0.3]))
def test_counts_follow_the_formulas(data: st.DataObject, delta: float, alpha: float) -> None:
    n1, n0 = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
    fn, fp = data.draw(st.integers(0, n1)), data.draw(st.integers(0, n0))
    fnr = 1.0 if fn == n1 else stats.beta.ppf(1 - alpha / 2, fn + 1, n1 - fn)
    fpr = 1.0 if fp == n0 else stats.beta.ppf(1 - alpha / 2, fp + 1, n0 - fp)
    ratios = [(1 - fnr - delta) / fpr, (1 - fpr - delta) / fnr]
    result = eps_from_counts(fn, n1, fp, n0, delta=delta, alpha=alpha)
    assert result.eps == pytest.approx(max(0, *(math.log(r) for r in ratios if r > 0), 0), abs=1e-9)
    if delta:
        mu = max(0.0, stats.norm.ppf(1 - fpr) - stats.norm.ppf(fnr))
        gaussian = eps_from_counts(fn, n1, fp, n0, delta=delta, alpha=alpha, family="gaussian")
        assert gaussian.mu == pytest.approx(mu, abs=1e-9)
        assert gaussian.eps == pytest.approx(gdp_eps(mu, delta), abs=1e-6)


@pytest.mark.parametrize("mu", [0.02, 0.3, 1, 4, 20, 90])
@pytest.mark.parametrize("delta", [0.003, 1e-5, 1e-12, 1e-60])
def test_eps_of_mu_solves_delta_in_log_space(mu: float, delta: float) -> None:
    eps = gdp_eps(mu, delta)
    first, second = special.log_ndtr(-eps / mu + mu / 2), eps + special.log_ndtr(-eps / mu - mu / 2)
    log_delta = first + math.log1p(-math.exp(second - first))
    assert log_delta == pytest.approx(math.log(delta), rel=1e-6)


@FAMILIES
@seeded
@given(st.integers(1, 400), st.integers(1, 400))
def test_ceiling_is_what_a_perfect_attack_shows(family: Family, n1: int, n0: int) -> None:
    result = eps_from_counts(n1 // 3, n1, n0 // 4, n0, delta=DELTA, family=family)
    perfect = eps_from_counts(0, n1, 0, n0, delta=DELTA, family=family)
    assert result.ceiling == perfect.ceiling == perfect.eps >= result.eps


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_ceiling_is_about_the_log_of_n(n: int) -> None:
    ceiling = eps_from_counts(0, n, 0, n, delta=0, alpha=ALPHA).ceiling
    assert ceiling == pytest.approx(math.log(n / math.log(2 / ALPHA)), abs=0.06)


@FAMILIES
def test_ceiling_of_the_ranks_is_what_a_perfect_attack_shows(family: Family) -> None:
    labels = np.repeat([1, 0], [70, 130])
    perfect = eps_on_ranks(labels, labels, delta=DELTA, family=family)
    assert perfect.eps == pytest.approx(perfect.ceiling, abs=1e-5)
    weak = eps_on_ranks(labels + np.random.default_rng(5).standard_normal(200), labels, delta=DELTA, family=family)
    assert weak.ceiling == pytest.approx(perfect.ceiling, abs=1e-5)


@pytest.mark.parametrize("n0", [1, 2, 3, 7, 12, 50, 1000, 5000, 10**6])
def test_grid_is_at_most_twelve_ranks_that_n_alone_fixes(n0: int) -> None:
    ranks = rank_grid(n0)
    assert 1 <= len(ranks) <= 12
    assert (ranks[0], len(set(ranks))) == (1, len(ranks))
    assert all(1 <= rank <= n0 for rank in ranks)


@FAMILIES
@pytest.mark.parametrize("n1", [3, 40, 3000])
@pytest.mark.parametrize("n0", [1, 40, 3000])
@pytest.mark.parametrize("strength", [1.5, 5.0])
def test_limit_on_the_ranks_is_the_best_exact_limit_and_never_above_it(
    family: Family, n1: int, n0: int, strength: float
) -> None:
    rng = np.random.default_rng(6)
    positive, negative = rng.standard_normal(n1) + strength, rng.standard_normal(n0)
    result = eps_on_ranks(np.concatenate([positive, negative]), np.repeat([1, 0], [n1, n0]), delta=DELTA, family=family)
    ranks, exact = rank_grid(n0), [0.0]
    for rank in ranks:
        fn = int(np.sum(positive <= np.sort(negative)[n0 - rank]))
        p = partial(rank_p_value, family, int(rank), n0, fn, n1, delta=DELTA)
        if p(parameter=0) < ALPHA / len(ranks):
            exact.append(optimize.brentq(lambda x, p=p: p(parameter=x) - ALPHA / len(ranks), 0, 12, xtol=1e-6))
    found = result.eps if family == "dp" else result.mu
    assert max(exact) - (0.02 if min(n1, n0) > 30 else 0.05) <= found <= max(exact) + 1e-4


@FAMILIES
def test_limit_on_the_ranks_is_never_below_two_clopper_pearson_limits_at_half_the_share(family: Family) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        scores, labels = gaussians(rng, 300, 1.5)
        positive, negative = scores[:300], np.sort(scores[300:])
        ranks = rank_grid(300)
        plain = [
            eps_from_counts(
                int(np.sum(positive <= negative[300 - rank])),
                300,
                int(rank) - 1,
                300,
                delta=DELTA,
                alpha=ALPHA / len(ranks),
                family=family,
            ).eps
            for rank in ranks
        ]
        assert eps_on_ranks(scores, labels, delta=DELTA, family=family).eps >= max(plain) - 1e-5


# Validity


@pytest.mark.parametrize(("family", "truth"), [("dp", 1.0), ("dp", 3.0), ("gaussian", 1.0)])
@pytest.mark.parametrize("fpr", [0.02, 0.3])
def test_fixed_threshold_exceeds_the_truth_at_most_alpha_by_enumeration(
    family: Family, truth: float, fpr: float
) -> None:
    """Every pair of counts of 40 + 40, at a mechanism that lies on its trade-off function."""
    n, delta = 40, 1e-3
    fnr = allowed_fnr(family, fpr, truth, delta)
    wrong = 0.0
    for fn in range(n + 1):
        for fp in range(n + 1):
            result = eps_from_counts(fn, n, fp, n, delta=delta, family=family)
            if (result.eps if family == "dp" else result.mu or 0) > truth:
                wrong += stats.binom.pmf(fn, n, fnr) * stats.binom.pmf(fp, n, fpr)
    assert wrong <= ALPHA


@EVERY
def test_no_leakage_is_found_at_most_alpha_of_the_time(family: Family, name: str) -> None:
    """2,000 runs of 100 + 100 without any leakage."""
    rng = np.random.default_rng(8)
    estimate = estimators(family, threshold=0.0)[name]
    alarms = sum(estimate(*gaussians(rng, 100, 0), rng).eps > 0 for _ in range(2000))
    assert alarms <= slack(2000) == 131


@EVERY
def test_gaussian_truth_is_exceeded_at_most_alpha_of_the_time(family: Family, name: str) -> None:
    rng = np.random.default_rng(9)
    estimate = estimators(family)[name]
    assert sum(estimate(*gaussians(rng, 200, 1), rng).eps > TRUTH for _ in range(500)) <= slack(500)


@pytest.mark.parametrize("name", ["threshold", "split", "ranks"])
def test_laplace_truth_is_exceeded_at_most_alpha_of_the_time(name: str) -> None:
    """Pure eps = 1; its likelihood ratio is e^eps on all of score > 1, so that the limits come near."""
    rng = np.random.default_rng(10)
    labels = np.repeat([1.0, 0.0], 400)
    estimate = estimators("dp", delta=0.0, threshold=1.0)[name]
    found = np.array([estimate(rng.laplace(size=800) + labels, labels, rng).eps for _ in range(500)])
    assert np.sum(found > 1) <= slack(500)
    assert np.median(found) > 0.2


@pytest.mark.parametrize("eps", [1.0, 3.0])
@pytest.mark.parametrize("name", ["threshold", "split", "ranks"])
def test_randomised_response_is_exceeded_at_most_alpha_of_the_time(eps: float, name: str) -> None:
    """Two values only: nearly all scores are tied."""
    rng = np.random.default_rng(11)
    labels = np.repeat([1.0, 0.0], 400)
    estimate = estimators("dp", delta=0.0)[name]
    truthful = 1 / (1 + math.exp(-eps))
    found = [estimate(np.where(rng.random(800) < truthful, labels, 1 - labels), labels, rng).eps for _ in range(500)]
    assert np.sum(np.array(found) > eps) <= slack(500)


# Mistakes that shipped elsewhere


def test_an_absolute_value_finds_leakage_everywhere_and_is_not_here() -> None:
    """|mu| is positive without any leakage in every run, and grows as the attack turns worse than chance."""
    rng = np.random.default_rng(12)
    wrong, ours = 0, 0
    for _ in range(2000):
        fn, fp = rng.binomial(500, 0.5, size=2)
        fnr, fpr = special.betaincinv(fn + 1, 500 - fn, 0.975), special.betaincinv(fp + 1, 500 - fp, 0.975)
        wrong += gdp_eps(abs(special.ndtri(1 - fpr) - special.ndtri(fnr)), DELTA) > 0
        ours += eps_from_counts(fn, 500, fp, 500, delta=DELTA, family="gaussian").eps > 0
    assert wrong >= 1950
    assert ours <= slack(2000)
    assert eps_from_counts(90, 100, 95, 100, delta=DELTA, family="gaussian").mu == 0


def test_ratio_limits_without_correction_find_leakage_and_ours_do_not() -> None:
    """The best Clopper-Pearson ratio over all thresholds, at alpha each (86 to 93% false alarms elsewhere)."""
    rng = np.random.default_rng(13)
    wrong, ours = 0, 0
    for _ in range(400):
        scores, labels = gaussians(rng, 500, 0)
        curve = roc(scores, labels)
        low = special.betaincinv(np.maximum(curve.tp, 1), curve.n1 - curve.tp + 1, ALPHA)
        high = np.where(
            curve.fp == curve.n0, 1, special.betaincinv(curve.fp + 1, np.maximum(curve.n0 - curve.fp, 1), 0.5)
        )
        wrong += bool(np.any((curve.tp > 0) & (low > high)))
        ours += eps_on_ranks(scores, labels, delta=0).eps > 0
    assert wrong > 0.5 * 400
    assert ours <= slack(400)


def test_the_accuracy_maximising_threshold_finds_leakage_and_ours_do_not() -> None:
    """The threshold with the best accuracy on the scored records themselves (32 to 41% false alarms elsewhere)."""
    rng = np.random.default_rng(14)
    wrong = {"best": 0, "split": 0, "ranks": 0}
    for _ in range(500):
        scores, labels = gaussians(rng, 200, 0)
        curve = roc(scores, labels)
        at = int(np.argmax(curve.tp - curve.fp))
        tp, fp = int(curve.tp[at]), int(curve.fp[at])
        # One-sided at alpha on the accuracy of that decision, the usual shortcut.
        wrong["best"] += stats.binomtest(tp + 200 - fp, 400, 0.5, alternative="greater").pvalue <= ALPHA
        wrong["split"] += eps_on_split(scores, labels, rng, delta=DELTA, family="gaussian").eps > 0
        wrong["ranks"] += eps_on_ranks(scores, labels, delta=DELTA, family="gaussian").eps > 0
    assert wrong["best"] > 0.2 * 500
    assert max(wrong["split"], wrong["ranks"]) <= slack(500)


def test_a_bootstrap_percentile_of_the_best_ratio_reads_above_the_truth_and_ours_does_not() -> None:
    """statistics.md: a headline eps of 8.5 where the truth is 4.4."""
    rng = np.random.default_rng(15)
    scores, labels = gaussians(rng, 5000, 1)
    best = []
    for _ in range(40):
        drawn = rng.integers(0, 10_000, 10_000)
        curve = roc(scores[drawn], labels[drawn])
        best.append(np.log(np.max(curve.tpr / np.maximum(curve.fpr, 1 / curve.n0))))
    assert np.quantile(best, 0.975) > TRUTH
    assert eps_on_ranks(scores, labels, delta=DELTA).eps < TRUTH


def test_ties_between_in_and_out_prove_nothing() -> None:
    """Members stored first and all scores equal: whoever breaks ties by position sees a perfect attack."""
    scores, labels = np.zeros(400), np.repeat([1, 0], 200)
    for family in ("dp", "gaussian"):
        for estimate in estimators(family, threshold=0.0).values():
            assert estimate(scores, labels, np.random.default_rng(0)).eps == 0


# Properties


@st.composite
def samples(draw: st.DrawFn) -> tuple[Array, Array]:
    labels = [1] * draw(st.integers(1, 15)) + [0] * draw(st.integers(1, 15))
    scores = [draw(st.integers(-3, 3)) + 4 * label for label in labels]
    order = draw(st.permutations(range(len(labels))))
    return np.array(scores, dtype=float)[order], np.array(labels)[order]


@FAMILIES
@seeded
@given(sample=samples(), data=st.data())
def test_order_and_increasing_maps_change_nothing(
    family: Family, sample: tuple[Array, Array], data: st.DataObject
) -> None:
    scores, labels = sample
    order = data.draw(st.permutations(range(len(labels))))
    straight = eps_on_ranks(scores, labels, delta=DELTA, family=family)
    assert eps_on_ranks(scores[order], labels[order], delta=DELTA, family=family) == straight
    assert eps_on_ranks(np.exp(scores), labels, delta=DELTA, family=family).eps == straight.eps
    assert eps_on_ranks(scores.astype(np.float32), labels, delta=DELTA, family=family) == straight
    given_threshold = eps_at_threshold(scores, labels, 1.0, delta=DELTA, family=family)
    assert eps_at_threshold(scores[order], labels[order], 1.0, delta=DELTA, family=family) == given_threshold
    assert eps_at_threshold(np.exp(scores), labels, math.e, delta=DELTA, family=family).eps == given_threshold.eps


@FAMILIES
@seeded
@given(sample=samples())
def test_the_named_decision_has_the_named_counts(family: Family, sample: tuple[Array, Array]) -> None:
    scores, labels = sample
    point = eps_on_ranks(scores, labels, delta=DELTA, family=family).point
    called = np.zeros(len(scores), bool) if point.threshold is None else scores >= point.threshold
    assert (point.tp, point.fp) == (called[labels == 1].sum(), called[labels == 0].sum())


@FAMILIES
@seeded
@given(st.data())
def test_better_counts_and_a_larger_alpha_or_delta_move_eps_the_right_way(family: Family, data: st.DataObject) -> None:
    n = 80
    fn, fp = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    eps = partial(eps_from_counts, family=family)
    here = eps(fn, n, fp, n, delta=DELTA).eps
    assert eps(fn + 1, n, fp, n, delta=DELTA).eps <= here
    assert eps(fn, n, fp + 1, n, delta=DELTA).eps <= here
    assert eps(fn, n, fp, n, delta=DELTA, alpha=0.1).eps >= here
    assert eps(fn, n, fp, n, delta=0.01).eps <= here


@FAMILIES
def test_one_record_a_class_shows_nothing(family: Family) -> None:
    assert eps_on_ranks([1.0, 0.0], [1, 0], delta=DELTA, family=family).eps == 0
    assert eps_at_threshold([1.0, 0.0], [1, 0], 0.5, delta=DELTA, family=family).eps == 0
    with pytest.raises(ValueError, match="2 records a class"):
        eps_on_split([1.0, 0.0], [1, 0], np.random.default_rng(0), delta=DELTA, family=family)


def test_float32_scores_keep_the_decision_of_the_threshold() -> None:
    """A threshold between two float32 numbers would move when it is compared with them."""
    rng = np.random.default_rng(16)
    labels = np.repeat([1, 0], 500)
    scores = (rng.standard_normal(1000) + 2 * labels).astype(np.float32)
    point = eps_on_ranks(scores, labels, delta=DELTA).point
    assert np.float32(point.threshold) == point.threshold
    assert int(np.sum(scores[labels == 0] >= point.threshold)) == point.fp


def test_a_million_scores() -> None:
    scores, labels = gaussians(np.random.default_rng(17), 500_000, 1)
    assert 4.2 < eps_on_ranks(scores, labels, delta=DELTA, family="gaussian").eps < TRUTH
    assert 4.2 < eps_at_threshold(scores, labels, 0.5, delta=DELTA, family="gaussian").eps < TRUTH


def test_the_split_is_that_of_the_generator() -> None:
    scores, labels = gaussians(np.random.default_rng(18), 100, 2)
    once, again = (eps_on_split(scores, labels, np.random.default_rng(3), delta=DELTA) for _ in range(2))
    assert once == again
    assert (once.point.n1, once.point.n0) == (87, 87)


@FAMILIES
@pytest.mark.parametrize("seed", range(4))
def test_the_measured_part_of_the_split_is_disjoint_from_the_choosing_part(family: Family, seed: int) -> None:
    """The limit again from its definition: the decision that was named, on the records that were not told to choose.

    What is drawn is documented: an order of ties, then one permutation a class, of which the first eighth chooses.
    """
    n1, n0 = 203, 150
    rng = np.random.default_rng(seed)
    scores, labels = rng.standard_normal(n1 + n0), np.repeat([1, 0], [n1, n0])
    scores[:n1] += 2.0
    result = eps_on_split(scores, labels, np.random.default_rng(seed), delta=DELTA, family=family)
    again = np.random.default_rng(seed)
    again.random(n1 + n0)
    part1, part0 = math.ceil(n1 / 8), math.ceil(n0 / 8)
    positive, negative = again.permutation(scores[:n1])[part1:], again.permutation(scores[n1:])[part0:]
    assert (result.point.n1, result.point.n0) == (len(positive), len(negative)) == (177, 131)
    called = [int(np.sum(side >= result.point.threshold)) for side in (positive, negative)]
    assert called == [result.point.tp, result.point.fp]
    # The cut is the negative just below the named decision: its rank, and the exact tail there at the whole alpha.
    rank, fn = result.point.fp + 1, len(positive) - result.point.tp
    p = partial(rank_p_value, family, rank, len(negative), fn, len(positive), delta=DELTA)
    exact = optimize.brentq(lambda x: p(parameter=x) - ALPHA, 0, 12, xtol=1e-6)
    found = result.eps if family == "dp" else result.mu
    assert exact - 0.02 <= found <= exact + 1e-4


@FAMILIES
def test_what_chooses_on_the_split_is_not_measured(family: Family) -> None:
    """Scores of the choosing eighth that keep its own order change nothing but which rank is taken."""
    n = 80
    labels = np.repeat([1, 0], n)
    rng = np.random.default_rng(5)
    scores = rng.standard_normal(2 * n) + 3.0 * labels
    again = np.random.default_rng(9)
    again.random(2 * n)
    choosing = np.concatenate([again.permutation(n)[: n // 8], n + again.permutation(n)[: n // 8]])
    # All choosing members far above, all choosing outsiders far below: rank 1 of the eighth is best before and after.
    perfect = scores.copy()
    perfect[choosing] += np.where(labels[choosing] == 1, 50.0, -50.0)
    further = perfect.copy()
    further[choosing] *= 2.0
    estimate = partial(eps_on_split, delta=DELTA, family=family)
    first, second = (estimate(item, labels, np.random.default_rng(9)) for item in (perfect, further))
    assert first == second
    assert first.point.n1 == first.point.n0 == 70
    assert first.eps < first.ceiling  # the measured records do overlap: were the choosing ones measured, they would not


@pytest.mark.parametrize("delta", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("eps", [0.0, 0.7, 3.0])
def test_the_trade_off_function_is_that_of_the_revealing_mechanism(eps: float, delta: float) -> None:
    """With probability delta the label itself, else randomised response: its best decisions, one by one, at any FPR."""
    fpr = np.linspace(0.0, 1.0, 101)
    truthful = 1 / (1 + math.exp(-eps))
    # Scores in rising order: an outsider revealed, "0", "1", a member revealed; deciding 1 from there on.
    out = np.cumsum([0.0, 0.0, (1 - delta) * (1 - truthful), (1 - delta) * truthful, delta])
    member = np.cumsum([0.0, delta, (1 - delta) * truthful, (1 - delta) * (1 - truthful), 0.0])
    least = np.interp(fpr, out, 1 - member)
    assert _tradeoff("dp", delta)(fpr, eps) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("mu", [0.0, 1.0, 2.5])
def test_the_gaussian_trade_off_function_has_no_delta(mu: float) -> None:
    fpr = np.linspace(0.01, 0.99, 50)
    assert _tradeoff("gaussian", 0.3)(fpr, mu) == pytest.approx(stats.norm.cdf(stats.norm.isf(fpr) - mu), abs=1e-12)


@pytest.mark.parametrize("swapped", [False, True])
def test_revealed_records_show_no_more_than_delta_allows(swapped: bool) -> None:
    """A third of the members (or of the outsiders) is beyond doubt: at delta .34 that alone is no eps at all."""
    labels = np.repeat([1, 0], 300)
    scores = np.random.default_rng(21).standard_normal(600)
    scores[:100] += 20
    if swapped:
        scores, labels = -scores, 1 - labels
    for estimate in (eps_on_ranks, lambda s, y, **known: eps_on_split(s, y, np.random.default_rng(1), **known)):
        assert estimate(scores, labels, delta=0.34).eps < 0.1
        assert estimate(scores, labels, delta=0.0).eps > 1.5


def test_the_split_comes_near_the_truth_at_ten_thousand_records() -> None:
    """Within 10% where the signal is plain, within 25% where an eighth of the records shows nothing by itself."""
    for mu, least in ((1.0, 0.9), (gdp_mu(1.0, DELTA), 0.75)):
        found = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            found.append(eps_on_split(*gaussians(rng, 5000, mu), rng, delta=DELTA, family="gaussian").eps)
        assert least < np.mean(found) / gdp_eps(mu, DELTA) < 1


def test_the_split_cuts_through_a_tie_block() -> None:
    """Randomised response at eps 1: both values are tied thousands of times."""
    rng, labels, found = np.random.default_rng(19), np.repeat([1.0, 0.0], 5000), []
    for _ in range(20):
        scores = np.where(rng.random(10_000) < special.expit(1), labels, 1 - labels)
        found.append(eps_on_split(scores, labels, rng, delta=DELTA).eps)
    assert 0.9 < np.mean(found) < 1


# Refusals


@pytest.mark.parametrize("estimate", estimators("dp").values(), ids=estimators("dp"))
@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.0, math.nan, 1, 1], [0, 0, 1, 1], "finite"),
        ([0.0, math.inf, 1, 1], [0, 0, 1, 1], "finite"),
        ([0.0, 1, 2], [0, 0, 1, 1], "one length"),
        ([0.0, 1, 2], [1, 1, 1], "both classes"),
        ([0.0, 1, 2], [0, 1, 2], "0 or 1"),
    ],
)
def test_bad_scores_and_labels_are_refused(
    estimate: Estimator, scores: list[float], labels: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(np.array(scores), np.array(labels), np.random.default_rng(0))


@EVERY
@pytest.mark.parametrize("delta", [1.0, 2.0, -1e-9, math.nan])
def test_a_delta_of_one_or_more_or_below_zero_is_refused(family: Family, name: str, delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        estimators(family, delta=delta)[name](*gaussians(np.random.default_rng(0), 5, 1), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["threshold", "split", "ranks"])
def test_a_delta_of_zero_is_refused_for_gaussian_dp_only(name: str) -> None:
    sample = gaussians(np.random.default_rng(0), 50, 3)
    assert estimators("dp", delta=0.0)[name](*sample, np.random.default_rng(0)).eps > 0
    with pytest.raises(ValueError, match="infinite eps"):
        estimators("gaussian", delta=0.0)[name](*sample, np.random.default_rng(0))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_an_alpha_outside_zero_and_one_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        eps_from_counts(1, 10, 1, 10, delta=0, alpha=alpha)
    with pytest.raises(ValueError, match="alpha"):
        eps_on_ranks([0.0, 1.0], [0, 1], delta=0, alpha=alpha)


@pytest.mark.parametrize("counts", [(-1, 5, 0, 5), (6, 5, 0, 5), (0, 5, 6, 5), (0, 0, 0, 5), (0, 5, 0, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="need 0 <="):
        eps_from_counts(*counts, delta=0)


def test_an_unknown_family_and_a_threshold_that_is_no_number_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown family 'laplace'"):
        eps_from_counts(1, 10, 1, 10, delta=0, family="laplace")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN"):
        eps_at_threshold([0.0, 1.0], [0, 1], math.nan, delta=0)

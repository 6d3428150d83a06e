"""One-run audits: golden values, both tests written out as loops, simulated validity, and the maximum over guesses."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.accounting import gdp_eps
from privbench.stats.one_run import Guesses, fdp_eps, steinke_eps, steinke_p_value, top_guesses

Array = npt.NDArray[np.float64]

seeded = settings(derandomize=True, deadline=None, max_examples=60)
DELTA, ALPHA = 1e-5, 0.05


@st.composite
def guesses(draw: st.DrawFn, largest: int = 60) -> Guesses:
    m = draw(st.integers(1, largest))
    guessed = draw(st.integers(1, m))
    return Guesses(m, guessed, draw(st.integers(0, guessed)))


def slack(runs: int) -> int:
    """Most events that an honest error rate of alpha shows, but for one time in a thousand."""
    return int(stats.binom.isf(0.001, runs, ALPHA))


def p_value_by_loops(m: int, r: int, v: int, eps: float, delta: float) -> float:
    """Steinke, Nasr, Jagielski 2023, straight from the formula."""
    q = math.exp(eps) / (1 + math.exp(eps))
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    worst = max((sum(mass[v - i : v]) / i for i in range(1, v + 1)), default=0)
    return min(1, sum(mass[v:]) + 2 * m * delta * worst)


def rejects_by_loops(g: Guesses, mu: float, alpha: float, k: int) -> bool:
    """Mahloujifar, Melis, Chaudhuri 2024, straight from the formula, to the last step."""
    m, c, of = g.m, g.right, g.guessed
    r, h = alpha * c / m, alpha * (of - c) / m
    for i in reversed(range(c)):
        new = max(h, (k - 1) * stats.norm.cdf(stats.norm.ppf(r) - mu))
        r, h = r + i / (of - i) * (new - h), new
    return r + h > of / m


# Golden values

COUNTS = [(1000, 1000, 600), (1000, 200, 160), (1000, 100, 100), (10000, 1955, 1615)]


@pytest.mark.parametrize(("counts", "eps"), list(zip(COUNTS, [0.2972, 1.0850, 3.4654, 1.4569], strict=True)))
def test_golden_steinke(counts: tuple[int, int, int], eps: float) -> None:
    assert round(steinke_eps(Guesses(*counts), delta=DELTA).eps, 4) == eps


def test_golden_steinke_at_delta_zero() -> None:
    assert round(steinke_eps(Guesses(1000, 100, 100), delta=0).eps, 4) == 3.4930


@pytest.mark.parametrize(("counts", "eps"), list(zip(COUNTS, [0.5835, 1.7292, 5.5490, 2.0980], strict=True)))
def test_golden_mahloujifar(counts: tuple[int, int, int], eps: float) -> None:
    result = fdp_eps(Guesses(*counts), delta=DELTA)
    assert round(result.eps, 4) == eps
    assert result.eps == pytest.approx(gdp_eps(result.mu or 0, DELTA))


# Formulas


@seeded
@given(guesses(), st.floats(0, 5), st.sampled_from([0.0, 1e-6, 1e-3, 0.1]))
def test_p_value_is_the_formula(g: Guesses, eps: float, delta: float) -> None:
    expected = p_value_by_loops(g.m, g.guessed, g.right, eps, delta)
    assert steinke_p_value(g, eps, delta) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@seeded
@given(guesses(), st.sampled_from([1e-6, 1e-3]), st.floats(0, 4), st.floats(0.01, 1))
def test_p_value_grows_with_eps_where_it_decides(g: Guesses, delta: float, eps: float, more: float) -> None:
    here = steinke_p_value(g, eps, delta)
    if here <= 0.3:
        assert steinke_p_value(g, eps + more, delta) >= here * (1 - 1e-9)


@seeded
@given(guesses(300), st.sampled_from([0.0, 1e-6, 1e-4, 1e-2]), st.sampled_from([0.01, 0.05, 0.3]))
def test_steinke_eps_is_where_the_p_value_is_alpha(g: Guesses, delta: float, alpha: float) -> None:
    eps = steinke_eps(g, delta=delta, alpha=alpha).eps
    if eps > 0:
        assert steinke_p_value(g, eps, delta) == pytest.approx(alpha, rel=1e-5)
    else:
        assert steinke_p_value(g, 1e-6, delta) > alpha * (1 - 1e-3)


@seeded
@given(guesses(80), st.sampled_from([2, 3, 10]), st.sampled_from([0.01, 0.05, 0.2]))
def test_mu_is_where_the_recursion_stops_to_reject(g: Guesses, choices: int, alpha: float) -> None:
    """Both early exits against the loop that has none."""
    mu = fdp_eps(g, delta=DELTA, alpha=alpha, choices=choices).mu
    assert mu is not None
    assert not rejects_by_loops(g, mu + 1e-5, alpha, choices)
    if mu > 0:
        assert rejects_by_loops(g, max(0, mu - 1e-5), alpha, choices)


@pytest.mark.parametrize("choices", [2, 4])
@pytest.mark.parametrize(("guessed", "right"), [(2000, 1500), (700, 690)])
def test_mu_of_many_guesses_against_the_loop(guessed: int, right: int, choices: int) -> None:
    g = Guesses(2000, guessed, right)
    mu = fdp_eps(g, delta=DELTA, choices=choices).mu
    assert mu is not None
    assert rejects_by_loops(g, mu - 1e-4, ALPHA, choices)
    assert not rejects_by_loops(g, mu + 1e-4, ALPHA, choices)


@seeded
@given(guesses(5000))
def test_mu_has_a_ceiling_that_more_records_do_not_lift(g: Guesses) -> None:
    wrong = g.guessed - g.right
    if g.right > 0 and wrong > 0:
        ceiling = stats.norm.ppf(ALPHA * g.right / g.m) - stats.norm.ppf(ALPHA * wrong / g.m)
        assert (fdp_eps(g, delta=DELTA).mu or 0) <= max(0, ceiling) + 1e-6


# Validity


@cache
def found(test: str, m: int, guessed: int, right: int, choices: int = 2, delta: float = DELTA) -> float:
    g = Guesses(m, guessed, right)
    if test == "steinke":
        return steinke_eps(g, delta=delta).eps
    return fdp_eps(g, delta=delta, choices=choices).eps


@pytest.mark.parametrize("test", ["steinke", "fdp"])
@pytest.mark.parametrize("guessed", [40, 200])
def test_no_leakage_is_found_at_most_alpha_of_the_time(test: str, guessed: int) -> None:
    """2,000 runs of 200 coins that nothing depends on."""
    rng = np.random.default_rng(20)
    right = rng.binomial(guessed, 0.5, size=2000)
    assert sum(found(test, 200, guessed, int(v)) > 0 for v in right) <= slack(2000) == 131


@pytest.mark.parametrize("test", ["steinke", "fdp"])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("each_side", [25, 250])
def test_gaussian_truth_is_exceeded_at_most_alpha_of_the_time(test: str, mu: float, each_side: int) -> None:
    rng = np.random.default_rng(21)
    eps = []
    for _ in range(400):
        coins = rng.integers(0, 2, 500)
        if 0 < coins.sum() < 500:
            scores = rng.standard_normal(500) + mu * coins
            g = top_guesses(scores, coins, rng, guess_in=each_side, guess_out=each_side)
            eps.append(found(test, g.m, g.guessed, g.right))
    assert np.sum(np.array(eps) > gdp_eps(mu, DELTA)) <= slack(400)
    assert np.median(eps) > 0


@pytest.mark.parametrize("eps", [1.0, 3.0])
def test_randomised_response_is_exceeded_at_most_alpha_of_the_time_and_nearly_reached(eps: float) -> None:
    """The mechanism that the p-value is exact for, at delta 0."""
    rng = np.random.default_rng(22)
    right = rng.binomial(10_000, 1 / (1 + math.exp(-eps)), size=1000)
    results = [found("steinke", 10_000, 10_000, int(v), delta=0.0) for v in right]
    assert np.sum(np.array(results) > eps) <= slack(1000)
    assert np.median(results) > 0.9 * eps


@pytest.mark.parametrize("choices", [3, 8])
def test_labels_of_several_values_exceed_the_truth_at_most_alpha_of_the_time(choices: int) -> None:
    """One noisy one-hot label a record: replacing it moves the mean by sqrt 2."""
    rng = np.random.default_rng(23)
    sigma, m = 1.0, 200
    truth = gdp_eps(math.sqrt(2) / sigma, DELTA)
    labels = rng.integers(0, choices, size=(500, m))
    noisy = np.eye(choices)[labels] + sigma * rng.standard_normal((500, m, choices))
    right = (noisy.argmax(axis=-1) == labels).sum(axis=-1)
    results = np.array([found("fdp", m, m, int(v), choices=choices) for v in right])
    assert np.sum(results > truth) <= slack(500)
    assert np.median(results) > 0


def test_guessing_one_of_k_by_chance_shows_nothing() -> None:
    rng = np.random.default_rng(24)
    for choices in (2, 3, 10):
        right = rng.binomial(300, 1 / choices, size=2000)
        assert sum(found("fdp", 300, 300, int(v), choices=choices) > 0 for v in right) <= slack(2000)


# Mistakes that shipped elsewhere


def test_the_maximum_over_guess_counts_finds_leakage_and_one_count_does_not() -> None:
    """The best of many numbers of guesses, at alpha each (31 to 53% false alarms elsewhere)."""
    rng = np.random.default_rng(25)
    m, counts = 1000, [*range(5, 50, 3), *range(50, 501, 25)]
    best, one = 0, 0
    for _ in range(400):
        coins = rng.integers(0, 2, m)
        scores = rng.standard_normal(m)
        by_rank = coins[np.argsort(scores)]
        right = {n: int(by_rank[m - n :].sum() + (1 - by_rank[:n]).sum()) for n in counts}
        best += any(found("steinke", m, 2 * n, v, delta=0.0) > 0 for n, v in right.items())
        g = top_guesses(scores, coins, rng, guess_in=200, guess_out=200)
        assert g.right == right[200]
        one += found("steinke", m, g.guessed, g.right, delta=0.0) > 0
    assert best > 0.2 * 400
    assert one <= slack(400)


def test_ties_are_broken_blind_to_the_coins() -> None:
    """Members stored first and all scores equal: order must not become a perfect attack, nor its mirror."""
    coins = np.repeat([1, 0], 100)
    for order in (coins, coins[::-1]):
        right = [
            top_guesses(np.zeros(200), order, np.random.default_rng(seed), guess_in=50, guess_out=50).right
            for seed in range(300)
        ]
        assert np.mean(right) == pytest.approx(50, abs=1.2)


# Guesses


@seeded
@given(st.data())
def test_top_guesses_counts_the_ends_of_the_ranking(data: st.DataObject) -> None:
    m = data.draw(st.integers(2, 30))
    scores = np.array(data.draw(st.permutations(range(m))), dtype=float)
    coins = np.array([1, 0, *data.draw(st.lists(st.integers(0, 1), min_size=m - 2, max_size=m - 2))])
    guess_in = data.draw(st.integers(0, m))
    guess_out = data.draw(st.integers(0, m - guess_in))
    right = sum(coin == 1 for score, coin in zip(scores, coins, strict=True) if score >= m - guess_in)
    right += sum(coin == 0 for score, coin in zip(scores, coins, strict=True) if score < guess_out)
    rng = np.random.default_rng(0)
    expected = Guesses(m, guess_in + guess_out, right)
    order = data.draw(st.permutations(range(m)))
    monotone = np.exp(scores[order] / m).astype(np.float32)
    assert top_guesses(scores, coins, rng, guess_in=guess_in, guess_out=guess_out) == expected
    assert top_guesses(monotone, coins[order], rng, guess_in=guess_in, guess_out=guess_out) == expected


@pytest.mark.parametrize(("guess_in", "guess_out"), [(-1, 2), (2, -1), (3, 2)])
def test_more_guesses_than_records_are_refused(guess_in: int, guess_out: int) -> None:
    with pytest.raises(ValueError, match="at most 4"):
        top_guesses([1.0, 2, 3, 4], [0, 1, 0, 1], np.random.default_rng(0), guess_in=guess_in, guess_out=guess_out)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [([math.nan, 0], [0, 1], "finite"), ([0, 1, 2], [0, 1], "one length"), ([0, 1], [1, 1], "both classes")],
)
def test_bad_scores_and_coins_are_refused(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        top_guesses(scores, labels, np.random.default_rng(0), guess_in=1, guess_out=0)


# Properties


@seeded
@given(guesses(200), st.sampled_from([2, 5]))
def test_more_right_guesses_and_a_larger_alpha_never_lower_eps(g: Guesses, choices: int) -> None:
    here, looser = (fdp_eps(g, delta=DELTA, choices=choices, alpha=alpha).eps for alpha in (ALPHA, 0.1))
    assert looser >= here - 1e-6
    assert steinke_eps(g, delta=DELTA, alpha=0.1).eps >= steinke_eps(g, delta=DELTA).eps - 1e-6
    assert steinke_eps(g, delta=0).eps >= steinke_eps(g, delta=0.001).eps - 1e-6
    if g.right < g.guessed:
        better = Guesses(g.m, g.guessed, g.right + 1)
        assert fdp_eps(better, delta=DELTA, choices=choices).eps >= here - 1e-6
        assert steinke_eps(better, delta=DELTA).eps >= steinke_eps(g, delta=DELTA).eps - 1e-6


@pytest.mark.parametrize("g", [Guesses(1, 1, 1), Guesses(1, 1, 0), Guesses(50, 20, 0), Guesses(50, 20, 10)])
def test_one_record_none_right_or_half_right_shows_nothing(g: Guesses) -> None:
    assert steinke_eps(g, delta=DELTA).eps == 0
    assert fdp_eps(g, delta=DELTA).eps == 0
    assert fdp_eps(g, delta=DELTA).mu == 0


def test_none_right_is_no_surprise() -> None:
    assert steinke_p_value(Guesses(50, 20, 0), 0.0, DELTA) == 1


def test_a_million_guesses() -> None:
    rng = np.random.default_rng(26)
    coins = rng.integers(0, 2, 1_000_000)
    scores = rng.standard_normal(1_000_000) + 2 * coins
    g = top_guesses(scores, coins, rng, guess_in=500_000, guess_out=500_000)
    assert 1.6 < steinke_eps(g, delta=0).eps < 1.7  # ln(.841 / .159)
    assert 0 < fdp_eps(g, delta=DELTA).eps < gdp_eps(2, DELTA)
    assert steinke_eps(g, delta=1e-9).eps <= steinke_eps(g, delta=0).eps


@pytest.mark.parametrize(
    "g", [Guesses(5, 6, 1), Guesses(5, 4, 5), Guesses(5, 4, -1), Guesses(5, 0, 0), Guesses(0, 0, 0)]
)
def test_impossible_counts_are_refused(g: Guesses) -> None:
    for refuses in (
        lambda: steinke_p_value(g, 1.0, DELTA),
        lambda: steinke_eps(g, delta=DELTA),
        lambda: fdp_eps(g, delta=DELTA),
    ):
        with pytest.raises(ValueError, match="right <= guessed <= m"):
            refuses()


@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-9, math.nan])
def test_a_delta_of_one_or_more_or_below_zero_is_refused(delta: float) -> None:
    g = Guesses(50, 20, 18)
    for refuses in (
        lambda: steinke_p_value(g, 1.0, delta),
        lambda: steinke_eps(g, delta=delta),
        lambda: fdp_eps(g, delta=delta),
    ):
        with pytest.raises(ValueError, match="delta"):
            refuses()


def test_other_impossible_settings_are_refused() -> None:
    g = Guesses(50, 20, 18)
    with pytest.raises(ValueError, match="infinite eps"):
        fdp_eps(g, delta=0)
    with pytest.raises(ValueError, match="2 values"):
        fdp_eps(g, delta=DELTA, choices=1)
    with pytest.raises(ValueError, match="eps"):
        steinke_p_value(g, -0.1, DELTA)
    for alpha in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="alpha"):
            fdp_eps(g, delta=DELTA, alpha=alpha)
        with pytest.raises(ValueError, match="alpha"):
            steinke_eps(g, delta=DELTA, alpha=alpha)

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.bounds.base import BoundValue, Question, Unsupported
from privbench.bounds.claims import dp_cap
from privbench.bounds.labels import PureLabelDP, label_accuracy, laplace_accuracy, response_accuracy
from privbench.mechanism import ClipUnit, Mechanism


@pytest.mark.parametrize("labels", [2, 3, 10])
@pytest.mark.parametrize("eps", [0.0, 1.0, 3.0])
def test_randomised_response_attains_it(eps: float, labels: int) -> None:
    """Exact: keep the label with e^eps / (e^eps + K - 1), else another one; the best guess is what came out."""
    keep = math.exp(eps) / (math.exp(eps) + labels - 1)
    assert label_accuracy(eps, 0.0, labels) == pytest.approx(keep)


def test_no_mechanism_of_three_labels_beats_it() -> None:
    """Brute force over random eps-DP channels from 3 labels to 4 outputs: Bayes accuracy never above the bound."""
    rng = np.random.default_rng(0)
    for eps in (0.3, 1.0, 2.5):
        for _ in range(300):
            channel = rng.dirichlet(np.ones(4), 3)
            ratio = max(channel[a, o] / channel[b, o] for a, b in itertools.permutations(range(3), 2) for o in range(4))
            # Mixing with an uninformative output makes the channel eps-DP.
            share = min(1.0, math.expm1(eps) / max(ratio * channel.max() / channel.min(), math.expm1(eps)))
            mixed = share * channel + (1 - share) / 4
            worst = max(mixed[a, o] / mixed[b, o] for a, b in itertools.permutations(range(3), 2) for o in range(4))
            bayes = mixed.max(axis=0).sum() / 3
            assert bayes <= label_accuracy(math.log(worst), 0.0, 3) + 1e-12


@given(st.floats(0, 700), st.floats(0, 0.999))
def test_two_labels_are_the_dp_cap_of_a_replace_claim(eps: float, delta: float) -> None:
    assert label_accuracy(eps, delta) == pytest.approx(dp_cap(eps, delta, "replace"))


@given(st.floats(0, 50), st.floats(0, 50), st.integers(2, 20))
def test_grows_with_eps_and_falls_with_labels(a: float, b: float, labels: int) -> None:
    low, high = sorted((a, b))
    assert label_accuracy(low, 0.0, labels) <= label_accuracy(high, 0.0, labels)
    assert label_accuracy(high, 0.0, labels + 1) <= label_accuracy(high, 0.0, labels)


def test_laplace_is_exact_and_within_its_pure_cap() -> None:
    """400,000 draws: 4 standard errors are .0032."""
    rng = np.random.default_rng(1)
    for shift, scale in ((1.0, 1.0), (2.0, 0.7), (0.2, 1.0)):
        noise = rng.laplace(0, scale, 400_000)
        coins = rng.integers(0, 2, 400_000)
        right = ((noise + coins * shift > shift / 2) == (coins == 1)).mean()
        exact = laplace_accuracy(shift, scale)
        assert right == pytest.approx(exact, abs=0.0032)
        assert exact <= label_accuracy(shift / scale)


def test_releases_add_up_for_laplace_and_not_for_randomised_response() -> None:
    laplace = Mechanism("gradients", "A", "laplace", 1.0, sigma={"a": 10.0, "b": 5.0})
    response = Mechanism("labels", "A", "randomised-response", eps=1.0, labels=4)
    one, many = (PureLabelDP().evaluate(laplace, Question(("a", "b"), releases)) for releases in (1, 3))
    assert isinstance(one, BoundValue)
    assert isinstance(many, BoundValue)
    assert one.inputs["eps"] == pytest.approx(0.6)
    assert many.inputs["eps"] == pytest.approx(1.8)
    drawn = PureLabelDP().evaluate(response, Question(("a",), 50))
    assert isinstance(drawn, BoundValue)
    assert drawn.value == pytest.approx((1 + (math.e - 1) / (math.e + 3)) / 2)


def count_the_sides(eps: float, labels: int, moved: int, seed: int, n: int = 200_000) -> float:
    """Accuracy of counting, for n coins that set `moved` labels to 0 or 1, each answered by randomised response."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, n)
    ahead = np.zeros(n)
    for _ in range(moved):
        kept = rng.random(n) < math.exp(eps) / (math.exp(eps) + labels - 1)
        other = (coins + rng.integers(1, labels, n)) % labels
        answer = np.where(kept, coins, other)
        ahead += (answer == 1).astype(float) - (answer == 0)
    guesses = np.where(ahead == 0, rng.integers(0, 2, n), ahead > 0)
    return float((guesses == coins).mean())


@pytest.mark.parametrize("labels", [2, 3, 10])
@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize("eps", [0.3, 1.0, 3.0])
def test_a_coin_is_guessed_from_randomised_responses_as_often_as_the_bound_says(
    eps: float, labels: int, moved: int
) -> None:
    """Within 4 standard errors of 200,000 coins; the value composition allows is never below."""
    found, value = count_the_sides(eps, labels, moved, seed=6), response_accuracy(eps, labels, moved)
    assert abs(found - value) <= 4 * math.sqrt(value * (1 - value) / 200_000)
    assert value <= label_accuracy(moved * eps) + 1e-12


def test_golden_values_of_a_coin() -> None:
    """eps 1: two labels p = .731, a majority of three p^3 + 3 p^2 (1 - p) = .822, two of ten .573 (of ten: .232)."""
    response = Mechanism("labels", "A", "randomised-response", eps=1.0)
    for labels, moved, expected in ((2, 1, 0.7311), (2, 3, 0.8219), (10, 1, 0.5733)):
        described = replace(response, labels=labels)
        answer = PureLabelDP().evaluate(described, Question(("a", "b", "c")[:moved], 5))
        assert isinstance(answer, BoundValue)
        assert answer.value == pytest.approx(expected, abs=5e-5)
        assert answer.inputs["eps"] == moved


@given(st.floats(0, 700), st.integers(2, 50))
def test_one_response_is_half_of_one_plus_the_total_variation(eps: float, labels: int) -> None:
    odds = math.exp(-eps)
    expected = (1 + (1 - odds) / (1 + (labels - 1) * odds)) / 2
    assert response_accuracy(eps, labels) == pytest.approx(expected, rel=1e-12)


@given(st.floats(0, 30), st.integers(2, 20), st.integers(1, 6))
def test_more_labels_to_move_give_more_away_and_more_to_draw_from_less(eps: float, labels: int, moved: int) -> None:
    value = response_accuracy(eps, labels, moved)
    assert 0.5 - 1e-12 <= value <= response_accuracy(eps, labels, moved + 1) + 1e-12
    assert response_accuracy(eps, labels + 1, moved) <= value + 1e-12
    assert value <= label_accuracy(moved * eps) + 1e-12


@pytest.mark.parametrize(("clip_unit", "eps"), [("task", 1.2), ("sites", 0.6)])
def test_sites_that_pool_laplace_releases_pool_their_eps(clip_unit: ClipUnit, eps: float) -> None:
    described = Mechanism("gradients", "A", "laplace", 1.0, clip_unit, sigma={"a": 10.0, "b": 5.0}, colluding_sites=2)
    answer = PureLabelDP().evaluate(described, Question(("a", "b"), 1))
    assert isinstance(answer, BoundValue)
    assert answer.inputs["eps"] == pytest.approx(eps)


def test_pooled_laplace_releases_stay_below_the_bound_of_all_sites_and_above_that_of_one() -> None:
    """200,000 coins seen by 4 sites, shift 2 C = 1.2 b: the likelihood ratio passes one site's bound by far."""
    rng, sites, n = np.random.default_rng(8), 4, 200_000
    coins = rng.integers(0, 2, n)
    noisy = (1.2 * coins)[:, None] + rng.laplace(size=(n, sites))
    found = float((((np.abs(noisy) - np.abs(noisy - 1.2)).sum(axis=1) > 0) == (coins == 1)).mean())
    bounds = []
    for pooled in (1, sites):
        described = Mechanism("gradients", "A", "laplace", 0.6, sigma={"a": 1.0}, colluding_sites=pooled)
        answer = PureLabelDP().evaluate(described, Question(("a",), 1))
        assert isinstance(answer, BoundValue)
        bounds.append(answer.value)
    assert bounds[0] + 0.02 < found < bounds[1]


@pytest.mark.parametrize(
    ("mechanism", "part"),
    [
        (Mechanism("gradients", "A", "gaussian", 1.0, sigma={"a": 1.0}), "kind"),
        (Mechanism("labels", "A", "randomised-response"), "eps"),
        (Mechanism("gradients", "A", "laplace", None, sigma={"a": 1.0}), "clip"),
        (Mechanism("gradients", "A", "laplace", 1.0, sigma={"b": 1.0}), "clip"),
        (Mechanism("labels", "A", "randomised-response", eps=1.0, neighbours="add-remove"), "neighbours"),
    ],
)
def test_what_is_not_known_is_refused(mechanism: Mechanism, part: str) -> None:
    answer = PureLabelDP().evaluate(mechanism, Question(("a",), 1))
    assert isinstance(answer, Unsupported)
    assert answer.part == part


def test_bad_numbers_raise() -> None:
    for arguments in ((-1.0, 0.0, 2), (1.0, 1.0, 2), (1.0, 0.0, 1), (math.nan, 0.0, 2)):
        with pytest.raises(ValueError, match="need"):
            label_accuracy(*arguments)
    with pytest.raises(ValueError, match="need"):
        laplace_accuracy(1.0, 0.0)
    for eps, labels, moved in ((-1.0, 2, 1), (math.nan, 2, 1), (1.0, 1, 1), (1.0, 2, 0)):
        with pytest.raises(ValueError, match="need"):
            response_accuracy(eps, labels, moved)

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.bounds.base import BoundValue, Question, Unsupported
from privbench.bounds.claims import dp_cap
from privbench.bounds.labels import PureLabelDP, label_accuracy, laplace_accuracy
from privbench.mechanism import Mechanism


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
    assert drawn.value == pytest.approx(math.e / (math.e + 3))


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

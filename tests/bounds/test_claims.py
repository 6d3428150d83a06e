"""What a claim allows a coin-guesser: closed forms, mechanisms with known curves, and a simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from privbench.accounting import gdp_delta
from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.bounds.claims import DPCap, NominalCurve, dp_cap, nominal_accuracy
from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism

seeded = settings(derandomize=True, deadline=None, max_examples=100)
epsilons = st.floats(1e-3, 30)
deltas = st.floats(0, 0.5)
TASKS = ("mortality", "sepsis", "ventilation")


def mechanism(sigma: tuple[float, ...] = (6.25,) * 3, clip: float | None = 1.0) -> Mechanism:
    return Mechanism("gradients", "A", "gaussian", clip, sigma=dict(zip(TASKS, sigma, strict=True)))


def nominal(**changes: Any) -> Claim:
    """PRISM's default claim."""
    given_ = {"eps": 0.5, "delta": 1e-5, "audience": "nominal", "neighbours": "add-remove", "accountant": "rdp"}
    return Claim(**{**given_, "sample_rate": 64 / 2000, "epochs": 20, **changes})


def ask(claim: Claim | None) -> Question:
    return Question(TASKS[:2], 20, rho=0.95, claim=claim)


class TestDPCap:
    @pytest.mark.parametrize(
        ("eps", "neighbours", "expected"),
        [
            (0.5, "replace", 0.622),
            (0.5, "add-remove", 0.731),
            (1.0, "add-remove", 0.881),
            (2.0, "add-remove", 0.982),
        ],
    )
    def test_golden_values(self, eps: float, neighbours: str, expected: float) -> None:
        """bounds.md, 3 and 4."""
        assert dp_cap(eps, 1e-5, neighbours) == pytest.approx(expected, abs=5e-4)

    @seeded
    @given(epsilons, deltas)
    def test_replace_is_the_closed_form(self, eps: float, delta: float) -> None:
        assert dp_cap(eps, delta, "replace") == pytest.approx((math.exp(eps) + delta) / (1 + math.exp(eps)), rel=1e-12)

    @seeded
    @given(epsilons, st.floats(0, 1e-3))
    def test_add_remove_implies_twice_eps_and_more_delta(self, eps: float, delta: float) -> None:
        implied = min(1.0, dp_cap(2 * eps, (1 + math.exp(eps)) * delta, "replace"))
        assert dp_cap(eps, delta, "add-remove") == pytest.approx(implied, rel=1e-12)

    @seeded
    @given(epsilons, deltas, st.sampled_from(["replace", "add-remove"]))
    def test_value_grows_with_eps_and_delta_and_is_an_accuracy(self, eps: float, delta: float, which: str) -> None:
        value = dp_cap(eps, delta, which)
        assert 0.5 < value <= 1
        assert value <= dp_cap(eps * 1.1, delta, which) + 1e-15
        assert value <= dp_cap(eps, delta + 0.1, which) + 1e-15
        assert dp_cap(eps, delta, "replace") <= dp_cap(eps, delta, "add-remove")

    @seeded
    @given(st.floats(0.01, 8), st.floats(0, 20))
    def test_a_gaussian_mechanism_stays_below_every_point_of_its_own_curve(self, mu: float, eps: float) -> None:
        assert special.ndtr(mu / 2) <= dp_cap(eps, gdp_delta(mu, eps), "replace") + 1e-12

    @pytest.mark.parametrize("eps", [1.0, 3.0])
    def test_randomised_response_sits_on_the_cap(self, eps: float) -> None:
        """It tells the truth with probability e^eps / (1 + e^eps)."""
        assert dp_cap(eps, 0.0, "replace") == pytest.approx(special.expit(eps), rel=1e-12)

    @pytest.mark.parametrize("eps", [50.0, 400.0, 1e4, math.inf])
    @pytest.mark.parametrize("which", ["replace", "add-remove"])
    def test_a_huge_eps_allows_everything_and_overflows_nothing(self, eps: float, which: str) -> None:
        answer = DPCap().evaluate(mechanism(), ask(nominal(eps=eps, neighbours=which)))
        assert isinstance(answer, BoundValue)
        assert (answer.value, answer.signal) == (1.0, math.inf)

    def test_value_belongs_to_the_claim_not_to_the_mechanism(self) -> None:
        answers = {DPCap().evaluate(mechanism((z,) * 3), ask(nominal())).value for z in (0.1, 6.25)}  # type: ignore[union-attr]
        assert answers == {dp_cap(0.5, 1e-5, "add-remove")}

    def test_signal_is_the_quantile_of_the_value_and_the_claim_is_shown(self) -> None:
        answer = DPCap().evaluate(mechanism(), ask(nominal()))
        assert isinstance(answer, BoundValue)
        assert answer.value == pytest.approx(stats.norm.cdf(answer.signal), rel=1e-9)
        assert answer.inputs["claim"] == nominal().to_json()
        assert answer.assumptions


class TestNominalCurve:
    @pytest.mark.parametrize(("z", "expected"), [(6.25, 0.551), (3.39, 0.593), (1.93, 0.661)])
    def test_golden_values(self, z: float, expected: float) -> None:
        """bounds.md, 3."""
        answer = NominalCurve().evaluate(mechanism((z,) * 3), ask(nominal()))
        assert isinstance(answer, BoundValue)
        assert answer.value == pytest.approx(expected, abs=5e-4)
        assert answer.signal == pytest.approx(stats.norm.ppf(answer.value))
        assert (answer.inputs["noise_multiplier"], answer.inputs["steps"]) == (z, 625)

    def test_multiplier_is_sigma_over_clip(self) -> None:
        scaled = NominalCurve().evaluate(mechanism((12.5,) * 3, clip=2.0), ask(nominal()))
        assert isinstance(scaled, BoundValue)
        assert scaled.inputs["noise_multiplier"] == 6.25

    def test_steps_are_those_of_the_accounting(self) -> None:
        """49 records one by one are 49 steps; 1 / 49 as a float would make 50."""
        answer = NominalCurve().evaluate(mechanism(), ask(nominal(sample_rate=1 / 49, epochs=1)))
        assert isinstance(answer, BoundValue)
        assert answer.inputs["steps"] == 49

    @pytest.mark.parametrize(("z", "steps"), [(6.25, 20), (2.0, 1), (40.0, 625)])
    def test_without_sampling_it_is_the_gaussian_mechanism(self, z: float, steps: int) -> None:
        assert nominal_accuracy(z, 1.0, steps) == pytest.approx(special.ndtr(math.sqrt(steps) / z), abs=5e-4)

    @pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
    @pytest.mark.parametrize("z", [0.7, 3.0])
    def test_one_sampled_step_is_a_mixture(self, rate: float, z: float) -> None:
        """With probability 1 - rate the record is not there; else the optimum reads Phi(1 / z)."""
        assert nominal_accuracy(z, rate, 1) == pytest.approx(0.5 + rate * (special.ndtr(1 / z) - 0.5), abs=5e-4)

    def test_a_simulated_adversary_sits_on_the_curve(self) -> None:
        """20,000 coins, q = .032, z = 1.93, 100 steps, within 4 standard errors: fails by chance once in 16,000."""
        rng, rate, z, n = np.random.default_rng(23), 0.032, 1.93, 20_000
        coins, ratio = rng.choice([-1, 1], n), np.zeros(n)
        for _ in range(100):
            seen = coins * (rng.random(n) < rate) + z * rng.standard_normal(n)
            likelihoods = [1 - rate + rate * np.exp((2 * sign * seen - 1) / (2 * z * z)) for sign in (1, -1)]
            ratio += np.log(likelihoods[0] / likelihoods[1])
        expected = nominal_accuracy(z, rate, 100)
        found = ((ratio > 0) == (coins > 0)).mean()
        assert abs(found - expected) <= 4 * math.sqrt(expected * (1 - expected) / n)

    @pytest.mark.parametrize(
        ("less", "more"),
        [((6.25, 0.032, 300), (6.25, 0.032, 625)), ((6.25, 0.01, 300), (6.25, 0.032, 300)), ((6, 0.1, 9), (2, 0.1, 9))],
        ids=["steps", "rate", "noise"],
    )
    def test_more_steps_or_rate_or_less_noise_promise_less(self, less: tuple[Any, ...], more: tuple[Any, ...]) -> None:
        assert 0.5 < nominal_accuracy(*less) < nominal_accuracy(*more) < 1

    def test_no_accuracy_is_above_one(self) -> None:
        """The accountant rounds upward: its delta(0) ends above 1 here, and a bound above 1 makes p-values NaN."""
        assert nominal_accuracy(2.0, 1.0, 200) <= 1


class TestUnsupported:
    @pytest.mark.parametrize("bound", [DPCap(), NominalCurve()], ids=lambda bound: bound.card.name)
    def test_no_claim(self, bound: Bound) -> None:
        answer = bound.evaluate(mechanism(), ask(None))
        assert isinstance(answer, Unsupported)
        assert answer.part == "claim"

    @pytest.mark.parametrize("audience", ["outsider", "server"])
    def test_a_claim_for_others_caps_no_site(self, audience: str) -> None:
        answer = DPCap().evaluate(mechanism(), ask(nominal(audience=audience)))
        assert isinstance(answer, Unsupported)
        assert answer.part == "claim"

    @pytest.mark.parametrize(
        "changes", [{"audience": "site"}, {"audience": "outsider"}, {"sample_rate": None}, {"epochs": None}], ids=str
    )
    def test_nominal_curve_speaks_about_complete_nominal_claims_only(self, changes: dict[str, Any]) -> None:
        answer = NominalCurve().evaluate(mechanism(), ask(nominal(**changes)))
        assert isinstance(answer, Unsupported)
        assert answer.part == "claim"

    @pytest.mark.parametrize("sigma", [(1.0, 2.0, 2.0), (0.0, 0.0, 0.0)])
    def test_nominal_curve_knows_one_positive_multiplier(self, sigma: tuple[float, ...]) -> None:
        answer = NominalCurve().evaluate(mechanism(sigma), ask(nominal()))
        assert isinstance(answer, Unsupported)
        assert answer.part == "sigma"

    def test_nominal_curve_needs_a_clip(self) -> None:
        assert isinstance(NominalCurve().evaluate(mechanism(clip=None), ask(nominal())), Unsupported)

    @pytest.mark.parametrize(
        ("z", "changes", "reason"),
        [
            (0.2, {}, "hides nothing"),
            (1.0, {"sample_rate": 0.032, "epochs": 100_000}, "more than the 100,000"),
            (0.3, {"sample_rate": 0.032, "epochs": 3000}, "hide nothing"),
            (1.0, {"sample_rate": 1.0, "epochs": 10_000}, "hide nothing"),
        ],
    )
    def test_a_curve_that_takes_gigabytes_is_refused_at_once(
        self, z: float, changes: dict[str, Any], reason: str
    ) -> None:
        answer = NominalCurve().evaluate(mechanism((z,) * 3), ask(nominal(**changes)))
        assert isinstance(answer, Unsupported)
        assert answer.part == "sigma"
        assert reason in answer.reason

    @pytest.mark.parametrize(
        "changes",
        [{"sample_rate": 5e-324, "epochs": 1}, {"sample_rate": 0.5, "epochs": 10**300}],
        ids=str,
    )
    def test_more_steps_than_any_run_has_are_bad_input(self, changes: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="steps"):
            NominalCurve().evaluate(mechanism(), ask(nominal(**changes)))

    @pytest.mark.parametrize(
        "changes", [{"sample_rate": 0.0}, {"sample_rate": 1.5}, {"sample_rate": math.nan}, {"epochs": 0}], ids=str
    )
    def test_an_impossible_sampling_is_bad_input_or_unsupported_never_a_crash(self, changes: dict[str, Any]) -> None:
        """Claims are read from files that others write."""
        try:
            answer = NominalCurve().evaluate(mechanism(), ask(nominal(**changes)))
        except InputError:
            return
        assert isinstance(answer, Unsupported)

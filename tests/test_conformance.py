"""Checks that every registered attack, bound and defence must pass, whoever wrote it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from bench import AUDITOR, bench

from privbench.attack import Attack, Guess, Hints, NotApplicable
from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism
from privbench.registry import Registry, default_registry

ATTACKS = default_registry().names("attacks")
BOUNDS = default_registry().names("bounds")
DEFENSES = default_registry().names("defenses")


@pytest.fixture(params=ATTACKS)
def attack(request: pytest.FixtureRequest, registry: Registry) -> Attack:
    made: Attack = registry.get("attacks", request.param)()
    return made


@pytest.fixture(params=BOUNDS)
def bound(request: pytest.FixtureRequest, registry: Registry) -> Bound:
    made: Bound = registry.get("bounds", request.param)()
    return made


def test_the_checks_ran_on_what_is_registered() -> None:
    assert (len(ATTACKS), len(BOUNDS), len(DEFENSES)) == (2, 7, 2)


def test_attack_is_deterministic_and_leaves_global_generators_alone(attack: Attack) -> None:
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    view = bench(seed=1, records=200).view()
    first, second = (attack(view, np.random.default_rng(7)) for _ in range(2))
    assert isinstance(first, Guess)
    assert isinstance(second, Guess)
    assert np.array_equal(first.accumulated, second.accumulated)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_attack_cannot_change_its_view(attack: Attack) -> None:
    view = bench(seed=2, records=200).view()
    before = {name: array.copy() for name, array in view.arrays.items()}
    attack(view, np.random.default_rng(0))
    assert all(np.array_equal(before[name], array) for name, array in view.arrays.items())
    with pytest.raises(ValueError, match="read-only"):
        view.arrays["gradients/A"][0] = 0


def test_attack_follows_a_permutation_of_the_candidates(attack: Attack) -> None:
    view = bench(seed=3, records=200, sigma=0.2).view()
    order = np.random.default_rng(1).permutation(len(view.candidates))
    plain = attack(view, np.random.default_rng(0))
    moved = attack(replace(view, candidates=view.candidates[order]), np.random.default_rng(0))
    assert isinstance(plain, Guess)
    assert isinstance(moved, Guess)
    assert np.array_equal(plain.accumulated[-1][order] > 0, moved.accumulated[-1] > 0)


def test_attack_says_which_channel_it_lacks(attack: Attack) -> None:
    blind = replace(AUDITOR, channels=frozenset())
    result = attack(bench(seed=4, records=200).view(threat=blind), np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    assert "gradients" in result.reason


def test_attack_refuses_hints_that_are_scored(attack: Attack) -> None:
    view = bench(seed=5, records=200).view()
    overlapping = replace(view, hints=Hints(view.candidates[:10], np.zeros(10, np.int64)))
    with pytest.raises(InputError, match="overlap"):
        attack(overlapping, np.random.default_rng(0))


def test_attack_raises_no_false_alarm_on_pure_noise(attack: Attack) -> None:
    """One release per record of pure noise: over 10 seeds 10,000 fair guesses, .5 +- 4 standard errors (.02)."""
    right = []
    for seed in range(10):
        stand = bench(seed=seed, records=1_050, releases=1)
        noise = np.random.default_rng(100 + seed).normal(size=(1, 1_050, 16)).astype(np.float32)
        view = stand.view()
        guess = attack(replace(view, arrays={**view.arrays, "gradients/A": noise}), np.random.default_rng(seed))
        assert isinstance(guess, Guess)
        right.append(stand.accuracy(guess.accumulated[-1]))
    assert abs(np.mean(right) - 0.5) < 0.02


def test_attack_reads_noise_free_releases_with_the_right_sign(attack: Attack) -> None:
    stand = bench(seed=6, records=400, sigma=0.0)
    guess = attack(stand.view(), np.random.default_rng(0))
    assert isinstance(guess, Guess)
    assert stand.accuracy(guess.accumulated[-1]) == 1.0


def test_attack_card_is_complete(attack: Attack, registry: Registry) -> None:
    card = attack.card
    assert card.summary
    assert card.paper
    assert card.deviates
    assert card.cost
    assert card.channels
    assert set(card.confirmatory) <= set(registry.names("bounds"))


GAUSSIAN = Mechanism("gradients", "A", "gaussian", 1.0, sigma={"a": 2.0, "b": 2.0, "c": 2.0})
DESCRIBED = {
    "gaussian": GAUSSIAN,
    "randomised-response": Mechanism("gradients", "A", "randomised-response", eps=1.0),
    "laplace": Mechanism("gradients", "A", "laplace", 1.0, sigma={"a": 2.0, "b": 2.0, "c": 2.0}),
}
CLAIM = Claim(0.5, 1e-5, "nominal", "add-remove", "rdp", 0.032, 20)
ASKED = Question(("b", "c"), 20, rho=0.9, claim=CLAIM)


def test_bound_is_a_probability_and_names_its_assumptions(bound: Bound) -> None:
    assert bound.card.kinds
    for kind in bound.card.kinds:
        value = bound.evaluate(DESCRIBED[kind], ASKED)
        assert isinstance(value, BoundValue)
        assert value.name == bound.card.name
        assert 0.5 <= value.value <= 1
        assert value.inputs
        assert value.assumptions


def test_bound_refuses_what_it_does_not_know(bound: Bound) -> None:
    """No noise description and no claim: no statement, never a guess."""
    result = bound.evaluate(Mechanism("gradients", "A", "none"), replace(ASKED, claim=None))
    assert isinstance(result, Unsupported)
    assert result.part
    assert result.reason


def test_bound_is_pure(bound: Bound) -> None:
    assert bound.evaluate(GAUSSIAN, ASKED) == bound.evaluate(GAUSSIAN, ASKED)


@pytest.mark.parametrize("name", DEFENSES)
def test_defense_never_touches_the_global_generator_and_describes_itself(name: str, registry: Registry) -> None:
    defense = registry.get("defenses", name)()
    state = torch.get_rng_state()
    noise = defense.noise((8, 4), {"a": 1.0}, 0, torch.Generator().manual_seed(0))
    assert noise.shape == (8, 4)
    assert torch.equal(torch.get_rng_state(), state)
    mechanism = defense.mechanism("A", 1.0, {"a": 1.0})
    assert mechanism.party == "A"
    assert Mechanism.from_json(mechanism.to_json()) == mechanism


def test_gaussian_defense_clips_to_the_norm_and_draws_the_declared_noise(registry: Registry) -> None:
    """64,000 draws of variance 5: the sample variance is within 4 standard errors (2.2%)."""
    defense = registry.get("defenses", "gaussian")()
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert defense.bounded(gradients, 1.0).norm(dim=1).tolist() == pytest.approx([1.0, 0.5, 0.0])
    noise = defense.noise((1_000, 64), {"a": 1.0, "b": 2.0}, 0, torch.Generator().manual_seed(0))
    assert float(noise.var()) == pytest.approx(5.0, rel=0.022)

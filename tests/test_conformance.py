"""The public checks: every registered member passes them, and each check catches its mutant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cut_defense_mutants
import inversion_mutants
import mutants
import numpy as np
import pytest
import torch
import update_defense_mutants
from bench import bench
from conftest import SMALL

from privbench.attack import Attack, Hints, Inversion
from privbench.bounds.base import Bound
from privbench.conformance import (
    ATTACK_CHECKS,
    BOUND_CHECKS,
    CUT_DEFENSE_CHECKS,
    DEFENSE_CHECKS,
    INVERSION_CHECKS,
    TARGET_CHECKS,
    UPDATE_DEFENSE_CHECKS,
    Check,
    ConformanceError,
    Result,
    TargetSubject,
    check_attack,
    check_bound,
    check_cut_defense,
    check_defense,
    check_inversion,
    check_target,
    check_update_defense,
    require,
)
from privbench.defenses.base import CutDefense, Defense, UpdateDefense
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.parts import by_kind
from privbench.registry import Registry, default_registry

REGISTRY = default_registry()
KINDS = by_kind(REGISTRY.names("attacks"), REGISTRY)
INVERSIONS, ATTACKS = KINDS[Inversion], KINDS[Attack]
BOUNDS = tuple(REGISTRY.made("bounds", Bound))
DEFENSES, CUT_DEFENSES = (tuple(REGISTRY.made("defenses", kind)) for kind in (Defense, CutDefense))
UPDATE_DEFENSES = tuple(REGISTRY.made("defenses", UpdateDefense))
TARGETS: Mapping[str, AuditOptions] = {
    "gaussian": AuditOptions("gaussian", sigma=2.0, settings={"records": "200", "releases": "3"}),
    "prism": AuditOptions("prism", eps=0.5, settings=SMALL),
}
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "g-as-published": {"two tasks": "it is one release's form, held over a whole run as the paper reads it"},
    "single-task": {
        "two tasks": "the paper says that several tasks stay within one task's; at rho above .5 they do not"
    },
}
"""What the paper's own forms do not keep, and why they are never counted."""
BY_LENGTH: Mapping[str, str] = dict.fromkeys(
    ("permutation", "identity", "one release"),
    "the stand's answers are equally long, so that it tosses a coin for each",
)
LONG = ("inversion/noise-aware-token", "inversion/relaxation", "inversion/searched-token")
"""They run every candidate through the layers, or fit again and again: a minute of all checks, so that `make test-all`
runs them."""
DRAWN = AuditOptions("gaussian", sigma=1.0, settings={"records": "1000", "releases": "4"})


def caught(results: Sequence[Result], check: str) -> bool:
    return any(item.check == check and item.problem for item in results)


def test_the_checks_ran_on_what_is_registered() -> None:
    assert (len(ATTACKS), len(INVERSIONS), len(BOUNDS), len(DEFENSES), len(CUT_DEFENSES)) == (5, 12, 7, 2, 4)
    # A recording is checked as files: tests/targets/test_recorded.py. The LLaMAs toss no coins that the checks could
    # count: tests/targets has their own.
    assert set(TARGETS) | {"fedavg", "recorded", "split-llama"} == set(REGISTRY.names("targets"))
    assert [len(checks) for checks in (ATTACK_CHECKS, BOUND_CHECKS, DEFENSE_CHECKS, TARGET_CHECKS)] == [16, 11, 9, 10]
    assert (len(INVERSION_CHECKS), len(CUT_DEFENSE_CHECKS)) == (11, 11)
    assert (len(UPDATE_DEFENSES), len(UPDATE_DEFENSE_CHECKS)) == (5, 12)


@pytest.mark.parametrize("name", ATTACKS)
def test_our_attacks_pass(name: str) -> None:
    require(check_attack(REGISTRY.get("attacks", name), BY_LENGTH if name == "label/answer-length" else None))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in INVERSIONS]
)
def test_our_inversions_pass(name: str) -> None:
    require(check_inversion(REGISTRY.get("attacks", name)))


@pytest.mark.parametrize("name", BOUNDS)
def test_our_bounds_pass(name: str) -> None:
    require(check_bound(REGISTRY.get("bounds", name), PUBLISHED.get(name)))


@pytest.mark.parametrize("name", DEFENSES)
def test_our_defences_pass(name: str) -> None:
    require(check_defense(REGISTRY.get("defenses", name)))


@pytest.mark.parametrize("name", CUT_DEFENSES)
def test_our_defences_on_activations_pass(name: str) -> None:
    require(check_cut_defense(REGISTRY.get("defenses", name)))


@pytest.mark.parametrize("name", UPDATE_DEFENSES)
def test_our_defences_on_updates_pass(name: str) -> None:
    require(check_update_defense(REGISTRY.get("defenses", name)))


@pytest.mark.parametrize("name", TARGETS)
def test_our_targets_pass(name: str) -> None:
    require(check_target(TargetSubject(REGISTRY.get("targets", name), TARGETS[name])))


@pytest.mark.parametrize(
    ("checks", "broken"),
    [
        (ATTACK_CHECKS, mutants.ATTACKS),
        (INVERSION_CHECKS, inversion_mutants.INVERSIONS),
        (BOUND_CHECKS, mutants.BOUNDS),
        (DEFENSE_CHECKS, mutants.DEFENSES),
        (CUT_DEFENSE_CHECKS, cut_defense_mutants.CUT_DEFENSES),
        (UPDATE_DEFENSE_CHECKS, update_defense_mutants.UPDATE_DEFENSES),
        (TARGET_CHECKS, mutants.TARGETS),
    ],
    ids=["attacks", "inversions", "bounds", "defences", "defences on activations", "defences on updates", "targets"],
)
def test_every_check_has_a_mutant(checks: Sequence[Check[Any]], broken: Mapping[str, Any]) -> None:
    assert [check.name for check in checks] == list(broken)
    assert all(check.says for check in checks)


def only(checks: Sequence[Check[Any]], name: str, subject: Any) -> str | None:
    """What this one check says; an exception is what it says, too."""
    check = next(item for item in checks if item.name == name)
    try:
        return check.run(subject)
    except Exception as error:
        return str(error)


@pytest.mark.parametrize("check", mutants.ATTACKS)
def test_a_broken_attack_is_caught(check: str) -> None:
    assert only(ATTACK_CHECKS, check, mutants.ATTACKS[check])


@pytest.mark.parametrize("check", inversion_mutants.INVERSIONS)
def test_a_broken_inversion_is_caught(check: str) -> None:
    assert only(INVERSION_CHECKS, check, inversion_mutants.INVERSIONS[check])


@pytest.mark.parametrize("check", mutants.BOUNDS)
def test_a_broken_bound_is_caught(check: str) -> None:
    assert only(BOUND_CHECKS, check, mutants.BOUNDS[check])


@pytest.mark.parametrize("check", mutants.DEFENSES)
def test_a_broken_defence_is_caught(check: str) -> None:
    assert only(DEFENSE_CHECKS, check, mutants.DEFENSES[check])


@pytest.mark.parametrize("check", cut_defense_mutants.CUT_DEFENSES)
def test_a_broken_defence_on_activations_is_caught(check: str) -> None:
    assert only(CUT_DEFENSE_CHECKS, check, cut_defense_mutants.CUT_DEFENSES[check])


@pytest.mark.parametrize("check", update_defense_mutants.UPDATE_DEFENSES)
def test_a_broken_defence_on_updates_is_caught(check: str) -> None:
    assert only(UPDATE_DEFENSE_CHECKS, check, update_defense_mutants.UPDATE_DEFENSES[check])


@pytest.mark.parametrize("check", mutants.TARGETS)
def test_a_broken_target_is_caught(check: str) -> None:
    assert only(TARGET_CHECKS, check, TargetSubject(mutants.TARGETS[check], DRAWN))


def test_expected_failures_are_passed_by_the_caller_and_must_fail() -> None:
    failing = check_bound(mutants.Anonymous, expected={"card": "no paper yet"})
    require(failing)
    assert caught(failing, "card")
    with pytest.raises(ConformanceError, match="card: the card leaves paper empty"):
        require(check_bound(mutants.Anonymous))
    with pytest.raises(ConformanceError, match=r"pure: expected to fail \(flaky\), but passes"):
        require(check_bound(mutants.Anonymous, expected={"card": "no paper yet", "pure": "flaky"}))
    with pytest.raises(ConformanceError, match="no check is called 'crad'"):
        check_bound(mutants.Anonymous, expected={"crad": "typo"})


def test_an_attack_instead_of_its_class_is_refused() -> None:
    with pytest.raises(ConformanceError, match="pass the class"):
        check_attack(mutants.Nameless())  # type: ignore[arg-type]


@pytest.fixture(params=ATTACKS)
def attack(request: pytest.FixtureRequest, registry: Registry) -> Attack:
    made: Attack = registry.get("attacks", request.param)()
    return made


def test_a_view_is_read_only(attack: Attack) -> None:
    view = bench(seed=2, records=200).view()
    attack(view, np.random.default_rng(0))
    with pytest.raises(ValueError, match="read-only"):
        view.arrays["gradients/A"][0] = 0  # type: ignore[index]


def test_attack_refuses_hints_that_are_scored(attack: Attack) -> None:
    view = bench(seed=5, records=200).view()
    overlapping = replace(view, hints=Hints(view.candidates[:10], np.zeros(10, np.int64)))
    with pytest.raises(InputError, match="overlap"):
        attack(overlapping, np.random.default_rng(0))


def test_attack_card_is_complete(attack: Attack, registry: Registry) -> None:
    card = attack.card
    assert card.summary
    assert card.paper
    assert card.deviates
    assert card.cost
    assert card.channels
    assert set(card.confirmatory) <= set(registry.names("bounds"))


def test_gaussian_defense_clips_to_the_norm_and_draws_the_declared_noise(registry: Registry) -> None:
    """64,000 draws of variance 5: the sample variance is within 4 standard errors (2.2%)."""
    defense = registry.get("defenses", "gaussian")()
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert defense.bounded(gradients, 1.0).norm(dim=1).tolist() == pytest.approx([1.0, 0.5, 0.0])
    noise = defense.noise((1_000, 64), {"a": 1.0, "b": 2.0}, 0, torch.Generator().manual_seed(0))
    assert float(noise.var()) == pytest.approx(5.0, rel=0.022)

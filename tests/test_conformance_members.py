"""The public checks of membership attacks: ours pass them, and each check catches its mutant."""

from __future__ import annotations

import member_mutants
import numpy as np
import pytest

from privbench.conformance import MEMBERSHIP_CHECKS, ConformanceError, check_membership, require
from privbench.conformance.members import FEW, HINTS, RECORDS, REFERENCES, member_stand
from privbench.membership import MembershipAttack
from privbench.parts import by_kind
from privbench.registry import default_registry

REGISTRY = default_registry()
ATTACKS = by_kind(REGISTRY.names("attacks"), REGISTRY)[MembershipAttack]


def test_the_checks_ran_on_what_is_registered() -> None:
    assert len(ATTACKS) == 14
    assert [check.name for check in MEMBERSHIP_CHECKS] == list(member_mutants.MEMBERSHIP)
    assert all(check.says for check in MEMBERSHIP_CHECKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_our_membership_attacks_pass(name: str) -> None:
    require(check_membership(REGISTRY.get("attacks", name)))


@pytest.mark.parametrize("name", member_mutants.MEMBERSHIP)
def test_a_broken_membership_attack_is_caught(name: str) -> None:
    """By what the check looks for: an exception on the way would not count."""
    check = next(item for item in MEMBERSHIP_CHECKS if item.name == name)
    assert check.run(member_mutants.MEMBERSHIP[name])


def test_an_attack_instead_of_its_class_is_refused() -> None:
    with pytest.raises(ConformanceError, match="pass the class"):
        check_membership(member_mutants.Nameless())  # type: ignore[arg-type]


def test_an_attack_that_needs_more_than_the_stand_shows_fails() -> None:
    class Demanding(member_mutants.Nameless):
        def lacks(self, view: object) -> str | None:
            return "needs a crystal ball"

    found = {item.check: item.problem for item in check_membership(Demanding)}
    assert "needs a crystal ball" in str(found["planted"])


def test_the_stands_first_references_are_halves_of_their_own() -> None:
    """Or a view with fewer references would leave records without any on one side."""
    member = member_stand(0).transcript.array("reference/member")
    assert member.shape[0] == REFERENCES
    assert (member[:FEW, :RECORDS].sum(axis=0) == FEW // 2).all()
    assert (member[:, :RECORDS].sum(axis=0) == REFERENCES // 2).all()
    assert not member[:, RECORDS:].any()


def test_the_stands_gain_moves_members_alone() -> None:
    """So that a stand without a gain tells nothing of who they are."""
    silent, loud = member_stand(1, 0.0), member_stand(1, 4.0)
    assert np.array_equal(silent.coins, loud.coins)
    inside = silent.coins == 1
    for name in ("activations/A", "checkpoints/gradients/A", "checkpoints/outputs/ill"):
        quiet, moved = silent.transcript.array(name), loud.transcript.array(name)
        assert np.array_equal(quiet[:, ~inside], moved[:, ~inside])
        assert (quiet[-1][inside] != moved[-1][inside]).any(axis=-1).all()
    assert len(silent.scored) == RECORDS - HINTS

"""Checks that an attack, a target, a defence or a bound must pass, whoever wrote it.

    from privbench.conformance import check_attack, require
    require(check_attack(MyAttack))

Our own members run through the same checks, with no privileges. A known failure is passed by the caller
(`expected={"check": "why"}`); one that then passes is reported too, so that the list stays true.
"""

from privbench.conformance.acting import ACTIVE_CHECKS
from privbench.conformance.attacks import ATTACK_CHECKS, check_attack
from privbench.conformance.base import Check, ConformanceError, Result, require
from privbench.conformance.bounds import BOUND_CHECKS, check_bound
from privbench.conformance.cut_defenses import CUT_DEFENSE_CHECKS, check_cut_defense
from privbench.conformance.defenses import DEFENSE_CHECKS, check_defense
from privbench.conformance.estimations import ESTIMATION_CHECKS, check_estimation
from privbench.conformance.inversions import INVERSION_CHECKS, check_inversion
from privbench.conformance.members import MEMBERSHIP_CHECKS, check_membership
from privbench.conformance.targets import TARGET_CHECKS, TargetSubject, check_target
from privbench.conformance.update_defenses import UPDATE_DEFENSE_CHECKS, check_update_defense

__all__ = [
    "ACTIVE_CHECKS",
    "ATTACK_CHECKS",
    "BOUND_CHECKS",
    "CUT_DEFENSE_CHECKS",
    "DEFENSE_CHECKS",
    "ESTIMATION_CHECKS",
    "INVERSION_CHECKS",
    "MEMBERSHIP_CHECKS",
    "TARGET_CHECKS",
    "UPDATE_DEFENSE_CHECKS",
    "Check",
    "ConformanceError",
    "Result",
    "TargetSubject",
    "check_attack",
    "check_bound",
    "check_cut_defense",
    "check_defense",
    "check_estimation",
    "check_inversion",
    "check_membership",
    "check_target",
    "check_update_defense",
    "require",
]

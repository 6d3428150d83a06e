"""What a differential-privacy claim allows an adversary who guesses a fair coin."""

from __future__ import annotations

import math

from scipy import special

from privbench import pld
from privbench.bounds.base import Bound, BoundCard, BoundValue, Question, Unsupported
from privbench.bounds.gaussian_sum import CLEAN_SERVER
from privbench.mechanism import Claim, Mechanism


def dp_cap(eps: float, delta: float, neighbours: str) -> float:
    """Largest accuracy on a fair label coin under (eps, delta): (e^eps + delta) / (1 + e^eps) for "replace".

    An add/remove claim implies only (2 eps, (1 + e^eps) delta) for replace. Capped at 1.
    """
    if neighbours == "add-remove":
        delta = (1 + math.exp(min(eps, 700.0))) * delta
        eps = 2 * eps
    # (e^eps + delta) / (1 + e^eps), written so that a large eps does not overflow.
    odds = math.exp(-min(eps, 700.0))
    return min(1.0, (1 + delta * odds) / (1 + odds))


def nominal_accuracy(noise_multiplier: float, sample_rate: float, steps: int) -> float:
    """(1 + delta(0)) / 2 of the replace-one privacy curve of Poisson-sampled Gaussian steps (dp-accounting, PLD).

    The accounting's own promise: what it would allow if noise were added once to a batch sum.
    """
    return (1 + pld.advantage(noise_multiplier, sample_rate, steps)) / 2


def _about(claim: Claim) -> dict[str, object]:
    return {"claim": claim.to_json()}


def _signal(value: float) -> float:
    return math.inf if value >= 1 else float(special.ndtri(value))


class DPCap(Bound):
    card = BoundCard(
        "dp-cap",
        "accuracy that an (eps, delta) claim allows, translated to replacing labels",
        "Kairouz, Oh, Viswanath 2015; group privacy for add/remove claims",
        ("all",),
        "claim",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """(e^eps + delta) / (1 + e^eps) under the claim's own neighbours."""
        claim = question.claim
        if question.unit != "accuracy":
            return Unsupported("unit", f"a claim's cap is stated for accuracy here, not for {question.unit}")
        if claim is None:
            return Unsupported("claim", "nothing was claimed")
        if claim.audience in ("outsider", "server"):
            seen = "an outsider" if claim.audience == "outsider" else "who sees updates"
            return Unsupported("claim", f"it speaks for {seen}, and this adversary is a site")
        value = dp_cap(claim.eps, claim.delta, claim.neighbours)
        assumptions = ("the claim is read as speaking for this adversary, as publications do",)
        return BoundValue("dp-cap", question.unit, value, _signal(value), _about(claim), assumptions)


class NominalCurve(Bound):
    card = BoundCard(
        "nominal-curve",
        "accuracy that the nominal DP-SGD analysis itself promises under replace-one",
        "Doroshenko et al. 2022 (PLD); Google dp-accounting",
        ("all",),
        "claim",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Held only against a nominal claim, at the mechanism's own noise multiplier."""
        claim = question.claim
        if question.unit != "accuracy":
            return Unsupported("unit", f"the curve is read at accuracy here, not at {question.unit}")
        if claim is None or claim.audience != "nominal":
            return Unsupported("claim", "the claim is not a nominal one")
        if claim.sample_rate is None or claim.epochs is None:
            return Unsupported("claim", "the nominal claim names no sample rate or epochs")
        multipliers = {sigma / mechanism.clip for sigma in mechanism.sigma.values()} if mechanism.clip else set()
        if len(multipliers) != 1 or min(multipliers) <= 0:
            return Unsupported("sigma", "the nominal analysis knows one positive noise multiplier")
        multiplier = multipliers.pop()
        steps = pld.steps(claim.sample_rate, claim.epochs)
        reason = pld.out_of_reach(multiplier, claim.sample_rate, steps)
        if reason is not None:
            return Unsupported("sigma", reason)
        value = nominal_accuracy(multiplier, claim.sample_rate, steps)
        inputs = {**_about(claim), "noise_multiplier": multiplier, "steps": steps}
        assumptions = (
            "the nominal analysis counts noise once per batch sum and Poisson sampling; the training shuffles",
            CLEAN_SERVER,
        )
        return BoundValue("nominal-curve", question.unit, value, _signal(value), inputs, assumptions)

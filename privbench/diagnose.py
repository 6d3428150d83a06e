"""Which flags a set of measurements raises: checks of the instruments and of the mechanism itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privbench.measure import ORACLE, Attacked
from privbench.mechanism import Claim
from privbench.noise import LIMIT


def raised(attacked: Attacked, claims: Sequence[Claim]) -> tuple[str, ...]:
    """Names of the flags that these measurements raise."""
    flags = set()
    mechanism = attacked.mechanism
    if mechanism is not None and mechanism.kind != "none" and not mechanism.server_noised:
        flags.add("SERVER_NOT_NOISED")
    if any(claim.audience == "nominal" for claim in claims):
        flags.add("NOMINAL_EPS_NOT_FOR_THIS_SITE")
    for outcome in attacked.outcomes.values():
        for scored in (outcome.one, outcome.all):
            if not scored.negative().passed:
                flags.add("SHUFFLED_CONTROL_FAILED")
        positive = outcome.all.positive()
        if positive is not None and not positive.passed:
            flags.add("CLEAN_CONTROL_FAILED")
    # float32 rounding of a difference of two clipped gradients stays far below one part in ten thousand.
    if attacked.excess is not None and attacked.excess > 1 + 1e-4:
        flags.add("MOVES_EXCEED_CLIP")
    if _clips_the_sum(attacked):
        flags.add("CLIP_AFTER_SUM")
    if attacked.noise is not None and attacked.noise.scale > LIMIT:
        flags.add("NOISE_NOT_AS_DECLARED")
    # A sum over d coordinates has a heavier tail than a normal: a wider limit keeps false flags as rare.
    if attacked.noise is not None and (attacked.noise.correlation > LIMIT or attacked.noise.records > 2 * LIMIT):
        flags.add("NOISE_REUSED")
    flags |= _oracle_flags(attacked)
    return tuple(sorted(flags))


def _clips_the_sum(attacked: Attacked) -> bool:
    """Whether sums that are declared to be clipped per task stop at the clip themselves.

    A release of one task alone is at its clip and never above: only a sum can tell.
    """
    mechanism = attacked.mechanism
    if mechanism is None or mechanism.clip_unit != "task" or mechanism.noise == "separate" or len(mechanism.sigma) < 2:
        return False
    return attacked.above_clip == 0 and (attacked.at_clip or 0.0) > 0.001


def _oracle_flags(attacked: Attacked) -> set[str]:
    oracle = attacked.outcomes.get(ORACLE)
    if oracle is None or attacked.prediction is None:
        return set()
    flags = set()
    expectations = (attacked.prediction.one, attacked.prediction.accumulated[-1])
    for scored, expected in zip((oracle.one, oracle.all), expectations, strict=True):
        leakage = scored.leakage()
        error = 4 * math.sqrt(expected * (1 - expected) / leakage.n)
        if leakage.value < expected - error:
            flags.add("ORACLE_WEAK")
        if leakage.value > expected + error:
            flags.add("ORACLE_ABOVE_PREDICTION")
    return flags

"""Which flags a set of measurements raises: checks of the instruments and of the mechanism itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privbench.measure import ORACLE, Attacked
from privbench.mechanism import Claim
from privbench.noise import LIMIT
from privbench.stats import binomial

RARE = 3e-5
"""One-sided error rate of a flag that rests on counts: that of 4 standard errors."""


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
    if _coins_are_unfair(attacked):
        flags.add("COINS_NOT_FAIR")
    if _clips_the_sum(attacked):
        flags.add("CLIP_AFTER_SUM")
    if attacked.noise is not None and attacked.noise.scale > LIMIT:
        flags.add("NOISE_NOT_AS_DECLARED")
    if attacked.noise is not None and max(attacked.noise.correlation, attacked.noise.records) > LIMIT:
        flags.add("NOISE_REUSED")
    flags |= _oracle_flags(attacked)
    if _oracle_is_beaten(attacked):
        flags.add("ORACLE_BEATEN")
    return tuple(sorted(flags))


def _coins_are_unfair(attacked: Attacked) -> bool:
    """Whether the coins that were guessed are `unfair`."""
    return any(unfair(outcome.all.coins) for outcome in attacked.outcomes.values())


def unfair(coins: npt.NDArray[np.uint8]) -> bool:
    """Whether fair coins would be so lopsided once in a million: then chance is not 1/2, and no test here holds."""
    ones, n = int(coins.sum()), len(coins)
    return 2 * binomial.p_value(max(ones, n - ones), n, 0.5) < RARE / 10


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
        # Exact tails: near 1 a normal one calls a single miss weak.
        if leakage.right < leakage.n and 1 - binomial.p_value(leakage.right + 1, leakage.n, expected) < RARE:
            flags.add("ORACLE_WEAK")
        if binomial.p_value(leakage.right, leakage.n, expected) < RARE:
            flags.add("ORACLE_ABOVE_PREDICTION")
    return flags


def _oracle_is_beaten(attacked: Attacked) -> bool:
    """Whether another attack reads more of the same coins than the optimal test: then the hypotheses are not the
    mechanism's (sign test on the coins that one of the two reads and the other does not).
    """
    oracle = attacked.outcomes.get(ORACLE)
    if oracle is None:
        return False
    read = (oracle.all.scores > 0) == (oracle.all.coins == 1)
    for name, other in attacked.outcomes.items():
        differs = ((other.all.scores > 0) == (other.all.coins == 1)) != read
        ahead, n = int((differs & ~read).sum()), int(differs.sum())
        if name != ORACLE and n and binomial.p_value(ahead, n, 0.5) < RARE:
            return True
    return False

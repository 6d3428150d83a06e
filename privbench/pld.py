"""The privacy loss distribution of Poisson-sampled Gaussian steps (Doroshenko et al. 2022, dp-accounting).

Accounting and bounds both read it, so it imports nothing of privbench but the errors.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from privbench.errors import InputError

SMALLEST_MULTIPLIER = 0.3
"""Below it the discretised privacy loss of one step outgrows memory (measured: 61 s and 10.7 GB at .05)."""

MOST_STEPS = 100_000
"""Above it the error of the discretisation grows (q = .01, z = 1000, 10^7 steps: 3 times the eps of RDP)."""

MOST_LOSS = 400.0
"""Largest mean privacy loss of a run, in nats. Measured: 8 s and .8 GB at 356, 20 s and 4 GB at 556, more above."""

_LONGEST_RUN = 1e15


def steps(sample_rate: float, epochs: int) -> int:
    """Steps of `epochs` passes: epochs / sample_rate rounded up, but for the rounding of the rate as a float.

    `InputError` below one epoch and above 10^15 steps.
    """
    if not epochs >= 1:
        raise InputError(f"epochs must be at least 1, got {epochs}.")
    if epochs > _LONGEST_RUN * sample_rate:
        raise InputError(f"a run has at most {_LONGEST_RUN:.0e} steps; epochs / sample rate make more.")
    return math.ceil(epochs / sample_rate * (1 - 1e-12))


def out_of_reach(noise_multiplier: float, sample_rate: float, count: int) -> str | None:
    """Why the curve of `count` steps is not computed here, or None where it is.

    The mean loss is at most count * min(q / (2 z^2), log(1 + q^2 (e^(1 / z^2) - 1))): convexity of the divergence, and
    its bound by the chi-squared divergence.
    """
    if noise_multiplier < SMALLEST_MULTIPLIER:
        return f"a multiplier of {noise_multiplier:.3g} hides nothing, and its curve takes gigabytes"
    if count > MOST_STEPS:
        return f"{count:,} steps are more than the {MOST_STEPS:,} that are composed"
    chi_squared = sample_rate**2 * math.expm1(noise_multiplier**-2)
    if count * min(sample_rate / (2 * noise_multiplier**2), math.log1p(chi_squared)) > MOST_LOSS:
        return (
            f"{count:,} steps at a multiplier of {noise_multiplier:.3g} hide nothing, and their curve takes gigabytes"
        )
    return None


@functools.lru_cache(maxsize=4096)
def epsilon(noise_multiplier: float, sample_rate: float, count: int, delta: float, *, replace: bool) -> float:
    """eps at `delta` of `count` steps: add/remove, or exchanging one record for another with `replace`."""
    return float(_accountant(noise_multiplier, sample_rate, count, replace=replace).get_epsilon(delta))


@functools.lru_cache(maxsize=4096)
def advantage(noise_multiplier: float, sample_rate: float, count: int) -> float:
    """delta(0) of the replace-one curve: the total variation between either record's outputs, at most 1."""
    # The discretised delta may pass 1 by its rounding.
    return min(1.0, float(_accountant(noise_multiplier, sample_rate, count, replace=True).get_delta(0.0)))


def _accountant(noise_multiplier: float, sample_rate: float, count: int, *, replace: bool) -> Any:
    import dp_accounting
    from dp_accounting import pld

    # dp-accounting doubles the sensitivity for REPLACE_ONE itself: pass the add/remove multiplier in both.
    relation = dp_accounting.NeighboringRelation
    accountant = pld.PLDAccountant(relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE)
    step = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, count))
    return accountant

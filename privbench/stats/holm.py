"""Holm's step-down test (Holm 1979): one family, one error rate, whatever the dependence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HolmDecision:
    """`share` is the threshold this p-value was compared with."""

    rejected: bool
    share: float


def holm(p_values: Sequence[float], alpha: float) -> tuple[HolmDecision, ...]:
    """Decisions in the order given. The smallest of m p-values meets alpha / m, the next alpha / (m - 1), ...

    Once one is kept, all larger ones are kept. Raises ValueError for a p-value outside [0, 1].
    """
    decisions: list[HolmDecision | None] = [None] * len(p_values)
    rejecting = True
    for rank, i in enumerate(_ranked(p_values)):
        share = alpha / (len(p_values) - rank)
        rejecting = rejecting and p_values[i] <= share
        decisions[i] = HolmDecision(rejecting, share)
    return tuple(decision for decision in decisions if decision is not None)


def adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values as Holm corrects them, in the order given: at most alpha where `holm` rejects at alpha."""
    m, highest = len(p_values), 0.0
    found = [0.0] * m
    for rank, i in enumerate(_ranked(p_values)):
        highest = max(highest, min((m - rank) * p_values[i], 1.0))
        found[i] = highest
    return tuple(found)


def _ranked(p_values: Sequence[float]) -> list[int]:
    """From the smallest on; ValueError for a p-value outside [0, 1]: NaN would be neither."""
    for value in p_values:
        if not 0 <= value <= 1:
            raise ValueError(f"a p-value must lie in [0, 1], got {value}.")
    return sorted(range(len(p_values)), key=lambda i: p_values[i])

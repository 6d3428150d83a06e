"""How strong an attack was, where no oracle says how strong one can be: beside the strongest one that was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from privbench.record import Finding


def beside_strongest(
    findings: Sequence[Finding], metric: str, chance: float, size: Callable[[float], float]
) -> tuple[Finding, ...]:
    """Findings of this metric with their strength: size(value) as a share of the largest; others as they are.

    None where not even the strongest one's interval lies above chance: then nothing is known of any attack's strength.
    """
    found = [item for item in findings if item.metric == metric and item.value is not None]
    best = max(found, key=lambda item: item.value or chance, default=None)
    if best is None or best.value is None or best.low is None or best.low <= chance:
        return tuple(findings)
    most = size(best.value)
    return tuple(
        replace(item, strength=size(item.value) / most) if item.metric == metric and item.value is not None else item
        for item in findings
    )

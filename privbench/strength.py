"""How strong an attack was, where no oracle says how strong one can be: beside the strongest one that was run.

What takes no leak counts for nothing: an estimate that is as good as the other columns' has no strength.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from privbench.record import Finding


def beside_strongest(
    findings: Sequence[Finding],
    metric: str,
    floor: Callable[[Finding], float],
    size: Callable[[float], float] = float,
) -> tuple[Finding, ...]:
    """Findings of this metric with their strength: how far above its floor each is, as a share of the farthest; others
    as they are. floor: what takes no leak, on the very records that an attack was asked about; size: of a value.

    None where not even the farthest one's interval lies above its floor: then nothing is known of any strength.
    """

    def above(item: Finding) -> float:
        return 0.0 if item.value is None else size(item.value) - size(floor(item))

    found = [item for item in findings if item.metric == metric and item.value is not None]
    best = max(found, key=above, default=None)
    if best is None or best.low is None or best.low <= floor(best):
        return tuple(findings)
    most = above(best)
    return tuple(
        replace(item, strength=above(item) / most) if item.metric == metric and item.value is not None else item
        for item in findings
    )

"""Two methods beside each other on the same respondents and seeds: differences, their intervals, and one test over all.

A seed draws respondents, shards, initial weights and test respondents for both methods, and anew for the next seed: the
spread of the differences over seeds holds what the draw of respondents and what training by chance add. Differences of
shares over hundreds of respondents are close to normal, so that Student's t is used; nothing pools respondents over
seeds, which would take them for independent trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privbench.stats.answers import Undefined, over_seeds
from privbench.stats.auc import Interval
from privbench.stats.holm import adjusted


@dataclass(frozen=True)
class Difference:
    """The first method less the second, with Student's interval over seeds; p_value: two-sided, of no difference."""

    interval: Interval
    p_value: float


@dataclass(frozen=True)
class Judged:
    """A cell of several that are tested together. corrected: its p-value by Holm over all cells; 1 where nothing can be
    said, and `difference` says why.
    """

    difference: Difference | Undefined
    corrected: float

    def differs(self, alpha: float) -> bool:
        """Whether the methods differ, with at most `alpha` false alarms in all cells together."""
        return self.corrected <= alpha


def difference(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Difference | Undefined:
    """Student's paired t test (1908) of values [seeds], in the same order of seeds.

    Differences that are all the same have no spread: of five shares that is a coincidence, which must not read as
    certainty. Raises ValueError where the two are not of one length, or not finite.
    """
    if len(first) != len(second):
        raise ValueError(f"need as many values of either method, got {len(first)} and {len(second)}.")
    found = np.subtract(first, second).tolist()
    interval = over_seeds(found, level)
    if isinstance(interval, Undefined):
        return interval
    half = interval.high - interval.value
    # Sums of decimal fractions: what is the same but for rounding is the same.
    if half <= 1e-12:
        return Undefined(
            f"all {len(found)} differences are {found[0]:+.3g}, and without a spread nothing can be tested"
        )
    freedom = len(found) - 1
    t = interval.value / half * float(stats.t.isf((1 - level) / 2, freedom))
    return Difference(interval, float(2 * stats.t.sf(abs(t), freedom)))


def judge_cells(cells: Mapping[str, tuple[Sequence[float], Sequence[float]]], level: float = 0.95) -> dict[str, Judged]:
    """Each cell's two methods, tested together by Holm (1979): one family, whatever the cells' dependence."""
    found = {name: difference(*values, level) for name, values in cells.items()}
    p_values = [1.0 if isinstance(item, Undefined) else item.p_value for item in found.values()]
    return {name: Judged(item, value) for (name, item), value in zip(found.items(), adjusted(p_values), strict=True)}

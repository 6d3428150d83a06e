"""A weighted mean of values that were measured on different records, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privbench.stats.auc import Interval


def weighted(parts: Sequence[Interval]) -> Interval:
    """Mean of independent values, each weighted by its records, from their own intervals (Zou and Donner 2008).

    Each limit lies as far from the mean as the root of the summed squares of the parts' weighted distances to theirs:
    for symmetric intervals that is the normal theory's, and a skewed part keeps its skew. The level is that of the
    parts, about. Raises ValueError without parts.
    """
    if not parts:
        raise ValueError("a mean needs at least one part.")
    n = sum(part.n for part in parts)
    value = math.fsum(part.n * part.value for part in parts) / n
    below = math.hypot(*(part.n * (part.value - part.low) for part in parts)) / n
    above = math.hypot(*(part.n * (part.high - part.value) for part in parts)) / n
    return Interval(value, value - below, value + above, n)

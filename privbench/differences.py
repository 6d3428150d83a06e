"""What differs between a recorded JSON-like value and the same one computed again, by path."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

TOLERANCE = 1e-6
"""Relative: what a record made on one processor may differ by on another (seen: 3e-10 in a privacy loss distribution).
A changed digit within it still breaks the record's own hash."""

ACCOUNTED = 1e-4
"""Relative: noise is found for an eps by bisection, and an eps computed again from that noise is this near."""


def fields(where: str, recorded: Any, again: Any) -> Iterator[str]:
    """Differences between two JSON-like values, one line each."""
    if isinstance(recorded, Mapping) and isinstance(again, Mapping):
        for key in sorted(recorded.keys() | again.keys(), key=str):
            yield from fields(f"{where}/{key}", recorded.get(key), again.get(key))
    elif isinstance(recorded, list | tuple) and isinstance(again, list | tuple):
        if len(recorded) != len(again) or not all(map(same, recorded, again)):
            yield f"{where}: recorded and recomputed lists differ"
    elif not same(recorded, again):
        yield f"{where}: recorded {recorded!r}, recomputed {again!r}"


def same(recorded: Any, again: Any, tolerance: float = TOLERANCE) -> bool:
    """Equal, or two numbers that differ by no more than another processor's arithmetic."""
    if isinstance(recorded, float) and isinstance(again, int | float):
        return math.isclose(recorded, again, rel_tol=tolerance, abs_tol=tolerance**2)
    return bool(recorded == again)

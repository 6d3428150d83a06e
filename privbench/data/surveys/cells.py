"""Counts of people as they may be shown: cells under 10 are not."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 10
"""People; a smaller group is neither counted in public nor quoted."""


def few(count: int) -> str:
    """A count within a sentence."""
    return f"{count:,}" if count == 0 or count >= FEWEST else f"fewer than {FEWEST}"


def cells(counts: Sequence[int]) -> list[str]:
    """Counts that add up to a known total. Where one alone is too small, the next smallest is withheld with it: the
    total would give it away.
    """
    small = [place for place, count in enumerate(counts) if 0 < count < FEWEST]
    shown = [f"<{FEWEST}" if place in small else f"{count:,}" for place, count in enumerate(counts)]
    large = [(count, place) for place, count in enumerate(counts) if count >= FEWEST]
    if len(small) == 1 and large:
        shown[min(large)[1]] = f">={FEWEST}"
    return shown

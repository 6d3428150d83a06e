"""Counts of people as they may be shown: cells under 10 are not."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 10
"""People; a smaller group is neither counted in public nor quoted."""


def few(count: int, people: int | None = None) -> str:
    """A count within a sentence, of so many people: each its own where not given."""
    return f"{count:,}" if count == 0 or (count if people is None else people) >= FEWEST else f"fewer than {FEWEST}"


def cells(counts: Sequence[int], people: Sequence[int] | None = None) -> list[str]:
    """Counts that add up to a known total, of so many people each: their own number where not given.

    Where one alone is too small, the next smallest is withheld with it: the total would give it away.
    """
    persons = counts if people is None else people
    small = [place for place, count in enumerate(persons) if 0 < count < FEWEST]
    less = [f"<{FEWEST}" if count < FEWEST else f"<{FEWEST} people" for count in counts]
    shown = [less[place] if place in small else f"{count:,}" for place, count in enumerate(counts)]
    large = [(counts[place], place) for place, count in enumerate(persons) if count >= FEWEST]
    if len(small) == 1 and large:
        shown[min(large)[1]] = f">={FEWEST}"
    return shown

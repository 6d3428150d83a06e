"""The cells of a sweep: every combination of the listed values, each with the content address of its audit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.runner import Prepared, prepare

MOST_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """One audit of a sweep. `address` names its folder; `disk_bytes` is what its recordings need while it runs."""

    address: str
    options: AuditOptions
    disk_bytes: int


def combinations(given: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One set of options for each combination of the `lists`, the last varying fastest."""
    count = 1
    for key, values in lists.items():
        if not values:
            raise InputError(f"--{key.replace('_', '-')} is an empty list; leave it out or give values.")
        count *= len(values)
    if count > MOST_CELLS:
        raise InputError(f"the sweep has {count:,} cells; at most {MOST_CELLS:,} are allowed. List fewer values.")
    return [{**given, **dict(zip(lists, chosen, strict=True))} for chosen in itertools.product(*lists.values())]


def plan(options: Sequence[AuditOptions], registry: Registry) -> tuple[Cell, ...]:
    """Check every cell before any is run; the same audit listed twice is one cell."""
    cells: dict[str, Cell] = {}
    for item in options:
        try:
            prepared: Prepared = prepare(item, registry)
        except InputError as error:
            raise InputError(f"{label(item)}: {error}") from error
        cells.setdefault(prepared.cell, Cell(prepared.cell, item, prepared.disk_bytes))
    return tuple(cells.values())


def label(options: AuditOptions) -> str:
    """A cell by what was asked for, for messages."""
    noise = {"eps": options.eps, "noise multiplier": options.noise_multiplier, "sigma": options.sigma}
    parts = [options.target, *(f"{name} {value:g}" for name, value in noise.items() if value is not None)]
    parts += [*options.defenses, f"seed {options.seed}", *(f"{key}={value}" for key, value in options.settings.items())]
    return ", ".join(parts)

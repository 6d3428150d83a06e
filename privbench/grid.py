"""Bounds and epsilons over ranges of parameters: what `privbench bounds` and `privbench accounting` tabulate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privbench import accounting, pld
from privbench.bounds.base import Bound, BoundValue, Question, Unsupported, lowest_rho
from privbench.errors import InputError
from privbench.mechanism import Claim, ClipUnit, Mechanism, NoiseUnit
from privbench.options import LARGEST, SMALLEST, parse_number
from privbench.registry import Registry

MOST_ROWS = 10_000
MOST_ACCOUNTED = 500
"""Privacy loss distributions that one command computes: up to some seconds each."""

LIMITS: Mapping[str, tuple[int, int]] = {
    "tasks": (1, 1000),
    "releases": (1, 10**6),
    "epochs": (1, 10**6),
    "batch": (1, 10**9),
    "records": (1, 10**9),
    "sites": (1, 1000),
}
"""Whole numbers on the command line, both ends included."""

ORDER = ("g", "g-composed", "g-as-published", "single-task", "dp-cap", "nominal-curve")
"""Columns of a table; bounds of plugins follow by name."""

MECHANISMS: Mapping[str, tuple[ClipUnit, NoiseUnit]] = {
    "sum": ("task", "per-task"),
    "once": ("task", "once"),
    "clipped-sum": ("sum", "once"),
    "separate": ("task", "separate"),
}
"""Names on the command line: what is clipped, and where noise is drawn."""


@dataclass(frozen=True)
class Point:
    """One combination of parameters. `sampling` (batch, records, delta) adds what a nominal claim allows."""

    sigma: float
    clip: float
    rho: float
    tasks: int
    moved: int
    releases: int
    mechanism: str = "sum"
    unit: str = "accuracy"
    sampling: tuple[int, int, float] | None = None

    @property
    def multiplier(self) -> float:
        return self.sigma / self.clip

    def describe(self) -> tuple[Mechanism, Question]:
        """The mechanism and the question; `InputError` for J > K, J < 1 or an impossible rho."""
        if not 1 <= self.moved <= self.tasks:
            raise InputError(f"--moved must lie in 1 .. --tasks = {self.tasks}, got {self.moved}.")
        lowest = lowest_rho(self.moved)
        if not lowest <= self.rho <= 1:
            raise InputError(f"--rho must lie in [{lowest:g}, 1] for {self.moved} moved tasks, got {self.rho:g}.")
        if self.mechanism not in MECHANISMS:
            raise InputError(f"--mechanism is '{self.mechanism}'; allowed: {', '.join(MECHANISMS)}.")
        clip_unit, noise = MECHANISMS[self.mechanism]
        _check_noise(self.sigma, self.clip)
        names = tuple(f"task {k + 1}" for k in range(self.tasks))
        mechanism = Mechanism(
            "gradients",
            "site",
            "gaussian",
            self.clip,
            clip_unit=clip_unit,
            noise=noise,
            sigma=dict.fromkeys(names, self.sigma),
        )
        # One point has one rho, in every unit: in mu and tpr@F it must be the largest of any record (docs/bounds.md).
        question = Question(names[: self.moved], self.releases, unit=self.unit, rho=self.rho, largest=self.rho)
        return mechanism, question


def parse_range(name: str, text: str, *, whole: bool = False) -> tuple[float, ...]:
    """A number, or start:stop:count (both ends included, and finite); of whole numbers only where all of them are."""
    parts = text.split(":")
    if len(parts) == 1:
        return (_number(name, text, whole=whole),)
    if len(parts) != 3:
        raise InputError(f"{name} takes a number or start:stop:count, got '{text[:40]}'.")
    start, stop = (_number(name, part, whole=whole) for part in parts[:2])
    count = int(_number(f"{name} count", parts[2], whole=True))
    if not 2 <= count <= MOST_ROWS:
        raise InputError(f"{name}: the count of a range must lie in 2 .. {MOST_ROWS:,}, got {count}.")
    if not math.isfinite(stop - start):
        raise InputError(f"{name}: both ends of a range must be finite, got {start:g} and {stop:g}.")
    if whole and (stop - start) % (count - 1) != 0:
        raise InputError(
            f"{name}: {count} numbers from {start:g} to {stop:g} are not all whole. Give a count with "
            "(stop - start) / (count - 1) whole."
        )
    values = np.linspace(start, stop, count)
    return tuple(dict.fromkeys(map(float, np.rint(values) if whole else values)))


def _number(name: str, text: str, *, whole: bool) -> float:
    """A number within the limits of its name."""
    if not whole:
        return parse_number(name, text)
    lowest, highest = LIMITS.get(name.removeprefix("--"), (0, 10**9))
    # More digits than any limit has: no float holds the longest of them.
    value = parse_number(name, text, whole=True) if len(text) <= 40 else math.inf
    if not lowest <= value <= highest:
        raise InputError(f"{name} must be at least {lowest:,} and at most {highest:,}, got '{text[:20]}'.")
    return value


def _check_noise(sigma: float, clip: float) -> None:
    if not SMALLEST <= clip <= LARGEST:
        raise InputError(f"--clip must be from {SMALLEST:g} to {LARGEST:g}, got {clip:g}.")
    for name, value in (("--sigma", sigma), ("the noise multiplier sigma / C", sigma / clip)):
        if not (value == 0 or SMALLEST <= value <= LARGEST):
            raise InputError(f"{name} must be 0 or from {SMALLEST:g} to {LARGEST:g} (at least 0), got {value:g}.")


def combinations(ranges: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination, the last name varying fastest; refused above 10,000 rows."""
    rows = 1
    for values in ranges.values():
        rows *= len(values)
    if rows > MOST_ROWS:
        raise InputError(f"these ranges make {rows:,} rows; at most {MOST_ROWS:,} are tabulated.")
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def bounds_at(point: Point, registry: Registry) -> dict[str, BoundValue | Unsupported]:
    """Every bound about a Gaussian mechanism at this point, by name in the order of tables; claims only with
    `sampling`.
    """
    mechanism, question = point.describe()
    claim = nominal_claim(point)
    found: dict[str, BoundValue | Unsupported] = {}
    bounds = registry.made("bounds", Bound)  # type: ignore[type-abstract]
    for name in sorted(bounds, key=_place):
        bound = bounds[name]
        speaks_about_claims = bound.card.about == "claim"
        if "gaussian" not in bound.card.kinds or (speaks_about_claims and point.sampling is None):
            continue
        if speaks_about_claims and isinstance(claim, Unsupported):
            found[name] = claim
        else:
            asked = replace(question, claim=claim) if isinstance(claim, Claim) else question
            found[name] = bound.evaluate(mechanism, asked)
    return found


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def nominal_claim(point: Point) -> Claim | Unsupported | None:
    """The habit's claim for this noise, why there is none, or None without `sampling`."""
    if point.sampling is None:
        return None
    batch, records, delta = point.sampling
    rate = sample_rate(batch, records)
    if point.sigma == 0:
        return Unsupported("claim", "without noise nothing is claimed")
    eps = accounting.nominal_eps(point.multiplier, rate, pld.steps(rate, point.releases), delta)
    if eps == 0:
        return Unsupported("claim", f"Opacus RDP ends at eps 0 for delta {delta}, and a claim needs more")
    return Claim(eps, delta, "nominal", "add-remove", "rdp", rate, point.releases)


def _by_pld(multiplier: float, rate: float, count: int, delta: float, *, replace: bool) -> float | None:
    """None where the discretised privacy loss is out of reach."""
    if pld.out_of_reach(multiplier, rate, count) is not None:
        return None
    return accounting.nominal_eps_pld(multiplier, rate, count, delta, replace=replace)


def sample_rate(batch: int, records: int) -> float:
    if not 1 <= batch <= records:
        raise InputError(f"--batch must be at least 1 and at most --records = {records:,}, got {batch:,}.")
    return batch / records


def epsilons_at(
    multiplier: float, *, delta: float, rate: float, epochs: int, tasks: int, moved: int, sites: int
) -> dict[str, Any]:
    """Every epsilon of one noise multiplier, by name."""
    if not 1 <= moved <= tasks:
        raise InputError(f"--moved must lie in 1 .. --tasks = {tasks}, got {moved}.")
    if not SMALLEST <= multiplier <= LARGEST:
        raise InputError(f"a noise multiplier must be above 0, {SMALLEST:g} .. {LARGEST:g}, got {multiplier:g}.")
    count = pld.steps(rate, epochs)

    def site(labels: int, encoders: int = 1) -> float:
        return accounting.gdp_eps(encoders**0.5 * accounting.site_mu(multiplier, tasks, labels, epochs), delta)

    return {
        "noise multiplier": multiplier,
        "nominal": accounting.nominal_eps(multiplier, rate, count, delta),
        "nominal, PLD": _by_pld(multiplier, rate, count, delta, replace=False),
        "replace-one, PLD": _by_pld(multiplier, rate, count, delta, replace=True),
        "site": site(moved),
        "site, all labels": site(tasks),
        "outsider": site(tasks, sites),
    }

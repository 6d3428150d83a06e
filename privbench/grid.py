"""Bounds and epsilons over ranges of parameters: what `privbench bounds` and `privbench accounting` tabulate."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privbench import accounting
from privbench.bounds.base import Bound, BoundValue, Question, Unsupported, lowest_rho
from privbench.errors import InputError
from privbench.mechanism import Claim, ClipUnit, Mechanism, NoiseUnit
from privbench.options import parse_number
from privbench.registry import Registry

MOST_ROWS = 10_000

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
        question = Question(names[: self.moved], self.releases, unit=self.unit, rho=self.rho, largest=abs(self.rho))
        return mechanism, question


def parse_range(name: str, text: str, *, whole: bool = False) -> tuple[float, ...]:
    """A number, or start:stop:count (both ends included)."""
    parts = text.split(":")
    if len(parts) == 1:
        return (parse_number(name, text, whole=whole),)
    if len(parts) != 3:
        raise InputError(f"{name} takes a number or start:stop:count, got '{text}'.")
    start, stop = (parse_number(name, part, whole=whole) for part in parts[:2])
    count = int(parse_number(f"{name} count", parts[2], whole=True))
    if not 2 <= count <= MOST_ROWS:
        raise InputError(f"{name}: the count of a range must lie in 2 .. {MOST_ROWS:,}, got {count}.")
    values = np.linspace(start, stop, count)
    return tuple(dict.fromkeys(map(float, np.rint(values) if whole else values)))


def combinations(ranges: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination, the last name varying fastest; refused above 10,000 rows."""
    rows = 1
    for values in ranges.values():
        rows *= len(values)
    if rows > MOST_ROWS:
        raise InputError(f"these ranges make {rows:,} rows; at most {MOST_ROWS:,} are tabulated.")
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def bounds_at(point: Point, registry: Registry) -> dict[str, BoundValue | Unsupported]:
    """Every bound about a Gaussian mechanism at this point, by name; claims only with `sampling`."""
    mechanism, question = point.describe()
    claim = _nominal_claim(point)
    found: dict[str, BoundValue | Unsupported] = {}
    for name in registry.names("bounds"):
        bound: Bound = registry.get("bounds", name)()
        if "gaussian" not in bound.card.kinds or (bound.card.about == "claim" and claim is None):
            continue
        found[name] = bound.evaluate(mechanism, replace(question, claim=claim))
    return found


def _nominal_claim(point: Point) -> Claim | None:
    if point.sampling is None or point.sigma == 0:
        return None
    batch, records, delta = point.sampling
    rate = sample_rate(batch, records)
    eps = accounting.nominal_eps(point.multiplier, rate, steps(rate, point.releases), delta)
    return Claim(eps, delta, "nominal", "add-remove", "rdp", rate, point.releases) if eps > 0 else None


def _by_pld(multiplier: float, rate: float, count: int, delta: float, *, replace: bool) -> float | None:
    """None where the discretised privacy loss would outgrow memory."""
    if multiplier < accounting.SMALLEST_PLD_MULTIPLIER:
        return None
    return accounting.nominal_eps_pld(multiplier, rate, count, delta, replace=replace)


def sample_rate(batch: int, records: int) -> float:
    if batch < 1 or records < 1:
        raise InputError(f"--batch and --records must be at least 1, got {batch} and {records}.")
    return min(1.0, batch / records)


def steps(rate: float, epochs: int) -> int:
    if epochs < 1:
        raise InputError(f"epochs must be at least 1, got {epochs}.")
    return int(np.ceil(epochs / rate - 1e-9))


def epsilons_at(
    multiplier: float, *, delta: float, rate: float, epochs: int, tasks: int, moved: int, sites: int
) -> dict[str, Any]:
    """Every epsilon of one noise multiplier, by name."""
    if not 1 <= moved <= tasks:
        raise InputError(f"--moved must lie in 1 .. --tasks = {tasks}, got {moved}.")

    def site(labels: int, encoders: int = 1) -> float:
        return accounting.gdp_eps(encoders**0.5 * accounting.site_mu(multiplier, tasks, labels, epochs), delta)

    return {
        "noise multiplier": multiplier,
        "nominal": accounting.nominal_eps(multiplier, rate, steps(rate, epochs), delta),
        "nominal, PLD": _by_pld(multiplier, rate, steps(rate, epochs), delta, replace=False),
        "replace-one, PLD": _by_pld(multiplier, rate, steps(rate, epochs), delta, replace=True),
        "site": site(moved),
        "site, all labels": site(tasks),
        "outsider": site(tasks, sites),
    }

"""What a defence does to a tensor before it leaves, and what the target promises about it.

A bound is a statement about a `Mechanism`; a verdict about a `Claim` needs both. This module is the only one
that `privbench.bounds` may import, so it imports nothing but the errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from privbench.errors import InputError

Kind = Literal["none", "gaussian", "laplace", "randomised-response"]
ClipUnit = Literal["task", "sum", "sites"]
NoiseUnit = Literal["per-task", "once", "separate"]
Neighbours = Literal["replace", "add-remove"]
Audience = Literal["nominal", "site", "outsider"]
Accountant = Literal["rdp", "prv", "gdp"]


@dataclass(frozen=True)
class Mechanism:
    """One defended channel. sigma is absolute, per task, in the gradient's own unit; clip is an L2 norm.

    clip_unit     what is clipped: each task's gradient per site, their sum per site, or jointly over sites
    noise         one draw per task then summed, one draw on the sum, or per-task releases sent separately
    colluding_sites   how many sites pool what they received
    server_noised     whether the server, too, trains on the noised values only
    eps, labels       of randomised response: its budget, and between how many labels it draws
    """

    channel: str
    party: str
    kind: Kind
    clip: float | None = None
    clip_unit: ClipUnit = "task"
    noise: NoiseUnit = "per-task"
    sigma: Mapping[str, float] = field(default_factory=dict)
    neighbours: Neighbours = "replace"
    rho: float | None = None
    colluding_sites: int = 1
    server_noised: bool = False
    eps: float | None = None
    labels: int = 2

    def __post_init__(self) -> None:
        _member("mechanism kind", self.kind, get_args(Kind))
        _member("clip_unit", self.clip_unit, get_args(ClipUnit))
        _member("noise", self.noise, get_args(NoiseUnit))
        _member("neighbours", self.neighbours, get_args(Neighbours))
        object.__setattr__(self, "sigma", MappingProxyType(dict(self.sigma)))
        if self.clip is not None and not (0 < self.clip < math.inf):
            raise InputError(f"clip must be a positive number, got {self.clip!r}.")
        for task, sigma in self.sigma.items():
            if not (0 <= sigma < math.inf):
                raise InputError(f"sigma of task {task} must be a number of at least 0, got {sigma!r}.")
        if self.kind == "gaussian" and not self.sigma:
            raise InputError("a gaussian mechanism needs a sigma per task.")
        if self.noise == "once" and len(set(self.sigma.values())) > 1:
            raise InputError(f"one draw on the sum has one sigma for all tasks, got {dict(self.sigma)}.")
        if self.eps is not None and not 0 < self.eps < math.inf:
            raise InputError(f"eps must be a finite number above 0, got {self.eps!r}.")
        if self.labels < 2:
            raise InputError(f"labels must be at least 2, got {self.labels}.")
        if self.colluding_sites < 1:
            raise InputError(f"colluding_sites must be at least 1, got {self.colluding_sites}.")

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.sigma)

    @property
    def total_sigma(self) -> float:
        """Standard deviation of the noise in a summed release: sqrt(sum of sigma_k^2), or the one draw's sigma."""
        if self.noise == "once":
            return next(iter(self.sigma.values()), 0.0)
        return math.sqrt(sum(sigma * sigma for sigma in self.sigma.values()))

    def to_json(self) -> dict[str, Any]:
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "sigma": dict(self.sigma)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mechanism:
        return cls(**_known(cls, data, "mechanism"))


@dataclass(frozen=True)
class Claim:
    """What a target promises: (eps, delta), towards whom, under which neighbouring relation.

    `audience` is spelled "for" in files. "nominal" is the published habit: DP-SGD accounting as if noise
    were added once to a sum over a Poisson sample of rate `sample_rate`, over `epochs` passes.
    """

    eps: float
    delta: float
    audience: Audience
    neighbours: Neighbours
    accountant: Accountant
    sample_rate: float | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise InputError(f"a claimed eps must be above 0, got {self.eps!r}.")
        if not 0 <= self.delta < 1:
            raise InputError(f"a claimed delta must lie in [0, 1), got {self.delta!r}.")
        if self.sample_rate is not None and not 0 < self.sample_rate <= 1:
            raise InputError(f"a claim's sample_rate must lie in (0, 1], got {self.sample_rate!r}.")
        if self.epochs is not None and not self.epochs >= 1:
            raise InputError(f"a claim's epochs must be at least 1, got {self.epochs!r}.")
        _member("the claim's 'for'", self.audience, get_args(Audience))
        _member("neighbours", self.neighbours, get_args(Neighbours))
        _member("accountant", self.accountant, get_args(Accountant))

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["for"] = data.pop("audience")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Claim:
        renamed = {("audience" if key == "for" else key): value for key, value in data.items()}
        return cls(**_known(cls, renamed, "claim"))


def _member(what: str, given: object, allowed: tuple[object, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{what} is {given!r}; allowed: {', '.join(map(str, allowed))}.")


def _known(cls: type[Mechanism] | type[Claim], data: Mapping[str, Any], what: str) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    extra = sorted(set(data) - names)
    if extra:
        raise InputError(f"unknown key '{extra[0]}' in a {what}; known: {', '.join(sorted(names))}.")
    return dict(data)

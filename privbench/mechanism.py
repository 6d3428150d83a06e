"""What a defence does to a tensor before it leaves, and what the target promises about it.

A bound is a statement about a `Mechanism`; a verdict about a `Claim` needs both. This module is the only one
that `privbench.bounds` may import, so it imports nothing but errors and the names of channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args

from privbench.errors import InputError
from privbench.threat import Channel

Kind = Literal["none", "gaussian", "laplace", "randomised-response", "d-chi"]
ClipUnit = Literal["task", "sum", "sites"]
NoiseUnit = Literal["per-task", "once", "separate"]
Neighbours = Literal["replace", "add-remove"]
Audience = Literal["nominal", "site", "server", "outsider"]
Accountant = Literal["rdp", "prv", "gdp"]


@dataclass(frozen=True)
class Mechanism:
    """One defended channel. sigma is absolute, per task, in the gradient's own unit; clip is an L2 norm.

    clip_unit     what is clipped: each task's gradient per site, their sum per site, or jointly over sites
    noise         one draw per task then summed, one draw on the sum, or per-task releases sent separately
    colluding_sites   how many sites pool what they received
    server_noised     whether the server, too, trains on the noised values only
    eps, labels       of randomised response: its budget, and between how many labels it draws; of d-chi privacy: its
                      eps per unit of distance
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
        if self.rho is not None and not -1 <= self.rho <= 1:
            raise InputError(f"rho must lie in [-1, 1], got {self.rho!r}.")
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
        return math.hypot(*self.sigma.values())

    def to_json(self) -> dict[str, Any]:
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "sigma": dict(self.sigma)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mechanism:
        return cls(**_known(cls, data, "mechanism"))


@dataclass(frozen=True)
class Claim:
    """What a target promises: (eps, delta), towards whom, under which neighbouring relation.

    `audience` is spelled "for" in files. "nominal" is the published habit: DP-SGD accounting as if noise
    were added once to a sum over a Poisson sample of rate `sample_rate`, over `epochs` passes. "server": whoever sees
    the updates of federated averaging, and all who see less.
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
        return cls(**_known(cls, data, "claim"))


def _member(what: str, given: object, allowed: tuple[object, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{what} is {str(given)[:60]!r}; allowed: {', '.join(map(str, allowed))}.")


_LARGEST = 2**1023
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "float": (int, float),
    "float | None": (int, float, NoneType),
    "int": (int,),
    "int | None": (int, NoneType),
    "bool": (bool,),
    "Mapping[str, float]": (Mapping,),
}
"""What JSON may hold for a field of this annotation; everything else is text."""


def _known(cls: type[Mechanism] | type[Claim], data: object, what: str) -> dict[str, Any]:
    """The fields of a JSON object, each of its type; raises `InputError` naming the first that is not."""
    if not isinstance(data, Mapping):
        raise InputError(f"a {what} must be a JSON object, got {str(data)[:40]!r}.")
    known = {("for" if f.name == "audience" else f.name): f for f in fields(cls)}
    for key, value in data.items():
        if key not in known:
            raise InputError(f"unknown key '{str(key)[:40]}' in a {what}; known: {', '.join(sorted(known))}.")
        types = _JSON_TYPES.get(str(known[key].type), (str,))
        values = value.values() if isinstance(value, Mapping) else ()
        wrong = not isinstance(value, types) or (isinstance(value, bool) and types != (bool,))
        if wrong or not all(map(_is_number, values)) or (isinstance(value, int | float) and not abs(value) < _LARGEST):
            raise InputError(f"{key} of a {what} is {str(value)[:40]!r}: that is of the wrong type.")
    missing = [key for key, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    absent = [key for key in missing if key not in data]
    if absent:
        raise InputError(f"a {what} lacks '{absent[0]}'.")
    return {known[key].name: value for key, value in data.items()}


def _is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold; JSON has integers that none can."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def gradient_mechanism(mechanisms: Sequence[Mechanism], site: str) -> Mechanism | None:
    """The mechanism on the cut gradients sent to `site`, or None when nobody described it."""
    return _mechanism_on(Channel.GRADIENTS, mechanisms, site)


def input_mechanism(mechanisms: Sequence[Mechanism], victim: str) -> Mechanism | None:
    """The mechanism on the activations or updates that `victim` sends, or None when nobody described it."""
    found = (_mechanism_on(channel, mechanisms, victim) for channel in (Channel.ACTIVATIONS, Channel.UPDATES))
    return next(filter(None, found), None)


def _mechanism_on(channel: Channel, mechanisms: Sequence[Mechanism], party: str) -> Mechanism | None:
    found = [m for m in mechanisms if m.channel == channel and m.party in (party, "*")]
    return min(found, key=lambda m: m.party == "*", default=None)  # its own before that of all

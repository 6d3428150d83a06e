"""What a bound is: a statement about a mechanism, in one unit, with its assumptions named."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from privbench.bounds.units import check_unit
from privbench.errors import InputError
from privbench.mechanism import Claim, Kind, Mechanism


@dataclass(frozen=True)
class BoundCard:
    """What `privbench list bounds` shows.

    releases: "one" release, "all" of them, or both; kinds: of mechanisms about which the bound may say something;
    secret: whether it speaks about labels that are guessed, inputs that are estimated, or records' membership.
    """

    name: str
    summary: str
    paper: str
    releases: tuple[Literal["one", "all"], ...]
    about: Literal["mechanism", "claim"]
    kinds: tuple[Kind, ...] = ("gaussian",)
    secret: Literal["label", "input", "member"] = "label"


@dataclass(frozen=True)
class Question:
    """What is held against the bound.

    moved      the tasks whose labels the coin moves (J of the mechanism's K)
    releases   T, how often the record was released
    unit       accuracy, auc, advantage, mu or tpr@F
    rho        upper confidence limit of the mean |cosine| between the moves; None where unmeasured: then the
               mechanism's own, or 1
    largest    the largest cosine of any record; None is read as 1 where a unit needs it (mu, tpr@F)
    secret     "label": a coin on labels; "member": a coin on the record's presence
    claim      the claim under test, for bounds that speak about one
    """

    moved: tuple[str, ...]
    releases: int
    unit: str = "accuracy"
    rho: float | None = None
    largest: float | None = None
    secret: Literal["label", "member"] = "label"
    claim: Claim | None = None

    def __post_init__(self) -> None:
        check_unit(self.unit)
        if self.releases < 1:
            raise InputError(f"releases must be at least 1, got {self.releases}.")
        if not self.moved or len(set(self.moved)) != len(self.moved):
            raise InputError(f"moved must name each moved task once and at least one, got {list(self.moved)}.")
        for name, value in (("rho", self.rho), ("largest", self.largest)):
            if value is not None and not -1 <= value <= 1:
                raise InputError(f"{name} must lie in [-1, 1], got {value!r}.")


@dataclass(frozen=True)
class BoundValue:
    """A bound's value in its unit. `signal` is s with accuracy Phi(s) (infinite when there is no noise)."""

    name: str
    unit: str
    value: float
    signal: float
    inputs: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsupported:
    """No statement can be made, and which part of the mechanism is the reason."""

    part: str
    reason: str


def lowest_rho(moved: int) -> float:
    """The smallest mean pairwise cosine that J moves can have: -1 / (J - 1), and -1 where none is formed."""
    return -1 / (moved - 1) if moved > 1 else -1.0


class BoundBase(ABC):
    """What bounds of every kind have: a card."""

    card: ClassVar[BoundCard]


class Bound(BoundBase):
    """Base of all bounds on guessed labels: pure functions of a mechanism and a question."""

    @abstractmethod
    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """The bound's value, or the part of the mechanism it says nothing about."""


@dataclass(frozen=True)
class Cut:
    """A linear cut, A x + N(0, eta^2 I) in each of T releases, with the inputs x in standard units.

    entries: D, of x; trace: of A^T A; sent: the variances of A x along its principal directions; normal: whether every
    entry of x is an independent standard normal, which is more than anybody knows of measured inputs.
    """

    eta: float
    releases: int
    entries: int
    trace: float
    sent: tuple[float, ...]
    normal: bool

    def __post_init__(self) -> None:
        numbers = {"eta": (self.eta,), "trace": (self.trace,), "sent": self.sent}
        for name, values in numbers.items():
            if not values or not all(0 <= value < math.inf for value in values):
                raise InputError(f"{name} of a cut must be finite and at least 0, got {getattr(self, name)!r}.")
        for name in ("releases", "entries"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of a cut must be at least 1, got {getattr(self, name)!r}.")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sent": list(self.sent)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cut:
        return cls(**{**data, "sent": tuple(data["sent"])})


class InputBound(BoundBase):
    """Base of bounds on estimated inputs: pure functions of a cut, in R2, averaged over inputs."""

    @abstractmethod
    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        """The largest mean R2, or the part of the cut about which nothing can be said."""


class MemberBound(BoundBase):
    """Base of bounds on guesses about who was trained on: pure functions of a claim and of what an adversary sees."""

    @abstractmethod
    def evaluate(self, claim: Claim, channels: Collection[str]) -> BoundValue | Unsupported:
        """The largest accuracy of one guess, or why the claim says nothing about who sees these channels."""

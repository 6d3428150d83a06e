"""What a bound is: a statement about a mechanism, in one unit, with its assumptions named."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism

Unit = Literal["accuracy"]


@dataclass(frozen=True)
class BoundCard:
    """What `privbench list bounds` shows. `releases`: "one" release, "all" of them, or both."""

    name: str
    summary: str
    paper: str
    releases: tuple[Literal["one", "all"], ...]
    about: Literal["mechanism", "claim"]


@dataclass(frozen=True)
class Question:
    """What is held against the bound.

    moved      the tasks whose labels the coin moves (J of the mechanism's K)
    releases   T, how often the record was released
    rho        upper confidence limit of the mean |cosine| between the moves; None where J = 1 or unmeasured
    claim      the claim under test, for bounds that speak about one
    """

    moved: tuple[str, ...]
    releases: int
    unit: Unit = "accuracy"
    rho: float | None = None
    claim: Claim | None = None

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise InputError(f"unit is '{self.unit}'; allowed: {', '.join(get_args(Unit))}.")
        if self.releases < 1:
            raise InputError(f"releases must be at least 1, got {self.releases}.")


@dataclass(frozen=True)
class BoundValue:
    """A bound's value in its unit. `signal` is s with value = Phi(s) (infinite when there is no noise)."""

    name: str
    unit: Unit
    value: float
    signal: float
    inputs: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsupported:
    """No statement can be made, and which part of the mechanism is the reason."""

    part: str
    reason: str


class Bound(ABC):
    """Base of all bounds: pure functions of a mechanism and a question."""

    card: ClassVar[BoundCard]

    @abstractmethod
    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """The bound's value, or the part of the mechanism it says nothing about."""

"""What a defence is: on the cut gradients that a server sends back, on what a party sends up to it, or on updates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from privbench.errors import InputError, unknown
from privbench.mechanism import Claim, Mechanism
from privbench.options import parse_number
from privbench.registry import Registry
from privbench.threat import Channel

Guarantee = Literal["formal", "heuristic", "none"]


@dataclass(frozen=True)
class DefenseCard:
    """What `privbench list defenses` shows."""

    name: str
    summary: str
    paper: str
    channel: Channel
    guarantee: Guarantee


@dataclass(frozen=True)
class DefenseBase(ABC):
    """What defences of every kind have: a card. A defence is a frozen configuration; its fields are its options."""

    card: ClassVar[DefenseCard]


class Numbers(DefenseBase):
    """Options are positive numbers, also where they come as text; texts are left to the defence."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.type == "str":
                continue
            value = parse_number(f.name, str(getattr(self, f.name)), whole=f.type == "int")
            if not 0 < value < math.inf:
                raise InputError(
                    f"{f.name} of defence {self.card.name} must be a positive number, got {value:g}; without it "
                    f"nothing is {'promised' if self.card.guarantee == 'formal' else 'done'}: use --defense none."
                )
            object.__setattr__(self, f.name, value)


class Defense(DefenseBase):
    """On cut gradients: the three things a target needs."""

    clips: ClassVar[bool]

    @abstractmethod
    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        """One task's per-sample gradients [B, d] after clipping; what the oracle applies to both hypotheses."""

    @abstractmethod
    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        """The noise [B, d] on the sum over tasks, for this release (0-based)."""

    @abstractmethod
    def mechanism(self, site: str, clip: float, sigma: Mapping[str, float]) -> Mechanism:
        """What the defence says it does, in the words that bounds understand."""


class CutDefense(DefenseBase):
    """On what a party sends up of its tokens. Sizes are in units of the public embedding table [V, d], so that a number
    means the same to models of any size: of its entries' root mean square, or of its rows' norms (`rms`, `row_norm`).
    """

    def tokens(self, ids: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        """The token ids that are embedded, of the same shape: as they are."""
        return ids

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        """What leaves in place of the activations [..., d]: themselves. Gradients flow back through it."""
        return activations

    def penalty(
        self, ids: Tensor, activations: Tensor, there: Tensor, table: Tensor, generator: torch.Generator
    ) -> Tensor | None:
        """A number that the client adds to its loss in training, from tokens [B, L] and their activations [B, L, d]
        before `sent`, where `there` [B, L] is no padding; None where training goes on as it is. No message is changed
        by it.
        """
        return None

    @abstractmethod
    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        """What the defence says it does, in the words that bounds understand."""


@dataclass(frozen=True)
class Course:
    """How often one client takes part, at most, all of it public: rounds of which it sends an update; steps that it
    makes in them; rate: with which Poisson sampling draws a record into a step.
    """

    rounds: int
    steps: int
    rate: float


class UpdateDefense(DefenseBase):
    """On the updates of federated averaging, each a vector of P numbers.

    summed      the server sees sums over clients, and no client's update
    per_record  a step's gradient is made by `gradient`, record by record, of records that Poisson sampling draws
    """

    summed: ClassVar[bool] = False
    per_record: ClassVar[bool] = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of a run with it must know."""
        return ()

    def gradient(self, records: Iterable[Tensor], nothing: Tensor, generator: torch.Generator) -> Tensor:
        """What a step goes down by [P], before it is divided by the batch's size: the sum of the records' gradients
        [P] each. nothing: zeros [P], the sum over no record.
        """
        return sum(records, nothing)

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        """What leaves a client, and is aggregated, in place of its update [P]: itself."""
        return update

    def released(self, mean: Tensor, clients: int, generator: torch.Generator) -> Tensor:
        """What the server adds to its state in place of the mean [P] of so many clients' updates: itself."""
        return mean

    def mechanism(self) -> Mechanism:
        """What the defence says it does at every client, in the words that bounds understand: nothing of that kind."""
        return Mechanism(Channel.UPDATES, "*", "none")

    def claim(self, course: Course, delta: float) -> Claim | None:
        """What one client's whole course is accounted for about one of its records; None where nothing is promised."""
        return None

    def at(self, eps: float, delta: float, course: Course) -> Self:
        """The same defence with the noise that is accounted for with this eps; `InputError` where none is."""
        raise InputError(
            f"defence {self.card.name} promises no eps: leave --eps out, or use dp-sgd or update-gaussian."
        )


def clipped(vectors: Tensor, clip: float) -> Tensor:
    """Each vector [..., d] shortened to the norm `clip`, where it is longer."""
    norm = vectors.norm(dim=-1, keepdim=True)
    return vectors * torch.clamp(clip / norm.clamp_min(1e-30), max=1.0)


def rms(table: Tensor) -> float:
    """Root mean square of a table's entries."""
    return float(table.double().square().mean().sqrt())


def row_norm(table: Tensor) -> float:
    """Root mean square of the norms of a table's rows."""
    return float(rms(table) * table.shape[1] ** 0.5)


D = TypeVar("D", bound=DefenseBase)


def build_defense(spec: str, registry: Registry, kind: type[D], target: str) -> D:
    """`NAME[:key=value,...]` to a configured defence of the kind that this target takes; `InputError` for any other."""
    name, _, rest = spec.partition(":")
    cls = registry.get("defenses", name)
    if not issubclass(cls, kind):
        able = ", ".join(registry.made("defenses", kind))
        raise InputError(
            f"defence {name} acts on {cls.card.channel}, which target {target} has no place for; it takes {able}."
        )
    known = {f.name for f in fields(cls)}
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"defence option '{item}' is not key=value.")
        if key not in known:
            raise unknown(f"option of defence {name}", key, known)
        options[key] = value
    return cls(**options)

"""What a defence on cut-layer gradients is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from privbench.errors import InputError, unknown
from privbench.mechanism import Mechanism
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


class Defense(ABC):
    """A frozen configuration with the three things a target needs; options are the dataclass's fields."""

    card: ClassVar[DefenseCard]

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


def build_defense(spec: str, registry: Registry) -> Defense:
    """`NAME[:key=value,...]` to a configured defence."""
    name, _, rest = spec.partition(":")
    cls = registry.get("defenses", name)
    known = {f.name for f in fields(cls)}
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"defence option '{item}' is not key=value.")
        if key not in known:
            raise unknown(f"option of defence {name}", key, known)
        options[key] = value
    defense: Defense = cls(**options)
    return defense

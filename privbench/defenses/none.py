"""No defence: gradients leave as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.defenses.base import Defense, DefenseCard
from privbench.mechanism import Mechanism
from privbench.threat import Channel


@dataclass(frozen=True)
class NoDefense(Defense):
    """Unclipped and noise-free."""

    card = DefenseCard("none", "gradients leave unclipped and without noise", "none", Channel.GRADIENTS, "none")
    clips = False

    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return gradient

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return torch.zeros(shape)

    def mechanism(self, site: str, clip: float, sigma: Mapping[str, float]) -> Mechanism:
        return Mechanism(channel=Channel.GRADIENTS, party=site, kind="none")

"""Cut-gradient Gaussian noise, per task, on clipped per-sample gradients (PRISM-VFL)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.defenses.base import Defense, DefenseCard, clipped
from privbench.mechanism import Mechanism
from privbench.threat import Channel


@dataclass(frozen=True)
class CutGradientGaussian(Defense):
    """Each task's gradient clipped to C in L2, its own N(0, sigma_k^2 I), then summed."""

    card = DefenseCard(
        "gaussian",
        "per-task L2 clip and Gaussian noise on cut gradients, then summed",
        "PRISM-VFL; Dwork, Roth 2014",
        Channel.GRADIENTS,
        "formal",
    )
    clips = True

    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return clipped(gradient, clip)

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        # Independent draws per task, summed: the mechanism as published, though one draw would have the same law.
        return torch.stack([torch.randn(shape, generator=generator) * value for value in sigma.values()]).sum(dim=0)

    def mechanism(self, site: str, clip: float, sigma: Mapping[str, float]) -> Mechanism:
        return Mechanism(
            channel=Channel.GRADIENTS,
            party=site,
            kind="gaussian",
            clip=clip,
            clip_unit="task",
            noise="per-task",
            sigma=sigma,
            neighbours="replace",
        )

"""Deliberately broken defences that an audit has to catch. Registered by tests only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.defenses.gaussian import CutGradientGaussian


@dataclass(frozen=True)
class SkipsEveryFifth(CutGradientGaussian):
    """Leaves the noise out in every fifth release, and says nothing of it."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        drawn = super().noise(shape, sigma, release, generator)
        return torch.zeros(shape) if release % 5 == 4 else drawn


@dataclass(frozen=True)
class ClipsTheSumOnly(CutGradientGaussian):
    """Lets every task's gradient through at four times the clip norm it declares."""

    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return super().bounded(gradient, 4 * clip)


@dataclass(frozen=True)
class HalfTheNoise(CutGradientGaussian):
    """Draws half of the declared sigma."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise(shape, sigma, release, generator) / 2


@dataclass(frozen=True)
class ReusesNoise(CutGradientGaussian):
    """One fixed seed for every release and site."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise(shape, sigma, release, torch.Generator().manual_seed(1))

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
class OneDrawPerBatch(CutGradientGaussian):
    """The same noise for every record of a batch: differences of records are noise-free."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise((1, shape[1]), sigma, release, generator).expand(shape)


@dataclass(frozen=True)
class ClipsByTheBatchMaximum(CutGradientGaussian):
    """Scales a whole batch by its largest gradient, as "Gaussian DP" elsewhere did."""

    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return gradient * (clip / gradient.norm(dim=1).max().clamp_min(1e-30))


@dataclass(frozen=True)
class TooMuchNoise(CutGradientGaussian):
    """Four times the declared noise: the instrument would look honest and be weak."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise(shape, sigma, release, generator) * 4


@dataclass(frozen=True)
class SilentForSomeRecords(CutGradientGaussian):
    """Noise for the first half of every batch only."""

    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        drawn = super().noise(shape, sigma, release, generator)
        drawn[shape[0] // 2 :] = 0
        return drawn


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

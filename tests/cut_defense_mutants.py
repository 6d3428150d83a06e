"""Broken defences on activations, one for each check of `privbench.conformance.cut_defenses`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privbench.defenses.base import CutDefense, clipped, rms, row_norm
from privbench.defenses.cut import ActivationGaussian, TokenDChi
from privbench.defenses.nopeek import NoPeek
from privbench.mechanism import Mechanism


class Unsigned(ActivationGaussian):
    card = replace(ActivationGaussian.card, paper="")


class Elsewhere(ActivationGaussian):
    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        return replace(super().mechanism(party, table), party="server")


class Pooled(ActivationGaussian):
    """Sends the mean of a record's tokens."""

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        return super().sent(activations, table, generator).mean(dim=-2)


class Global(ActivationGaussian):
    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        random.random()
        return super().sent(activations, table, generator)


@dataclass(frozen=True)
class OwnSeed(ActivationGaussian):
    """Counts its calls."""

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        _CALLS.append(len(_CALLS))
        return super().sent(activations, table, torch.Generator().manual_seed(len(_CALLS)))


_CALLS: list[int] = []


class InPlace(ActivationGaussian):
    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        return activations.add_(super().sent(activations, table, generator))


class Loose(ActivationGaussian):
    """Clips each entry, not the norm."""

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        clip = self.clip * row_norm(table)
        noise = torch.randn(activations.shape, generator=generator)
        return activations.clamp(-clip, clip) + self.noise * rms(table) * noise


class Quiet(ActivationGaussian):
    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        return ActivationGaussian(self.clip, self.noise / 2).sent(activations, table, generator)


class OneRadius(TokenDChi):
    """One Gamma radius for all tokens that are sent together."""

    def tokens(self, ids: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        rows = table.float()
        flat = rows[ids.reshape(-1)]
        direction = torch.randn(flat.shape, generator=generator)
        radius = torch.empty(table.shape[1]).exponential_(generator=generator).sum() * row_norm(table) / self.eps
        noisy = flat + direction / direction.norm(dim=1, keepdim=True) * radius
        return torch.cdist(noisy, rows).argmin(dim=1).view(ids.shape)


class BatchMaximum(ActivationGaussian):
    """Scales by the longest activation of the batch, as published code did."""

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        clip = self.clip * row_norm(table)
        bounded = clipped(activations, clip) * (clip / activations.norm(dim=-1).max().clamp_min(clip))
        noise = torch.randn(activations.shape, generator=generator)
        return bounded + self.noise * rms(table) * noise


class Forgetful(NoPeek):
    """What it adds to the loss has lost its way to the activations."""

    def penalty(
        self, ids: Tensor, activations: Tensor, there: Tensor, table: Tensor, generator: torch.Generator
    ) -> Tensor:
        return super().penalty(ids, activations.detach() + 0 * activations, there, table, generator)


CUT_DEFENSES: Mapping[str, type[CutDefense]] = {
    "card": Unsigned,
    "description": Elsewhere,
    "shapes": Pooled,
    "global generators": Global,
    "deterministic": OwnSeed,
    "input untouched": InPlace,
    "clip": Loose,
    "scale": Quiet,
    "independence": OneRadius,
    "training": Forgetful,
    "per token": BatchMaximum,
}

"""Broken defences on updates, one for each check of `privbench.conformance.update_defenses`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privbench.accounting import gdp_eps
from privbench.defenses.base import Course, UpdateDefense, clipped
from privbench.defenses.dp_sgd import DpSgd
from privbench.defenses.updates import UpdateGaussian, noised
from privbench.mechanism import Claim, Mechanism
from privbench.threat import Channel


class Unsigned(UpdateGaussian):
    card = replace(UpdateGaussian.card, paper="")


class Elsewhere(UpdateGaussian):
    def mechanism(self) -> Mechanism:
        return replace(super().mechanism(), channel=Channel.GRADIENTS)


@dataclass(frozen=True)
class Trusting(UpdateGaussian):
    """The server adds the noise, and the record claims protection from the server."""

    where: str = "server"

    def claim(self, course: Course, delta: float) -> Claim:
        return replace(super().claim(course, delta), audience="server")


class OneRound(UpdateGaussian):
    """Accounts for one round however many there are."""

    def claim(self, course: Course, delta: float) -> Claim:
        return Claim(gdp_eps(2 / self.noise, delta), delta, "server", "add-remove", "gdp")


class Short(UpdateGaussian):
    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return super().sent(update, generator)[:-1]


class Global(UpdateGaussian):
    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        random.random()
        return super().sent(update, generator)


class OwnSeed(UpdateGaussian):
    """Counts its calls."""

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        _CALLS.append(len(_CALLS))
        return super().sent(update, torch.Generator().manual_seed(len(_CALLS)))


_CALLS: list[int] = []


class InPlace(UpdateGaussian):
    """A step leaves one record's gradient as it is, and what is sent is written over it."""

    def gradient(self, records: Iterable[Tensor], nothing: Tensor, generator: torch.Generator) -> Tensor:
        return next(iter(records))

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return update.copy_(super().sent(update, generator))


class Loose(UpdateGaussian):
    """Clips each number, not the norm."""

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return noised(update.clamp(-self.clip, self.clip), self.noise * self.clip, generator)


class Quiet(UpdateGaussian):
    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return UpdateGaussian(self.clip, 0.9 * self.noise).sent(update, generator)


class OneDraw(UpdateGaussian):
    """The same number is added to every entry."""

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return clipped(update, self.clip) + self.noise * self.clip * torch.randn(1, generator=generator)


class ClippedSum(DpSgd):
    """Clips the sum of a batch to as many clips as it has records: one long gradient takes it all."""

    def gradient(self, records: Iterable[Tensor], nothing: Tensor, generator: torch.Generator) -> Tensor:
        rows = list(records)
        total = torch.stack([nothing, *rows]).sum(dim=0)
        return noised(clipped(total, self.clip * len(rows)), self.noise * self.clip, generator)


UPDATE_DEFENSES: Mapping[str, type[UpdateDefense]] = {
    "card": Unsigned,
    "description": Elsewhere,
    "promise": Trusting,
    "accounting": OneRound,
    "shapes": Short,
    "global generators": Global,
    "deterministic": OwnSeed,
    "input untouched": InPlace,
    "clip": Loose,
    "scale": Quiet,
    "independence": OneDraw,
    "per record": ClippedSum,
}

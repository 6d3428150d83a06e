"""Defences on the updates of federated averaging: clip with noise, sums alone, fewer numbers, coarser numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from privbench.accounting import gdp_eps, gdp_mu
from privbench.defenses.base import Course, DefenseCard, Numbers, UpdateDefense, clipped
from privbench.errors import InputError, unknown
from privbench.mechanism import Claim, Mechanism
from privbench.options import LARGEST, SMALLEST
from privbench.threat import Channel

LEAST_EPS = 1e-6
"""What is claimed at the least: an eps of 0 would be a promise that no arithmetic keeps."""
_PLACES = ("client", "server")
_MOST_BITS = 16


def require_sizes(defense: UpdateDefense, *names: str) -> None:
    """`InputError` for sizes, or their product, that 32 bits cannot hold apart from nothing, or from everything."""
    sizes = {name: getattr(defense, name) for name in names}
    for name, value in (*sizes.items(), (" times ".join(names), math.prod(sizes.values()))):
        if not SMALLEST <= value <= LARGEST:
            raise InputError(
                f"{name} of defence {defense.card.name} must lie from {SMALLEST:g} to {LARGEST:g}, got {value:g}."
            )


def noised(vector: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """vector [P] + N(0, sigma^2 I)."""
    drawn = torch.randn(vector.shape, generator=generator, dtype=torch.float32)
    return vector + sigma * drawn.to(vector.dtype)


def bounded(vector: Tensor, clip: float) -> Tensor:
    """The vector [P], at most `clip` long; zeros where it holds NaN or infinity, which to refuse would tell."""
    return clipped(vector, clip) if bool(torch.isfinite(vector).all()) else torch.zeros_like(vector)


@dataclass(frozen=True)
class UpdateGaussian(Numbers, UpdateDefense):
    """clip: L2 norm that an update may have; noise: its standard deviation, in clips; where: who adds it.

    client: each client adds N(0, (noise clip)^2 I) before it sends. The server, and everybody else, sees noised updates
    only. A client's records can move its update by 2 clip, whatever they are and however many: T updates are mu-GDP in
    them with mu = 2 sqrt(T) / noise (Dong, Roth, Su 2022), and all the more in one record.

    server: the server adds that noise to the sum of the clipped updates (McMahan et al. 2018). It sees the updates
    themselves: to it nothing is promised. Who sees the trained model only is told mu-GDP, with the same mu.
    """

    clip: float = 1.0
    noise: float = 1.0
    where: str = "client"

    card = DefenseCard(
        "update-gaussian",
        "each client's update shortened to a norm, and Gaussian noise on it; where=server: on their sum, by the server",
        "McMahan, Ramage, Talwar, Zhang 2018; Dong, Roth, Su 2022",
        Channel.UPDATES,
        "formal",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "clip", "noise")
        if self.where not in _PLACES:
            raise unknown("value of where", self.where, _PLACES)

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        short = bounded(update, self.clip)
        return noised(short, self.noise * self.clip, generator) if self.where == "client" else short

    def released(self, mean: Tensor, clients: int, generator: torch.Generator) -> Tensor:
        return mean if self.where == "client" else noised(mean, self.noise * self.clip / clients, generator)

    def mechanism(self) -> Mechanism:
        channel = Channel.UPDATES if self.where == "client" else Channel.OUTPUTS
        sigma = {"update" if self.where == "client" else "sum": self.noise * self.clip}
        return Mechanism(
            channel, "*", "gaussian", clip=self.clip, noise="once", sigma=sigma, neighbours="add-remove",
            server_noised=self.where == "client",
        )  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        seen = (
            "The server adds the noise itself, after it has seen each client's clipped update: to it nothing is "
            "promised. Its noise is not in the recording, from which the states of later rounds do not follow.",
        )
        return seen if self.where == "server" else ()

    def claim(self, course: Course, delta: float) -> Claim:
        eps = gdp_eps(2 * math.sqrt(course.rounds) / self.noise, delta)
        audience = "server" if self.where == "client" else "outsider"
        return Claim(max(eps, LEAST_EPS), delta, audience, "add-remove", "gdp")  # type: ignore[arg-type]

    def at(self, eps: float, delta: float, course: Course) -> Self:
        return replace(self, noise=2 * math.sqrt(course.rounds) / gdp_mu(eps, delta))


@dataclass(frozen=True)
class SecureAggregation(UpdateDefense):
    """The server sees the weighted sum of those who sent an update, and no update. What the sum tells is not hidden.

    A model of what the protocol reveals: its cryptography is not run, and nobody attacks it. A round in which a single
    client is left has no release, for its sum is that client's update.
    """

    summed = True

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "Secure aggregation is modelled: the server is given sums and no update, and no cryptography is run. A "
            "round in which one client is left has no release, for a sum over one is its update.",
        )

    card = DefenseCard(
        "secure-aggregation",
        "the server sees the sum of the clients' updates alone; modelled, no cryptography is run",
        "Bonawitz et al. 2017",
        Channel.UPDATES,
        "heuristic",
    )


@dataclass(frozen=True)
class TopK(Numbers, UpdateDefense):
    """share: of an update's numbers that are sent, the largest by magnitude, at least one; the others are 0.

    What is left out is forgotten, not sent later. Nothing is promised.
    """

    share: float = 0.1

    card = DefenseCard(
        "top-k",
        "of each update only the largest numbers by magnitude are sent",
        "Aji, Heafield 2017; as a defence, Zhu, Liu, Han 2019",
        Channel.UPDATES,
        "heuristic",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share > 1:
            raise InputError(f"share of defence {self.card.name} must be above 0 and at most 1, got {self.share:g}.")

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        kept = torch.topk(update.abs(), math.ceil(self.share * len(update))).indices
        return torch.zeros_like(update).index_put((kept,), update[kept])


@dataclass(frozen=True)
class Quantisation(Numbers, UpdateDefense):
    """bits: of each number that is sent, 1 to 16: one of 2^bits values that lie evenly between the update's largest
    magnitude and its negative, which is sent beside them.

    A number is rounded up as often as it lies near the upper value: in the mean what is sent is the update (Alistarh et
    al. 2017, who scale by the norm). Nothing is promised.
    """

    bits: int = 8

    card = DefenseCard(
        "quantisation",
        "each number of an update rounded to a few bits, up or down at random",
        "Alistarh, Grubic, Li, Tomioka, Vojnovic 2017",
        Channel.UPDATES,
        "heuristic",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits > _MOST_BITS:
            raise InputError(f"bits of defence {self.card.name} must lie from 1 to {_MOST_BITS}, got {self.bits}.")

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        largest = update.double().abs().max()
        if not 0 < largest < math.inf:
            return update
        step = 2 * largest / (2**self.bits - 1)
        place = (update.double() + largest) / step
        up = torch.rand(update.shape, generator=generator, dtype=torch.float64) < place - place.floor()
        sent: Tensor = (place.floor() + up) * step - largest
        return sent.to(update.dtype)

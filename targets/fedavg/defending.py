"""A defence in federated averaging: at each client, on what it sends or in its steps, and at the server on the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from privbench.defenses.base import UpdateDefense
from privbench.errors import InputError
from privbench.targets.split_llama.adapters import State
from privbench.targets.split_llama.batches import Batch
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import batch_of

SUM = "sum"
"""Whose updates a server sees where clients are aggregated securely: of all together."""


def called(client: int) -> str:
    """A client's name in recordings and sentences."""
    return f"client-{client + 1}"


def senders(clients: int, defense: UpdateDefense | None) -> tuple[str, ...]:
    """Whose updates the server sees."""
    return (SUM,) if defense is not None and defense.summed else tuple(map(called, range(clients)))


@dataclass(frozen=True)
class Guard:
    """A defence at one client, with a generator that is this client's alone."""

    defense: UpdateDefense
    generator: torch.Generator

    def sent(self, update: State) -> State:
        """What leaves in place of an update."""
        return like(self.defense.sent(joined(update.values()), self.generator), update)

    def step(
        self,
        trained: Sequence[Tensor],
        samples: Sequence[Encoded],
        batch: int,
        rate: float,
        learn: Callable[[Batch], Tensor],
    ) -> tuple[tuple[int, ...], list[float]]:
        """A step's gradient, record by record, left in `trained`: who was drawn, and their losses. learn: leaves the
        gradient of its batch's mean loss there, and returns losses.

        A record's own gradient is that of a batch of it alone: exact for whatever is trained, also the embedding's
        adapter, for which Opacus has no rule. The sum is divided by the size that is asked for, not by how many came.
        """
        drawn = torch.rand(len(samples), generator=self.generator, dtype=torch.float64) < rate
        rows = tuple(drawn.nonzero()[:, 0].tolist())
        losses: list[float] = []

        def records() -> Iterator[Tensor]:
            for row in rows:
                clear(trained)
                losses.extend(learn(batch_of([samples[row]])).tolist())
                yield joined(_gradient(item) for item in trained)

        nothing = torch.zeros_like(joined(trained))
        total = self.defense.gradient(records(), nothing, self.generator) / batch
        parts = torch.split(total, [item.numel() for item in trained])
        for item, part in zip(trained, parts, strict=True):
            item.grad = part.view_as(item).clone()
        return rows, losses


@dataclass(frozen=True)
class Protection:
    """A defence in one training: a guard for each client, and the server's own generator; all None without one."""

    defense: UpdateDefense | None
    guards: tuple[Guard | None, ...]
    own: torch.Generator | None = field(default=None, repr=False)

    @classmethod
    def of(cls, defense: UpdateDefense | None, clients: int, rng: np.random.Generator) -> Protection:
        """Generators are spawned of `rng`, so that all else is drawn as without a defence."""
        if defense is None:
            return cls(None, (None,) * clients)
        own, *each = (torch.Generator().manual_seed(int(one.integers(2**63))) for one in rng.spawn(clients + 1))
        return cls(defense, tuple(Guard(defense, one) for one in each), own)

    @property
    def least(self) -> int:
        """Clients without whom a round has no release: the sum over one is that client's update."""
        return 2 if self.defense is not None and self.defense.summed else 1

    def require_sound(self, number: int, losses: Sequence[float]) -> None:
        """`InputError` where a defence has made of the model one that says nothing, by the losses of a round."""
        if self.defense is not None and not all(map(math.isfinite, losses)):
            raise InputError(
                f"in round {number + 1} the model's loss is no number: the noise of {self.defense.card.name} has "
                "drowned it. Use a smaller clip, less noise (a larger --eps), or fewer rounds."
            )

    def released(self, mean: State, clients: int) -> State:
        """What the server adds to its state in place of the mean of so many clients' updates."""
        if self.defense is None or self.own is None:
            return mean
        return like(self.defense.released(joined(mean.values()), clients, self.own), mean)


def joined(parts: Iterable[Tensor]) -> Tensor:
    """All numbers of several tensors [P], in their order."""
    return torch.cat([item.detach().flatten() for item in parts])


def like(vector: Tensor, state: State) -> State:
    """The numbers [P] as a state of this shape."""
    parts = torch.split(vector, [item.numel() for item in state.values()])
    return {name: part.view_as(item) for (name, item), part in zip(state.items(), parts, strict=True)}


def clear(parameters: Sequence[Tensor]) -> None:
    for item in parameters:
        item.grad = None


def _gradient(item: Tensor) -> Tensor:
    return torch.zeros_like(item) if item.grad is None else item.grad

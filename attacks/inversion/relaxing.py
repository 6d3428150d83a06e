"""Gradient steps over mixtures of candidate rows through the public layers, from many records at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privbench.attack import Index
from privbench.attacks.inversion.behind_layers import Goal
from privbench.attacks.inversion.bottoms import Bottom
from privbench.attacks.inversion.lookup import Floats, Sent
from privbench.attacks.inversion.networks import follow, tensor_of
from privbench.threads import one_torch_thread

_MOST = 1 << 23
"""Numbers of candidate rows that are mixed at once."""


@dataclass(frozen=True)
class Relaxing:
    """One reading of all that was sent. rounds, stiffness, steps, rate, temps: see `Relaxation`."""

    sent: Sent
    bottom: Bottom
    rounds: int
    stiffness: float
    steps: int
    rate: float
    temps: tuple[float, float]

    def read(self, now: Floats, before: Goal, start: Index, likely: Index, scores: Floats) -> tuple[Index, Goal]:
        """See `Reader.read`; what was read so far starts level with the likeliest."""
        tokens, goal = start, before
        z: Floats = np.where(likely == start[:, None], scores[:, :1], scores)
        for temps in np.array_split(np.geomspace(*self.temps, self.steps), self.rounds):
            made = self.bottom.made(self.sent.tokens(tokens))[self.sent.there]
            goal = before.plus(now, made, tokens, self.stiffness)
            z = self._stepped(z, likely, goal, temps.tolist())
            tokens = likely[np.arange(len(z)), z.argmax(axis=1)]
        return tokens, goal

    def _stepped(self, z: Floats, likely: Index, goal: Goal, temps: list[float]) -> Floats:
        """Z [n, C] after a step at each temperature, a block of records at a time: they do not see each other."""
        found, numbered, gram = np.empty_like(z), self.sent.numbered, tensor_of(goal.gram)
        count = max(_MOST // (numbered.shape[1] * z.shape[1] * len(gram)), 1)
        with one_torch_thread():
            for block in np.split(numbered, range(count, len(numbered), count)):
                rows = block[block >= 0]
                descent = _Descent(
                    bottom=self.bottom,
                    there=torch.from_numpy(block >= 0),
                    candidates=self.bottom.table[torch.from_numpy(likely[rows])],
                    gram=gram,
                    toward=tensor_of(goal.toward[rows]),
                )
                found[rows] = descent.followed(tensor_of(z[rows]), self.rate, temps).numpy()
        return found


@dataclass(frozen=True)
class _Descent:
    """Of a block of records, there [B, L]: where something was sent, u places in all; candidates [u, C, d]: rows;
    gram, toward [u, d]: of `Goal`.
    """

    bottom: Bottom
    there: Tensor
    candidates: Tensor
    gram: Tensor
    toward: Tensor

    def followed(self, start: Tensor, rate: float, temps: list[float]) -> Tensor:
        """Z [u, C] after a step of Adam at each temperature."""
        z = start.clone().requires_grad_()
        step = torch.optim.Adam([z], lr=rate)
        for temp in temps:
            follow(step, self._far(torch.softmax(z / temp, dim=1)))
        return z.detach()

    def _far(self, shares: Tensor) -> Tensor:
        """The goal of what the layers make of candidates mixed by shares [u, C], summed over places."""
        mixed = torch.einsum("uc,ucd->ud", shares, self.candidates)
        rows = mixed.new_zeros((*self.there.shape, mixed.shape[1])).index_put((self.there,), mixed)
        made = self.bottom.over(rows)[self.there]
        return ((made @ self.gram - 2 * self.toward) * made).sum()

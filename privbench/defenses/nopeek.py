"""NoPeek: clients learn to send what is less alike to what they put in, by a penalty in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.defenses.base import CutDefense, DefenseCard, Numbers
from privbench.mechanism import Mechanism
from privbench.threat import Channel

_MOST = 256
"""Tokens of a batch among which distances are taken: their number is its square."""
_LEAST = 1e-12


@dataclass(frozen=True)
class NoPeek(Numbers, CutDefense):
    """weight: of the distance correlation between tokens' public rows and their activations, beside the loss.

    A client adds it to its own gradient; what it sends is not changed otherwise, and nothing is promised.
    """

    weight: float = 1.0

    card = DefenseCard(
        "nopeek",
        "clients train against the distance correlation between tokens' rows and what they send",
        "Vepakomma, Singh, Zhang, Gupta, Raskar 2020; distance correlation, Szekely, Rizzo, Bakirov 2007",
        Channel.ACTIVATIONS,
        "heuristic",
    )

    def penalty(
        self, ids: Tensor, activations: Tensor, there: Tensor, table: Tensor, generator: torch.Generator
    ) -> Tensor:
        tokens, sent = ids[there], activations[there]
        chosen = torch.randperm(len(tokens), generator=generator)[:_MOST]
        return self.weight * distance_correlation(table[tokens[chosen]], sent[chosen])

    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        return Mechanism(Channel.ACTIVATIONS, party, "none")


def distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """Of n points x [n, p] and z [n, q], in [0, 1]: 1 where distances of the one are those of the other times a factor;
    0, of all points there are, exactly where they are independent. 0 as well where all points of one are the same.
    """
    a, b = _centred(x), _centred(z)
    # Clamped before each root: at 0 a root has no gradient.
    shared, spread = (a * b).mean(), (a.square().mean() * b.square().mean()).clamp_min(_LEAST**2).sqrt()
    return (shared / spread).clamp_min(_LEAST).sqrt()


def _centred(points: Tensor) -> Tensor:
    """Distances [n, n], less the means of their rows and columns."""
    distance = torch.cdist(points.float(), points.float())
    return distance - distance.mean(dim=0) - distance.mean(dim=1, keepdim=True) + distance.mean()

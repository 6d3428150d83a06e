"""Nearest token: look every cut activation up in the public embedding table.

A client whose half starts as the identity sends embedding rows; training moves them, and rarely further than half the
way to the next row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, Reconstruction, View
from privbench.attacks.inversion.lookup import Mean, Sent, TokenInversion, table_of, weight
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class NearestToken(TokenInversion):
    """Euclidean distance, as if nothing were changed on the way."""

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/nearest-token",
        summary="nearest row of the public embedding table for every cut activation",
        paper="folklore; the first step of embedding inversion (Song and Raghunathan 2020)",
        deviates="no learning: Euclidean distance to the table of the public base model, releases averaged by weight",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="one product of activations and table per release: seconds for thousands of tokens",
    )

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and the mean of all so far, each by its weight."""
        sent, table = Sent.of(view), table_of(view)
        single, accumulated = [], []
        mean, said = Mean.none(int(sent.there.sum()), table.shape[1]), None
        for now in sent:
            read = self.nearest(now, table)
            mean = mean.plus(now, weight(now, table[read if said is None else said]))
            said = read if said is None else self.nearest(mean.rows, table)
            single.append(sent.tokens(read))
            accumulated.append(sent.tokens(said))
        return Reconstruction(np.stack(single), np.stack(accumulated))

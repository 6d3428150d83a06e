"""UnSplit: inputs and a clone of the encoder are searched together, so that the clone sends what the site sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard
from privbench.estimates import Estimation, Floats, Known
from privbench.threat import Channel


@dataclass(frozen=True)
class UnSplit(Estimation):
    """Alternates steps on the inputs of the asked records and on a clone's weights (`cloning.searched`). It knows the
    encoder's kind and each feature's mean and spread, and not one pair. Costly, so that only `most` are asked.
    """

    rounds: int = 40
    most: ClassVar[int | None] = 64

    card = AttackCard(
        name="inversion/unsplit",
        summary="inputs and a clone of the encoder, searched together",
        paper="Erdogan, Kupcu, Cicek 2022",
        deviates="a recurrent clone for series, a perceptron for a single step; total variation over hours",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(),
        cost="a tenth of a second a record",
    )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        from privbench.attacks.inversion.cloning import searched

        return searched(known, self.rounds, rng)

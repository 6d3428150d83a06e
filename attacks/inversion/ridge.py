"""Ridge regression from what was sent back to what went in: linear, in closed form, a floor for all other inverters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard
from privbench.estimates import Estimation, Floats, Known, ridge
from privbench.threat import Channel


@dataclass(frozen=True)
class Ridge(Estimation):
    """One linear map from the activation to every hour of every feature, fitted to the adversary's own records."""

    card = AttackCard(
        name="inversion/ridge",
        summary="a linear regression of the inputs on the cut activation",
        paper="Hoerl, Kennard 1970",
        deviates="nothing; the penalty is chosen by leave-one-out error on the known records",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(),
        cost="O(A d^2)",
    )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return ridge(known.sent, known.inputs, known.observed, known.asked)

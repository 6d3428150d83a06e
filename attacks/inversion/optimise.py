"""Optimisation with a prior: who holds the encoder looks for the likeliest inputs behind each activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, View
from privbench.estimates import Estimation, Floats, Known, under
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class Optimise(Estimation):
    """Maximises the posterior of each record's inputs: a Gaussian prior from the known records in their leading
    principal components, a Gaussian likelihood of the activation under the encoder, started at ridge regression
    (`searching.likeliest`). Costly by the record, so that only `most` of them are asked.
    """

    steps: int = 60
    most: ClassVar[int | None] = 256

    card = AttackCard(
        name="inversion/optimise",
        summary="the likeliest inputs under a Gaussian prior, found by gradient steps through the encoder",
        paper="He, Zhang, Lee 2019 (regularised maximum likelihood)",
        deviates="a Gaussian prior in place of total variation; started at ridge regression",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(Knowledge.MODEL,),
        cost="a tenth of a second a record",
    )

    def lacks(self, view: View) -> str | None:
        return (
            None if under(view, f"model/{view.secret}") else f"needs 'model/{view.secret}/...', which was not recorded"
        )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        from privbench.attacks.inversion.searching import likeliest

        return likeliest(known, self.steps)

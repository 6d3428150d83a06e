"""Learned decoders: networks that turn a cut activation back into the hours that it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard
from privbench.estimates import Estimation, Floats, Known
from privbench.threat import Channel


@dataclass(frozen=True)
class Mlp(Estimation):
    """Two hidden layers, all hours at once, trained on the adversary's own records (`networks.decode`)."""

    width: int = 128
    epochs: int = 60
    shape: ClassVar[str] = "mlp"

    card = AttackCard(
        name="inversion/mlp",
        summary="a multilayer perceptron from the cut activation to every hour of every feature",
        paper="He, Zhang, Lee 2019 (query-free inverse network)",
        deviates="trained on pairs that the server holds by right; no queries",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(),
        cost="seconds: 60 passes over the known records",
    )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        from privbench.attacks.inversion.networks import decode

        return decode(known, self.shape, self.width, self.epochs, rng)


@dataclass(frozen=True)
class Sequence(Mlp):
    """A recurrent decoder that is told the activation in every hour, and unrolls the stay from it."""

    width: int = 96
    epochs: int = 25
    shape: ClassVar[str] = "sequence"

    card = AttackCard(
        name="inversion/sequence",
        summary="a GRU that unrolls the hours from the cut activation",
        paper="He, Zhang, Lee 2019 (query-free inverse network), with a recurrent decoder for series",
        deviates="trained on pairs that the server holds by right; no queries",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(),
        cost="ten seconds or so: 25 passes over the known records",
    )

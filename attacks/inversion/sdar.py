"""Passive inference by a simulated encoder: nothing is sent, no pair is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard
from privbench.estimates import Estimation, Floats, Known
from privbench.threat import Channel


@dataclass(frozen=True)
class SimulatorDecoder(Estimation):
    """A simulator makes activations of codes of the server's own patients; a decoder reads codes from activations. One
    judge holds the simulator to what the site really sends, the other the decoder to codes of real patients, both
    beside the labels; and what the simulator sends, the decoder must read (`simulating.read`).

    rounds: steps of both, after some in which the decoder learns what labels lead one to expect; the activations are
    those that are to be read.
    """

    rounds: int = 600

    card = AttackCard(
        name="inversion/sdar",
        summary="a simulated encoder and its decoder, held to real activations and inputs by judges of both",
        paper="Zhu, Luo, Lu, Ooi, Xiao 2024 (SDAR)",
        deviates="works on the activations of the trained system, all at once; principal components of the inputs in "
        "place of the inputs; true labels of the asked records stand in for the server's own layers, which read them "
        "from the cut",
        channels=(Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.AUXILIARY),
        knowledge=(),
        cost="ten seconds or so",
    )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        from privbench.attacks.inversion.simulating import read

        return read(known, self.rounds, rng)

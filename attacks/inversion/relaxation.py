"""Relaxation: mix candidate rows, run the mixtures through the public layers, and follow the gradient to a token each.

All places of a record move at once, so that a place is read by what it does to later ones, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from privbench.attack import AttackCard
from privbench.attacks.inversion.behind_layers import BehindLayers, Reader
from privbench.attacks.inversion.lookup import Sent
from privbench.threat import Channel, Knowledge

if TYPE_CHECKING:
    from privbench.attacks.inversion.bottoms import Bottom


@dataclass(frozen=True)
class Relaxation(BehindLayers):
    """Rows softmax(Z / temp) E enter the layers, and each place is read as the candidate of the largest Z.

    steps: of Adam on Z, which starts at the candidates' scores, shared out to the rounds; rate: of a step, in units of
    log-likelihood. temps: the first and the last temperature, falling by the same factor at each step; a first one
    above 1 leaves a gradient where the scores are sure of the wrong token.
    """

    tries: int = 32
    steps: int = 12
    rate: float = 4.0
    temps: tuple[float, float] = (4.0, 2.0)

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/relaxation",
        summary="tokens that gradient steps over softmax(Z / temp) E through the public layers end at",
        paper="white-box inversion, Song and Raghunathan 2020",
        deviates="E holds a perceptron's likeliest tokens of each place, at whose scores Z starts, in place of the "
        "whole table; behind an affine map that is fitted to what was read, with errors of the covariance left behind "
        "it",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="the public layers there and back twelve times on all that was sent, twice per release",
    )

    def reader(self, sent: Sent, bottom: Bottom) -> Reader:
        from privbench.attacks.inversion.relaxing import Relaxing

        return Relaxing(sent, bottom, self.rounds, self.stiffness, self.steps, self.rate, self.temps)

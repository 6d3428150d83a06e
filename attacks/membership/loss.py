"""Loss threshold: a model is surer of what it was trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.losses import record_losses, scaled_logits, tasks_of
from privbench.membership import MembershipAttack
from privbench.threat import Channel

NO_ANSWERS = "needs the outputs of a trained model and the true answers, which were not recorded"


@dataclass(frozen=True)
class Loss(MembershipAttack):
    """Score: the loss, with its sign changed, in a scale that 32 bits do not round confident records together in."""

    card = AttackCard(
        name="membership/loss",
        summary="how small the trained model's loss of the record is",
        paper="Yeom, Giacomelli, Fredrikson, Jha 2018",
        deviates="gives the score, no threshold: the curve is over all of them",
        channels=(Channel.OUTPUTS,),
        knowledge=(),
        cost="O(N)",
    )

    def lacks(self, view: View) -> str | None:
        return None if tasks_of(view.arrays) else NO_ANSWERS

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return scaled_logits(record_losses(view.arrays))[view.candidates]

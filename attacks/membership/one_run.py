"""One-run audit: canaries that fair coins put into a single training, guessed without any reference model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.loss import NO_ANSWERS
from privbench.losses import record_losses, tasks_of
from privbench.membership import MembershipAttack
from privbench.threat import Channel


@dataclass(frozen=True)
class OneRun(MembershipAttack):
    """Score: how much the loss fell between the first checkpoint and the trained model; its hardness cancels.

    The scorer turns a fixed number of the highest and lowest scores into guesses, and these into a lower limit of eps.
    """

    card = AttackCard(
        name="membership/one-run",
        summary="how much training lowered the loss of a canary that a fair coin put in or left out",
        paper="Steinke, Nasr, Jagielski 2023",
        deviates="every candidate is a canary, and none is made to stand out",
        channels=(Channel.OUTPUTS, Channel.CHECKPOINTS),
        knowledge=(),
        cost="O(N)",
    )

    def lacks(self, view: View) -> str | None:
        if not tasks_of(view.arrays):
            return NO_ANSWERS
        recorded = all(f"checkpoints/outputs/{task}" in view.arrays for task in tasks_of(view.arrays))
        return None if recorded else "needs the outputs of an early checkpoint, which were not recorded"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        fallen: Scores = record_losses(view.arrays, "checkpoints/outputs")[0] - record_losses(view.arrays)
        return fallen[view.candidates]

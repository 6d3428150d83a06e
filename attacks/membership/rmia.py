"""RMIA: does training on the record explain its probability better than it explains that of other people's records?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.lira import reference_losses, references_for
from privbench.losses import population, record_losses
from privbench.membership import MembershipAttack
from privbench.stats.membership import Population, rmia_offline, tune_offset
from privbench.threat import Channel

_OFFSET = 0.3
"""Where one reference cannot be attacked with the others (the paper's value for most of its data)."""


@dataclass(frozen=True)
class Rmia(MembershipAttack):
    """Offline: share of population records whose probability ratio the record's own beats.

    The offset is tuned on the first reference as a pseudo-target, attacked with the others, without the target.
    """

    card = AttackCard(
        name="membership/rmia",
        summary="share of other people's records whose ratio of probabilities, target over references, it beats",
        paper="Zarifzadeh, Liu, Shokri 2024",
        deviates="exp(-training loss) stands for the true class's probability where there are several tasks",
        channels=(Channel.OUTPUTS,),
        knowledge=(),
        cost="a training per reference model; O((R + log Z) N)",
    )
    least_references: ClassVar[int] = 2

    def lacks(self, view: View) -> str | None:
        made = references_for(view)
        if isinstance(made, str):
            return made
        if not len(population(view.arrays)):
            return "needs records that no model was trained on (outputs/population), and none are marked"
        if made.member[:, view.candidates].all(axis=0).any():
            row = int(view.candidates[made.member[:, view.candidates].all(axis=0)][0])
            return f"needs a reference model that was not trained on the record; record {row} has none"
        return None

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        made = reference_losses(view)
        others, rows = population(view.arrays), view.candidates
        target, models = np.exp(-record_losses(view.arrays)), np.exp(-made.losses)
        asked, member = models[:, rows], made.member[:, rows]
        everybody = Population(target[others], models[:, others])
        offset = tune_offset(asked, member, everybody) if _tunable(member) else _OFFSET
        return rmia_offline(target[rows], asked, member, everybody, offset=offset)


def _tunable(member: npt.NDArray[np.bool_]) -> bool:
    """Whether the first reference has both members and others that some further reference never saw; member [R, m]."""
    first, rest = member[0], member[1:]
    return len(np.unique(first[~rest.all(axis=0)])) == 2 if len(rest) else False

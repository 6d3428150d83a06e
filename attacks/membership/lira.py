"""LiRA: is the loss more like that of models that were trained on the record, or of others?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.loss import NO_ANSWERS
from privbench.losses import Floats, References, record_losses, references, scaled_logits, tasks_of
from privbench.membership import MembershipAttack
from privbench.stats.membership import lira_offline, lira_online
from privbench.threat import Channel

_LEAST = 2
"""References on a side of every record from which a variance can be told."""


@dataclass(frozen=True)
class Lira(MembershipAttack):
    """Online: log density of the scaled logit among the models that saw the record, less that among the others.

    One variance for all records under 32 references on a side.
    """

    card = AttackCard(
        name="membership/lira",
        summary="likelihood ratio of the loss under models that were and were not trained on the record",
        paper="Carlini, Chien, Nasr, Song, Terzis, Tramer 2022",
        deviates="exp(-training loss) stands for the true class's probability where there are several tasks",
        channels=(Channel.OUTPUTS,),
        knowledge=(),
        cost="a training per reference model; O(R N)",
    )
    sides: ClassVar[tuple[bool, ...]] = (True, False)
    least_references: ClassVar[int] = 2 * _LEAST

    def lacks(self, view: View) -> str | None:
        made = references_for(view)
        return made if isinstance(made, str) else _too_few(made, view, self.sides)

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return lira_online(*_scaled(view))


@dataclass(frozen=True)
class LiraOffline(Lira):
    """One-sided: how far the scaled logit lies above those of models that never saw the record."""

    card = AttackCard(
        name="membership/lira-offline",
        summary="how far the loss lies below that of models that never saw the record",
        paper="Carlini, Chien, Nasr, Song, Terzis, Tramer 2022",
        deviates="exp(-training loss) stands for the true class's probability where there are several tasks",
        channels=(Channel.OUTPUTS,),
        knowledge=(),
        cost="a training per reference model; O(R N)",
    )
    sides: ClassVar[tuple[bool, ...]] = (False,)

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return lira_offline(*_scaled(view))


def references_for(view: View) -> References | str:
    """What the reference models say of every record, or why nothing can be asked of them."""
    if not tasks_of(view.arrays):
        return NO_ANSWERS
    return references(view.arrays) or "needs reference models, and none were trained"


def reference_losses(view: View) -> References:
    """What the reference models say, of a view that has them."""
    made = references_for(view)
    if isinstance(made, str):
        raise ValueError(f"{made}; `lacks` says so before.")
    return made


def _scaled(view: View) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Scaled logits of the candidates under the target [m] and the references [R, m], and who was trained on whom."""
    made, rows = reference_losses(view), view.candidates
    return scaled_logits(record_losses(view.arrays)[rows]), scaled_logits(made.losses[:, rows]), made.member[:, rows]


def _too_few(made: References, view: View, sides: tuple[bool, ...]) -> str | None:
    for inside in sides:
        counts = (made.member[:, view.candidates] == inside).sum(axis=0)
        if counts.min() < _LEAST:
            row = int(view.candidates[int(counts.argmin())])
            where = "trained on it" if inside else "not trained on it"
            return f"needs {_LEAST} reference models {where} for every record; record {row} has {int(counts.min())}"
    return None

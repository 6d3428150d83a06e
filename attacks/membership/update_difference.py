"""Update difference: an update gets shorter when the gradient of a record that it was trained on is taken out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.update_cosine import Against, fitting, lacks_updates
from privbench.membership import MembershipAttack
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class UpdateDifference(MembershipAttack):
    """Score: |U|^2 - |U - g|^2 = 2 <U, g> - |g|^2 with U as the update goes down the gradient g of the record at the
    state that the round started from; of all clients the largest, and the mean over rounds.

    Adam gives an update no scale of its own: U is brought to the root mean square of the candidates' |g|.
    """

    card = AttackCard(
        name="membership/update-difference",
        summary="how much shorter an update gets without the record's own gradient, over rounds",
        paper="Li, Li, Ribeiro 2023",
        deviates="several local steps of Adam, at the candidates' scale, in place of a gradient; of several clients "
        "the largest, and no threshold",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE, Knowledge.CANDIDATES),
        cost="a gradient for each record and round; O(R C N) of what is recorded",
    )

    def lacks(self, view: View) -> str | None:
        return lacks_updates(view)

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return fitting(view, _shortened)


def _shortened(item: Against) -> Scores:
    """An update that is 0 gets longer by every gradient."""
    scale = np.sqrt(item.squares.mean() / item.size) if item.size else 0.0
    shortened: Scores = 2 * scale * item.along - item.squares
    return shortened

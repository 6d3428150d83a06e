"""Learned token: an inverter that is trained on public text through the public base, and never on the victim's model.

Behind trunk layers an activation is no row of the table any more, but still a function of its token and those before
it. Anybody can learn that function's inverse on texts of his own: the base is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, Reconstruction, View
from privbench.attacks.inversion.lookup import Mean, Sent, TokenInversion, lacks_texts, table_of, weight
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class LearnedToken(TokenInversion):
    """A linear inverter, or a recurrent one where that is not enough (`inverters.inverter`)."""

    least_texts: ClassVar[int] = 5
    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/learned-token",
        summary="an inverter, linear or a GRU, trained on public text through the public base alone",
        paper="Song and Raghunathan 2020 (learned embedding inversion)",
        deviates="reads every position as a row of the public table; each release in its own standard units",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="half a minute of training where a linear inverter is not enough; two products with the table per release",
    )

    def lacks(self, view: View) -> str | None:
        """Beside the victim's activations and the table public texts [A, L] and their activations [A, L, d]."""
        return super().lacks(view) or lacks_texts(view, self.least_texts)

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and the mean of what the inverter makes of all so far, each by its weight: by how
        near its activations lie to public ones of the tokens that they are read as.
        """
        from privbench.attacks.inversion.inverters import Pairs, inverter, standard

        sent, table = Sent.of(view), table_of(view)
        pairs = Pairs.of_view(view, table)
        found, middles = inverter(pairs, rng), pairs.middles
        single, accumulated = [], []
        mean, said = Mean.none(int(sent.there.sum()), table.shape[1]), None
        for now in sent:
            units = standard(now)
            rows = found.rows(sent.padded(units))[sent.there]
            read = self.nearest(rows, table, found.squares)
            mean = mean.plus(rows, weight(units, middles[read if said is None else said]))
            said = read if said is None else self.nearest(mean.rows, table, found.squares)
            single.append(sent.tokens(read))
            accumulated.append(sent.tokens(said))
        return Reconstruction(np.stack(single), np.stack(accumulated))

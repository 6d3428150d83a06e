"""Update match: gradient inversion by filled-in questionnaires whose gradient has the signs of a client's update.

What a client's Adam made of a gradient is divided by sizes that the server does not see, but the gradient's signs can
be told from two updates in turn. The server knows the state that they were computed at, and what may be answered: so it
fills questionnaires in, computes their gradients, and changes one answer after another as long as more signs agree. Of
one respondent the right questionnaire agrees in nearly all signs. Of several the sum of as many has to, and which of
them is whose is not told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Index, Reconstruction, View
from privbench.attacks.inversion.forms import UpdateInversion
from privbench.attacks.inversion.tries import Tries, lacks_tries
from privbench.threat import Channel, Knowledge
from privbench.updates import shown_in


@dataclass(frozen=True)
class UpdateMatch(UpdateInversion):
    """The questionnaires of the try that agrees best, one for each respondent of a round. Where there are more than a
    try has, the best single one for all.
    """

    card = AttackCard(
        name="inversion/update-match",
        summary="questionnaires filled in by the server, answer by answer, until their gradient has the update's signs",
        paper="Zhu, Liu, Han 2019 (gradient matching); Geiping, Bauermeister, Droege, Moeller 2020 (direction alone)",
        deviates="signs behind Adam instead of gradients; options of a form are searched, no input is optimised; "
        "rounds of at most four respondents",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE,),
        cost="`forms` gradients for each round, computed in the run; here only the best is taken",
    )

    def lacks(self, view: View) -> str | None:
        return super().lacks(view) or lacks_tries(view)

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """One release [1, m, Q A]."""
        shown, tries = np.asarray(view.array(f"updates/{view.secret}/shown")), Tries.of(view)
        read: list[Index] = [tries.tokens(tries.best(r, shown[r])) for r in np.unique(shown_in(shown))]
        found = np.concatenate(read)[view.candidates][None]
        return Reconstruction(found, found)

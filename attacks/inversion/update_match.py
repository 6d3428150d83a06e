"""Update match: gradient inversion by filled-in questionnaires whose gradient has the signs of a client's update.

What a client's Adam made of a gradient is divided by sizes that the server does not see, but the gradient's signs can
be told from two updates in turn. The server knows the state that they were computed at, and what may be answered: so it
fills questionnaires in, computes their gradients, and changes one answer after another as long as more signs agree. Of
one respondent the right questionnaire agrees in nearly all signs. Of several the sum of as many has to, and which of
them is whose is not told.
"""

from __future__ import annotations

from dataclasses import dataclass

from privbench.attack import AttackCard, Index, View
from privbench.attacks.inversion.tries import Tries, TryInversion
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class UpdateMatch(TryInversion):
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

    def chosen(self, tries: Tries, view: View, number: int, shown: int) -> Index:
        return tries.best(number, shown)

"""Answer length: two answers of different numbers of tokens are told apart by how many there are, without any gradient.

Lengths are not secret from a server that computes over these tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import Attack, AttackCard, Guess, Index, View
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class AnswerLength(Attack):
    """1 or -1 where the number of tokens is that of one answer alone, 0 elsewhere: of equally long answers nothing is
    read. It is the same in every release.
    """

    card: ClassVar[AttackCard] = AttackCard(
        name="label/answer-length",
        summary="how many tokens the answer has",
        paper="ours: traffic analysis of the layout that a server needs",
        deviates="nothing",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="none",
    )

    def lacks(self, view: View) -> str | None:
        name = f"activations/{view.threat.holder}/mask"
        return lacks_answers(view) or (None if name in view.arrays else f"needs '{name}', which was not recorded")

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        there = np.asarray(view.array(f"activations/{view.threat.holder}/mask"))[view.candidates]
        lengths, (zero, one) = there.sum(axis=1), (answers_of(view) >= 0).sum(axis=1)
        scores = 1.0 * (lengths == one) - 1.0 * (lengths == zero)
        every = np.tile(scores, (len(view.array(f"activations/{view.threat.holder}")), 1))
        return Guess(every, every)


def answers_of(view: View) -> Index:
    """Tokens of the answers that coins 0 and 1 stand for, -1 behind the shorter one: [2, A]."""
    return np.asarray(view.array(f"public/labels/{view.secret}"))


def lacks_answers(view: View) -> str | None:
    """Why the two answers of the coin are not known, or None."""
    name = f"public/labels/{view.secret}"
    if name not in view.arrays:
        return f"needs '{name}', the tokens of the answers that the coin chooses between"
    return None if len(view.arrays[name]) == 2 else f"'{name}' has {len(view.arrays[name])} answers, a coin has two"

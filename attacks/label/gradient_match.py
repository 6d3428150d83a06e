"""Gradient matching: which of two answers would have caused the gradient of its outputs that a server received?

In the U-shape the client computes the loss. What it sends up is linear in its label, the server knows all else: its own
outputs, and the public base's norm and LM head. A head that is trained drifts away from the base's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import Attack, AttackCard, Guess, Index, Scores, View
from privbench.attacks.label.answer_length import answers_of, lacks_answers
from privbench.attacks.label.output_gradients import Answered, Array, Readout, cosines, missing
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class GradientMatch(Attack):
    """Of each token of the answer max(0, cos)^2 with the gradient that answer 1 would have caused, less the same of
    answer 0: what least squares with a free positive factor explain of it by one and by the other, as shares.
    Summed over tokens, then over releases. Tokens that both answers share tell nothing and are left out.
    """

    noise: float = 0.0
    card: ClassVar[AttackCard] = AttackCard(
        name="label/gradient-match",
        summary="the answer whose gradient, through the public head, lies nearest to the one that came up",
        paper="Chen et al. 2024 (BiSR, its backward half); Zhu, Liu, Han 2019 (gradient matching)",
        deviates="chooses between the two answers of the coin in closed form; the scale is free, so no batch size",
        channels=(Channel.GRADIENTS, Channel.ACTIVATIONS),
        knowledge=(Knowledge.BASE,),
        cost="one product of outputs and LM head per release",
    )

    def lacks(self, view: View) -> str | None:
        return missing(view) or lacks_answers(view)

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        readout, answered, answers = self._readout(view, rng), Answered.of(view), answers_of(view)
        record, place = np.nonzero(answered.there)
        tokens = answers.T[place]
        telling = tokens[:, 0] != tokens[:, 1]
        single = np.zeros((len(answered.gradients), len(view.candidates)))
        for release, (outputs, gradients) in enumerate(answered):
            scores = _nearer(gradients[telling], outputs[telling], tokens[telling], readout)
            np.add.at(single[release], record[telling], scores)
        return Guess(single, np.cumsum(single, axis=0))

    def _readout(self, view: View, rng: np.random.Generator) -> Readout:
        """The base's, as this adversary knows it."""
        readout = Readout.of(view)
        if not self.noise:
            return readout
        spread = self.noise * np.sqrt(np.square(readout.head).mean())
        return Readout(readout.norm, readout.head + spread * rng.standard_normal(readout.head.shape))


@dataclass(frozen=True)
class GradientMatchPerturbed(GradientMatch):
    """The same by who knows the head only roughly: noise of this many root mean squares of its entries is on each."""

    noise: float = 1.0

    card: ClassVar[AttackCard] = AttackCard(
        name="label/gradient-match-perturbed",
        summary="gradient matching by who knows the public head with as much noise on it as there is signal",
        paper=GradientMatch.card.paper,
        deviates="how a head's drift in training matters; the noise is drawn anew in every audit, not trained",
        channels=GradientMatch.card.channels,
        knowledge=GradientMatch.card.knowledge,
        cost=GradientMatch.card.cost,
    )


def _nearer(gradients: Array, outputs: Array, tokens: Index, readout: Readout) -> Scores:
    """How much nearer gradients [n, d] are to those of tokens [n, 1] than of tokens [n, 0]: [n], from -1 to 1."""
    near = np.maximum(cosines(gradients, readout.gradients(outputs, tokens)), 0.0) ** 2
    # An answer that has ended here causes no gradient.
    near[tokens < 0] = 0.0
    return np.asarray(near[:, 1] - near[:, 0])

"""BiSR: what goes up is read forwards from the activations and, where gradients of outputs come up too, backwards.

In the U-shape the loss is on the answer to the outcome's question alone, and so is the gradient: nothing of the other
answers is in it. What it says of that one no noise on the activations hides, for the server knows its own outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, Index, Reconstruction, View
from privbench.attacks.inversion.learned_token import LearnedToken
from privbench.attacks.inversion.lookup import Sent
from privbench.attacks.label.output_gradients import Answered, Array, Readout, missing
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class BiSR(LearnedToken):
    """The learned inverter, but at the places of the outcome's answer the token whose gradient, through the public norm
    and head, has the largest cosine with the one that came up; cosines of several releases are added. at_once:
    gradients that are compared with the whole head at once; changes memory only.
    """

    at_once: int = 64
    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/bisr",
        summary="the learned inverter, and gradient matching at the places of the outcome's answer",
        paper="Chen et al. 2024 (BiSR), arXiv 2409.00960",
        deviates="the loss is on the answer alone, so that the backward half speaks about its tokens and no others; "
        "each is chosen in closed form, without the forward half; no dummy inputs are optimised, no experts for noise",
        channels=(Channel.ACTIVATIONS, Channel.GRADIENTS),
        knowledge=(Knowledge.BASE,),
        cost="that of learned-token, and three products of outputs with the LM head per release",
    )

    def lacks(self, view: View) -> str | None:
        if (reason := super().lacks(view) or missing(view)) is not None:
            return reason
        sent, answered = Sent.of(view), Answered.of(view)
        short = np.flatnonzero(sent.there.sum(axis=1) < answered.there.sum(axis=1))
        return f"record {int(view.candidates[short[0]])} has a longer answer than it sent" if len(short) else None

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Forwards, then what goes backwards in its place."""
        forward, answered, readout = super().run(view, rng), Answered.of(view), Readout.of(view)
        # An answer is what a record ends with.
        there, said = Sent.of(view).there, answered.there.sum(axis=1, keepdims=True)
        places = there & (there[:, ::-1].cumsum(axis=1)[:, ::-1] <= said)
        near = np.zeros((int(said.sum()), len(readout.head)))
        for t, (outputs, gradients) in enumerate(answered):
            now = self._near(gradients, outputs, readout)
            near += now
            forward.single[t][places] = _token(now)
            forward.accumulated[t][places] = _token(near)
        return forward

    def _near(self, gradients: Array, outputs: Array, readout: Readout) -> Array:
        """Cosines with the gradient of every token, [n, V]."""
        starts = range(0, len(outputs), self.at_once)
        parts = [slice(start, start + self.at_once) for start in starts]
        return np.concatenate([readout.nearness(gradients[part], outputs[part]) for part in parts])


def _token(near: Array) -> Index:
    return np.asarray(near.argmax(axis=1), np.int64)

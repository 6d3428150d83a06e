"""Feature-space hijacking: a malicious server trains a site's encoder, not for the task, but to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privbench.attack import AttackCard
from privbench.estimates import ActiveEstimation, Floats, Known
from privbench.threat import Behaviour, Channel

if TYPE_CHECKING:
    from privbench.target import ActiveAdversary


@dataclass(frozen=True)
class FeatureSpaceHijacking(ActiveEstimation):
    """A judge learns to tell codes of the server's own patients from what the site sends, beside the labels of both;
    the site gets the gradient that makes it send such codes, which the server can read (`hijacking.Hijacker`). The
    other sites are served honestly.

    site: the one that is hijacked; None for the first of those whose inputs the server knows.
    """

    site: str | None = None

    card = AttackCard(
        name="inversion/fsha",
        summary="a server that sends gradients of its own, so that the site learns codes which it can read",
        paper="Pasquini, Ateniese, Bernaschi 2021",
        deviates="codes are principal components, which any encoder can learn, in place of an autoencoder's; the judge "
        "sees the labels, as the server does, for without them the codes may be learned mirrored; means and spreads of "
        "the codes are set to those of the server's own patients",
        channels=(Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.LABELS, Channel.AUXILIARY),
        knowledge=(),
        cost="a training of its own",
        behaviour=Behaviour.MALICIOUS,
    )

    def adversary(self, rng: np.random.Generator) -> ActiveAdversary:
        from privbench.attacks.inversion.hijacking import Hijacker

        return Hijacker(self.site, rng)

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        from privbench.attacks.inversion.hijacking import read

        return read(known)

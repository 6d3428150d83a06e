"""How much of the inputs behind a linear, noised cut can be estimated: as a share of their spread, R2.

Inputs are in standard units, so that R2, averaged over entries, is one minus the mean squared error per entry. See
`privbench.bounds.inversion` for the theorems.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from privbench.bounds.base import BoundCard, BoundValue, Cut, InputBound, Unsupported
from privbench.bounds.inversion import UNBIASED, channel_information, entropy_floor, fisher_floor


class Fisher(InputBound):
    """What the best *unbiased* estimator explains: it informs about a cut, and real attackers may well read more."""

    card: ClassVar[BoundCard] = BoundCard(
        name="fisher",
        summary="what an unbiased estimator can explain of inputs behind a noised linear cut",
        paper="Hannun et al. 2021; Maeng et al. 2023",
        releases=("all",),
        about="mechanism",
        secret="input",
    )

    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        jacobian = np.zeros((1, 1, cut.entries))
        jacobian[0, 0, 0] = math.sqrt(cut.trace)  # all that is asked of it is the trace of A^T A
        floor = fisher_floor(jacobian, cut.eta, cut.releases)
        if isinstance(floor, Unsupported):
            return floor
        return BoundValue("fisher", "r2", max(0.0, 1 - floor.value), floor.signal, cut.to_json(), (UNBIASED,))


class Channel(InputBound):
    """What any estimator explains, by the information that the noise lets through: a statement about every attack."""

    card: ClassVar[BoundCard] = BoundCard(
        name="channel",
        summary="what any estimator can explain of inputs of known entropy behind a noised linear cut",
        paper="Cover, Thomas 2006 (Gaussian channel; entropy of an error)",
        releases=("all",),
        about="mechanism",
        secret="input",
    )

    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        told = channel_information(np.diag(cut.sent), cut.eta, cut.releases)
        if isinstance(told, Unsupported):
            return told
        if not cut.normal:
            return Unsupported("prior", f"at most {told.value:.3g} nats pass, but the inputs' entropy is not known")
        entropy = cut.entries / 2 * math.log(2 * math.pi * math.e)
        explained = max(0.0, 1 - entropy_floor(told.value, entropy, cut.entries))
        assumptions = (*told.assumptions, "the inputs are independent standard normals")
        return BoundValue("channel", "r2", explained, math.inf, cut.to_json(), assumptions)

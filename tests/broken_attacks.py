"""Attacks that misbehave. Registered by tests only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privbench.attack import Guess, View
from privbench.attacks.label.spectral import Spectral


class Raises(Spectral):
    card = replace(Spectral.card, name="label/raises", confirmatory=())

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        raise ValueError("out of luck")

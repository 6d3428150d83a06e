"""Attacks and bounds that misbehave. Registered by tests only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privbench.attack import Guess, View
from privbench.attacks.label.spectral import Spectral
from privbench.bounds.base import BoundValue, Question, Unsupported
from privbench.bounds.gaussian_sum import OneRelease
from privbench.mechanism import Mechanism


class Raises(Spectral):
    card = replace(Spectral.card, name="label/raises", confirmatory=())

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        raise ValueError("out of luck")


class SpectralAgain(Spectral):
    """One more attack whose result counts."""

    card = replace(Spectral.card, name="label/again")


class WrongUnit(OneRelease):
    """Answers every question in AUC."""

    card = replace(OneRelease.card, name="wrong-unit")

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        return super().evaluate(mechanism, replace(question, unit="auc"))

"""Deliberately broken membership attacks: each is caught by the check it is named after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privbench.attack import NotApplicable, Scores, View
from privbench.attacks.membership.lira import Lira
from privbench.attacks.membership.loss import Loss
from privbench.losses import tasks_of
from privbench.membership import MembershipAttack
from privbench.recording import MEMBER, Secrets
from privbench.tensors import Stored


class Nameless(Loss):
    card = replace(Loss.card, paper="")


class Moody(Loss):
    """Draws from the machine's own entropy."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        found = super().run(view, rng)
        return found + 1e-3 * np.random.default_rng().normal(size=found.shape)


class Meddler(Loss):
    """Seeds the global generator, as scripts do."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        np.random.seed(0)  # noqa: NPY002
        return super().run(view, rng)


class Scribbler(Loss):
    """Centres its logits in place."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        for name in tasks_of(view.arrays):
            logits: Any = view.array(f"outputs/{name}")
            if logits.flags.writeable:
                logits -= logits.mean()
        return super().run(view, rng)


class Positional(Loss):
    """Takes the first rows for members: scripts store them first."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return super().run(view, rng) - 1e-2 * view.candidates


class Undemanding(Loss):
    """Needs nothing, says its card, and returns something whatever it is shown."""

    card = replace(Loss.card, channels=())

    def lacks(self, view: View) -> str | None:
        return None

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return super().run(view, rng) if tasks_of(view.arrays) else np.zeros(len(view.candidates))


class Boundless(Loss):
    """Is infinitely sure of one record."""

    def __call__(self, view: View, rng: np.random.Generator) -> Scores | NotApplicable:
        found = super().__call__(view, rng)
        return found if isinstance(found, NotApplicable) else np.where(found == found.max(), np.inf, found)


class Peeper(Loss):
    """Finds the scorer's secrets beside the recording."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        for array in view.arrays.values():
            if isinstance(array, Stored):
                coins = Secrets.load(array.path.parent / Secrets.file_name()).array(MEMBER)
                return coins[view.candidates].astype(np.float32)
        return super().run(view, rng)


class Mirrored(Loss):
    """A large loss for a member's."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return -super().run(view, rng)


class Eavesdropper(Loss):
    """Takes its sign from coins that its card does not ask for."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        told = super().run(replace(view, candidates=view.hints.index), rng)
        return super().run(view, rng) * np.sign(np.corrcoef(told, view.hints.secrets)[0, 1])


class Overwhelmed(Lira):
    """Gives up where there are many references."""

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        many = len(view.array("reference/member")) > 8
        return rng.normal(size=len(view.candidates)) if many else super().run(view, rng)


MEMBERSHIP: Mapping[str, type[MembershipAttack]] = {
    "card": Nameless,
    "deterministic": Moody,
    "global generators": Meddler,
    "view untouched": Scribbler,
    "permutation": Positional,
    "absent channel": Undemanding,
    "finite": Boundless,
    "constant": Peeper,
    "planted": Mirrored,
    "hints": Eavesdropper,
    "richer view": Overwhelmed,
}

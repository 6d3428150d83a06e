"""Deliberately broken inversions: each is caught by the check it is named after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from privbench.attack import Inversion, Reconstruction, View
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.conformance.inversions import token_stand


class Nameless(NearestToken):
    card = replace(NearestToken.card, paper="")


class Moody(NearestToken):
    calls = 0

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        type(self).calls += 1
        return Reconstruction(found.single + type(self).calls, found.accumulated)


class Meddler(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        np.random.rand()  # noqa: NPY002
        return super().run(view, rng)


class Scribbler(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        array = view.arrays[f"activations/{view.secret}"]
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[0, 0, 0, 0] += 1
        return super().run(view, rng)


class Positional(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        found.accumulated[:, 0] = 0
        return found


class Undemanding(NearestToken):
    card = replace(NearestToken.card, channels=(), knowledge=())

    def lacks(self, view: View) -> str | None:
        return None

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        empty = np.zeros((1, len(view.candidates), 1), np.int64)
        return Reconstruction(empty, empty)


class Careless(NearestToken):
    """Reads the first release only where it should read each."""

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        found.single[1:] = -1
        return found


class Clairvoyant(NearestToken):
    """Answers what it remembers from elsewhere when nothing is sent."""

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        tokens = np.stack([token_stand(7).truth.tokens] * len(view.array(f"activations/{view.secret}")))
        return Reconstruction(tokens, tokens)


class LovesNoise(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        spread = float(np.asarray(view.array(f"activations/{view.secret}")[0]).std())
        return found if spread > 2 else Reconstruction(found.single * 0, found.accumulated * 0)


class Forgetful(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        found.accumulated[1:] = -1
        return found


class Prophet(NearestToken):
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        found.accumulated[:] = found.accumulated[-1]
        return found


INVERSIONS: Mapping[str, type[Inversion]] = {
    "card": Nameless,
    "deterministic": Moody,
    "global generators": Meddler,
    "view untouched": Scribbler,
    "permutation": Positional,
    "absent channel": Undemanding,
    "identity": Careless,
    "constant": Clairvoyant,
    "more noise": LovesNoise,
    "richer view": Forgetful,
    "causal": Prophet,
}

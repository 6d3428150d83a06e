"""What the cut layer says of membership: gradients that shrink, embeddings that move, and where the members lie.

For a party that keeps the model after every pass, as the server of a split system can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.trajectory import one_sided, told_apart
from privbench.membership import MembershipAttack
from privbench.threat import Channel, Knowledge


def _recorded(view: View, kind: str) -> tuple[str, ...]:
    """Names of what is recorded of every site, one number or one vector per record."""
    found = [name for name in view.arrays if name.startswith(kind) and name.count("/") == kind.count("/")]
    return tuple(sorted(name for name in found if view.arrays[name].ndim <= 3))


@dataclass(frozen=True)
class GradientNorm(MembershipAttack):
    """Log odds of a logistic regression on the norms of the record's cut gradients at every site and checkpoint."""

    card = AttackCard(
        name="membership/gradient-norm",
        summary="a logistic regression on the norms of the record's cut gradients at every checkpoint",
        paper="Nasr, Shokri, Houmansadr 2019, at the cut alone",
        deviates="gradients of the cut layer in place of the parameters; fitted to a few known records",
        channels=(Channel.CHECKPOINTS,),
        knowledge=(Knowledge.HINTS,),
        cost="O(T N) per site",
    )

    def lacks(self, view: View) -> str | None:
        return one_sided(view) if _recorded(view, "checkpoints/gradients/") else "needs cut gradients at checkpoints"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        norms = [np.asarray(view.arrays[name]) for name in _recorded(view, "checkpoints/gradients/")]
        return told_apart(np.log(np.concatenate(norms) + 1e-12).T, view)


@dataclass(frozen=True)
class Drift(MembershipAttack):
    """Score: ||e_T - e_0||, the way of the record's embeddings in training, in units of its spread per site."""

    card = AttackCard(
        name="membership/drift",
        summary="how far the record's embeddings moved between the first and the last checkpoint",
        paper="PRISM-VFL's setting; our reading of its embedding test",
        deviates="nothing",
        channels=(Channel.CHECKPOINTS,),
        knowledge=(),
        cost="O(N d) per site",
    )

    def lacks(self, view: View) -> str | None:
        return None if _recorded(view, "checkpoints/activations/") else "needs cut activations at checkpoints"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        moved = [
            np.linalg.norm(np.asarray(array[-1])[view.candidates] - np.asarray(array[0])[view.candidates], axis=1)
            for array in (view.arrays[name] for name in _recorded(view, "checkpoints/activations/"))
        ]
        total: Scores = np.sum([values / max(float(values.std()), 1e-12) for values in moved], axis=0)
        return total


@dataclass(frozen=True)
class Embedding(MembershipAttack):
    """Score: distance to the mean embedding of known others less that of known members, in whitened space."""

    card = AttackCard(
        name="membership/embedding",
        summary="whether the record's embedding lies nearer to known members than to known others",
        paper="PRISM-VFL",
        deviates="distances in units of the embeddings' own spread; the known records are the calibration's",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.HINTS,),
        cost="O(N d) per site",
    )

    def lacks(self, view: View) -> str | None:
        return one_sided(view) if _recorded(view, "activations/") else "needs cut activations of the asked records"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        z = np.concatenate([np.asarray(view.arrays[name][-1]) for name in _recorded(view, "activations/")], axis=1)
        z = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-12)
        known, inside = z[view.hints.index], view.hints.secrets == 1
        asked = z[view.candidates]
        far: list[Scores] = [np.linalg.norm(asked - known[side].mean(axis=0), axis=1) for side in (~inside, inside)]
        return far[0] - far[1]

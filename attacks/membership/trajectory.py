"""Loss trajectory: how the loss of a record moves while the model is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.one_run import OneRun
from privbench.losses import record_losses
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class Trajectory(OneRun):
    """Log odds of a logistic regression on the losses at every checkpoint, fitted to the records it was told of."""

    card = AttackCard(
        name="membership/trajectory",
        summary="a logistic regression on the losses at every checkpoint",
        paper="Liu, Zhao, Backes, Zhang 2022",
        deviates="fitted to a few known records and no shadow model; the target's own checkpoints, not distilled ones",
        channels=(Channel.OUTPUTS, Channel.CHECKPOINTS),
        knowledge=(Knowledge.HINTS,),
        cost="O(T N)",
    )

    def lacks(self, view: View) -> str | None:
        return super().lacks(view) or one_sided(view)

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        losses = np.vstack([record_losses(view.arrays, "checkpoints/outputs"), record_losses(view.arrays)])
        return told_apart(np.log(losses).T, view)


def one_sided(view: View) -> str | None:
    """Why nothing can be learned from the records that it was told of, or None."""
    known = set(view.hints.secrets.tolist())
    return None if known == {0, 1} else "needs to know of some members and of some others"


def told_apart(features: Scores, view: View, strength: float = 1.0) -> Scores:
    """Log odds of the candidates, from features [N, F], by a logistic regression on the hints. strength: inverse of its
    penalty on squared weights.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1_000))
    model.fit(features[view.hints.index], view.hints.secrets)
    odds: Scores = model.decision_function(features[view.candidates])
    return odds

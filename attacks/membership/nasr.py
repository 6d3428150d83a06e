"""White-box membership of Nasr, Shokri and Houmansadr: learned from losses, gradients and updates of known records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.loss import NO_ANSWERS
from privbench.attacks.membership.trajectory import one_sided, told_apart
from privbench.attacks.membership.update_cosine import cosine, lacks_updates, rounds_of
from privbench.losses import record_losses, scaled_logits, tasks_of
from privbench.membership import MembershipAttack
from privbench.threat import Channel, Knowledge

_STRENGTH = 0.01
"""Inverse of the penalty: tens of known records stand against as many features."""
_SMALLEST = 1e-300
"""What a square or a loss of 0 is taken for: its logarithm would be infinite."""


@dataclass(frozen=True)
class Nasr(MembershipAttack):
    """Log odds of a logistic regression on what training leaves of a record, fitted to the records it was told of.

    Features: of each block of parameters how well the client's update fits whose updates fit best, the same less the
    mean of all clients, and the norm of the gradient, each the mean over rounds; the loss in each round; how sure the
    trained model is of the true answer. None depends on the order of clients.
    """

    card = AttackCard(
        name="membership/nasr",
        summary="a logistic regression on losses, gradient norms and fits of updates, by block and round",
        paper="Nasr, Shokri, Houmansadr 2019",
        deviates="a penalised logistic regression on norms and products in place of a network on whole gradients and "
        "hidden outputs; fitted to an eighth of the records, not to half; the client is not known",
        channels=(Channel.UPDATES, Channel.OUTPUTS),
        knowledge=(Knowledge.HINTS, Knowledge.BASE, Knowledge.CANDIDATES),
        cost="a gradient for each record and round; O(R C B N) of what is recorded, of B blocks",
    )

    def lacks(self, view: View) -> str | None:
        for block in blocks(view):
            if missing := lacks_updates(view, block):
                return missing
        if "asked/losses" not in view.arrays:
            return "needs 'asked/losses', which was not recorded"
        return one_sided(view) if tasks_of(view.arrays) else NO_ANSWERS

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return told_apart(features(view), view, _STRENGTH)


def blocks(view: View) -> tuple[str, ...]:
    """Parts of all that is trained of which products are recorded; all of it without a name where there are none."""
    named = sorted(name.split("/")[2] for name in view.arrays if name.startswith("asked/squares/"))
    return tuple(named) or ("",)


def features(view: View) -> Scores:
    """What is known of every record, [N, F]; of the population, whom nobody asks about, nothing that means anything."""
    outputs = scaled_logits(record_losses(view.arrays))
    everybody = replace(view, candidates=np.arange(len(outputs)))
    losses = np.log(np.maximum(np.asarray(view.array("asked/losses")), _SMALLEST))
    columns = [outputs, *losses]
    for block in blocks(view):
        columns += _of_block(everybody, block)
    return np.stack(columns, axis=1)


def _of_block(view: View, block: str) -> list[Scores]:
    fits: dict[str, list[Scores]] = {}
    norms = []
    for sent in rounds_of(view, block):
        norms.append(0.5 * np.log(np.maximum(sent[0].squares, _SMALLEST)))
        for item in sent:
            fits.setdefault(item.client, []).append(cosine(item))
    means = np.array([np.mean(of_client, axis=0) for of_client in fits.values()])
    best = means.max(axis=0)
    return [best, best - means.mean(axis=0), np.mean(norms, axis=0)]

"""Pure label differential privacy: randomised response, Laplace noise, and what they allow a guesser of a fair coin.

*Randomised response* over K labels (Warner 1965) keeps a label with probability e^eps / (e^eps + K - 1) and draws each
other one with 1 / (e^eps + K - 1). eps is spent per label. A coin that sets J labels, each randomised by itself, is
guessed best by counting the outputs of either side: each output speaks for its own side with log ratio eps, for the
other with -eps, and for neither with 0. For J = 1 that is right with (1 + (e^eps - 1) / (e^eps + K - 1)) / 2, half of
one plus the total variation between the two.

*Laplace* noise (Dwork et al. 2006) on gradients clipped in L1 is known by its eps alone: e^eps / (1 + e^eps) (Kairouz,
Oh, Viswanath 2015).
"""

from __future__ import annotations

import math

import numpy as np

from privbench.bounds.base import Bound, BoundCard, BoundValue, Question, Unsupported
from privbench.mechanism import Mechanism

ONE_DRAW = "each moved task has one label, randomised once and by itself; every release is made of what came out"
INDEPENDENT = "the noise is independent over tasks, sites and releases"
FAIR = "the coin is fair"


def label_accuracy(eps: float, delta: float = 0.0, labels: int = 2) -> float:
    """Largest accuracy on `labels` equally likely labels under (eps, delta) for replace; at most 1.

    (e^eps + (K - 1) delta) / (e^eps + K - 1): sum P(guess y | y) <= e^eps P(guess y | y') + delta over all pairs.
    """
    if labels < 2:
        raise ValueError(f"a guess needs at least 2 labels, got {labels}.")
    if not (eps >= 0 and 0 <= delta < 1):
        raise ValueError(f"need eps >= 0 and delta in [0, 1), got {eps} and {delta}.")
    odds = math.exp(-eps)
    return min(1.0, (1 + (labels - 1) * delta * odds) / (1 + (labels - 1) * odds))


def response_accuracy(eps: float, labels: int = 2, moved: int = 1) -> float:
    """Exact Bayes accuracy on a fair coin that sets `moved` of them, each between two of `labels` labels, from one
    randomised response to each; at most e^(J eps) / (1 + e^(J eps)), which composition allows.
    """
    if labels < 2 or moved < 1 or not eps >= 0:
        raise ValueError(f"need labels >= 2, moved >= 1 and eps >= 0, got {labels}, {moved} and {eps}.")
    odds = math.exp(-eps)
    # Chances of the step -1, 0 or 1 towards the coin's own side.
    step = np.array([odds, (labels - 2) * odds, 1.0]) / (1 + (labels - 1) * odds)
    ahead = np.ones(1)
    for _ in range(moved):
        ahead = np.convolve(ahead, step)
    return float(ahead[moved + 1 :].sum() + ahead[moved] / 2)


def laplace_accuracy(shift: float, scale: float) -> float:
    """Exact Bayes accuracy between two Laplace distributions of this scale, `shift` apart: 1 - exp(-shift / 2b) / 2."""
    if not (shift >= 0 and scale > 0):
        raise ValueError(f"need shift >= 0 and scale > 0, got {shift} and {scale}.")
    return 1 - 0.5 * math.exp(-shift / (2 * scale))


class PureLabelDP(Bound):
    card = BoundCard(
        "label-dp",
        "accuracy that pure label DP allows: randomised response, or Laplace noise on gradients clipped in L1",
        "Warner 1965; Dwork et al. 2006; Kairouz, Oh, Viswanath 2015",
        ("all",),
        "mechanism",
        ("randomised-response", "laplace"),
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Randomised response draws once, so neither releases nor sites that pool add up.

        For Laplace `clip` is an L1 norm and `sigma` the scale b: eps = T * M * sum over moved tasks of 2 C / b_k, M the
        sites that pool their releases, each with its own noise (1 if they are clipped jointly). A sum of tasks is
        post-processing of the separate releases.
        """
        if question.unit != "accuracy":
            return Unsupported("unit", f"no {question.unit} bound is known for pure label DP here")
        if question.secret != "label" or mechanism.neighbours != "replace":
            return Unsupported("neighbours", "label DP speaks about replaced labels")
        moved = question.moved
        inputs: dict[str, object] = {"moved": list(moved), "J": len(moved)}
        if mechanism.kind == "randomised-response":
            if mechanism.eps is None:
                return Unsupported("eps", "randomised response without its eps")
            value = response_accuracy(mechanism.eps, mechanism.labels, len(moved))
            inputs |= {"eps per label": mechanism.eps, "eps": mechanism.eps * len(moved)}
            inputs |= {"labels": mechanism.labels, "T": 1}
            assumptions = (ONE_DRAW, FAIR)
        elif mechanism.kind == "laplace":
            if mechanism.clip is None or not all(mechanism.sigma.get(task, 0.0) > 0 for task in moved):
                return Unsupported("clip", "Laplace noise needs an L1 clip norm and a positive scale per moved task")
            sites = 1 if mechanism.clip_unit == "sites" else mechanism.colluding_sites
            spent = sum(2 * mechanism.clip / mechanism.sigma[task] for task in moved)
            eps = question.releases * sites * spent
            value = label_accuracy(eps)
            inputs |= {"eps": eps, "T": question.releases, "sites": sites}
            assumptions = (INDEPENDENT, FAIR)
        else:
            return Unsupported("kind", f"'{mechanism.kind}' is not pure label DP")
        return BoundValue("label-dp", question.unit, value, math.inf, inputs, assumptions)

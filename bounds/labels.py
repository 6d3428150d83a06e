"""Pure label differential privacy: randomised response, Laplace noise, and what they allow a guesser.

For K equally likely labels under (eps, delta)-DP for replacing a label, no guesser is right more often than
(e^eps + (K - 1) delta) / (e^eps + K - 1): sum the inequality P(guess y | y) <= e^eps P(guess y | y') + delta over all
pairs. K = 2 is Kairouz, Oh, Viswanath 2015; randomised response (Warner 1965) attains it.
"""

from __future__ import annotations

import math

from privbench.bounds.base import Bound, BoundCard, BoundValue, Question, Unsupported
from privbench.mechanism import Mechanism


def label_accuracy(eps: float, delta: float = 0.0, labels: int = 2) -> float:
    """Largest accuracy on `labels` equally likely labels under (eps, delta) for replace; at most 1."""
    if labels < 2:
        raise ValueError(f"a guess needs at least 2 labels, got {labels}.")
    if not (eps >= 0 and 0 <= delta < 1):
        raise ValueError(f"need eps >= 0 and delta in [0, 1), got {eps} and {delta}.")
    odds = math.exp(-eps)
    return min(1.0, (1 + (labels - 1) * delta * odds) / (1 + (labels - 1) * odds))


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
        """Randomised response draws once, so releases do not add up; Laplace releases do.

        For Laplace `clip` is an L1 norm and `sigma` the scale b: eps = T * sum over moved tasks of 2 C / b_k. A sum of
        tasks is post-processing of the separate releases.
        """
        if question.unit != "accuracy":
            return Unsupported("unit", f"no {question.unit} bound is known for pure label DP here")
        if question.secret != "label" or mechanism.neighbours != "replace":
            return Unsupported("neighbours", "label DP speaks about replaced labels")
        if mechanism.kind == "randomised-response":
            if mechanism.eps is None:
                return Unsupported("eps", "randomised response without its eps")
            eps, labels, releases = mechanism.eps, mechanism.labels, 1
        elif mechanism.kind == "laplace":
            if mechanism.clip is None or not all(mechanism.sigma.get(task, 0.0) > 0 for task in question.moved):
                return Unsupported("clip", "Laplace noise needs an L1 clip norm and a positive scale per moved task")
            eps = question.releases * sum(2 * mechanism.clip / mechanism.sigma[task] for task in question.moved)
            labels, releases = 2, question.releases
        else:
            return Unsupported("kind", f"'{mechanism.kind}' is not pure label DP")
        value = label_accuracy(eps, 0.0, labels)
        inputs = {"eps": eps, "labels": labels, "T": releases, "moved": list(question.moved)}
        return BoundValue("label-dp", question.unit, value, math.inf, inputs, ("labels are equally likely",))

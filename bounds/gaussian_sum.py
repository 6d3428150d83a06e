"""g(sigma, rho) = Phi(C sqrt(1 + rho) / sigma) and its relatives: Gaussian noise on clipped cut-layer gradients.

The site receives the sum over K tasks of per-sample gradients, each clipped to C, each with its own
N(0, sigma_k^2 I). The coin moves the labels of J of them. The exact Bayes accuracy of an adversary who knows the
directions is Phi(s) for one release, with the signal ratio s below. The published two-task form is J = K = 2.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from privbench.bounds.base import Bound, BoundCard, BoundValue, Question, Unsupported
from privbench.mechanism import Mechanism

_PAPER = "PRISM-VFL (two-task form); general form derived in docs/bounds.md"

SATURATED = "every moved task's gradient is clipped to at most C under either label (the oracle's releases are checked)"
INDEPENDENT = "the noise is independent over tasks, records and releases"
CLEAN_SERVER = (
    "the training state does not depend on a record's coin beyond its released values: assumed, since the server "
    "trains on clean gradients"
)
MEASURED_RHO = "rho is the upper confidence limit of the mean |cosine| of the counterfactual moves"


def signal(clip: float, total_sigma: float, moved: int, rho: float, releases: int = 1) -> float:
    """s = C sqrt(T J (1 + (J - 1) rho)) / sqrt(sum over all K of sigma_k^2); infinite without noise.

    rho is the mean pairwise cosine of the J moves, at least -1 / (J - 1); at J = 1 it plays no part.
    """
    if moved < 1:
        raise ValueError(f"J must be at least 1, got {moved}.")
    if moved > 1 and not -1 / (moved - 1) <= rho <= 1:
        raise ValueError(f"rho must lie in [-1/(J-1), 1] = [{-1 / (moved - 1):g}, 1], got {rho}.")
    factor = moved * (1 + (moved - 1) * rho) if moved > 1 else 1.0
    shift = clip * math.sqrt(releases * max(factor, 0.0))
    if total_sigma == 0:
        return math.inf if shift > 0 else 0.0
    return shift / total_sigma


def accuracy(s: float) -> float:
    """Phi(s): the Bayes accuracy on a fair coin."""
    return 1.0 if s == math.inf else NormalDist().cdf(s)


class _SummedGaussian(Bound):
    """Checks shared by all bounds of this family."""

    def _check(self, mechanism: Mechanism, question: Question) -> Unsupported | float:
        """The clip norm, or the part that is not covered."""
        if mechanism.kind != "gaussian":
            return Unsupported("kind", f"'{mechanism.kind}' adds no calibrated Gaussian noise")
        if mechanism.clip is None:
            return Unsupported("clip", "without a clip norm one record can move a release by any amount")
        if mechanism.clip_unit != "task":
            return Unsupported("clip_unit", f"clipping per {mechanism.clip_unit} has another constant")
        if mechanism.noise != "per-task":
            return Unsupported("noise", f"noise drawn {mechanism.noise} has another constant")
        if mechanism.neighbours != "replace":
            return Unsupported("neighbours", "a label coin replaces labels; add-remove moves whole records")
        if mechanism.colluding_sites != 1:
            return Unsupported("colluding_sites", "more than one site pools its releases")
        unknown = [task for task in question.moved if task not in mechanism.sigma]
        if unknown or not question.moved:
            return Unsupported("sigma", f"the moved tasks {list(question.moved)} are not all covered")
        return mechanism.clip

    def _value(
        self,
        mechanism: Mechanism,
        question: Question,
        *,
        clip: float,
        moved: int,
        rho: float,
        sigma: float,
        releases: int,
    ) -> BoundValue:
        s = signal(clip, sigma, moved, rho, releases)
        assumptions = [SATURATED, INDEPENDENT]
        if moved > 1:
            assumptions.append(MEASURED_RHO)
        if releases > 1 and not mechanism.server_noised:
            assumptions.append(CLEAN_SERVER)
        inputs = {
            "K": len(mechanism.sigma),
            "J": moved,
            "moved": list(question.moved),
            "clip": clip,
            "sigma": dict(mechanism.sigma),
            "rho": rho if moved > 1 else None,
            "T": releases,
            "s": s if math.isfinite(s) else "inf",
        }
        return BoundValue(self.card.name, question.unit, accuracy(s), s, inputs, tuple(assumptions))


class _General(_SummedGaussian):
    """The general form over a number of releases."""

    def _over(self, mechanism: Mechanism, question: Question, releases: int) -> BoundValue | Unsupported:
        clip = self._check(mechanism, question)
        if isinstance(clip, Unsupported):
            return clip
        moved = len(question.moved)
        if moved > 1 and question.rho is None:
            return Unsupported("rho", "the cosine between the moves was not measured")
        return self._value(
            mechanism,
            question,
            clip=clip,
            moved=moved,
            rho=question.rho or 0.0,
            sigma=mechanism.total_sigma,
            releases=releases,
        )


class OneRelease(_General):
    card = BoundCard("g", "Bayes accuracy on the coin from one release, general form", _PAPER, ("one",), "mechanism")

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Phi(s) for a single release, whatever the question's T."""
        return self._over(mechanism, question, 1)


class Composed(_General):
    card = BoundCard(
        "g-composed", "Bayes accuracy on the coin from all T releases: Phi(sqrt(T) s)", _PAPER, ("all",), "mechanism",
    )  # fmt: skip

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Independent noise adds up: s_T = sqrt(T) s."""
        return self._over(mechanism, question, question.releases)


class AsPublished(_SummedGaussian):
    card = BoundCard(
        "g-as-published",
        "the two-task form for one release, held over a whole run as the paper reads it",
        "PRISM-VFL",
        ("all",),
        "mechanism",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Phi(C sqrt(1 + rho) / sigma) with the moved tasks' mean sigma, whatever K, J and T."""
        clip = self._check(mechanism, question)
        if isinstance(clip, Unsupported):
            return clip
        if question.rho is None:
            return Unsupported("rho", "the cosine between the moves was not measured")
        spread = math.sqrt(2) * math.sqrt(
            sum(mechanism.sigma[task] ** 2 for task in question.moved) / len(question.moved)
        )
        return self._value(mechanism, question, clip=clip, moved=2, rho=question.rho, sigma=spread, releases=1)


class SingleTask(_SummedGaussian):
    card = BoundCard(
        "single-task",
        "Phi(C / sigma), which the paper says multi-task releases stay within",
        "PRISM-VFL",
        ("one",),
        "mechanism",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """One task released alone with its own noise: the smallest sigma of the moved tasks."""
        clip = self._check(mechanism, question)
        if isinstance(clip, Unsupported):
            return clip
        sigma = min(mechanism.sigma[task] for task in question.moved)
        return self._value(mechanism, question, clip=clip, moved=1, rho=0.0, sigma=sigma, releases=1)

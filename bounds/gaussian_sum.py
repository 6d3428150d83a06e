"""g(sigma, rho) = Phi(C sqrt(1 + rho) / sigma) and its relatives: Gaussian noise on clipped cut-layer gradients.

PRISM-VFL: a site receives the sum over K tasks of per-sample gradients, each clipped to C, each with its own
N(0, sigma_k^2 I). The coin moves the labels of J of them. The exact Bayes accuracy of an adversary who knows the
directions is Phi(s) for one release, with the signal ratio s below. The published two-task form is J = K = 2.
Neighbouring mechanisms have other constants: `mechanism_signal` knows each by its description, and `check` refuses
what it does not.
"""

from __future__ import annotations

import math

from privbench.bounds.base import Bound, BoundCard, BoundValue, Question, Unsupported, lowest_rho
from privbench.bounds.units import SAFE_FOR_AVERAGES, in_unit
from privbench.mechanism import Mechanism

_PAPER = "PRISM-VFL (two-task form); general form derived in docs/bounds.md"

CLIPPED = "every moved task's gradient is clipped to at most C under either label (the oracle's releases are checked)"
INDEPENDENT = "the noise is independent over tasks, records and releases"
CLEAN_SERVER = (
    "the training state does not depend on a record's coin beyond its released values: assumed, since the server "
    "trains on clean gradients"
)
MEASURED_RHO = "rho is the upper confidence limit of the mean |cosine| of the counterfactual moves"
DECLARED_RHO = "rho is as the mechanism's description says; it was not measured"
UNMEASURED_RHO = "rho is 1, its largest value: the cosine of the counterfactual moves was not measured"
LARGEST_RHO = "rho is the largest cosine of any record, or 1: an average would not be safe in this unit"


def signal(clip: float, total_sigma: float, moved: int, rho: float, releases: int = 1) -> float:
    """s = C sqrt(T J (1 + (J - 1) rho)) / sqrt(sum over all K of sigma_k^2); infinite without noise.

    rho is the mean pairwise cosine of the J moves, at least -1 / (J - 1); at J = 1 it plays no part.
    """
    if moved < 1:
        raise ValueError(f"J must be at least 1, got {moved}.")
    if moved > 1 and not lowest_rho(moved) <= rho <= 1:
        raise ValueError(f"rho must lie in [-1/(J-1), 1] = [{lowest_rho(moved):g}, 1], got {rho}.")
    factor = moved * (1 + (moved - 1) * rho) if moved > 1 else 1.0
    return _ratio(clip * math.sqrt(releases * max(factor, 0.0)), total_sigma)


def needs_rho(mechanism: Mechanism, moved: int) -> bool:
    """Whether the angle between moves matters: not for one task, a clipped sum, or releases sent apart."""
    return moved > 1 and mechanism.clip_unit != "sum" and mechanism.noise != "separate"


def mechanism_signal(mechanism: Mechanism, moved: tuple[str, ...], rho: float, releases: int = 1) -> float:
    """s of any mechanism that `check` accepts, for a coin on labels.

    clip per task, noise per task, sum (PRISM)   C sqrt(J (1 + (J-1) rho)) / sqrt(sum_K sigma_k^2)
    clip per task, sum, one draw                 C sqrt(J (1 + (J-1) rho)) / sigma
    sum, clip, one draw                          C / sigma, no rho
    per-task releases sent apart                 C sqrt(sum over moved tasks of 1 / sigma_k^2), no rho
    Sites that pool M releases clipped per site  times sqrt M; clipped jointly over sites, once
    """
    clip = (mechanism.clip or 0.0) * math.sqrt(releases)
    if mechanism.clip_unit != "sites":
        clip *= math.sqrt(mechanism.colluding_sites)
    if mechanism.noise == "separate":
        return math.hypot(*(_ratio(clip, mechanism.sigma[k]) for k in moved))
    if mechanism.clip_unit == "sum":
        return _ratio(clip, mechanism.total_sigma)
    return signal(clip, mechanism.total_sigma, len(moved), rho)


def check(mechanism: Mechanism, question: Question) -> Unsupported | None:
    """The part of the mechanism about which this family says nothing, or None."""
    if mechanism.kind != "gaussian":
        return Unsupported("kind", f"'{mechanism.kind}' adds no calibrated Gaussian noise")
    if mechanism.clip is None:
        return Unsupported("clip", "without a clip norm one record can move a release by any amount")
    if mechanism.clip_unit == "sum" and mechanism.noise == "separate":
        return Unsupported("noise", "a sum that was clipped cannot be sent apart by task")
    if question.secret == "label" and mechanism.neighbours != "replace":
        return Unsupported("neighbours", "a label coin replaces labels; add-remove moves whole records")
    if question.secret == "member" and mechanism.neighbours != "add-remove":
        return Unsupported("neighbours", "a membership coin adds or removes the record; replace moves its labels")
    unknown = [task for task in question.moved if task not in mechanism.sigma]
    if unknown:
        return Unsupported("sigma", f"no noise is described for the moved tasks {unknown}")
    lowest = lowest_rho(len(question.moved))
    if any(rho is not None and rho < lowest for rho in (question.rho, question.largest)):
        return Unsupported("rho", f"{len(question.moved)} moves have a mean cosine of at least {lowest:g}")
    return None


class _General(Bound):
    """The general form over a number of releases."""

    def _over(self, mechanism: Mechanism, question: Question, releases: int) -> BoundValue | Unsupported:
        refused = check(mechanism, question)
        if refused is not None:
            return refused
        # A record that appears or vanishes takes all its tasks along, and moves half as far as a replaced label.
        member = question.secret == "member"
        moved = mechanism.tasks if member else question.moved
        rho, source = _rho(mechanism, question)
        assumptions = [CLIPPED, INDEPENDENT]
        if needs_rho(mechanism, len(moved)):
            assumptions.append(source)
        s = mechanism_signal(mechanism, moved, rho, releases) / (2 if member else 1)
        if releases > 1 and not mechanism.server_noised:
            assumptions.append(CLEAN_SERVER)
        return _value(self.card.name, mechanism, question, s, (moved, rho, releases), tuple(assumptions))


def _rho(mechanism: Mechanism, question: Question) -> tuple[float, str]:
    """The cosine that this unit may be held against, and where it comes from: measured, declared, or the largest."""
    if question.unit not in SAFE_FOR_AVERAGES:
        return (1.0 if question.largest is None else question.largest), LARGEST_RHO
    if question.rho is not None:
        return question.rho, MEASURED_RHO
    if mechanism.rho is not None:
        return mechanism.rho, DECLARED_RHO
    return 1.0, UNMEASURED_RHO


def _value(
    name: str,
    mechanism: Mechanism,
    question: Question,
    s: float,
    over: tuple[tuple[str, ...], float, int],
    assumptions: tuple[str, ...],
) -> BoundValue:
    moved, rho, releases = over
    inputs = {
        "K": len(mechanism.sigma),
        "J": len(moved),
        "moved": list(moved),
        "clip": mechanism.clip,
        "sigma": dict(mechanism.sigma),
        "rho": rho if needs_rho(mechanism, len(moved)) else None,
        "T": releases,
        "s": s if math.isfinite(s) else "inf",
    }
    return BoundValue(name, question.unit, in_unit(s, question.unit), s, inputs, assumptions)


class OneRelease(_General):
    card = BoundCard("g", "Bayes accuracy on the coin from one release, general form", _PAPER, ("one",), "mechanism")

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Phi(s) for a single release, whatever the question's T."""
        return self._over(mechanism, question, 1)


class Composed(_General):
    card = BoundCard(
        "g-composed", "Bayes accuracy on the coin from all T releases: Phi(sqrt(T) s)", _PAPER, ("all",), "mechanism"
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Independent noise adds up: s_T = sqrt(T) s."""
        return self._over(mechanism, question, question.releases)


class _Published(Bound):
    """The paper's own forms, which speak about its own mechanism and no neighbour of it."""

    def _refused(self, mechanism: Mechanism, question: Question) -> Unsupported | None:
        refused = check(mechanism, question)
        if refused is not None:
            return refused
        if question.secret != "label":
            return Unsupported("neighbours", "the published form speaks about labels")
        for part, value, published in (
            ("clip_unit", mechanism.clip_unit, "task"),
            ("noise", mechanism.noise, "per-task"),
            ("colluding_sites", mechanism.colluding_sites, 1),
        ):
            if value != published:
                return Unsupported(part, f"the published form has {part} {published}, not {value}")
        return None


class AsPublished(_Published):
    card = BoundCard(
        "g-as-published",
        "the two-task form for one release, held over a whole run as the paper reads it",
        "PRISM-VFL",
        ("all",),
        "mechanism",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """Phi(C sqrt(1 + rho) / sigma) with the moved tasks' root-mean-square sigma, whatever K, J and T."""
        refused = self._refused(mechanism, question)
        if refused is not None:
            return refused
        rho, source = _rho(mechanism, question)
        both = math.hypot(*(mechanism.sigma[task] for task in question.moved)) * math.sqrt(2 / len(question.moved))
        s = signal(mechanism.clip or 0.0, both, 2, rho)
        shown = (question.moved, rho, 1)
        return _value(self.card.name, mechanism, question, s, shown, (CLIPPED, INDEPENDENT, source))


class SingleTask(_Published):
    card = BoundCard(
        "single-task",
        "Phi(C / sigma), which the paper says multi-task releases stay within",
        "PRISM-VFL",
        ("one",),
        "mechanism",
    )

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        """One task released alone with its own noise: the smallest sigma of the moved tasks."""
        refused = self._refused(mechanism, question)
        if refused is not None:
            return refused
        task = min(question.moved, key=lambda name: mechanism.sigma[name])
        s = signal(mechanism.clip or 0.0, mechanism.sigma[task], 1, 0.0)
        return _value(self.card.name, mechanism, question, s, ((task,), 0.0, 1), (CLIPPED, INDEPENDENT))


def _ratio(shift: float, sigma: float) -> float:
    if sigma == 0:
        return math.inf if shift > 0 else 0.0
    return shift / sigma

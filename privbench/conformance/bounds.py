"""Checks of a bound: what it must refuse, how it must move, and that the mechanism keeps it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.conformance.base import ERRORS, Check, Result, run_checks, standard_error, unsaid
from privbench.mechanism import Claim, Kind, Mechanism

Make = Callable[[], Bound]

TASKS = ("a", "b", "c")
_CLAIM = Claim(0.5, 1e-5, "nominal", "add-remove", "rdp", 0.032, 20)
_DESCRIBED: Mapping[Kind, Mechanism] = {
    "none": Mechanism("gradients", "A", "none"),
    "gaussian": Mechanism("gradients", "A", "gaussian", 1.0, sigma=dict.fromkeys(TASKS, 2.0)),
    "laplace": Mechanism("gradients", "A", "laplace", 1.0, sigma=dict.fromkeys(TASKS, 8.0)),
    "randomised-response": Mechanism("gradients", "A", "randomised-response", eps=1.0),
}


def check_bound(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run BOUND_CHECKS on the bound that `make` builds."""
    return run_checks(BOUND_CHECKS, make, expected or {})


def _ask(make: Make, kind: Kind, mechanism: Mechanism | None = None, **changes: object) -> BoundValue | Unsupported:
    # One label: what every kind of mechanism here can answer for.
    asked = Question(TASKS[1:2], 20, rho=0.9, claim=_CLAIM)
    return make().evaluate(mechanism or _DESCRIBED[kind], replace(asked, **changes))  # type: ignore[arg-type]


def _values(make: Make, kind: Kind, **changes: object) -> float | None:
    value = _ask(make, kind, **changes)  # type: ignore[arg-type]
    return value.value if isinstance(value, BoundValue) else None


def _card(make: Make) -> str | None:
    return unsaid(make().card, "name", "summary", "paper", "releases", "about", "kinds")


def _probability(make: Make) -> str | None:
    card = make().card
    for kind in card.kinds:
        value = _ask(make, kind)
        if isinstance(value, Unsupported):
            return f"says nothing about the kind '{kind}' that its card names: {value.reason}"
        if value.unit != "accuracy":
            return f"answers in {value.unit} where accuracy was asked"
        if not 0.5 <= value.value <= 1:
            return f"allows {value.value:.3f} of fair coins about '{kind}': below chance, or above all"
        if value.name != card.name:
            return f"calls itself {value.name}, its card {card.name}"
    return None


def _assumptions(make: Make) -> str | None:
    for kind in make().card.kinds:
        value = _ask(make, kind)
        if isinstance(value, BoundValue) and not (value.assumptions and value.inputs):
            return f"names no assumptions or no inputs about '{kind}'"
    return None


def _pure(make: Make) -> str | None:
    bound = make()
    for kind in bound.card.kinds:
        if _ask(lambda: bound, kind) != _ask(lambda: bound, kind):
            return "two questions with one answer differ"
    return None


def _refuses(make: Make) -> str | None:
    answer = _ask(make, "none", claim=None)
    if not isinstance(answer, Unsupported):
        return "speaks about a mechanism without noise, and without a claim"
    return None if answer.part and answer.reason else "refuses without naming the part and the reason"


def _unknown_task(make: Make) -> str | None:
    if make().card.about == "claim" or "gaussian" not in make().card.kinds:
        return None
    answer = _ask(make, "gaussian", moved=("another",))
    return None if isinstance(answer, Unsupported) else "speaks about a task whose noise is not described"


def _noise(make: Make) -> str | None:
    if make().card.about == "claim":
        return None  # a promise does not move with the noise
    for kind in make().card.kinds:
        last = 1.0
        for sigma in (0.5, 1.0, 2.0, 8.0, 64.0):
            value = _values(make, kind, mechanism=_noisier(kind, sigma))
            if value is None:
                return f"says nothing at sigma {sigma}"
            if value > last + 1e-12:
                return f"more noise raises it, to {value:.4f} at sigma {sigma} of '{kind}'"
            last = value
    return None


def _noisier(kind: Kind, sigma: float) -> Mechanism:
    described = _DESCRIBED[kind]
    if kind == "randomised-response":
        return replace(described, eps=4 / sigma)
    return replace(described, sigma=dict.fromkeys(TASKS, sigma))


def _releases(make: Make) -> str | None:
    for kind in make().card.kinds:
        found = [value for t in (1, 2, 5, 20, 80) if (value := _values(make, kind, releases=t)) is not None]
        if any(after < before - 1e-12 for before, after in itertools.pairwise(found)):
            return f"more releases lower it, about '{kind}': {', '.join(f'{value:.4f}' for value in found)}"
    return None


def _valid(make: Make) -> str | None:
    """An adversary who knows the directions, simulated on one moved task of three: 40,000 records."""
    card = make().card
    if card.about == "claim" or "gaussian" not in card.kinds:
        return None
    over = 1 if "one" in card.releases else 5
    limit = _values(make, "gaussian", releases=over)
    if limit is None:
        return None
    rng, n = np.random.default_rng(11), 40_000
    coins = rng.integers(0, 2, n)
    # Along the known direction: a move of 2 C, noise of three tasks' sigma; releases are averaged.
    seen = (2 * coins - 1) + 2.0 * np.sqrt(3 / over) * rng.standard_normal(n)
    right = float(((seen > 0) == (coins == 1)).mean())
    if right <= limit + ERRORS * standard_error(limit, n):
        return None
    return f"allows {limit:.4f} where the best guesser of this mechanism reads {right:.4f}"


def _two_tasks(make: Make) -> str | None:
    """Two moved tasks of three at rho .8: summed with a draw per task or one, sent apart, pooled by two sites."""
    card = make().card
    if card.about == "claim" or "gaussian" not in card.kinds:
        return None
    over = 1 if "one" in card.releases else 5
    described = _DESCRIBED["gaussian"]
    # The joint move's half over the noise that it meets, in units of C / sigma.
    cases = {
        "one draw per task": (described, np.sqrt(2 * 1.8 / 3)),
        "one draw on the sum": (replace(described, noise="once"), np.sqrt(2 * 1.8)),
        "tasks sent apart": (replace(described, noise="separate"), np.sqrt(2)),
        "two sites that pool": (replace(described, colluding_sites=2), np.sqrt(2 * 2 * 1.8 / 3)),
    }
    rng, n = np.random.default_rng(12), 40_000
    for name, (mechanism, ratio) in cases.items():
        answer = _ask(make, "gaussian", mechanism=mechanism, moved=TASKS[1:], rho=0.8, releases=over)
        if isinstance(answer, Unsupported):
            continue
        coins = rng.integers(0, 2, n)
        seen = (2 * coins - 1) * ratio / 2 + rng.standard_normal(n) / np.sqrt(over)
        right = float(((seen > 0) == (coins == 1)).mean())
        if right > answer.value + ERRORS * standard_error(answer.value, n):
            return f"{name}: allows {answer.value:.4f} where the best guesser reads {right:.4f}"
    return None


def _units(make: Make) -> str | None:
    """Asked in AUC it answers in AUC, and no lower than in accuracy; or it says that it cannot."""
    for kind in make().card.kinds:
        answer, accuracy = _ask(make, kind, unit="auc"), _values(make, kind)
        if isinstance(answer, Unsupported) or accuracy is None:
            continue
        if answer.unit != "auc":
            return f"asked in AUC it answers in {answer.unit}"
        if answer.value < accuracy or (answer.value == accuracy and 0.5 < accuracy < 1):
            return f"allows an AUC of {answer.value:.4f} beside an accuracy of {accuracy:.4f}"
    return None


BOUND_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, and what it speaks about", _card),
    Check("probability", "in accuracy it lies between chance and 1, for every kind that the card names", _probability),
    Check("assumptions", "it names its inputs and assumptions", _assumptions),
    Check("pure", "one question, one answer", _pure),
    Check("refusal", "about no mechanism and no claim it says nothing, and why", _refuses),
    Check("unknown task", "about a task whose noise is not described it says nothing", _unknown_task),
    Check("more noise", "more noise never raises it", _noise),
    Check("more releases", "more releases never lower it", _releases),
    Check("valid", "the best guesser of the simulated mechanism stays within it", _valid),
    Check("two tasks", "so it does with two moved tasks, however the noise is placed", _two_tasks),
    Check("units", "asked in another unit it answers in that unit, or not", _units),
)

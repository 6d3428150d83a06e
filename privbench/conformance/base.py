"""What a check is, how checks are run, and what is watched while they run."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np

from privbench.attack import AttackCard
from privbench.errors import PrivbenchError

S = TypeVar("S")

ERRORS = 4.0
"""Standard errors that a simulation may be off: a false failure in one check of 16,000 (31,000 where one-sided)."""


class ConformanceError(PrivbenchError):
    """At least one check failed; the message names each, and what was wrong."""


@dataclass(frozen=True)
class Check(Generic[S]):
    """`run` returns what is wrong with the subject, or None. `says`: what the check asks for, in a sentence."""

    name: str
    says: str
    run: Callable[[S], str | None]


@dataclass(frozen=True)
class Result:
    """One check on one subject. `expected`: why the caller expects it to fail, or None."""

    check: str
    problem: str | None
    expected: str | None

    @property
    def passed(self) -> bool:
        """Failed where that was expected, held everywhere else."""
        return (self.problem is None) == (self.expected is None)


def unsaid(card: object, *names: str) -> str | None:
    """Which of these parts a card leaves empty, in words; None when it says all."""
    wrong = [name for name in names if not getattr(card, name)]
    return f"the card leaves {', '.join(wrong)} empty" if wrong else None


def run_checks(checks: Sequence[Check[S]], subject: S, expected: Mapping[str, str]) -> tuple[Result, ...]:
    """Every check, in order; a check that raises has failed, with the exception as its problem."""
    known = {check.name for check in checks}
    stray = sorted(set(expected) - known)
    if stray:
        raise ConformanceError(f"no check is called '{stray[0]}'; known: {', '.join(sorted(known))}.")
    results = []
    for check in checks:
        try:
            problem = check.run(subject)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        results.append(Result(check.name, problem, expected.get(check.name)))
    return tuple(results)


def require(results: Sequence[Result]) -> None:
    """Raise `ConformanceError` unless every check passed, or failed as expected."""
    wrong = [
        f"{item.check}: {item.problem}"
        if item.problem
        else f"{item.check}: expected to fail ({item.expected}), but passes"
        for item in results
        if not item.passed
    ]
    if wrong:
        raise ConformanceError("; ".join(wrong))


def global_generators() -> tuple[Any, ...]:
    """The state of every global random generator: Python's, numpy's, and torch's where it is loaded."""
    torch = sys.modules.get("torch")
    numpy_state = np.random.get_state()  # noqa: NPY002
    return (
        random.getstate(),
        tuple(map(str, numpy_state)),
        bytes(torch.get_rng_state().numpy().tobytes()) if torch is not None else None,
    )


def blanks(card: AttackCard) -> str | None:
    """What an attack's card leaves empty."""
    empty = [f.name for f in fields(AttackCard) if getattr(card, f.name) == "" or getattr(card, f.name) is None]
    if not card.channels:
        empty.append("channels")
    return f"the card leaves {', '.join(empty)} empty" if empty else None


def standard_error(rate: float, n: int) -> float:
    """Of a share of n independent trials."""
    return math.sqrt(rate * (1 - rate) / n)

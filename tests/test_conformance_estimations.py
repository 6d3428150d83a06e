"""The public checks of estimations: ours pass them, and each check catches its mutant."""

from __future__ import annotations

import random
from collections.abc import Callable

import estimation_mutants
import numpy as np
import pytest
import torch

from privbench.attack import NotApplicable, View
from privbench.conformance import ESTIMATION_CHECKS, ConformanceError, check_estimation, require
from privbench.conformance.estimations import INPUTS, KNOWN, SENT, UNEVEN, WIDTH, estimation_stand
from privbench.estimates import Estimation, Floats, Known, known_to
from privbench.parts import by_kind
from privbench.registry import default_registry

REGISTRY = default_registry()
ESTIMATIONS = by_kind(REGISTRY.names("attacks"), REGISTRY)[Estimation]


def test_the_checks_ran_on_what_is_registered() -> None:
    assert len(ESTIMATIONS) == 3
    assert [check.name for check in ESTIMATION_CHECKS] == list(estimation_mutants.ESTIMATIONS)
    assert all(check.says for check in ESTIMATION_CHECKS)


@pytest.mark.parametrize("name", ESTIMATIONS)
def test_our_estimations_pass(name: str) -> None:
    require(check_estimation(REGISTRY.get("attacks", name)))


def test_what_the_mutants_are_made_of_passes() -> None:
    require(check_estimation(estimation_mutants.LeastSquares))


@pytest.mark.parametrize("name", estimation_mutants.ESTIMATIONS)
def test_a_broken_estimation_is_caught_by_its_check_alone(name: str) -> None:
    """By what the check looks for: an exception on the way would not count."""
    broken = estimation_mutants.ESTIMATIONS[name]
    assert next(item for item in ESTIMATION_CHECKS if item.name == name).run(broken)
    assert [item.check for item in check_estimation(broken) if item.problem] == [name]


class OnePenalty(estimation_mutants.LeastSquares):
    """Chooses one penalty for all inputs by the error in their own units, on every fourth of the known records."""

    def fitted(self, known: Known, inputs: Floats) -> Floats:
        held = np.arange(len(inputs)) % 4 == 0
        errors = []
        for penalty in (penalties := np.logspace(-1, 4, 11)):
            wrong = _shrunk(known.sent[~held], inputs[~held], known.sent[held], penalty) - inputs[held]
            errors.append((wrong**2).sum())
        return _shrunk(known.sent, inputs, known.asked, penalties[np.argmin(errors)])


def _shrunk(sent: Floats, inputs: Floats, asked: Floats, penalty: float) -> Floats:
    flat, low, mean = inputs.reshape(len(inputs), -1), sent.mean(axis=0), inputs.reshape(len(inputs), -1).mean(axis=0)
    gram = (sent - low).T @ (sent - low) + penalty * np.eye(sent.shape[1])
    slopes = np.linalg.solve(gram, (sent - low).T @ (flat - mean))
    found: Floats = ((asked - low) @ slopes + mean).reshape(len(asked), *inputs.shape[1:])
    return found


def test_a_penalty_that_the_largest_unit_chooses_is_caught() -> None:
    failed = [item.check for item in check_estimation(OnePenalty) if item.problem]
    assert failed == ["units"]


@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: torch.rand(1)], ids=["random", "numpy", "torch"]
)
def test_every_global_generator_is_watched(draw: Callable[[], object]) -> None:
    class Meddler(estimation_mutants.LeastSquares):
        def run(self, known: Known, rng: np.random.Generator) -> Floats:
            draw()
            return super().run(known, rng)

    assert [item.check for item in check_estimation(Meddler) if item.problem] == ["global generators"]


class Dividing(estimation_mutants.LeastSquares):
    """Divides by the spread of what is sent."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        with np.errstate(all="ignore"):
            return super().run(known, rng) / np.sign(known.sent.std(axis=0).max())


class Unguarded(Dividing):
    """Goes around the base class's own check."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        known = known_to(view)
        return known if isinstance(known, NotApplicable) else self.run(known, rng)


@pytest.mark.parametrize("broken", [Dividing, Unguarded])
def test_estimates_that_are_not_finite_are_caught_where_nothing_is_sent(broken: type[Estimation]) -> None:
    found = {item.check: item.problem for item in check_estimation(broken)}
    assert "not finite" in str(found["silent"])
    assert found["reads"] is None


def test_an_estimation_instead_of_its_class_is_refused() -> None:
    with pytest.raises(ConformanceError, match="pass the class"):
        check_estimation(estimation_mutants.Nameless())  # type: ignore[arg-type]


def test_an_estimation_that_needs_more_than_the_stand_shows_fails() -> None:
    class Demanding(estimation_mutants.LeastSquares):
        def lacks(self, view: object) -> str | None:
            return "needs a crystal ball"

    found = {item.check: item.problem for item in check_estimation(Demanding)}
    assert "needs a crystal ball" in str(found["reads"])


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_the_stand_tells_what_it_says(noise: float) -> None:
    """Least squares on A known records of d normal columns misses the best estimate's error by the factor below, in
    expectation; over 100 stands each R2 of three is within 4 standard errors (one false alarm in 5,000 runs).
    """
    found = []
    for seed in range(100):
        here = estimation_stand(seed, noise, gains=UNEVEN)
        estimate = estimation_mutants.LeastSquares()(here.view(), np.random.default_rng(0))
        assert isinstance(estimate, np.ndarray)
        found.append(here.fit(estimate).r2)
    learned = (KNOWN + 1) * (KNOWN - 2) / (KNOWN * (KNOWN - WIDTH - 2))
    wanted = 1 - learned * noise**2 / (np.array(UNEVEN) ** 2 + noise**2)
    error = np.std(found, axis=0, ddof=1) / 10
    assert len(wanted) == INPUTS
    assert (np.abs(np.mean(found, axis=0) - wanted) <= 4 * error).all()


def test_a_silent_stand_sends_everybody_the_same() -> None:
    sent = estimation_stand(0, silent=True).transcript.array(SENT)
    assert (sent == sent[:, :1]).all()
    assert (sent != 0).any()

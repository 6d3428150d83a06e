"""The Gaussian bounds against the design's tables, their own limits, and a simulation of the mechanism."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.bounds.gaussian_sum import (
    CLEAN_SERVER,
    MEASURED_RHO,
    AsPublished,
    Composed,
    OneRelease,
    SingleTask,
    signal,
)
from privbench.bounds.units import cdf
from privbench.errors import InputError
from privbench.mechanism import Mechanism

Array = npt.NDArray[np.float64]

TASKS = ("mortality", "sepsis", "ventilation", "dialysis")
BOUNDS = (OneRelease(), Composed(), AsPublished(), SingleTask())
seeded = settings(derandomize=True, deadline=None, max_examples=100)
ratios = st.floats(0.05, 20)


def prism(sigma: float | tuple[float, ...] = 6.25, tasks: int = 3, **changes: Any) -> Mechanism:
    """PRISM's mechanism: clip 1, one sigma for all tasks or one for each."""
    each = sigma if isinstance(sigma, tuple) else (sigma,) * tasks
    sigmas = dict(zip(TASKS, each, strict=False))
    return replace(Mechanism("gradients", "A", "gaussian", 1.0, sigma=sigmas), **changes)


def ask(moved: int = 2, releases: int = 1, rho: float | None = 0.95) -> Question:
    return Question(TASKS[:moved], releases, rho=rho)


def value(bound: Bound, mechanism: Mechanism, question: Question) -> BoundValue:
    answer = bound.evaluate(mechanism, question)
    assert isinstance(answer, BoundValue)
    return answer


class TestGoldenValues:
    """bounds.md, sections 2 to 4, to the digits printed there."""

    @pytest.mark.parametrize(
        ("bound", "moved", "expected"),
        [(AsPublished(), 2, 0.588), (OneRelease(), 2, 0.572), (OneRelease(), 3, 0.607)],
    )
    def test_published_form_is_too_large_for_two_of_three_and_too_small_for_all(
        self, bound: Bound, moved: int, expected: float
    ) -> None:
        assert value(bound, prism(), ask(moved)).value == pytest.approx(expected, abs=5e-4)

    @pytest.mark.parametrize(("sigma", "rho", "expected"), [(2.0, 0.5, 0.730), (1.0, 0.39, 0.881)])
    @pytest.mark.parametrize("bound", [AsPublished(), OneRelease()])
    def test_two_tasks_of_two(self, bound: Bound, sigma: float, rho: float, expected: float) -> None:
        assert value(bound, prism(sigma, tasks=2), ask(rho=rho)).value == pytest.approx(expected, abs=5e-4)

    @pytest.mark.parametrize("releases_at", range(4))
    @pytest.mark.parametrize(
        ("sigma", "row"),
        [
            (2.0, (0.691, 0.943, 0.987, 0.997)),
            (4.0, (0.599, 0.785, 0.868, 0.915)),
            (7.66, (0.552, 0.660, 0.720, 0.763)),
        ],
    )
    def test_many_releases(self, sigma: float, row: tuple[float, ...], releases_at: int) -> None:
        question = ask(2, (1, 10, 20, 30)[releases_at], rho=0.0)
        assert value(Composed(), prism(sigma, tasks=2), question).value == pytest.approx(row[releases_at], abs=1e-3)

    @pytest.mark.parametrize(("z", "one", "all_"), [(6.25, 0.572, 0.793), (3.39, 0.632, 0.934), (1.93, 0.723, 0.996)])
    def test_prism_default(self, z: float, one: float, all_: float) -> None:
        question = ask(2, releases=20)
        assert value(OneRelease(), prism(z), question).value == pytest.approx(one, abs=5e-4)
        assert value(Composed(), prism(z), question).value == pytest.approx(all_, abs=5e-4)

    def test_signal_of_the_default_audit(self) -> None:
        assert value(Composed(), prism(), ask(2, 20)).signal == pytest.approx(0.816, abs=5e-4)


class TestClosedForms:
    @seeded
    @given(ratios, ratios, st.floats(-1, 1))
    def test_all_of_two_is_the_published_formula(self, clip: float, sigma: float, rho: float) -> None:
        mechanism, expected = prism(sigma, tasks=2, clip=clip), clip * math.sqrt(1 + rho) / sigma
        for bound in (OneRelease(), AsPublished()):
            answer = value(bound, mechanism, ask(2, rho=rho))
            assert answer.signal == pytest.approx(expected, rel=1e-9, abs=1e-7)
            assert answer.value == pytest.approx(stats.norm.cdf(expected), abs=1e-7)

    @pytest.mark.parametrize("tasks", [1, 2, 3, 4])
    @pytest.mark.parametrize("rho", [None, 0.0, 0.95])
    def test_one_task_hides_behind_the_noise_of_all(self, tasks: int, rho: float | None) -> None:
        answer = value(OneRelease(), prism(2.0, tasks), ask(1, rho=rho))
        assert answer.signal == pytest.approx(1 / (2 * math.sqrt(tasks)))

    @pytest.mark.parametrize("rho", [None, 0.5])
    def test_single_task_is_clip_over_the_smallest_moved_sigma(self, rho: float | None) -> None:
        answer = value(SingleTask(), prism((4.0, 3.0, 1.0), clip=2.0), ask(2, 20, rho))
        assert answer.signal == pytest.approx(2 / 3)

    @pytest.mark.parametrize("moved", range(2, 60))
    def test_moves_that_cancel_give_nothing_away(self, moved: int) -> None:
        assert signal(1.0, 1.0, moved, -1 / (moved - 1)) == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("moved", [2, 3, 4])
    def test_parallel_moves_add_up(self, moved: int) -> None:
        assert signal(1.0, 2.0, moved, 1.0) == pytest.approx(moved / 2)

    @pytest.mark.parametrize(("moved", "rho"), [(2, -1.01), (3, -0.51), (2, 1.01), (2, math.nan), (0, 0.0)])
    def test_impossible_moves_raise(self, moved: int, rho: float) -> None:
        with pytest.raises(ValueError, match="must"):
            signal(1.0, 1.0, moved, rho)

    @pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.card.name)
    def test_without_noise_every_coin_is_read(self, bound: Bound) -> None:
        answer = value(bound, prism(0.0), ask(2))
        assert (answer.value, answer.signal, answer.inputs["s"]) == (1.0, math.inf, "inf")

    def test_without_noise_moves_that_cancel_still_give_nothing_away(self) -> None:
        answer = value(OneRelease(), prism(0.0), ask(2, rho=-1.0))
        assert (answer.value, answer.signal) == (0.5, 0.0)

    @seeded
    @given(st.floats(0.3, 4), st.floats(0, 1), st.floats(0, 1))
    def test_stratified_noise_of_the_same_total_changes_nothing(self, total: float, a: float, b: float) -> None:
        """Once noises are summed, less noise for the urgent task does not exist."""
        split = (total * math.sqrt(a), total * math.sqrt((1 - a) * b), total * math.sqrt((1 - a) * (1 - b)))
        even = value(Composed(), prism(total / math.sqrt(3)), ask(2, 20))
        assert value(Composed(), prism(split), ask(2, 20)).signal == pytest.approx(even.signal, rel=1e-9)

    @seeded
    @given(ratios, st.sampled_from([(2, 2, 0.0), (2, 3, 0.5)]), st.floats(-1, 1))
    def test_single_task_bound_holds_up_to_a_cosine(
        self, sigma: float, case: tuple[int, int, float], rho: float
    ) -> None:
        """g <= Phi(C / sigma) if and only if rho <= 0 for J = K = 2, rho <= .5 for J = 2, K = 3."""
        moved, tasks, largest = case
        assume(abs(rho - largest) > 1e-9)
        g, single = (value(bound, prism(sigma, tasks), ask(moved, rho=rho)) for bound in (OneRelease(), SingleTask()))
        assert (g.signal <= single.signal) == (rho <= largest)


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "clip": draw(ratios),
        "sigma": draw(ratios),
        "moved": draw(st.integers(1, 3)),
        "rho": draw(st.floats(0, 0.9)),
        "releases": draw(st.integers(1, 50)),
    }


def composed(clip: float, sigma: float, moved: int, rho: float, releases: int) -> BoundValue:
    return value(Composed(), prism(sigma, tasks=4, clip=clip), ask(moved, releases, rho))


class TestMonotone:
    @seeded
    @given(situations(), st.sampled_from(["clip", "rho", "moved", "releases"]))
    def test_more_clip_rho_moved_tasks_or_releases_give_more_away(self, situation: dict[str, Any], name: str) -> None:
        step = {"clip": 0.1, "rho": 0.1, "moved": 1, "releases": 1}[name]
        less, more = composed(**situation), composed(**{**situation, name: situation[name] + step})
        assert less.value <= more.value
        assert less.signal < more.signal or (name == "rho" and situation["moved"] == 1)

    @seeded
    @given(situations())
    def test_more_noise_gives_less_away(self, situation: dict[str, Any]) -> None:
        less, more = composed(**situation), composed(**{**situation, "sigma": situation["sigma"] * 1.1})
        assert more.value <= less.value
        assert more.signal < less.signal

    @seeded
    @given(situations())
    def test_unit_of_the_gradient_does_not_matter(self, situation: dict[str, Any]) -> None:
        scaled = {**situation, "clip": situation["clip"] * 64, "sigma": situation["sigma"] * 64}
        assert composed(**scaled).signal == pytest.approx(composed(**situation).signal, rel=1e-12)

    @seeded
    @given(situations())
    def test_releases_compose_as_the_square_root_and_one_is_g(self, situation: dict[str, Any]) -> None:
        one = composed(**{**situation, "releases": 1})
        assert composed(**situation).signal == pytest.approx(one.signal * math.sqrt(situation["releases"]))
        question = ask(situation["moved"], situation["releases"], situation["rho"])
        g = value(OneRelease(), prism(situation["sigma"], tasks=4, clip=situation["clip"]), question)
        assert g.signal == pytest.approx(one.signal)

    @seeded
    @given(situations())
    def test_value_is_an_accuracy_between_a_coin_flip_and_one(self, situation: dict[str, Any]) -> None:
        answer = composed(**situation)
        assert 0.5 <= answer.value <= 1
        assert answer.value == pytest.approx(stats.norm.cdf(answer.signal), rel=1e-12)

    @pytest.mark.parametrize(("s", "expected"), [(0.0, 0.5), (math.inf, 1.0), (40.0, 1.0)])
    def test_accuracy_at_the_ends(self, s: float, expected: float) -> None:
        assert cdf(s) == expected


class TestUnsupported:
    @pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.card.name)
    @pytest.mark.parametrize(
        ("part", "changes"),
        [
            ("kind", {"kind": "none", "clip": None, "sigma": {}}),
            ("clip", {"clip": None}),
            ("noise", {"clip_unit": "sum", "noise": "separate"}),
            ("neighbours", {"neighbours": "add-remove"}),
            ("sigma", {"sigma": {"mortality": 1.0, "another": 1.0}}),
        ],
        ids=str,
    )
    def test_another_mechanism_is_refused_by_the_part_that_differs(
        self, bound: Bound, part: str, changes: dict[str, Any]
    ) -> None:
        answer = bound.evaluate(replace(prism(), **changes), ask(2))
        assert isinstance(answer, Unsupported)
        assert answer.reason
        assert answer.part == part

    @pytest.mark.parametrize("bound", BOUNDS[2:], ids=lambda bound: bound.card.name)
    @pytest.mark.parametrize(
        ("part", "changes"),
        [
            ("clip_unit", {"clip_unit": "sum"}),
            ("clip_unit", {"clip_unit": "sites"}),
            ("noise", {"noise": "once"}),
            ("noise", {"noise": "separate"}),
            ("colluding_sites", {"colluding_sites": 2}),
        ],
        ids=str,
    )
    def test_the_published_forms_speak_about_the_published_mechanism_only(
        self, bound: Bound, part: str, changes: dict[str, Any]
    ) -> None:
        answer = bound.evaluate(replace(prism(), **changes), ask(2))
        assert isinstance(answer, Unsupported)
        assert answer.part == part

    def test_a_question_about_nothing_is_refused(self) -> None:
        with pytest.raises(InputError, match="at least one"):
            ask(0)

    @pytest.mark.parametrize("bound", BOUNDS[:3], ids=lambda bound: bound.card.name)
    def test_unmeasured_rho_is_the_declared_one_or_the_largest(self, bound: Bound) -> None:
        """Never a guess in favour of the mechanism: 1 is the cosine at which most leaks."""
        for declared, rho in ((None, 1.0), (0.3, 0.3)):
            answer = bound.evaluate(replace(prism(), rho=declared), ask(2, rho=None))
            measured = bound.evaluate(prism(), ask(2, rho=rho))
            assert isinstance(answer, BoundValue)
            assert isinstance(measured, BoundValue)
            assert answer.value == measured.value
            assert any("not measured" in text for text in answer.assumptions)
            assert not any("not measured" in text for text in measured.assumptions)

    def test_an_unknown_unit_is_never_answered_with_an_accuracy(self) -> None:
        """bounds.md, 2: comparing a number with another unit's bound is the commonest false alarm."""
        try:
            question = Question(TASKS[:2], 1, unit="furlong", rho=0.5)  # type: ignore[arg-type]
        except InputError:
            return
        assert isinstance(OneRelease().evaluate(prism(), question), Unsupported)


class TestInputsAndAssumptions:
    def test_inputs_name_all_that_the_value_is_made_of(self) -> None:
        answer = value(Composed(), prism(), ask(2, 20))
        assert {name: answer.inputs[name] for name in ("K", "J", "T", "clip", "rho")} == {
            "K": 3,
            "J": 2,
            "T": 20,
            "clip": 1.0,
            "rho": 0.95,
        }
        assert answer.inputs["sigma"] == dict.fromkeys(TASKS[:3], 6.25)
        assert answer.inputs["moved"] == list(TASKS[:2])

    @pytest.mark.parametrize(
        ("releases", "noised", "assumed"), [(20, False, True), (20, True, False), (1, False, False)]
    )
    def test_clean_server_is_assumed_over_many_releases_only(self, releases: int, noised: bool, assumed: bool) -> None:
        answer = value(Composed(), prism(server_noised=noised), ask(2, releases))
        assert (CLEAN_SERVER in answer.assumptions) == assumed

    @pytest.mark.parametrize("moved", [1, 2])
    def test_rho_is_assumed_where_it_plays_a_part(self, moved: int) -> None:
        answer = value(OneRelease(), prism(), ask(moved))
        assert (MEASURED_RHO in answer.assumptions) == (moved > 1)
        assert (answer.inputs["rho"] is None) == (moved == 1)


def directions(cosines: Array) -> Array:
    """Unit vectors with these pairwise cosines."""
    values, vectors = np.linalg.eigh(cosines)
    return vectors * np.sqrt(np.clip(values, 0, None))


def equal_cosines(moved: int, rho: float) -> Array:
    return np.full((moved, moved), rho) + (1 - rho) * np.eye(moved)


def clipped(gradients: Array, clip: float) -> Array:
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return gradients * np.minimum(1, clip / norms)


def bayes_accuracy(
    cosines: Array, *, sigma: tuple[float, ...], releases: int, norm: float = 3.0, clip: float = 1.0, n: int = 20_000
) -> float:
    """Play the mechanism: a coin turns the moved tasks' gradients around, each is clipped, gets its own noise, and
    the site receives sums. The adversary knows all but coin and noise, and compares the likelihoods.
    """
    rng = np.random.default_rng(22)
    toward = directions(cosines)
    nuisance = rng.standard_normal((len(sigma) - len(toward), toward.shape[1]))
    by_coin = [np.vstack([sign * norm * toward, nuisance]) for sign in (-1, 1)]
    mean = np.stack([clipped(gradients, clip).sum(axis=0) for gradients in by_coin])
    coins = rng.integers(0, 2, n)
    ratio = np.zeros(n)
    for _ in range(releases):
        noise = sum(scale * rng.standard_normal((n, mean.shape[1])) for scale in sigma)
        distance = [((mean[coins] + noise - mean[coin]) ** 2).sum(axis=1) for coin in (0, 1)]
        ratio += distance[0] - distance[1]
    return float(((ratio > 0) == (coins == 1)).mean())


class TestSimulation:
    """Each agreement is held within 4 standard errors of 20,000 coins: fails by chance with probability 6e-5."""

    @pytest.mark.parametrize(
        ("moved", "rho", "sigma", "releases"),
        [
            (2, 0.95, (6.25,) * 3, 1),
            (2, 0.95, (6.25,) * 3, 20),
            (2, 0.5, (2.0, 2.0), 1),
            (2, 0.0, (4.0, 4.0), 10),
            (2, -0.6, (1.0, 1.0), 1),
            (2, -1.0, (1.0, 1.0), 1),
            (3, 0.3, (3.0,) * 3, 5),
            (3, -0.5, (1.0,) * 3, 1),
            (2, 0.8, (1.0, 2.0, 3.0), 4),
            (1, 0.0, (2.0,) * 3, 1),
            (1, 0.0, (1.0,), 1),
        ],
    )
    def test_a_saturated_mechanism_sits_on_the_bound(
        self, moved: int, rho: float, sigma: tuple[float, ...], releases: int
    ) -> None:
        expected = value(Composed(), prism(sigma), ask(moved, releases, rho)).value
        found = bayes_accuracy(equal_cosines(moved, rho), sigma=sigma, releases=releases)
        assert abs(found - expected) <= 4 * math.sqrt(expected * (1 - expected) / 20_000)

    def test_three_moves_count_by_the_mean_of_their_cosines(self) -> None:
        cosines = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, -0.1], [0.2, -0.1, 1.0]])
        expected = value(OneRelease(), prism(3.0), ask(3, rho=1 / 3)).value
        found = bayes_accuracy(cosines, sigma=(3.0,) * 3, releases=1)
        assert abs(found - expected) <= 4 * math.sqrt(expected * (1 - expected) / 20_000)

    def test_gradients_below_the_clip_stay_below_the_bound(self) -> None:
        bound = value(Composed(), prism(2.0), ask(2, 4, 0.9)).value
        assert bayes_accuracy(equal_cosines(2, 0.9), sigma=(2.0,) * 3, releases=4, norm=0.5) < bound - 0.05

"""Moves on oracle recordings made by hand: cosines, their limit, predicted accuracies, excess, and phi."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from privbench.bounds.base import BoundValue, Question
from privbench.bounds.gaussian_sum import Composed, OneRelease
from privbench.mechanism import Mechanism
from privbench.moves import Moves, Prediction, label_association
from privbench.recording import Oracle
from privbench.verdict import RHO_SHARE

Array = npt.NDArray[np.float64]

SITE = "A"
NAMES = ("mortality", "sepsis", "ventilation")
seeded = settings(derandomize=True, deadline=None, max_examples=100)


def oracle(moves: Mapping[str, Array], joint: Array | None = None) -> Oracle:
    """Releases that differ by these moves [T, N, d] between the labels, around a common centre."""
    rng = np.random.default_rng(28)
    together = sum(moves.values()) if joint is None else joint
    arrays = {}
    for name, move in {**moves, "joint": together}.items():
        centre = rng.standard_normal(move.shape)
        for label, side in ((0, -0.5), (1, 0.5)):
            arrays[f"oracle/gradients/{SITE}/{name}/{label}"] = (centre + side * move).astype(np.float32)
    return Oracle(arrays)


def measured(*moves: Array, clip: float | None = 1.0, joint: Array | None = None, sigma: float = 1.0) -> Moves:
    named = dict(zip(NAMES, moves, strict=False))
    rows = np.arange(moves[0].shape[1])
    found = Moves.measure(oracle(named, joint), SITE, "joint", tuple(named), rows, replace(mechanism(sigma), clip=clip))
    assert found is not None
    return found


def pair(cosines: npt.ArrayLike, norm: float = 2.0) -> tuple[Array, Array]:
    """Two tasks' moves of one norm with these cosines [T, N]."""
    cosine = np.asarray(cosines, dtype=float)
    first = np.stack([np.ones_like(cosine), np.zeros_like(cosine)], axis=2)
    second = np.stack([cosine, np.sqrt(1 - cosine**2)], axis=2)
    return norm * first, norm * second


def mechanism(sigma: float) -> Mechanism:
    return Mechanism("gradients", SITE, "gaussian", 1.0, sigma=dict.fromkeys(NAMES, sigma))


class TestCosines:
    @seeded
    @given(st.lists(st.floats(-1, 1), min_size=2, max_size=12))
    def test_are_those_of_the_moves(self, cosines: list[float]) -> None:
        grid = np.array([cosines])
        assert measured(*pair(grid)).cosines[:, :, 0] == pytest.approx(grid, abs=1e-5)

    def test_do_not_depend_on_the_norms(self) -> None:
        first, second = pair([[0.3, -0.8]])
        assert measured(7 * first, 0.01 * second).cosines[0, :, 0] == pytest.approx([0.3, -0.8], abs=1e-4)

    def test_are_of_the_moves_not_of_the_releases(self) -> None:
        """The centres are random: releases have other cosines than moves."""
        moves = measured(*pair(np.full((5, 40), 0.7)))
        assert moves.cosines.std() < 1e-5

    def test_of_three_tasks_are_three_pairs(self) -> None:
        x, y = pair([[0.0, 0.0]])
        assert measured(x, y, x + y).cosines[0, 0] == pytest.approx([0, math.sqrt(0.5), math.sqrt(0.5)], abs=1e-5)

    def test_of_a_record_without_a_move_are_zero(self) -> None:
        first, second = pair([[0.9, 0.9]])
        first[:, 1] = 0
        assert measured(first, second).cosines[0, :, 0] == pytest.approx([0.9, 0], abs=1e-5)

    def test_read_the_rows_asked_for(self) -> None:
        moves = dict(zip(NAMES, pair([[0.1, 0.2, 0.3, 0.4]]), strict=False))
        found = Moves.measure(oracle(moves), SITE, "joint", NAMES[:2], np.array([3, 1]), mechanism(1.0))
        assert found is not None
        assert found.cosines[0, :, 0] == pytest.approx([0.4, 0.2], abs=1e-5)


class TestRho:
    def test_parallel_moves_are_never_beyond_one(self) -> None:
        """Rounding of float32 releases took the mean of such cosines past 1, where no record may be."""
        rng = np.random.default_rng(33)
        first = rng.standard_normal((20, 300, 16))
        rho = measured(first, 3 * first).rho(RHO_SHARE, None)
        assert rho is not None
        assert (rho.mean_absolute, rho.mean) == pytest.approx((1.0, 1.0))
        assert max(rho.mean_absolute, rho.mean, rho.upper, *rho.quantiles.values()) <= 1.0

    def test_averages_the_absolute_cosine_per_record_first(self) -> None:
        rho = measured(*pair([[0.6, -0.2], [-0.6, 0.4]])).rho(RHO_SHARE, 0.39)
        assert rho is not None
        assert (rho.mean_absolute, rho.mean) == pytest.approx((0.45, 0.05), abs=1e-5)
        assert (rho.records, rho.alpha, rho.label_association) == (2, RHO_SHARE, 0.39)

    def test_mixed_signs_do_not_cancel_and_quantiles_keep_them(self) -> None:
        rho = measured(*pair([np.linspace(-1, 1, 201)])).rho(RHO_SHARE, None)
        assert rho is not None
        assert (rho.mean_absolute, rho.mean) == pytest.approx((101 / 201, 0.0), abs=1e-5)
        assert dict(rho.quantiles) == pytest.approx({"5%": -0.9, "50%": 0.0, "95%": 0.9}, abs=1e-5)

    def test_is_none_where_one_task_moves(self) -> None:
        assert measured(pair([[0.5]])[0]).rho(RHO_SHARE, 0.1) is None

    @pytest.mark.parametrize("records", [100, 700])
    def test_upper_limit_is_above_the_mean_and_nears_it_with_records_and_alpha(self, records: int) -> None:
        cosines = np.random.default_rng(29).uniform(-0.9, 0.9, (1, records, 1))
        strict, loose, more = (
            Moves(np.zeros((1, records)), 1.0, np.tile(cosines, (1, times, 1))).rho(alpha, None)
            for times, alpha in ((1, 0.005), (1, 0.05), (4, 0.005))
        )
        assert strict is not None and loose is not None and more is not None
        assert strict.mean_absolute < min(loose.upper, more.upper) < max(loose.upper, more.upper) < strict.upper

    def test_upper_limit_is_never_above_one(self) -> None:
        rho = measured(*pair([[1.0, 1.0, 1.0, 0.1]])).rho(RHO_SHARE, None)
        assert rho is not None
        assert rho.mean_absolute < rho.upper <= 1

    def test_one_record_says_nothing(self) -> None:
        rho = measured(*pair([[0.5], [0.5]])).rho(RHO_SHARE, None)
        assert rho is not None
        assert rho.upper > 0.999

    @pytest.mark.parametrize(
        ("draw", "mean"),
        [
            (lambda rng, n: rng.beta(19, 1, n), 0.95),
            (lambda rng, n: rng.uniform(0.5, 0.9, n), 0.7),
            (lambda rng, n: rng.beta(0.5, 0.5, n), 0.5),
            (lambda rng, n: 0.95 * (rng.random(n) < 0.9), 0.855),
            (lambda rng, n: 0.95 * (rng.random(n) < 0.03), 0.0285),
        ],
        ids=["eps at most 2", "eps at least 8", "all or nothing", "a tenth without a move", "few with two moves"],
    )
    def test_upper_limit_covers_the_true_mean(
        self, draw: Callable[[np.random.Generator, int], Array], mean: float
    ) -> None:
        """700 records, 1,000 draws at .005: an exact limit misses more than 10 of them with probability .014."""
        rng = np.random.default_rng(30)
        drawn = (Moves(np.zeros((1, 700)), 1.0, draw(rng, 700)[None, :, None]) for _ in range(1000))
        covered = sum(moves.rho(RHO_SHARE, None).upper >= mean for moves in drawn)  # type: ignore[union-attr]
        assert covered >= 990

    def test_to_json_holds_plain_values(self) -> None:
        rho = measured(*pair([[0.5, 0.4]])).rho(RHO_SHARE, None)
        assert rho is not None
        assert type(rho.to_json()["quantiles"]) is dict


def parts(prediction: Prediction | None) -> tuple[float, np.ndarray]:
    assert prediction is not None
    return prediction.one, np.array(prediction.accumulated)


class TestPredicted:
    @pytest.mark.parametrize("cosine", [-1.0, 0.0, 0.95])
    def test_saturated_moves_sit_on_the_bound(self, cosine: float) -> None:
        """Moves of 2 C with one cosine: exactly g for one release, g-composed over all."""
        predicted = measured(*pair(np.full((20, 5), cosine)), sigma=6.25).predicted()
        assert predicted is not None
        question = Question(NAMES[:2], 20, rho=cosine)
        bounds = [bound.evaluate(mechanism(6.25), question) for bound in (OneRelease(), Composed())]
        assert all(isinstance(bound, BoundValue) for bound in bounds)
        assert (predicted.one, predicted.accumulated[-1]) == pytest.approx([b.value for b in bounds], abs=1e-5)  # type: ignore[union-attr]

    def test_is_the_mean_over_records_of_phi_of_each_signal(self) -> None:
        norms = np.array([[1.0, 4.0, 0.0], [2.0, 0.0, 0.0]])
        moves = measured(norms[:, :, None] * np.array([0.6, 0.8]), sigma=2.0 / math.sqrt(3))
        one, accumulated = parts(moves.predicted())
        assert one == pytest.approx(special.ndtr(norms / 4).mean(), abs=1e-6)
        assert accumulated[0] == pytest.approx(special.ndtr(norms[0] / 4).mean(), abs=1e-6)
        assert accumulated[1] == pytest.approx(special.ndtr([math.sqrt(5) / 4, 1, 0]).mean(), abs=1e-6)

    def test_is_what_the_likelihood_ratio_reads(self) -> None:
        """20,000 coins of unsaturated moves over 3 releases, within 4 standard errors: fails once in 16,000."""
        rng, n = np.random.default_rng(31), 20_000
        move = rng.standard_normal((3, n, 4)) * rng.uniform(0, 2, (1, n, 1))
        coins = rng.choice([-0.5, 0.5], n)
        released = coins[:, None] * move + 2 * math.sqrt(3) * rng.standard_normal(move.shape)
        right = np.cumsum((released * move).sum(axis=2), axis=0) * coins > 0
        _, accumulated = parts(measured(move, sigma=2.0).predicted())
        error = 4 * np.sqrt(accumulated * (1 - accumulated) / n)
        assert (np.abs(right.mean(axis=1) - accumulated) <= error).all()

    def test_without_a_move_is_a_coin_flip(self) -> None:
        one, accumulated = parts(measured(np.zeros((3, 4, 2))).predicted())
        assert (one, list(accumulated)) == (0.5, [0.5] * 3)

    def test_never_falls_with_more_releases(self) -> None:
        moves = measured(np.random.default_rng(32).standard_normal((10, 50, 3)), sigma=3.0)
        _, accumulated = parts(moves.predicted())
        assert (np.diff(accumulated) > 0).all()

    def test_is_none_without_noise(self) -> None:
        assert measured(*pair([[0.5]]), sigma=0.0).predicted() is None


class TestExcess:
    @pytest.mark.parametrize(("norm", "clip", "excess"), [(2.0, 1.0, 1.0), (3.0, 1.0, 1.5), (0.5, 2.0, 0.125)])
    def test_is_the_largest_move_over_twice_the_clip(self, norm: float, clip: float, excess: float) -> None:
        assert measured(*pair([[0.4, 0.9]], norm), clip=clip).excess == pytest.approx(excess, rel=1e-5)

    def test_one_record_in_one_release_is_enough(self) -> None:
        first, second = pair(np.zeros((3, 5)), norm=1.0)
        second[2, 4] *= 5
        assert measured(first, second).excess == pytest.approx(2.5, rel=1e-5)

    def test_is_zero_without_a_clip_or_a_move(self) -> None:
        assert measured(*pair([[0.4]]), clip=None).excess == 0
        assert measured(np.zeros((2, 3, 4))).excess == 0

    def test_a_joint_release_further_apart_than_all_clips_together_is_seen(self) -> None:
        """Each task moves by 2 C, the release that the site received by more than J times that."""
        first, second = pair([[0.5, 0.5]])
        assert measured(first, second, joint=3 * first).excess > 1.1


class TestLabelAssociation:
    @pytest.mark.parametrize(
        "table", [((30, 10), (10, 50)), ((5, 25), (60, 10)), ((25, 25), (25, 25)), ((970, 10), (10, 10))]
    )
    def test_is_phi_of_the_table(self, table: tuple[tuple[int, int], tuple[int, int]]) -> None:
        (a, b), (c, d) = table
        first = np.repeat([0, 0, 1, 1], [a, b, c, d])
        second = np.repeat([0, 1, 0, 1], [a, b, c, d])
        phi = (a * d - b * c) / math.sqrt((a + b) * (c + d) * (a + c) * (b + d))
        assert label_association([first, second]) == pytest.approx(phi, abs=1e-12)

    @pytest.mark.parametrize(("turned", "phi"), [(False, 1.0), (True, -1.0)])
    def test_of_equal_and_of_opposite_labels(self, turned: bool, phi: float) -> None:
        labels = np.array([0, 1, 1, 0, 1])
        assert label_association([labels, 1 - labels if turned else labels]) == pytest.approx(phi)

    def test_averages_over_pairs_of_tasks_and_labels(self) -> None:
        labels = np.array([0, 1, 1, 0])
        both = np.stack([labels, 1 - labels], axis=1)
        assert label_association([labels, labels, 1 - labels]) == pytest.approx(-1 / 3)
        assert label_association([labels, both]) == pytest.approx(0)

    def test_leaves_constant_labels_out(self) -> None:
        labels, constant = np.array([0, 1, 1, 0]), np.zeros(4, dtype=np.int64)
        assert label_association([labels, labels, constant]) == pytest.approx(1)

    @pytest.mark.parametrize("labels", [[], [[0, 1]], [[0, 1], [1, 1]]])
    def test_is_none_where_no_pair_varies(self, labels: list[list[int]]) -> None:
        assert label_association([np.array(column) for column in labels]) is None

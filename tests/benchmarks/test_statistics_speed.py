"""The speed table of the statistics, each beside a peer on the same input where there is one.

Required on one core: eps from 10,000 scores under 5 ms; one-run f-DP under 100 ms; RMIA on 10,000 x 64 under 15 ms;
LiRA on the same under 30 ms; eps by PLD under 60 ms.
"""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from opacus.accountants.analysis import rdp

import privbench.pld
from privbench import accounting
from privbench.bounds.claims import nominal_accuracy
from privbench.stats.epsilon import eps_on_ranks
from privbench.stats.membership import Population, lira_offline, lira_online, rmia_offline, rmia_online
from privbench.stats.one_run import Guesses, fdp_eps, steinke_eps


@pytest.fixture(scope="module")
def scores() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 5_000)
    return rng.normal(size=10_000) + labels, labels


@pytest.fixture(scope="module")
def references() -> tuple[Any, Any, Any, Population]:
    """10,000 records, 64 references each trained on an independent half; RMIA wants probabilities."""
    rng = np.random.default_rng(1)
    member = rng.random((64, 10_000)) < 0.5
    target, scored = rng.random(10_000), rng.random((64, 10_000))
    return target, scored, member, Population(rng.random(10_000), rng.random((64, 10_000)))


@pytest.mark.parametrize("family", ["dp", "gaussian"])
def test_eps_from_ten_thousand_scores(benchmark: Any, scores: tuple[Any, Any], family: Any) -> None:
    benchmark(eps_on_ranks, *scores, delta=1e-5, family=family)


def test_one_run_f_dp(benchmark: Any) -> None:
    benchmark(fdp_eps, Guesses(10_000, 1_955, 1_615), delta=1e-5)


def test_one_run_steinke(benchmark: Any) -> None:
    benchmark(steinke_eps, Guesses(10_000, 1_955, 1_615), delta=1e-5)


def test_rmia_online(benchmark: Any, references: Any) -> None:
    target, scored, member, population = references
    benchmark(rmia_online, target, scored, member, population)


def test_rmia_offline(benchmark: Any, references: Any) -> None:
    target, scored, member, population = references
    benchmark(rmia_offline, target, scored, member, population, offset=0.3)


def test_lira_online(benchmark: Any, references: Any) -> None:
    benchmark(lira_online, *references[:3])


def test_lira_offline(benchmark: Any, references: Any) -> None:
    benchmark(lira_offline, *references[:3])


@pytest.mark.benchmark(group="nominal accounting, q = .032, 625 steps")
def test_nominal_curve(benchmark: Any) -> None:
    """Required: under 60 ms. Each round forgets the last: what is kept is not what is measured."""
    benchmark.pedantic(nominal_accuracy, args=(6.25, 0.032, 625), setup=privbench.pld.advantage.cache_clear, rounds=30)


@pytest.mark.benchmark(group="nominal accounting, q = .032, 625 steps")
def test_peer_dp_accounting_eps(benchmark: Any) -> None:
    def eps() -> float:
        accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        step = dp_accounting.PoissonSampledDpEvent(0.032, dp_accounting.GaussianDpEvent(6.25))
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, 625))
        return float(accountant.get_epsilon(1e-5))

    benchmark(eps)


@pytest.mark.benchmark(group="nominal accounting, q = .032, 625 steps")
def test_nominal_eps_by_rdp(benchmark: Any) -> None:
    benchmark.pedantic(
        accounting.nominal_eps, args=(6.25, 0.032, 625, 1e-5), setup=accounting.nominal_eps.cache_clear, rounds=30
    )


@pytest.mark.benchmark(group="nominal accounting, q = .032, 625 steps")
def test_nominal_eps_by_pld(benchmark: Any) -> None:
    """Required: under 60 ms."""
    benchmark.pedantic(
        accounting.nominal_eps_pld,
        args=(6.25, 0.032, 625, 1e-5),
        kwargs={"replace": False},
        setup=privbench.pld.epsilon.cache_clear,
        rounds=30,
    )


@pytest.mark.benchmark(group="nominal accounting, q = .032, 625 steps")
def test_peer_opacus_rdp(benchmark: Any) -> None:
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    benchmark(rdp.compute_rdp, q=0.032, noise_multiplier=6.25, steps=625, orders=orders)


def test_gaussian_dp_eps(benchmark: Any) -> None:
    benchmark(accounting.gdp_eps, 1.652, 1e-5)

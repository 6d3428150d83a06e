"""FedMIA, where the answer is known: against loops written out, what all clients share, and chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from test_update_attacks import RECORDS, ROUNDS, Game, scored

from privbench.attack import NotApplicable
from privbench.attacks.membership.fedmia import FedMia, one_sided
from privbench.attacks.membership.update_cosine import UpdateCosine
from privbench.membership import MembershipAttack
from privbench.stats.auc import auc

FOUR = 4
Missed = tuple[tuple[int, int], ...]


def area(game: Game, attack: MembershipAttack, missed: Missed = ()) -> float:
    found = scored(attack, game.arrays(missed))
    assert not isinstance(found, NotApplicable)
    return auc(found, game.member.astype(np.uint8)).value


def by_hand(game: Game, missed: Missed) -> list[float]:
    """Each record's score, from the vectors."""
    totals = np.zeros((game.clients, RECORDS))
    sent = np.zeros(game.clients, bool)
    for number in range(ROUNDS):
        there = [client for client in range(game.clients) if (client, number) not in missed]
        if len(there) < 2:
            continue
        fits = {}
        for client in there:
            u = -game.u[client, number]
            of_client = [float(u @ g / np.linalg.norm(u) / np.linalg.norm(g)) for g in game.g[number]]
            fits[client] = [value - sum(of_client) / RECORDS for value in of_client]
        above = {
            (client, row): fits[client][row] - float(np.mean([fits[other][row] for other in there if other != client]))
            for client in there
            for row in range(RECORDS)
        }
        spread = math.sqrt(float(np.mean([value**2 for value in above.values()])))
        for (client, row), value in above.items():
            totals[client, row] += 1 + norm.logcdf(value / spread)
            sent[client] = True
    return [float(max(totals[sent, row])) for row in range(RECORDS)]


@pytest.mark.parametrize("missed", [(), ((1, 2),), ((0, 0), (1, 0), (2, 0)), ((3, 0), (3, 1), (3, 2))], ids=str)
def test_scores_are_those_of_the_vectors(missed: Missed) -> None:
    game = Game(clients=FOUR)
    found = scored(FedMia(), game.arrays(missed))
    assert not isinstance(found, NotApplicable)
    assert found == pytest.approx(by_hand(game, missed), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("clients", [2, 3, 8])
def test_members_are_told_by_the_client_that_they_fit(clients: int) -> None:
    """P = 400 and some 30 members: product and noise are five standard deviations and more apart."""
    assert area(Game(clients=clients), FedMia()) >= 0.99


def test_what_all_clients_share_tells_nothing() -> None:
    """Where every update also goes along one direction that some records share, members or not, the cosine finds those
    records; FedMIA takes what all clients have in common away.
    """
    games = [Game(seed, clients=8, common=1.0) for seed in range(4)]
    assert np.mean([area(game, UpdateCosine()) for game in games]) < 0.75
    assert np.mean([area(game, FedMia()) for game in games]) > 0.9


def test_members_that_no_update_was_trained_on_are_not_told() -> None:
    """At chance: within 4 standard errors of 20 games, 1 / sqrt(3 * 20 * 60)."""
    areas = [area(Game(seed, clients=FOUR, untouched=True), FedMia()) for seed in range(20)]
    assert abs(np.mean(areas) - 0.5) < 4 / np.sqrt(3 * 20 * RECORDS)


def test_chance_expects_nothing_of_a_round() -> None:
    """So that a client that was in fewer rounds, whose sum has fewer terms, is neither favoured nor held back: within 4
    standard errors of 50,000 numbers with standard deviation 1.
    """
    rng = np.random.default_rng(0)
    assert abs(one_sided(rng.standard_normal((10, 5_000))).mean()) < 4 / math.sqrt(50_000)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(2, 6),
    shift=st.floats(-10, 10),
    scale=st.floats(0.1, 10),
)
def test_neither_what_a_record_has_with_all_nor_a_clients_own_level_counts(
    seed: int, clients: int, shift: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    fits = rng.standard_normal((clients, 12))
    moved = scale * fits + shift * rng.standard_normal(12) + shift * rng.standard_normal((clients, 1))
    assert one_sided(moved) == pytest.approx(one_sided(fits), rel=1e-6, abs=1e-6)
    order = rng.permutation(clients)
    assert one_sided(fits[order]) == pytest.approx(one_sided(fits)[order], rel=1e-9, abs=1e-9)


def test_clients_that_send_the_same_tell_nothing() -> None:
    assert np.array_equal(one_sided(np.ones((3, 5))), np.full((3, 5), 1 + math.log(0.5)))


def test_with_one_client_there_is_nobody_to_compare_with() -> None:
    alone = "needs a round in which two clients sent an update, and none was recorded"
    assert scored(FedMia(), Game(clients=1).arrays()) == NotApplicable(alone)
    apart = tuple((client, number) for number in range(ROUNDS) for client in range(2) if client != number % 2)
    assert scored(FedMia(), Game(clients=2).arrays(apart)) == NotApplicable(alone)

"""Attacks on updates, where the answer is known: against vectors written out, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from privbench.attack import Hints, NotApplicable, Scores, view_of
from privbench.attacks.membership.update_cosine import UpdateCosine
from privbench.attacks.membership.update_difference import UpdateDifference
from privbench.membership import MembershipAttack
from privbench.recording import MEMBER, Transcript
from privbench.stats.auc import auc
from privbench.threat import ThreatModel, server_with_updates, server_with_updates_and_candidates

RECORDS, SIZE, ROUNDS, CLIENTS = 60, 400, 3, 2
Arrays = dict[str, npt.NDArray[Any]]


class Game:
    """Gradients g [R, N, P], members over clients, and updates U [C, R, P] down the sum of their gradients.

    common: how far each record's gradient, and every client's update, goes along one more direction that is not a
    member's. untouched: whoever a coin put in, updates are down the gradients of as many others.
    """

    def __init__(
        self, seed: int = 0, noise: float = 0.0, clients: int = CLIENTS, common: float = 0.0, untouched: bool = False
    ) -> None:
        rng = np.random.default_rng(seed)
        self.clients = clients
        self.g = rng.standard_normal((ROUNDS, RECORDS, SIZE))
        self.member = rng.integers(0, 2, RECORDS)
        holder = rng.integers(0, clients, RECORDS)
        held = np.stack([self.member * (holder == client) for client in range(clients)])
        taken = rng.standard_normal(self.g.shape) if untouched else self.g
        self.u = -np.einsum("cn,rnp->crp", held, taken) + noise * rng.standard_normal((clients, ROUNDS, SIZE))
        shared = common * rng.standard_normal(SIZE)
        self.g += rng.normal(size=(RECORDS, 1)) * shared
        self.u -= np.sqrt(self.member.sum()) * shared

    def arrays(self, missed: tuple[tuple[int, int], ...] = ()) -> Arrays:
        """Of which these pairs of client and round have no update."""
        found: Arrays = {"asked/squares": (self.g**2).sum(axis=2)}
        for client in range(self.clients):
            mask = np.array([(client, number) not in missed for number in range(ROUNDS)], np.uint8)
            sent = self.u[client] * mask[:, None]
            found[f"asked/products/client-{client + 1}"] = np.einsum("rp,rnp->rn", sent, self.g)
            found[f"updates/client-{client + 1}/squares"] = (sent**2).sum(axis=1)
            found[f"updates/client-{client + 1}/mask"] = mask
        return found


def scored(
    attack: MembershipAttack, arrays: Mapping[str, Any], threat: ThreatModel | None = None
) -> Scores | NotApplicable:
    seen = threat or server_with_updates_and_candidates()
    view = view_of(seen, Transcript(arrays), secret=MEMBER, moved=(), candidates=np.arange(RECORDS), hints=Hints.none())
    return attack(view, np.random.default_rng(0))


def by_hand(game: Game, name: str, missed: tuple[tuple[int, int], ...]) -> list[float]:
    """Each record's score, from the vectors."""
    scores = []
    for row in range(RECORDS):
        of_rounds = []
        for number in range(ROUNDS):
            g, there = game.g[number, row], [c for c in range(CLIENTS) if (c, number) not in missed]
            downhill = [-game.u[client, number] for client in there]
            if name == "cosine":
                values = [float(u @ g / np.linalg.norm(u) / np.linalg.norm(g)) for u in downhill]
            else:
                mean = float(np.mean([row @ row for row in game.g[number]]))
                scaled = [u * np.sqrt(mean) / np.linalg.norm(u) for u in downhill]
                values = [float(u @ u - (u - g) @ (u - g)) for u in scaled]
            of_rounds += [max(values)] if values else []
        scores.append(float(np.mean(of_rounds)))
    return scores


@pytest.mark.parametrize("missed", [(), ((1, 2),), ((0, 0), (1, 0), (0, 1))], ids=str)
@pytest.mark.parametrize(("attack", "name"), [(UpdateCosine(), "cosine"), (UpdateDifference(), "difference")])
def test_scores_are_those_of_the_vectors(
    attack: MembershipAttack, name: str, missed: tuple[tuple[int, int], ...]
) -> None:
    game = Game()
    found = scored(attack, game.arrays(missed))
    assert not isinstance(found, NotApplicable)
    assert found == pytest.approx(by_hand(game, name, missed), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("attack", [UpdateCosine(), UpdateDifference()], ids=["cosine", "difference"])
def test_members_are_told_by_the_sum_of_their_gradients_and_not_behind_noise(attack: MembershipAttack) -> None:
    """A member's product with its client's update is |g|^2 beside the others': without an error, for P = 400. Behind
    noise of a thousand gradients nothing is left: within 4 standard errors, 1 / sqrt(3 * 20 * 60).
    """
    game = Game()
    found = scored(attack, game.arrays())
    assert not isinstance(found, NotApplicable)
    assert auc(found, game.member.astype(np.uint8)).value == 1
    areas = []
    for seed in range(20):
        hidden = Game(seed, noise=1e3)
        found = scored(attack, hidden.arrays())
        assert not isinstance(found, NotApplicable)
        areas.append(auc(found, hidden.member.astype(np.uint8)).value)
    assert abs(np.mean(areas) - 0.5) < 4 / np.sqrt(3 * 20 * RECORDS)


def test_a_gradient_that_is_zero_has_no_direction() -> None:
    game = Game()
    game.g[:, 0] = 0
    found = scored(UpdateCosine(), game.arrays())
    assert not isinstance(found, NotApplicable)
    assert found[0] == 0


@pytest.mark.parametrize("attack", [UpdateCosine(), UpdateDifference()], ids=["cosine", "difference"])
def test_what_it_needs_and_does_not_get(attack: MembershipAttack) -> None:
    """The candidates, the products of every client, one update at the least."""
    arrays = Game().arrays()
    refused = scored(attack, arrays, server_with_updates())
    assert isinstance(refused, NotApplicable)
    assert refused.reason == "needs to know the candidates, which curious server does not"
    without = {name: array for name, array in arrays.items() if name != "asked/products/client-2"}
    refused = scored(attack, without)
    assert refused == NotApplicable("needs 'asked/products/client-2', which was not recorded")
    refused = scored(attack, {"outputs/a": np.zeros((RECORDS, 2), np.float32)})
    assert refused == NotApplicable("needs 'asked/squares', which was not recorded")
    nobody = tuple((client, number) for client in range(CLIENTS) for number in range(ROUNDS))
    refused = scored(attack, Game().arrays(nobody))
    assert refused == NotApplicable("needs an update, and no client sent one in the rounds that were recorded")

"""The white-box attack of Nasr et al., where the answer is known: features written out, and what it may learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from test_update_attacks import RECORDS, ROUNDS, SIZE, Arrays, Game

from privbench.attack import Hints, NotApplicable, Scores, View, view_of
from privbench.attacks.membership.nasr import Nasr, features
from privbench.recording import MEMBER, Transcript
from privbench.stats.auc import auc
from privbench.threat import ThreatModel, curious_outsider, server_told_of_members, server_with_updates_and_candidates

CLIENTS, TOLD = 3, 20
HALVES: Mapping[str, slice] = {"bottom": slice(0, SIZE // 2), "top": slice(SIZE // 2, SIZE)}
MISSED = ((1, 0), (0, 1), (1, 1), (2, 1))


def recorded(game: Game, missed: tuple[tuple[int, int], ...] = ()) -> Arrays:
    """With two blocks of parameters; losses and outputs tell nothing of members."""
    rng = np.random.default_rng(1)
    arrays = game.arrays(missed)
    for block, part in HALVES.items():
        arrays[f"asked/squares/{block}"] = (game.g[..., part] ** 2).sum(axis=2)
        for client in range(game.clients):
            name, sent = f"client-{client + 1}", arrays[f"updates/client-{client + 1}/mask"][:, None]
            u = game.u[client][:, part] * sent
            arrays[f"asked/products/{name}/{block}"] = np.einsum("rp,rnp->rn", u, game.g[..., part])
            arrays[f"updates/{name}/squares/{block}"] = (u**2).sum(axis=1)
    arrays["asked/losses"] = np.exp(rng.normal(size=(ROUNDS, RECORDS)))
    arrays["outputs/outcome"] = rng.normal(size=(RECORDS, 2)).astype(np.float32)
    arrays["outputs/outcome/labels"] = rng.integers(0, 2, RECORDS)
    return arrays


def shown(game: Game, arrays: Mapping[str, Any], threat: ThreatModel | None = None, told: int = TOLD) -> View:
    """The coins of the first records are told, and the others are asked about."""
    hints = Hints(np.arange(told), game.member[:told].astype(np.int64))
    seen = threat or server_told_of_members()
    rest = np.arange(told, RECORDS)
    return view_of(seen, Transcript(arrays), secret=MEMBER, moved=(), candidates=rest, hints=hints)


def scores(view: View) -> Scores:
    found = Nasr()(view, np.random.default_rng(0))
    assert not isinstance(found, NotApplicable)
    return found


def area(game: Game) -> float:
    return auc(scores(shown(game, recorded(game))), game.member[TOLD:].astype(np.uint8)).value


def by_hand(game: Game, row: int, arrays: Arrays) -> list[float]:
    """One record's features, from the vectors."""
    there = [[client for client in range(CLIENTS) if (client, number) not in MISSED] for number in range(ROUNDS)]
    right = float(arrays["outputs/outcome"][row, arrays["outputs/outcome/labels"][row]])
    wrong = float(arrays["outputs/outcome"][row, 1 - arrays["outputs/outcome/labels"][row]])
    found = [right - wrong, *(float(np.log(arrays["asked/losses"][number, row])) for number in range(ROUNDS))]
    for part in HALVES.values():
        fits = []
        for client in range(CLIENTS):
            of_client = []
            for number in range(ROUNDS):
                if client in there[number]:
                    u, g = -game.u[client, number, part], game.g[number, row, part]
                    of_client.append(float(u @ g / np.linalg.norm(u) / np.linalg.norm(g)))
            fits.append(float(np.mean(of_client)))
        sizes = [np.log(np.linalg.norm(game.g[number, row, part])) for number in range(ROUNDS) if there[number]]
        found += [max(fits), max(fits) - sum(fits) / CLIENTS, float(np.mean(sizes))]
    return found


def test_features_are_those_of_the_vectors() -> None:
    """A client missed one round, and in one round nobody sent anything."""
    game = Game(clients=CLIENTS)
    arrays = recorded(game, MISSED)
    found = features(shown(game, arrays))
    assert found.shape == (RECORDS, 1 + ROUNDS + 3 * len(HALVES))
    for row in (0, 30, RECORDS - 1):
        assert found[row] == pytest.approx(by_hand(game, row, arrays), rel=1e-5)


def test_features_do_not_depend_on_the_order_of_clients() -> None:
    game = Game(clients=CLIENTS)
    arrays = recorded(game, MISSED)
    turned = {
        name.replace("client-1", "x").replace("client-3", "client-1").replace("x", "client-3"): array
        for name, array in arrays.items()
    }
    assert features(shown(game, turned)) == pytest.approx(features(shown(game, arrays)), rel=1e-9)


def test_members_are_told_from_twenty_known_records() -> None:
    assert np.mean([area(Game(seed, clients=CLIENTS)) for seed in range(4)]) > 0.95


def test_a_product_that_shows_in_one_block_alone_is_found() -> None:
    """Noise that drowns the other: the cosine of the whole sees little."""
    games = [Game(seed, clients=CLIENTS) for seed in range(4)]
    for game in games:
        game.u[..., HALVES["top"]] *= 100
        game.u[..., HALVES["top"]] = np.random.default_rng(0).permutation(game.u[..., HALVES["top"]], axis=2)
    assert np.mean([area(game) for game in games]) > 0.9


def test_members_that_no_update_was_trained_on_are_not_told() -> None:
    """What it was told of, too: nothing can be learned. Within 4 standard errors, 1 / sqrt(3 * 20 * 40)."""
    areas = [area(Game(seed, clients=CLIENTS, untouched=True)) for seed in range(20)]
    assert abs(np.mean(areas) - 0.5) < 4 / np.sqrt(3 * 20 * (RECORDS - TOLD))


def test_it_learns_from_what_it_was_told_and_from_nothing_else() -> None:
    """Told the opposite it says the opposite. Who is asked beside does not change a record's score."""
    game = Game(clients=CLIENTS)
    view = shown(game, recorded(game))
    turned = shown(game, recorded(game))
    turned.hints.secrets[:] = 1 - turned.hints.secrets
    assert scores(turned) == pytest.approx(-scores(view), rel=1e-3, abs=1e-4)
    few = view_of(
        view.threat, Transcript(recorded(game)), secret=MEMBER, moved=(), candidates=view.candidates[:7],
        hints=view.hints,
    )  # fmt: skip
    assert np.array_equal(scores(few), scores(view)[:7])


def test_without_blocks_it_takes_the_whole() -> None:
    game = Game(clients=CLIENTS)
    arrays = {name: array for name, array in recorded(game).items() if not name.endswith(tuple(HALVES))}
    view = shown(game, arrays)
    assert features(view).shape == (RECORDS, 1 + ROUNDS + 3)
    assert auc(scores(view), game.member[TOLD:].astype(np.uint8)).value > 0.9


def test_what_it_needs_and_does_not_get() -> None:
    game = Game(clients=CLIENTS)
    arrays = recorded(game)

    def refused(view: View) -> str:
        found = Nasr()(view, np.random.default_rng(0))
        assert isinstance(found, NotApplicable)
        return found.reason

    untold = refused(shown(game, arrays, server_with_updates_and_candidates()))
    assert untold == "needs the channel outputs, which curious server with the candidates does not see"
    assert "needs the channel updates" in refused(shown(game, arrays, curious_outsider()))
    assert refused(shown(game, arrays, told=0)) == "needs to know of some members and of some others"
    for name in ("asked/losses", "asked/products/client-2/top", "updates/client-3/squares/bottom"):
        less = {key: array for key, array in arrays.items() if key != name}
        assert refused(shown(game, less)) == f"needs '{name}', which was not recorded"
    less = {name: array for name, array in arrays.items() if not name.startswith("outputs/")}
    assert refused(shown(game, less)).startswith("needs the outputs of a trained model")

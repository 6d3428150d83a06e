"""Runs about membership: as split_llama's (`Game`), and what a server with candidates makes of the updates.

Such a server knows the state of every round, so that it can compute each candidate's own loss there and its gradient
g_i, and hold it against every update U. What its attacks need of both are <U, g_i>, |g_i|^2 and |U|^2, of all that is
trained and of each block of it, and the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from privbench.target import MEMBERS, Progress, TargetRun
from privbench.targets.fedavg.attendance import Attendance
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.defending import senders
from privbench.targets.fedavg.gradients import Gradients, blocks_of, wide
from privbench.targets.fedavg.rounds import Round, Whole, federate
from privbench.targets.split_llama.adapters import state
from privbench.targets.split_llama.membership import Game
from privbench.targets.split_llama.system import shards_of, untuned
from privbench.targets.split_llama.tokens import Encoded

UNTRAINED = "MEMBERS_NOT_TRAINED_ON"


def run_membership(config: FedConfig, rng: np.random.Generator, report: Progress) -> TargetRun:
    """Train on the respondents whom the coins put in ("members"), or on a half of the pool ("reference-1" and on).

    There are as many rounds as are asked for, and in any case one pass over the respondents. A flag says where all the
    same somebody who is in was in no update: its client was not drawn, dropped out, or was refused.
    """
    # A reference is the adversary's own: its rounds are the same without Flower, and there sooner.
    tuning = config.tuning if config.role == MEMBERS else replace(config.tuning, runtime="own")
    report("reading the survey", 0.0)
    game = Game.draw(config, rng)
    rounds = config.member_rounds(game.held(tuning.clients))
    model = Whole(*untuned(game.pool.base.model, tuning, game.rng))
    shards = shards_of(game.train, game.holder, tuning.clients)
    seen = Attendance()
    # A reference is the adversary's own: it has nothing to compare.
    asked = evenly(tuning.asked, rounds) if config.role == MEMBERS else ()
    compared = Compared(model, game.pool.train, senders(tuning.clients, config.defense), asked, len(game.asked))
    for done in federate(model, shards, tuning, rounds, game.rng, report, config.defense):
        compared.add(seen.add(done), report)
    arrays = game.outputs(model.client, model.server, report)
    if config.role == MEMBERS:
        arrays |= game.answers | compared.arrays
    secrets = game.secrets(told=config.role == MEMBERS)
    whole = all(len(seen.trained_on.get(client, ())) == len(shard.samples) for client, shard in enumerate(shards))
    flags = () if whole or config.role != MEMBERS else (UNTRAINED,)
    metadata = {"missed": seen.missed, **(config.described(rounds) if config.role == MEMBERS else {})}
    return game.run(arrays, secrets, seen.diagnostics, metadata, seen.notes, flags)


def evenly(count: int, rounds: int) -> tuple[int, ...]:
    """So many rounds, or all where there are no more, the first and the last among them."""
    return tuple(dict.fromkeys(np.linspace(0, rounds - 1, min(count, rounds)).round().astype(int).tolist()))


class Compared:
    """Every candidate's gradient against every update that the server sees, block by block, in rounds that are asked
    about [R].

    The population is in no comparison, since nobody asks whether it was trained on: 0 there.
    """

    def __init__(
        self, model: Whole, candidates: Sequence[Encoded], seen: Sequence[str], rounds: Sequence[int], records: int
    ) -> None:
        self._gradients, self._candidates, self._rounds = Gradients(model), candidates, rounds
        self._blocks, self._seen = blocks_of(state(model)), tuple(seen)
        self._losses = np.zeros((len(rounds), records))
        self._squares = np.zeros((len(self._blocks), len(rounds), records))
        self._products = np.zeros((len(seen), len(self._blocks), len(rounds), records))
        self._sizes = np.zeros((len(seen), len(self._blocks), len(rounds)))
        self._masks = np.zeros((len(seen), len(rounds)), np.uint8)

    def add(self, done: Round, report: Progress) -> None:
        """A round; nothing happens if it is not asked about."""
        if done.number not in self._rounds:
            return
        at = self._rounds.index(done.number)
        self._gradients.at(done.start)
        updates = {self._seen.index(sender): wide(update.values()) for sender, update in done.seen.items()}
        for sender, update in updates.items():
            self._masks[sender, at] = 1
            self._sizes[sender, :, at] = self._products_of(update, update)
        for row, candidate in enumerate(self._candidates):
            self._losses[at, row], gradient = self._gradients.of(candidate)
            self._squares[:, at, row] = self._products_of(gradient, gradient)
            for sender, update in updates.items():
                self._products[sender, :, at, row] = self._products_of(update, gradient)
            report(f"gradients at round {done.number + 1}", (row + 1) / len(self._candidates))

    def _products_of(self, left: torch.Tensor, right: torch.Tensor) -> list[float]:
        """One for each block, of two vectors [P]."""
        return [float(left[part] @ right[part]) for part in self._blocks.values()]

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """asked/losses and asked/squares [R, N], and of each client asked/products/CLIENT [R, N],
        updates/CLIENT/squares [R] and updates/CLIENT/mask [R], 0 where none of it was taken. Squares and products of
        each block by itself too, under its name.
        """
        found: dict[str, npt.NDArray[Any]] = {
            "asked/losses": self._losses,
            **self._split("asked/squares", self._squares),
        }
        for name, products, sizes, mask in zip(self._seen, self._products, self._sizes, self._masks, strict=True):
            found |= self._split(f"asked/products/{name}", products)
            found |= self._split(f"updates/{name}/squares", sizes)
            found[f"updates/{name}/mask"] = mask
        return found

    def _split(self, name: str, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """The sum over blocks [B, ...], and each of them."""
        parts = {f"{name}/{block}": part for block, part in zip(self._blocks, values, strict=True)}
        return {name: values.sum(axis=0), **parts}

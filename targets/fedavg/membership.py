"""Runs about membership: as split_llama's (`Game`), and what a server with candidates makes of the updates.

Such a server knows the state of every round, so that it can compute the gradient g_i of each candidate's own loss
there, and hold it against every update U. What its attacks need of both are three numbers: <U, g_i>, |g_i|^2 and |U|^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from privbench.target import MEMBERS, Progress, TargetRun
from privbench.targets.fedavg.attendance import Attendance
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.rounds import Round, Whole, called, federate
from privbench.targets.split_llama.adapters import clone, load_state
from privbench.targets.split_llama.membership import Game
from privbench.targets.split_llama.system import shards_of, untuned
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import batch_of

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
    rounds = max(tuning.reference_rounds, tuning.one_pass(game.held(tuning.clients)))
    model = Whole(*untuned(game.pool.base.model, tuning, game.rng))
    shards = shards_of(game.train, game.holder, tuning.clients)
    seen = Attendance()
    # A reference is the adversary's own: it has nothing to compare.
    asked = evenly(tuning.asked, rounds) if config.role == MEMBERS else ()
    compared = Compared(model, game.pool.train, tuning.clients, asked, len(game.asked))
    for done in federate(model, shards, tuning, rounds, game.rng, report):
        compared.add(seen.add(done), report)
    arrays = game.outputs(model.client, model.server, report)
    if config.role == MEMBERS:
        arrays |= game.answers | compared.arrays
    secrets = game.secrets(told=config.role == MEMBERS)
    whole = all(len(seen.trained_on.get(client, ())) == len(shard.samples) for client, shard in enumerate(shards))
    flags = () if whole or config.role != MEMBERS else (UNTRAINED,)
    return game.run(arrays, secrets, seen.diagnostics, {"missed": seen.missed}, seen.notes, flags)


def evenly(count: int, rounds: int) -> tuple[int, ...]:
    """So many rounds, or all where there are no more, the first and the last among them."""
    return tuple(dict.fromkeys(np.linspace(0, rounds - 1, min(count, rounds)).round().astype(int).tolist()))


class Compared:
    """Every candidate's gradient against every update, in the rounds that are asked about [R].

    The population is in no comparison, since nobody asks whether it was trained on: 0 there.
    """

    def __init__(
        self, model: Whole, candidates: Sequence[Encoded], clients: int, rounds: Sequence[int], records: int
    ) -> None:
        self._model, self._candidates, self._rounds = clone(model), candidates, rounds
        # In the order of `state`; asking the model for them takes a seventh of a gradient's time.
        self._trained = [item for item in self._model.parameters() if item.requires_grad]
        self._products = np.zeros((clients, len(rounds), records))
        self._squares = np.zeros((len(rounds), records))
        self._sizes = np.zeros((clients, len(rounds)))
        self._masks = np.zeros((clients, len(rounds)), np.uint8)

    def add(self, done: Round, report: Progress) -> None:
        """A round; nothing happens if it is not asked about."""
        if done.number not in self._rounds:
            return
        at = self._rounds.index(done.number)
        load_state(self._model, done.start)
        clients = list(done.taken)
        updates = [_wide(done.taken[client].update.values()) for client in clients]
        self._masks[clients, at] = 1
        self._sizes[clients, at] = [float(update @ update) for update in updates]
        for row, candidate in enumerate(self._candidates):
            gradient = self.gradient_of(candidate)
            self._squares[at, row] = float(gradient @ gradient)
            self._products[clients, at, row] = [float(update @ gradient) for update in updates]
            report(f"gradients at round {done.number + 1}", (row + 1) / len(self._candidates))

    def gradient_of(self, candidate: Encoded) -> torch.Tensor:
        """Of the candidate's own loss with respect to all that is trained, float64 [P] in the order of `state`."""
        for item in self._trained:
            item.grad = None
        self._model.learn(batch_of([candidate]))
        return _wide(item.grad for item in self._trained if item.grad is not None)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """asked/squares [R, N], and of each client asked/products/CLIENT [R, N], updates/CLIENT/squares [R] and
        updates/CLIENT/mask [R], 0 where none of it was taken.
        """
        found: dict[str, npt.NDArray[Any]] = {"asked/squares": self._squares}
        for client, (products, sizes, mask) in enumerate(zip(self._products, self._sizes, self._masks, strict=True)):
            name = called(client)
            found |= {
                f"asked/products/{name}": products,
                f"updates/{name}/squares": sizes,
                f"updates/{name}/mask": mask,
            }
        return found


def _wide(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([item.flatten() for item in parts]).double()

"""Federated averaging (McMahan et al. 2017): clients train the server's state at home and send what they changed.

In a round the server hands its state to some clients. Each makes `local_steps` steps of Adam from there, by the recipe
of the split run, and sends one update, its state less the server's; the server adds the mean, weighted by respondents.
A client's optimiser stays with it from round to round: institutes persist (our choice; for a client that is drawn once
in a thousand rounds it would not). So one client with one local step is training in one place. Rates follow the
rounds: a client that sat one out learns at the rate of all others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from privbench.defenses.base import UpdateDefense
from privbench.target import Progress
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.defending import SUM, Guard, Protection, called
from privbench.targets.split_llama.adapters import State, average, clone, load_state, state
from privbench.targets.split_llama.batches import Batch
from privbench.targets.split_llama.halves import Client, Server, exchange
from privbench.targets.split_llama.tune import Shard, Trainer, batch_of, stage

Why = Literal["dropped out", "refused", "alone"]


class Whole(nn.Module):
    """Both halves of a split LLaMA in one place: `state` of it is what is trained, the client's part first."""

    def __init__(self, client: Client, server: Server) -> None:
        super().__init__()
        self.client, self.server = client, server

    def learn(self, batch: Batch) -> Tensor:
        """Losses [B]; the gradient of their mean is left in the parameters."""
        return exchange(self.client, self.server, batch).losses


@dataclass(frozen=True)
class Trained:
    """What a client made of a round: the change of its state, as it leaves the client, its records' losses, and on
    which it trained.
    """

    update: State
    losses: tuple[float, ...]
    rows: frozenset[int]

    @property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(values).all()) for values in self.update.values())


class Institute:
    """One client: its respondents, its copy of the model, and its optimisers, which it keeps.

    steps: in all rounds together, over which rates decay; guard: its defence.
    """

    def __init__(
        self,
        model: Whole,
        shard: Shard,
        tuning: FedTuning,
        steps: int,
        rng: np.random.Generator,
        guard: Guard | None = None,
    ) -> None:
        self.samples = shard.samples
        self._model, self._tuning, self._guard = clone(model), tuning, guard
        self._trained = [item for item in self._model.parameters() if item.requires_grad]
        self._feed = shard.batches(tuning.batch, rng)
        self._trainers = (
            Trainer(self._model.client, tuning, tuning.client_rate, steps),
            Trainer(self._model.server, tuning, 1.0, steps),
        )

    def train(self, start: State, steps: range) -> Trained:
        """From the server's state, these of its steps."""
        load_state(self._model, start)
        losses: list[float] = []
        seen: set[int] = set()
        for step in steps:
            rows, found = self._learn()
            losses += found
            seen.update(rows)
            for trainer in self._trainers:
                trainer.step(step)
        end = state(self._model)
        update = {name: end[name] - start[name] for name in start}
        sent = update if self._guard is None else self._guard.sent(update)
        return Trained(sent, tuple(losses), frozenset(seen))

    def _learn(self) -> tuple[tuple[int, ...], list[float]]:
        """Leave a step's gradient in the parameters: of whom, and their losses."""
        if self._guard is not None and self._guard.defense.per_record:
            size, rate = self._tuning.batch, self._tuning.poisson_rate
            return self._guard.step(self._trained, self.samples, size, rate, self._model.learn)
        rows, _ = next(self._feed)
        return rows, self._model.learn(batch_of([self.samples[row] for row in rows])).tolist()


@dataclass(frozen=True)
class Round:
    """What the server did in a round, numbered from 0. start: its state before; taken: what it added the mean of, by
    client; missed: who took part and is not among them, and why; total: that mean, where the server sees nothing else.
    """

    number: int
    start: State
    taken: Mapping[int, Trained]
    missed: Mapping[int, Why]
    total: State | None = None

    @property
    def seen(self) -> Mapping[str, State]:
        """The updates that the server sees, by sender."""
        if self.total is not None:
            return {SUM: self.total}
        return {called(client): trained.update for client, trained in self.taken.items()}

    @property
    def loss(self) -> float:
        """Mean over all records that were trained on; NaN where nobody's update was taken."""
        losses = [loss for trained in self.taken.values() for loss in trained.losses]
        return math.fsum(losses) / len(losses) if losses else math.nan


def federate(
    model: Whole,
    shards: Sequence[Shard],
    tuning: FedTuning,
    rounds: int,
    rng: np.random.Generator,
    report: Progress,
    defense: UpdateDefense | None = None,
) -> Iterator[Round]:
    """Train `model` in place, and yield every round when it is over.

    Batches come from `rng`: with everybody in every round those of the first pass are the split run's. Who takes part
    and who drops out is drawn from generators spawned of it. An update with NaN or infinity is refused: one such number
    would spoil the state of all. Where nobody is left the state stays, and where a sum over one would tell its update.
    """
    sampling, dropping = rng.spawn(2)
    leaves = tuning.leaves(rounds, dropping)
    started = time.monotonic()
    protection = Protection.of(defense, len(shards), rng)
    institutes = [
        Institute(model, shard, tuning, rounds * local, rng, guard)
        for shard, local, guard in zip(shards, tuning.local, protection.guards, strict=True)
    ]
    weights = tuning.weights([len(shard.samples) for shard in shards], defense)
    each = max(round(tuning.fraction * len(institutes)), 1)
    for number in range(rounds):
        start, taken, missed = state(model), dict[int, Trained](), dict[int, Why]()
        for client in sorted(sampling.choice(len(institutes), each, replace=False).tolist()):
            left, local = bool(leaves[number, client]), tuning.local[client]
            steps = range(number * local, number * local + (local // 2 if left else local))
            trained = institutes[client].train(start, steps)
            if left:
                missed[client] = "dropped out"
            elif not trained.finite:
                missed[client] = "refused"
            else:
                taken[client] = trained
        protection.require_sound(number, [loss for item in taken.values() for loss in item.losses])
        if len(taken) < protection.least:
            missed |= dict.fromkeys(taken, "alone")
            taken = {}
        mean = average([item.update for item in taken.values()], [weights[one] for one in taken]) if taken else None
        if mean is not None:
            step = protection.released(mean, len(taken))
            load_state(model, {name: start[name] + step[name] for name in start})
        done = Round(number, start, taken, missed, mean if defense is not None and defense.summed else None)
        report(stage(number + 1, rounds, time.monotonic() - started, done.loss, "round"), (number + 1) / rounds)
        yield done

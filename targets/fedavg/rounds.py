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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

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

Why = Literal["dropped out", "refused", "alone", "timed out", "lost"]


class Whole(nn.Module):
    """Both halves of a split LLaMA in one place: `state` of it is what is trained, the client's part first."""

    def __init__(self, client: Client, server: Server) -> None:
        super().__init__()
        self.client, self.server = client, server

    def learn(self, batch: Batch) -> Tensor:
        """Losses [B]; the gradient of their mean is left in the parameters."""
        return exchange(self.client, self.server, batch).losses


@dataclass(frozen=True)
class Order:
    """What a client is to do in a round. first: the number of its first step, of all rounds; batches: the rows of each
    step; sends: False for who drops out half-way, trains and sends nothing.

    The run's seed draws batches, not the client: so one seed makes one run, whatever carries the orders.
    """

    first: int
    batches: tuple[tuple[int, ...], ...]
    sends: bool


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

    def __init__(self, model: Whole, shard: Shard, tuning: FedTuning, steps: int, guard: Guard | None = None) -> None:
        self._samples = shard.samples
        self._model, self._tuning, self._guard = clone(model), tuning, guard
        self._trained = [item for item in self._model.parameters() if item.requires_grad]
        self._trainers = {
            "client": Trainer(self._model.client, tuning, tuning.client_rate, steps),
            "server": Trainer(self._model.server, tuning, 1.0, steps),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts of a state, in their order."""
        return tuple(state(self._model))

    def train(self, start: State, order: Order) -> Trained:
        """From the server's state."""
        load_state(self._model, start)
        losses: list[float] = []
        seen: set[int] = set()
        for step, batch in enumerate(order.batches, order.first):
            rows, found = self._learn(batch)
            losses += found
            seen.update(rows)
            for trainer in self._trainers.values():
                trainer.step(step)
        end = state(self._model)
        update = {name: end[name] - start[name] for name in start}
        sent = update if self._guard is None else self._guard.sent(update)
        return Trained(sent, tuple(losses), frozenset(seen))

    def _learn(self, rows: tuple[int, ...]) -> tuple[tuple[int, ...], list[float]]:
        """Leave a step's gradient in the parameters: of whom, and their losses. A defence that counts on how records
        are drawn draws them itself.
        """
        if self._guard is not None and self._guard.defense.per_record:
            size, rate = self._tuning.batch, self._tuning.poisson_rate
            return self._guard.step(self._trained, self._samples, size, rate, self._model.learn)
        return rows, self._model.learn(batch_of([self._samples[row] for row in rows])).tolist()

    @property
    def memory(self) -> State:
        """What its optimisers keep from round to round."""
        return {
            f"{half}/{name}": values
            for half, trainer in self._trainers.items()
            for name, values in trainer.memory.items()
        }

    def recall(self, memory: State) -> None:
        """Go on with the `memory` of an institute that was built alike."""
        for half, trainer in self._trainers.items():
            prefix = f"{half}/"
            trainer.recall({name.removeprefix(prefix): memory[name] for name in memory if name.startswith(prefix)})


class Clients(Protocol):
    """Whoever carries orders to clients and brings their answers back."""

    def train(self, start: State, orders: Mapping[int, Order]) -> Mapping[int, Trained | Why]:
        """From the server's state, by client: what it made of its order, or why it sent nothing."""


class InProcess:
    """All clients in this process, one after another."""

    def __init__(
        self, model: Whole, shards: Sequence[Shard], tuning: FedTuning, rounds: int, guards: Sequence[Guard | None]
    ) -> None:
        self._institutes = [
            Institute(model, shard, tuning, rounds * local, guard)
            for shard, local, guard in zip(shards, tuning.local, guards, strict=True)
        ]

    def train(self, start: State, orders: Mapping[int, Order]) -> Mapping[int, Trained | Why]:
        made = {client: self._institutes[client].train(start, order) for client, order in orders.items()}
        return {client: made[client] if order.sends else "dropped out" for client, order in orders.items()}


def gathered(
    model: Whole, shards: Sequence[Shard], tuning: FedTuning, rounds: int, guards: Sequence[Guard | None]
) -> AbstractContextManager[Clients]:
    """The clients, where the setting `runtime` has them; their processes end with the context. guards: their defences,
    which only clients in this process have.
    """
    if tuning.runtime == "own":
        return nullcontext(InProcess(model, shards, tuning, rounds, guards))
    from privbench.targets.fedavg.flower import flower_clients

    return flower_clients(model, shards, tuning, rounds)


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
    feeds = [shard.batches(tuning.batch, rng) for shard in shards]
    weights = tuning.weights([len(shard.samples) for shard in shards], defense)
    with gathered(model, shards, tuning, rounds, protection.guards) as clients:
        for number in range(rounds):
            start, orders = state(model), dict[int, Order]()
            for client in sorted(sampling.choice(len(shards), tuning.each, replace=False).tolist()):
                sends, local = not leaves[number, client], tuning.local[client]
                batches = tuple(rows for rows, _ in islice(feeds[client], local if sends else local // 2))
                orders[client] = Order(number * local, batches, sends)
            taken, missed = sorted_out(clients.train(start, orders))
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


def sorted_out(answers: Mapping[int, Trained | Why]) -> tuple[dict[int, Trained], dict[int, Why]]:
    """Whose update the server takes, and why it has none of the others."""
    taken, missed = dict[int, Trained](), dict[int, Why]()
    for client, answer in answers.items():
        if not isinstance(answer, Trained):
            missed[client] = answer
        elif not answer.finite:
            missed[client] = "refused"
        else:
            taken[client] = answer
    return taken, missed

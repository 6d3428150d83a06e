"""LoRA tuning of both halves by several clients in turn, or side by side.

Round-robin: one client half is handed on from client to client with its optimiser's state; each step is one client's
batch, in turn or by size. Parallel (as SplitFed, Thapa et al. 2022): every client has a half of its own and sends a
batch in each step; the halves are averaged, weighted by respondents, every `sync` steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import nn

from privbench.errors import InputError
from privbench.targets.split_llama.adapters import State, average, load_state, state
from privbench.targets.split_llama.batches import Batch, collate
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.halves import Client, Exchange, Server, exchange
from privbench.targets.split_llama.recipe import Recipe
from privbench.targets.split_llama.tokens import Encoded

BETAS = 0.9, 0.999
"""By which Adam forgets its two moments in a step."""
Taken = Callable[[int, Sequence[int], Exchange], None]
"""Called with the client, its respondents' numbers and what crossed about them."""


@dataclass(frozen=True)
class Shard:
    """One client's respondents."""

    samples: tuple[Encoded, ...]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Without end: respondents' numbers, and whether they end a pass; no batch belongs to two passes."""
        while True:
            order = rng.permutation(len(self.samples)).tolist()
            for start in range(0, len(order), size):
                yield tuple(order[start : start + size]), start + size >= len(order)


def turns(tuning: Tuning, client: int) -> tuple[int, int]:
    """How many batches a client sends in the whole tuning, and of how many respondents."""
    parallel = tuning.schedule == "parallel"
    steps = tuning.steps if parallel else list(islice(tuning.senders(), tuning.steps)).count(client)
    return steps, tuning.sent_at_once(client)


def passes_of(tuning: Tuning, client: int, respondents: int) -> int:
    """How often a client sends all of its respondents."""
    count, size = turns(tuning, client)
    return count // -(-respondents // size)


def whole_passes(tuning: Tuning, client: int, respondents: int) -> int:
    """`passes_of`; `InputError` when not once."""
    passes = passes_of(tuning, client, respondents)
    if not passes:
        count, size = turns(tuning, client)
        raise InputError(
            f"client {client + 1} sends {count} batches of {size}, fewer than one pass over its {respondents} "
            "respondents: nothing whole could be recorded. Use more steps, a larger batch or fewer respondents."
        )
    return passes


def tune(
    clients: Sequence[Client],
    server: Server,
    shards: Sequence[Shard],
    tuning: Tuning,
    rng: np.random.Generator,
    *,
    taken: Taken,
    end_pass: Callable[[int, int], None],
    report: Callable[[str, float], None],
) -> tuple[float, ...]:
    """Tune in place; the loss of every step. clients: one half that is handed on, or one per shard for "parallel".

    taken: what crossed the cut; end_pass: called with a client and the number of its pass that has ended.
    """
    trainers = [Trainer(client, tuning, tuning.client_rate, tuning.steps) for client in clients]
    head = Trainer(server, tuning, 1.0, tuning.steps)
    feeds = [shard.batches(turns(tuning, number)[1], rng) for number, shard in enumerate(shards)]
    passes, losses, order = [0] * len(shards), [], tuning.senders()
    started = time.monotonic()
    for step in range(tuning.steps):
        senders = range(len(shards)) if tuning.schedule == "parallel" else (next(order),)
        seen: list[float] = []
        for sender in senders:
            rows, last = next(feeds[sender])
            trainer = trainers[sender % len(trainers)]
            crossed = exchange(
                clients[sender % len(clients)], server, batch_of([shards[sender].samples[row] for row in rows])
            )
            taken(sender, rows, crossed)
            if last:
                end_pass(sender, passes[sender])
                passes[sender] += 1
            seen += crossed.losses.tolist()
            trainer.step(step)
        head.step(step, share=len(list(senders)))
        if tuning.schedule == "parallel" and (step + 1) % tuning.sync == 0:
            _average(clients, shards)
        losses.append(float(np.mean(seen)))
        report(stage(step + 1, tuning.steps, time.monotonic() - started, losses[-1]), (step + 1) / tuning.steps)
    if tuning.schedule == "parallel":
        _average(clients, shards)
    return tuple(losses)


def batch_of(samples: Sequence[Encoded]) -> Batch:
    """Prompts with the one answer of each."""
    return collate([item.prompt for item in samples], [[item.label] for item in samples])


def _average(halves: Sequence[Client], shards: Sequence[Shard]) -> None:
    """Set what is trained in every half to the mean of all, weighted by respondents."""
    mean = average([state(half) for half in halves], [len(shard.samples) for shard in shards])
    for half in halves:
        load_state(half, mean)


class Trainer:
    """One party's optimiser: Adam, linear warm-up and decay, its own gradient clipped to a norm.

    factor: of the rate, but for the LM head, which learns as fast at either party; steps: in all, over which the rate
    decays.
    """

    def __init__(self, half: Client | Server, recipe: Recipe, factor: float, steps: int) -> None:
        self._recipe, self._steps = recipe, steps
        self._trained = [item for item in half.parameters() if item.requires_grad]
        head = set() if half.readout is None else set(half.readout.parameters())
        groups = [
            {"params": [item for item in self._trained if item not in head], "full": recipe.rate * factor},
            {"params": [item for item in self._trained if item in head], "full": recipe.rate},
        ]
        self._adam = torch.optim.Adam(groups, betas=BETAS, fused=True)

    def step(self, number: int, share: int = 1) -> None:
        """One step on the gradients that are there; share: how many batches they are the sum of."""
        for group in self._adam.param_groups:
            group["lr"] = group["full"] * pace(number, self._recipe.warmup, self._steps)
        if share > 1:
            for item in self._trained:
                if item.grad is not None:
                    item.grad /= share
        nn.utils.clip_grad_norm_(self._trained, self._recipe.clip)
        self._adam.step()
        self._adam.zero_grad()

    @property
    def memory(self) -> State:
        """What Adam keeps from step to step: its two moments and the count of steps, by PARAMETER/NAME."""
        kept = self._adam.state_dict()["state"]
        return {f"{number}/{name}": values for number, parts in kept.items() for name, values in parts.items()}

    def recall(self, memory: State) -> None:
        """Go on with the `memory` of a trainer of the same half."""
        kept: dict[int, State] = {}
        for item, values in memory.items():
            number, _, name = item.partition("/")
            kept.setdefault(int(number), {})[name] = values
        self._adam.load_state_dict({**self._adam.state_dict(), "state": kept})


def pace(number: int, warmup: int, steps: int) -> float:
    """The share of the full rate at which a step is made: warm-up, and decay over all steps."""
    return min((number + 1) / (warmup + 1), 1.0, 1 - number / steps)


def stage(done: int, steps: int, seconds: float, loss: float, what: str = "step") -> str:
    """Progress in words: a step's time, and the time left. what: is done so often."""
    each = seconds / done
    left = round(each * (steps - done))
    return f"{what} {done} of {steps}, loss {loss:.3f}, {each:.2g} s each, {left // 60}:{left % 60:02d} left"

"""Both halves of a split LLaMA with their clients' respondents: built untuned, then tuned once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from privbench.defenses.base import CutDefense
from privbench.defenses.cut import Guard
from privbench.targets.split_llama.adapters import clone
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.halves import Client, Exchange, Placement, Server, split
from privbench.targets.split_llama.recipe import Recipe
from privbench.targets.split_llama.tape import Tape
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import Shard, batch_of, tune, whole_passes

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

WATCHED = 0
"""The client whose activations are recorded."""


@dataclass(frozen=True)
class System:
    """clients: one half that is handed on, or one per shard. passes: how often the watched client sends everybody."""

    clients: tuple[Client, ...]
    server: Server
    shards: tuple[Shard, ...]
    tuning: Tuning
    passes: int

    @classmethod
    def build(
        cls,
        model: LlamaForCausalLM,
        train: Sequence[Encoded],
        holder: npt.NDArray[np.int64],
        tuning: Tuning,
        rng: np.random.Generator,
        defense: CutDefense | None = None,
    ) -> System:
        """Split the base and hand out the respondents. holder [train]: which client holds each; defense: on what every
        client sends.

        Raises `InputError` when the cut is too deep, or the watched client makes not one whole pass.
        """
        shards = shards_of(train, holder, tuning.clients)
        passes = whole_passes(tuning, WATCHED, len(shards[WATCHED].samples)) if tuning.tuned == "yes" else 1
        client, server = untuned(model, tuning, rng, k=tuning.k, placement=tuning.placement)
        others = tuning.clients - 1 if tuning.schedule == "parallel" else 0
        clients = (client, *(clone(client) for _ in range(others)))
        table = model.model.embed_tokens.weight.detach()
        if defense is not None:
            # A generator each: clients that drew the same noise would let it be subtracted. Spawned, so that batches
            # are those of the run without a defence.
            for each, own in zip(clients, rng.spawn(len(clients)), strict=True):
                each.guard = Guard(defense, table, torch.Generator().manual_seed(int(own.integers(2**63))))
        return cls(clients, server, shards, tuning, passes)

    def send(self, tape: Tape, report: Callable[[str, float], None]) -> None:
        """What the watched client sends before any training, recorded as one pass."""
        held, size = self.shards[WATCHED].samples, self.tuning.batch
        count = min(self.tuning.record or len(held), len(held))
        for start in range(0, count, size):
            rows = range(start, min(start + size, count))
            with torch.inference_mode():
                tape.release(rows, self.clients[WATCHED](batch_of([held[row] for row in rows])))
            report(f"{rows[-1] + 1} of {count} respondents sent", rows[-1] / count)
        tape.end_pass(0)

    def tune(self, tape: Tape, rng: np.random.Generator, report: Callable[[str, float], None]) -> tuple[float, ...]:
        """Tune in place, recording what the watched client sends; the loss of every step."""

        def taken(sender: int, rows: Sequence[int], crossed: Exchange) -> None:
            if sender == WATCHED:
                tape.release(rows, crossed.cut)
                if tape.upward is not None:
                    tape.upward.release(rows, crossed)

        def end_pass(sender: int, number: int) -> None:
            if sender == WATCHED:
                tape.end_pass(number)

        return tune(
            self.clients, self.server, self.shards, self.tuning, rng, taken=taken, end_pass=end_pass, report=report
        )


def shards_of(train: Sequence[Encoded], holder: npt.NDArray[np.int64], clients: int) -> tuple[Shard, ...]:
    """Each client's respondents, by which client holds each, [train]."""
    return tuple(Shard(tuple(train[int(i)] for i in np.flatnonzero(holder == number))) for number in range(clients))


def untuned(
    model: LlamaForCausalLM, recipe: Recipe, rng: np.random.Generator, *, k: int = 0, placement: Placement = "server"
) -> tuple[Client, Server]:
    """Both halves of the base with adapters drawn by `rng`, which gives one number: the same for every cut."""
    return split(
        model,
        torch.Generator().manual_seed(int(rng.integers(2**63))),
        k=k,
        placement=placement,
        bottleneck=recipe.bottleneck,
        rank=recipe.rank,
        alpha=recipe.alpha,
        train_head=recipe.train_head == "yes",
    )

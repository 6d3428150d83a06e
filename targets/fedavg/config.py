"""All choices of a run of federated averaging, in one object.

What is trained, on whom and by which step is split_llama's (`recipe.Recipe`), so that both can be held beside each
other; what is added is how clients take part. Defaults make as many batches as the split run: 4 clients, 20 rounds, 5
steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privbench.data.catalogue import without_folders
from privbench.errors import InputError, unknown
from privbench.options import AuditOptions
from privbench.targets.split_llama.recipe import (
    DEFAULT_DATA,
    DEFAULT_MODEL,
    LlamaConfig,
    Recipe,
    read_recipe,
    require_data,
)

NAME = "fedavg"
RUNTIMES = ("own", "flower-simulation", "flower-grpc")
_PRETRAINED: Mapping[str, str] = {"rounds": "5", "local_steps": "3"}


@dataclass(frozen=True)
class FedTuning(Recipe):
    """What --set may change; docs/fedavg.md. What is not named here is as in target split-llama; warm-up and decay go
    over all steps of a client.

    rounds         in each of them the server hands its state to clients, which train it and send the difference
    local_steps    steps of Adam that a client makes in a round; its optimiser stays with it
    fraction       of the clients that take part in a round, drawn by seed; one client at the least
    drop           how often a client drops out half-way through a round, from 0 to below 1; or who does, and in which
                   round, counted from 1, as 2@5:3@7
    reference_rounds  of the run about membership and of each reference alike, or one pass over the respondents where
                   that is more
    runtime        what runs the clients: own, all in this process; flower-simulation, in actors of Flower's simulation;
                   flower-grpc, each in a process of its own that Flower reaches over gRPC on the loopback interface
    timeout        seconds that the server waits for a round under Flower; who has not answered then is left out of it
    asked          rounds of that run, evenly spaced, of which a server that holds candidates sees the updates
    """

    references: int = 4
    rounds: int = 20
    local_steps: int = 5
    fraction: float = 1.0
    drop: str = "0"
    reference_rounds: int = 5
    asked: int = 4
    runtime: str = "own"
    timeout: float = 600.0

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {**Recipe.choices, "runtime": RUNTIMES}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction > 1:
            raise InputError(f"fraction must be above 0 and at most 1, got {self.fraction!r}.")
        _ = self._leaving

    def one_pass(self, held: Sequence[int]) -> int:
        """The fewest rounds in which every client that is always drawn trains on each of its respondents once; as many
        more as fewer are drawn. held: how many each one has.
        """
        batches = max(-(-count // self.batch) for count in held)
        return math.ceil(-(-batches // self.local_steps) / self.fraction)

    def leaves(self, rounds: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Who drops out of which round if it takes part, [rounds, clients]."""
        often, listed = self._leaving
        table: npt.NDArray[np.bool_] = rng.random((rounds, self.clients)) < often
        for client, number in listed:
            table[number - 1 : number, client - 1] = True  # a shorter run does not have every round
        return table

    @property
    def _leaving(self) -> tuple[float, tuple[tuple[int, int], ...]]:
        """How often, and pairs of client and round."""
        often, pairs = 0.0, tuple[tuple[int, int], ...]()
        try:
            if "@" in self.drop:
                pairs = tuple(_pair(item) for item in self.drop.split(":"))
            else:
                often = float(self.drop)
        except ValueError:
            often = math.nan
        in_range = all(1 <= client <= self.clients and 1 <= number <= self.rounds for client, number in pairs)
        if not (0 <= often < 1 and in_range):
            raise InputError(
                f"drop {self.drop}: give a number from 0 to below 1, or client@round, as 2@5:3@7, with clients from 1 "
                f"to {self.clients} and rounds from 1 to {self.rounds}."
            )
        return often, pairs


@dataclass(frozen=True, kw_only=True)
class FedConfig(LlamaConfig):
    """A resolved run."""

    tuning: FedTuning

    def to_json(self) -> dict[str, Any]:
        return {
            "data": without_folders(self.data),
            "model": self.model.partition(":")[0],
            "tuning": asdict(self.tuning),
            "defense": "none",
            "eps": "inf",
        }


def resolve(options: AuditOptions) -> FedConfig:
    """Check every option. No file is read: a record is verified where its data and its model are not."""
    if options.eps not in (None, math.inf) or options.noise_multiplier or options.sigma:
        raise InputError("fedavg adds no noise yet: leave out --eps (or give inf), --sigma and --noise-multiplier.")
    if options.defenses not in ((), ("none",)):
        raise InputError(f"fedavg takes no --defense yet, got {', '.join(options.defenses)}; leave it out.")
    if options.party not in (None, "server"):
        raise unknown("party", str(options.party), ("server",))
    data, model = options.data or DEFAULT_DATA, options.model or DEFAULT_MODEL
    tuning = read_recipe(FedTuning, model, options.settings, _PRETRAINED, NAME)
    require_data(data, NAME, tuning.schema)
    return FedConfig(data=data, model=model, tuning=tuning, seed=options.seed)


def _pair(text: str) -> tuple[int, int]:
    client, number = text.split("@")
    return int(client), int(number)

"""Rounds of federated averaging as the target makes them: the tiny base, an invented survey, a few respondents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from privbench.options import AuditOptions
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.rounds import Round, Whole, federate
from privbench.targets.fedavg.target import FedAvg
from privbench.targets.split_llama.material import Material
from privbench.targets.split_llama.system import shards_of, untuned
from privbench.targets.split_llama.tokens import Encoded

ADAPTER = "client.embed_tokens.lora_embedding_A.default"
VOCABULARY = 2048
RESPONDENTS = {"train": "48", "validation": "4", "test": "8", "clients": "1"}


@dataclass(frozen=True)
class Rounds:
    """Of one client. done: its rounds."""

    samples: tuple[Encoded, ...]
    done: tuple[Round, ...]

    def move(self, number: int) -> npt.NDArray[np.float64]:
        """Of the embedding's adapter [r, V] in a round."""
        return self.done[number].taken[0].update[ADAPTER].double().numpy()

    def held(self, number: int) -> npt.NDArray[np.bool_]:
        """Which tokens [V] stood in the prompts of a round."""
        there = np.zeros(VOCABULARY, np.bool_)
        for row in self.done[number].taken[0].rows:
            there[list(self.samples[row].prompt)] = True
        return there


@cache
def configured(**settings: str) -> FedConfig:
    return FedAvg().configure(AuditOptions("fedavg", settings={**RESPONDENTS, **settings}), default_registry())


@cache
def material(**settings: str) -> Material:
    return Material.load(configured(**settings), stream(0, "rounds"))


@cache
def rounds(**settings: str) -> Rounds:
    """By the target's own loop, with these settings."""
    tuning, made = configured(**settings).tuning, material()
    rng = stream(0, "training")
    model = Whole(*untuned(made.base.model, tuning, rng))
    shards = shards_of(made.train, made.holder, 1)
    done = tuple(federate(model, shards, tuning, tuning.rounds, rng, lambda stage, share: None))
    return Rounds(shards[0].samples, done)

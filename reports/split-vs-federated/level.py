"""Both methods where nothing can be learned, 200 times: what the paired test makes of them. `make reports`.

Training respondents' answers are dealt out anew, so that no questionnaire tells its answer. A method may still learn
which answer is frequent, one faster than the other: accuracy and ANLS may differ in truth. Kappa is 0 on average
for whatever is answered without knowledge (Cohen 1968), so that there every alarm is a false one.

Goes on where it was stopped: level.json holds a pair of values for each seed that is done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.metrics import cohen_kappa_score

from privbench.options import AuditOptions
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.targets.fedavg.rounds import Whole, federate
from privbench.targets.fedavg.target import FedAvg
from privbench.targets.split_llama.answering import answer
from privbench.targets.split_llama.halves import Client, Server
from privbench.targets.split_llama.material import Material
from privbench.targets.split_llama.recipe import LlamaConfig
from privbench.targets.split_llama.system import System, shards_of, untuned
from privbench.targets.split_llama.target import SplitLlama
from privbench.targets.split_llama.tune import tune
from privbench.threads import one_torch_thread

RUNS = 200
# Few respondents, seen often: what is remembered of them makes either method answer by chance, not one reply for all.
COMMON: Mapping[str, str] = {
    "outcome": "exhaustion", "train": "40", "validation": "8", "test": "120", "clients": "4", "batch": "4",
    "warmup": "2", "prompting": "no", "members": "no",
}  # fmt: skip
SPLIT: Mapping[str, str] = {**COMMON, "steps": "80", "record": "4", "public": "0", "prior": "no"}
FED: Mapping[str, str] = {**COMMON, "rounds": "5", "local_steps": "4", "rate": "8e-3"}
FILE = "level.json"


def dealt(config: LlamaConfig, shuffled: bool) -> tuple[Material, np.random.Generator]:
    """The respondents of this seed, with one another's answers where shuffled, and the generator of the training."""
    rng = stream(config.seed, "run")
    material = Material.load(config, rng)
    order = stream(config.seed, "deal").permutation(len(material.train))
    labels = [material.train[int(row)].label for row in (order if shuffled else np.arange(len(order)))]
    train = tuple(replace(item, label=label) for item, label in zip(material.train, labels, strict=True))
    return replace(material, train=train), rng


def split(seed: int, shuffled: bool) -> float:
    config = SplitLlama().configure(AuditOptions("split-llama", settings=SPLIT, seed=seed), default_registry())
    material, rng = dealt(config, shuffled)
    system = System.build(material.base.model, material.train, material.holder, config.tuning, rng)
    tune(
        system.clients, system.server, system.shards, config.tuning, rng,
        taken=_unheard, end_pass=_unheard, report=_unheard,
    )  # fmt: skip
    return _kappa(system.clients[0], system.server, material)


def averaged(seed: int, shuffled: bool) -> float:
    config = FedAvg().configure(AuditOptions("fedavg", settings=FED, seed=seed), default_registry())
    material, rng = dealt(config, shuffled)
    tuning, model = config.tuning, Whole(*untuned(material.base.model, config.tuning, rng))
    for _ in federate(
        model, shards_of(material.train, material.holder, tuning.clients), tuning, tuning.rounds, rng, _unheard
    ):
        pass
    return _kappa(model.client, model.server, material)


def pair(seed: int, shuffled: bool = True) -> tuple[float, float]:
    """Kappa of split learning and of federated averaging on the same respondents."""
    with one_torch_thread():
        return split(seed, shuffled), averaged(seed, shuffled)


def _kappa(client: Client, server: Server, material: Material) -> float:
    """Quadratic kappa over the test respondents: 0 where everybody gets one answer."""
    asked = material.first
    people = asked.people
    prompts = [item.prompt for item in asked.test]
    said = answer(client, server, prompts, asked.options, material.encoder, speaks=False).chosen
    truth = people.splits.test.answers[people.outcome.question.column].tolist()
    return float(cohen_kappa_score(truth, said, labels=list(asked.options), weights="quadratic"))


def _unheard(*told: Any) -> None:
    """Nothing is recorded, and nobody asks how far it is."""


def main(folder: Path) -> None:
    file = folder / FILE
    done: dict[str, tuple[float, float]] = json.loads(file.read_text()) if file.exists() else {}
    left = [seed for seed in range(RUNS) if str(seed) not in done]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, found in track(
            zip(left, pool.map(pair, left), strict=True), "pairs", len(left), console=Console(stderr=True)
        ):
            done[str(seed)] = found
            part = file.with_suffix(".part")
            part.write_text(json.dumps(done, indent=1) + "\n")
            part.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

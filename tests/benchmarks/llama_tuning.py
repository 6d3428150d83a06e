"""One tuning in a process of its own: python llama_tuning.py MODEL STEPS BATCH TOKENS, prints seconds and memory."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from privbench.targets.split_llama import models
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.system import System
from privbench.targets.split_llama.tape import Tape
from privbench.targets.split_llama.tokens import Encoded
from privbench.threads import one_torch_thread

ANSWER = 3


def main(model: str, steps: int, batch: int, tokens: int) -> None:
    started = time.monotonic()
    base = models.load(model)
    loaded = time.monotonic() - started
    rng = np.random.default_rng(0)
    tuning = Tuning(
        train=40 * batch, clients=4, steps=steps, batch=batch, train_head="yes" if model == "tiny" else "no"
    )
    people = [_person(rng, base.shape.vocabulary, tokens) for _ in range(tuning.train)]
    with one_torch_thread():
        system = System.build(base.model, people, np.arange(tuning.train) % tuning.clients, tuning, rng)
        table = base.model.model.embed_tokens.weight.detach()
        with Tape("client-1", people[:10], system.passes, table, labels=False, dtype="bfloat16", folder=None) as tape:
            started = time.monotonic()
            system.tune(tape, rng, lambda stage, share: None)
            seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{loaded} {seconds} {peak}\n")


def _person(rng: np.random.Generator, vocabulary: int, tokens: int) -> Encoded:
    prompt = tuple(map(int, rng.integers(3, vocabulary, tokens - ANSWER)))
    answers = tuple(0 if place % 10 == 9 else -1 for place in range(len(prompt)))
    return Encoded(prompt, answers, tuple(map(int, rng.integers(3, vocabulary, ANSWER))), head=10, lost=0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""A closed-form stand for attacks: releases drawn from the mechanism itself, so every answer is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privbench.attack import Hints, View, view_of
from privbench.conformance.stand import with_answers
from privbench.mechanism import Mechanism
from privbench.recording import Oracle, Transcript
from privbench.threat import Behaviour, Channel, Knowledge, Party, ThreatModel

AUDITOR = ThreatModel(
    Party.SITE,
    "A",
    Behaviour.CURIOUS,
    frozenset({Channel.GRADIENTS, Channel.AUXILIARY}),
    frozenset(Knowledge),
)
WITH_OUTPUTS = replace(AUDITOR, channels=AUDITOR.channels | {Channel.ACTIVATIONS})


@dataclass(frozen=True)
class Bench:
    """A view with the coins that only the test knows."""

    transcript: Transcript
    oracle: Oracle
    coins: npt.NDArray[np.int64]

    def view(self, hints: int = 50, threat: ThreatModel = WITH_OUTPUTS) -> View:
        rows = np.arange(len(self.coins))
        told = Hints(rows[:hints], self.coins[:hints])
        return view_of(
            threat,
            self.transcript,
            secret="joint",
            moved=tuple(self.transcript.mechanisms[0].sigma),
            candidates=rows[hints:],
            hints=told,
            oracle=self.oracle,
        )

    def accuracy(self, scores: npt.NDArray[np.float64], hints: int = 50) -> float:
        return float(((scores > 0) == (self.coins[hints:] == 1)).mean())


def bench(
    seed: int,
    records: int = 1_000,
    releases: int = 5,
    width: int = 16,
    sigma: float = 1.0,
    clip: float = 1.0,
    tasks: int = 2,
) -> Bench:
    """Saturated moves of norm 2 C per task along one shared direction, K tasks moved together, noise per task."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=width)
    direction /= np.linalg.norm(direction)
    coins = rng.integers(0, 2, records)
    move = tasks * clip * direction
    zero = np.broadcast_to(-move, (releases, records, width)).astype(np.float32)
    one = np.broadcast_to(move, (releases, records, width)).astype(np.float32)
    clean = np.where(coins[None, :, None] == 1, one, zero)
    noise = rng.normal(size=clean.shape) * sigma * np.sqrt(tasks)
    mechanism = Mechanism("gradients", "A", "gaussian", clip, sigma={f"task {k}": sigma for k in range(tasks)})
    transcript = Transcript(
        {
            "gradients/A": (clean + noise).astype(np.float32),
            "gradients/A/seen": np.ones((releases, records), np.uint8),
        },
        {"mechanisms": [mechanism.to_json()]},
    )
    oracle = Oracle(
        {
            "oracle/gradients/A/joint/0": zero,
            "oracle/gradients/A/joint/1": one,
            "oracle/gradients/A/clean": clean,
        }
    )
    return Bench(with_answers(transcript, oracle, rng), oracle, coins)

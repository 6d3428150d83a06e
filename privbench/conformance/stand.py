"""The stand on which attacks are checked: recordings of target gaussian, whose every answer is known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Attack, Guess, Hints, NotApplicable, View, view_of
from privbench.errors import PrivbenchError
from privbench.options import AuditOptions
from privbench.recording import JOINT, Oracle, Transcript
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import Target, TargetRun
from privbench.threat import Channel, Knowledge, ThreatModel

SITE, HINTS = "A", 64


@dataclass(frozen=True)
class Stand:
    """A recording with the coins that only the check knows. `threat` may do and know everything."""

    run: TargetRun
    threat: ThreatModel
    coins: npt.NDArray[np.uint8]

    def view(self, threat: ThreatModel | None = None, *, flipped: bool = False) -> View:
        """Of all canaries but the hints; `flipped` hints say the opposite of every coin."""
        canaries, coins = self.run.secrets.coins(JOINT)
        told = coins[:HINTS].astype(np.int64)
        return view_of(
            threat or self.threat,
            self.run.transcript,
            secret=JOINT,
            moved=self.run.secrets.joint,
            candidates=canaries[HINTS:],
            hints=Hints(canaries[:HINTS], 1 - told if flipped else told),
            oracle=self.run.oracle,
        )

    def right(self, guess: Guess, row: int = -1) -> float:
        """Share of coins that `accumulated[row]` reads."""
        return float(((guess.accumulated[row] > 0) == (self.coins[HINTS:] == 1)).mean())


@contextmanager
def stand(seed: int, sigma: float, **settings: Any) -> Iterator[Stand]:
    """Draw a recording into files, where attacks find it in an audit; they are gone when the context ends."""
    registry = default_registry()
    target: Target = registry.get("targets", "gaussian")()
    texts = {"records": "600", "releases": "4", "width": "16", "rho": "0.5", **{k: str(v) for k, v in settings.items()}}
    with tempfile.TemporaryDirectory(prefix="privbench-") as folder:
        options = AuditOptions("gaussian", sigma=sigma, seed=seed, settings=texts, data=str(Path(folder) / "recording"))
        config = target.configure(options, registry)
        run = target.run(config, stream(seed, "conformance"))
        threat = target.threats(config)[-1]
        threat = replace(
            threat, channels=threat.channels | {Channel.ACTIVATIONS}, knowledge=threat.knowledge | {Knowledge.BASE}
        )
        if run.oracle is not None and f"oracle/gradients/{SITE}/{JOINT}/0" in run.oracle.arrays:
            beside = with_answers(run.transcript, run.oracle, stream(seed, "answers"))
            run = replace(run, transcript=beside)
        yield Stand(run, threat, run.secrets.coins(JOINT)[1])


def with_answers(transcript: Transcript, oracle: Oracle, rng: np.random.Generator) -> Transcript:
    """The same releases as gradients of outputs, behind which an answer of one token follows by the coin: outputs and a
    public norm and head of two tokens, through which the answers cause gradients along the mean of the coin's moves.
    """
    zero, one = (np.asarray(oracle.arrays[f"oracle/gradients/{SITE}/{JOINT}/{coin}"][0]) for coin in (0, 1))
    move = (one - zero).mean(axis=0, dtype=np.float64)
    if not move.any():  # a coin that moves nothing: any direction
        move = rng.standard_normal(len(move))
    move /= np.linalg.norm(move)
    releases, records, width = transcript.arrays[f"gradients/{SITE}"].shape
    outputs = rng.standard_normal((releases, records, 1, width))
    outputs -= (outputs @ move)[..., None] * move  # both answers are equally likely, and the norm passes the move on
    return Transcript(
        {
            **transcript.arrays,
            f"activations/{SITE}": outputs.astype(np.float32),
            f"activations/{SITE}/mask": np.ones((records, 1), np.uint8),
            "public/norm": np.ones(width, np.float32),
            "public/head": np.stack([move, -move]).astype(np.float32),
            f"public/labels/{JOINT}": np.array([[0], [1]]),
        },
        transcript.metadata,
        transcript.path,
    )


def guess(attack: Attack, view: View, seed: int = 0) -> Guess:
    """The attack's guess; it must be applicable here."""
    result = attack(view, np.random.default_rng(seed))
    if isinstance(result, NotApplicable):
        raise PrivbenchError(f"not applicable to a full view of cut gradients: {result.reason}")
    return result

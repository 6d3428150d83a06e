"""The stand on which attacks are checked: recordings of target gaussian, whose every answer is known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Attack, Guess, Hints, NotApplicable, View, view_of
from privbench.errors import PrivbenchError
from privbench.options import AuditOptions
from privbench.recording import JOINT
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import Target, TargetRun
from privbench.threat import ThreatModel

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
        yield Stand(run, target.threats(config)[-1], run.secrets.coins(JOINT)[1])


def guess(attack: Attack, view: View, seed: int = 0) -> Guess:
    """The attack's guess; it must be applicable here."""
    result = attack(view, np.random.default_rng(seed))
    if isinstance(result, NotApplicable):
        raise PrivbenchError(f"not applicable to a full view of cut gradients: {result.reason}")
    return result

"""The stand on which estimations are checked: a linear cut, recorded or made under an attack that acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Hints, Index, View, view_of
from privbench.conformance.client import SERVER, SITE, Client
from privbench.estimated import Fit, Measured
from privbench.estimates import ActiveEstimation, Estimation, Floats
from privbench.recording import Secrets, Transcript
from privbench.threat import Channel, Knowledge, ThreatModel, malicious_server, server_with_patients

Make = Callable[[], Estimation]

TASK = "outcome"
SENT, INDEX, TOLD = f"activations/{SITE}", "auxiliary/index", f"auxiliary/{SERVER}/inputs/{SITE}"
LABELS, MODEL = f"outputs/{TASK}/labels", f"model/{SITE}"
WEIGHT, BIAS = f"{MODEL}/weight", f"{MODEL}/bias"
RECORDS, KNOWN, HOURS, INPUTS, WIDTH = 240, 160, 2, 3, 8
GRID = 2.0**-16
"""Of the inputs, so that other units and other zeros round nothing: trainings in which adversaries oppose each other
turn any last digit into another result.
"""
BRIEF, STEPS = 20, 60
"""Steps of the client, where an attack acts in its training: to see what it does, and how much it then reads."""


@dataclass(frozen=True)
class EstimationStand:
    """A recording of a linear cut, with the inputs [N, H, F] that only the check knows. `threat` sees everything."""

    transcript: Transcript
    inputs: Floats
    threat: ThreatModel

    @property
    def asked(self) -> Index:
        """The records whose inputs nobody told."""
        return np.setdiff1d(np.arange(RECORDS), self.transcript.array(INDEX))

    def view(self, threat: ThreatModel | None = None, candidates: Index | None = None) -> View:
        rows = self.asked if candidates is None else candidates
        return view_of(
            threat or self.threat, self.transcript, secret=SITE, moved=(), candidates=rows, hints=Hints.none()
        )

    def fit(self, estimate: Floats) -> Fit:
        """R2 of estimates [m, H, F] of the asked records."""
        values = self.inputs[self.asked]
        return Measured(values, np.ones(values.shape, np.bool_)).fit(estimate)

    def stored(self, folder: Path) -> EstimationStand:
        """The same in files, the scorer's secrets beside the recording, as an audit keeps them."""
        path = folder / Transcript.file_name()
        self.transcript.save(path)
        Secrets({f"inputs/{SITE}": self.inputs.astype(np.float32)}).save(folder / Secrets.file_name())
        return replace(self, transcript=Transcript.load(path))


@dataclass(frozen=True)
class Drawn:
    """What a stand is made from: inputs [N, H, F], what enters the encoder and the noise at the cut, [N, H * F] and
    [N, d], the encoder's frame [d, H * F], labels [N], and what the server holds.
    """

    inputs: Floats
    entering: Floats
    noise: Floats
    frame: Floats
    labels: Index
    own: dict[str, npt.NDArray[Any]]

    def client(self, steps: int) -> Client:
        """A system of these inputs; the noise is on what enters, where a training that sees it often averages none."""
        entering = self.entering + self.noise[:, : self.entering.shape[1]]
        return Client(entering, {TASK: self.labels}, self.own, WIDTH, steps)


def drawn(
    seed: int, noise: float, gains: tuple[float, ...] = (1.0,) * INPUTS, gaps: float = 0.0, silent: bool = False
) -> Drawn:
    """See `estimation_stand`."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal((RECORDS, HOURS, INPUTS)) / GRID) * GRID
    frame, _ = np.linalg.qr(rng.standard_normal((WIDTH, HOURS * INPUTS)))
    entering, blur = (x * gains).reshape(RECORDS, -1), noise * rng.standard_normal((RECORDS, WIDTH))
    if silent:
        entering, blur = (np.broadcast_to(part[0], part.shape) for part in (entering, blur))
    known = np.sort(rng.choice(RECORDS, KNOWN, replace=False))
    own: dict[str, npt.NDArray[Any]] = {INDEX: known, TOLD: x[known].astype(np.float32)}
    if gaps:
        own[f"{TOLD}/observed"] = (rng.random(x[known].shape) >= gaps).astype(np.uint8)
    labels = rng.integers(0, 2, RECORDS)
    own[f"auxiliary/{SERVER}/labels/{TASK}"] = labels[known]
    return Drawn(x, entering, blur, frame, labels, own)


def estimation_stand(
    seed: int,
    noise: float = 1.0,
    *,
    gains: tuple[float, ...] = (1.0,) * INPUTS,
    gaps: float = 0.0,
    silent: bool = False,
    attack: Estimation | None = None,
    steps: int = BRIEF,
) -> EstimationStand:
    """Draw a recording. x ~ N(0, I) goes in, Q (g x) + s n comes out, the columns of Q orthonormal: the best estimate
    explains g^2 / (g^2 + s^2) of each input. gains: g of each input; noise: s; gaps: share of the known inputs that
    were not measured; silent: everybody sends the same. The encoder is recorded, and labels, fair coins that say
    nothing of the inputs.

    attack: one that acts trains a `Client` of these inputs, in so many steps; g x + s n goes in there, so that as much
    can be explained whatever has become of the encoder.
    """
    made = drawn(seed, noise, gains, gaps, silent)
    if isinstance(attack, ActiveEstimation):
        client_rng, adversary_rng = np.random.default_rng((seed, 1)).spawn(2)
        arrays, threat = made.client(steps).run(attack.adversary(adversary_rng), client_rng), malicious_server()
    else:
        sent = (made.entering @ made.frame.T + made.noise).astype(np.float32)
        arrays, threat = {SENT: sent[None], WEIGHT: made.frame}, server_with_patients()
    weight = (arrays[WEIGHT] * np.tile(gains, HOURS)).astype(np.float32)
    arrays |= {**made.own, WEIGHT: weight, LABELS: made.labels[:, None]}
    everything = replace(threat, channels=frozenset(Channel), knowledge=frozenset(Knowledge))
    return EstimationStand(Transcript(arrays), made.inputs, everything)

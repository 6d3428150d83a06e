"""A small system in which an adversary acts: two sites with linear encoders, trained by what a server sends back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from privbench.errors import InputError
from privbench.estimates import Floats
from privbench.target import ActiveAdversary
from privbench.threat import Channel, Party

Arrays = Mapping[str, npt.NDArray[Any]]

SITE, OTHER = "A", "B"
SERVER = str(Party.SERVER)
_BATCH, _RATE = 64, 0.01
_KEEP, _KEEP_SQUARES = 0.9, 0.999


@dataclass(frozen=True)
class Client:
    """entering [N, K]: what enters the encoder of SITE; those of OTHER are drawn. labels: [N] or [N, L] by task.

    own: what the server holds before the run, named as in a transcript; nobody trains on its own patients
    (auxiliary/index). width: numbers that a site sends for a record, at least K.
    """

    entering: Floats
    labels: Arrays
    own: Arrays
    width: int
    steps: int = 200

    def run(self, adversary: ActiveAdversary, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        """Train, and record SITE's activations [1, N, d], its encoder, and what the adversary kept.

        Every batch goes to the server with its labels first, and comes back as gradients of a logistic loss in a fixed
        head, or as what the adversary puts in their place. Noise belongs in `entering`: so it hides as much in all
        releases together as in one.
        """
        if adversary.party != SERVER:
            raise InputError(f"this client is trained by a server; the adversary acts at '{adversary.party}'.")
        entering = {SITE: self.entering, OTHER: rng.standard_normal(self.entering.shape)}
        encoders = {site: _Encoder(values.shape[1], self.width, rng) for site, values in entering.items()}
        labels = {task: values.reshape(len(values), -1).astype(np.float32) for task, values in self.labels.items()}
        truth = np.concatenate([np.empty((len(self.entering), 0)), *labels.values()], axis=1)
        heads = {site: rng.standard_normal((self.width, truth.shape[1])) for site in encoders}
        trained = np.setdiff1d(np.arange(len(truth)), self.own["auxiliary/index"])
        adversary.begin(self.own)
        for _ in range(self.steps):
            rows = rng.choice(trained, min(_BATCH, len(trained)), replace=False)
            for task, values in labels.items():
                adversary.receive(Channel.LABELS, task, rows, values[rows])
            sent = {site: encoder.send(entering[site][rows]) for site, encoder in encoders.items()}
            for site, values in sent.items():
                adversary.receive(Channel.ACTIVATIONS, site, rows, values)
            wrong = expit(sum(sent[site] @ heads[site] for site in heads)) - truth[rows]
            for site, encoder in encoders.items():
                honest = (wrong @ heads[site].T).astype(np.float32)
                encoder.learn(entering[site][rows], adversary.send(Channel.GRADIENTS, site, rows, honest))
        recorded = {
            f"activations/{SITE}": encoders[SITE].send(self.entering)[None],
            f"model/{SITE}/weight": encoders[SITE].weight.astype(np.float32),
        }
        return recorded | {f"adversary/{name}": values for name, values in adversary.kept().items()}


class _Encoder:
    """What enters times a weight [d, K], whose columns are orthonormal at first."""

    def __init__(self, inputs: int, width: int, rng: np.random.Generator) -> None:
        self.weight, _ = np.linalg.qr(rng.standard_normal((width, inputs)))
        self._mean = self._square = np.zeros_like(self.weight)
        self._done = 0

    def send(self, entering: Floats) -> npt.NDArray[np.float32]:
        """[B, d] of [B, K]."""
        sent: npt.NDArray[np.float32] = (entering @ self.weight.T).astype(np.float32)
        return sent

    def learn(self, entering: Floats, gradients: npt.NDArray[Any]) -> None:
        """One step of Adam (Kingma, Ba 2015) against gradients [B, d], each of its own record's loss."""
        slope = gradients.T @ entering / len(entering)
        self._done += 1
        self._mean = _KEEP * self._mean + (1 - _KEEP) * slope
        self._square = _KEEP_SQUARES * self._square + (1 - _KEEP_SQUARES) * slope**2
        mean, square = self._mean / (1 - _KEEP**self._done), self._square / (1 - _KEEP_SQUARES**self._done)
        self.weight = self.weight - _RATE * mean / (np.sqrt(square) + 1e-8)

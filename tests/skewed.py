"""A linear cut that is identified without a pair: independent inputs, each of another skewed distribution, and labels.

The best estimate of each input is its posterior mean given one noisy reading of it and its label, so that the R2 of no
attack lies above what quadrature gives here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from privbench.attack import Hints, View, view_of
from privbench.conformance.client import Client
from privbench.estimated import Fit, Measured
from privbench.estimates import ActiveEstimation, Estimation, Floats
from privbench.recording import Transcript
from privbench.threat import malicious_server, server_with_patients

RECORDS, WIDTH, STEPS = 1_200, 8, 250
SPREAD = np.array([1.0, 0.9, 0.7])
DOUBT = 0.5
"""Noise of the labels, in an input's spread: they explain half of each input by themselves."""
_SHARE, _LOW, _HIGH, _WITHIN = 0.7, -0.6, 1.4, 0.4
_MIXED = (_SHARE * _LOW**2 + (1 - _SHARE) * _HIGH**2 + _WITHIN**2) ** 0.5


def inputs(rng: np.random.Generator, records: int) -> Floats:
    """[N, 1, 3] of mean 0: exponential, minus exponential, a mixture of two normals; of the spreads above."""
    waits = rng.exponential(size=(records, 2)) - 1
    centre = np.where(rng.random(records) < _SHARE, _LOW, _HIGH)
    mixed = (centre + _WITHIN * rng.standard_normal(records)) / _MIXED
    return (np.column_stack([waits[:, 0], -waits[:, 1], mixed]) * SPREAD)[:, None, :]


def labels(rng: np.random.Generator, x: Floats) -> npt.NDArray[np.int64]:
    """[N, 3]: whether each input, with its own noise, is above its mean."""
    return (x[:, 0] / SPREAD + DOUBT * rng.standard_normal((len(x), 3)) > 0).astype(np.int64)


def _mixture(x: Floats) -> Floats:
    ends = ((_SHARE, _LOW), (1 - _SHARE, _HIGH))
    found: Floats = sum(share * stats.norm.pdf(x * _MIXED, at, _WITHIN) for share, at in ends) * _MIXED
    return found


DENSITIES: tuple[Callable[[Floats], Floats], ...] = (
    lambda x: stats.expon.pdf(x + 1),
    lambda x: stats.expon.pdf(1 - x),
    _mixture,
)
"""Of each input in its own spread."""


def best(density: Callable[[Floats], Floats], noise: float, doubt: float = DOUBT) -> float:
    """R2 of the posterior mean of x ~ density (mean 0, spread 1) given x + noise e and whether x + doubt e' > 0."""
    if not noise:
        return 1.0
    step = 0.02
    x = np.arange(-12, 12, step) + step / 2  # where a density jumps, at -1 and 1, one step ends and another begins
    seen = np.linspace(-12 - 6 * noise, 12 + 6 * noise, 801)
    near = stats.norm.pdf(seen[:, None], x, noise) * density(x)
    found = 0.0
    for told in (stats.norm.cdf(x / doubt), stats.norm.sf(x / doubt)):
        mass, moment = near @ told * step, near @ (told * x) * step
        found += float((moment**2 / np.maximum(mass, 1e-300)).sum() * (seen[1] - seen[0]))
    return found


@cache
def optimum(noise: float) -> float:
    """Mean R2 over the inputs of the best estimate, where so much noise is added to each."""
    return float(np.mean([best(density, noise / spread) for density, spread in zip(DENSITIES, SPREAD, strict=True)]))


@dataclass(frozen=True)
class Skewed:
    """A recording of the cut and its inputs [N, 1, 3]; the first half of the records is the server's own."""

    view: View
    inputs: Floats

    def fit(self, estimate: Floats) -> Fit:
        truth = self.inputs[self.view.candidates]
        return Measured(truth, np.ones(truth.shape, np.bool_)).fit(estimate)


def skewed(seed: int, noise: float, attack: Estimation, labelled: bool = True) -> Skewed:
    """Recorded at an orthonormal cut, or made under an attack that acts, with as much noise on what enters."""
    data_rng, client_rng, adversary_rng = np.random.default_rng(seed).spawn(3)
    x = inputs(data_rng, RECORDS)
    answers = {f"above-{k}": column[:, None] for k, column in enumerate(labels(data_rng, x).T)} if labelled else {}
    index = np.arange(RECORDS // 2)
    own = {"auxiliary/index": index, "auxiliary/server/inputs/A": x[index].astype(np.float32)}
    own |= {f"auxiliary/server/labels/{task}": values[index] for task, values in answers.items()}
    entering = x[:, 0] + noise * data_rng.standard_normal((RECORDS, 3))
    if isinstance(attack, ActiveEstimation):
        arrays = Client(entering, answers, own, WIDTH, STEPS).run(attack.adversary(adversary_rng), client_rng)
    else:
        frame, _ = np.linalg.qr(client_rng.standard_normal((WIDTH, 3)))
        arrays = {"activations/A": (entering @ frame.T)[None].astype(np.float32)}
    arrays |= own | {f"outputs/{task}/labels": values for task, values in answers.items()}
    threat = malicious_server() if isinstance(attack, ActiveEstimation) else server_with_patients()
    rows = np.arange(len(index), RECORDS)
    view = view_of(threat, Transcript(arrays), secret="A", moved=(), candidates=rows, hints=Hints.none())
    return Skewed(view, x)

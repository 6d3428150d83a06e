"""Draw a recording from the mechanism: gradients (p - y) G along fixed directions, clipped, noised, summed.

The directions of any two tasks have cosine rho; they are the same for every record and release, which is what a
curious site would hope for. The moves are then known: 2 C for a saturated task, and s as in docs/bounds.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.growing import Growing
from privbench.recording import JOINT, STANDARD_NORMAL, Oracle, Secrets, Transcript
from privbench.target import Progress
from privbench.targets.gaussian.config import SITE, Draw, GaussianConfig
from privbench.tensors import RELEASE_TYPES, Spec

Array = npt.NDArray[np.float64]
_COMPARED = 16
"""Records whose clipped gradients are computed once with and once without their batch."""


@dataclass(frozen=True)
class Drawn:
    """A recording, with what only its maker can know: how much clipped gradients depend on their batch (relative), and
    the share of gradients that the clip shortened.
    """

    transcript: Transcript
    oracle: Oracle
    secrets: Secrets
    batch_dependence: float
    clip_fraction: float


def draw_recording(config: GaussianConfig, rng: np.random.Generator, report: Progress, folder: Path | None) -> Drawn:
    """Everything of `config`, release by release into `folder` (or in memory)."""
    draw = config.draw
    labels_rng, gain_rng, direction_rng, seen_rng, noise_rng, cut_rng = rng.spawn(6)
    labels, secrets = _labels(draw, labels_rng)
    sent, behind = linear_cut(draw, cut_rng) if draw.inputs else ({}, {})
    priors = {"priors": {SITE: STANDARD_NORMAL}} if draw.inputs else {}
    secrets = Secrets({**secrets.arrays, **behind}, {**secrets.metadata, **priors})
    gains = draw.gain * np.exp(draw.spread * gain_rng.standard_normal(draw.records))
    directions = _directions(draw, direction_rng)
    scales = {side: _bounded(draw, gains, np.full_like(labels, side)) for side in (0, 1)}
    actual = _bounded(draw, gains, labels)
    parts = {name: _Part(draw, name, directions, labels, actual, scales) for name in _streams(draw)}
    shape = (draw.releases, draw.records, draw.width)
    kind = RELEASE_TYPES[draw.record_as]
    seen = (seen_rng.random(shape[:2]) < draw.seen).astype(np.uint8)
    layout: dict[str, Spec] = {f"gradients/{SITE}{name}": (kind, shape) for name in parts}
    layout |= {name: (array.dtype, array.shape) for name, array in {f"gradients/{SITE}/seen": seen, **sent}.items()}
    hypotheses = {
        name: array * draw.signal for part in parts.values() for name, array in part.hypotheses(draw.moved_names)
    }
    with (
        Growing(Transcript, layout, folder) as transcript,
        Growing(Oracle, dict.fromkeys(hypotheses, (kind, shape)), folder) as oracle,
    ):
        noises = {
            name: _Noise(config, name, child) for name, child in zip(parts, noise_rng.spawn(len(parts)), strict=True)
        }
        for release in range(draw.releases):
            there = seen[release][:, None]
            for name in parts:
                clean = hypotheses[f"oracle/gradients/{SITE}/clean{name}"]
                transcript.put(f"gradients/{SITE}{name}", (clean + noises[name](release)) * there, release)
            for name, array in hypotheses.items():
                oracle.put(name, array * there, release)
            report("drawing releases", (release + 1) / draw.releases)
        for name, array in {f"gradients/{SITE}/seen": seen, **sent}.items():
            transcript.put(name, array)
        claims = [claim.to_json() for claim in config.claims]
        described = [config.mechanism] if config.cut is None else [config.mechanism, config.cut]
        metadata = {"mechanisms": [item.to_json() for item in described], "claims": claims}
        recorded = transcript.finish(metadata), oracle.finish({})
    return Drawn(*recorded, secrets, _batch_dependence(draw, gains, labels), _clip_fraction(draw, gains, labels))


Arrays = dict[str, npt.NDArray[Any]]


def linear_cut(draw: Draw, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """What is sent, with half of the records known to the server, and the inputs behind it, for the secrets.

    The map has orthonormal rows, so that the posterior variance of each input is s^2 / (1 + s^2), s the noise.
    """
    x = rng.standard_normal((draw.records, 1, draw.inputs)).astype(np.float32)
    frame, _ = np.linalg.qr(rng.standard_normal((draw.width, draw.inputs)))
    e = x[:, 0] @ frame.T + draw.cut_noise * rng.standard_normal((draw.records, draw.width))
    known = np.sort(rng.choice(draw.records, draw.records // 2, replace=False))
    own: Arrays = {"auxiliary/index": known, f"auxiliary/server/inputs/{SITE}": x[known]}
    own[f"model/{SITE}/weight"] = frame.astype(np.float32)
    return {f"activations/{SITE}": e[None].astype(np.float32), **own}, {f"inputs/{SITE}": x}


def _labels(draw: Draw, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], Secrets]:
    """Labels [N, K], coins in place of the moved tasks' on canaries; natural ones from correlated normals."""
    shared, own = rng.standard_normal((draw.records, 1)), rng.standard_normal((draw.records, draw.tasks))
    latent = np.sqrt(draw.association) * shared + np.sqrt(1 - draw.association) * own
    labels = (latent < special.ndtri(draw.prevalence)).astype(np.int64)
    canaries = np.sort(rng.choice(draw.records, draw.coined, replace=False))
    coins = rng.integers(0, 2, draw.coined)
    labels[canaries[:, None], np.arange(len(draw.moved_names))] = coins[:, None]
    joint, mask = np.full(draw.records, -1, np.int64), np.zeros(draw.records, np.uint8)
    joint[canaries], mask[canaries] = coins, 1
    arrays: dict[str, npt.NDArray[Any]] = {f"labels/{task}": labels[:, k] for k, task in enumerate(draw.task_names)}
    secrets = Secrets({**arrays, f"labels/{JOINT}": joint, f"canary/{JOINT}": mask}, {"joint": list(draw.moved_names)})
    return labels, secrets


def _directions(draw: Draw, rng: np.random.Generator) -> Array:
    """Unit vectors [K, d] with pairwise cosine rho."""
    gram = np.full((draw.tasks, draw.tasks), draw.rho)
    np.fill_diagonal(gram, 1.0)
    values, vectors = np.linalg.eigh(gram)
    frame, _ = np.linalg.qr(rng.standard_normal((draw.width, draw.tasks)))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ frame.T)


def _bounded(draw: Draw, gains: Array, labels: npt.NDArray[np.int64]) -> Array:
    """Length along the task's direction [N, K] of each clipped gradient, under these labels."""
    batches = np.split(np.arange(len(gains)), range(draw.batch, len(gains), draw.batch))
    return np.concatenate([_clipped(draw, gains[rows], labels[rows]) for rows in batches])


def _clipped(draw: Draw, gains: Array, labels: npt.NDArray[np.int64]) -> Array:
    """One batch through the clip that the draw really has."""
    raw = (draw.p - labels) * gains[:, None]
    if draw.broken == "clip-after-sum":
        return raw
    if draw.broken == "batch-max":
        return np.asarray(raw * (draw.clip / np.abs(raw).max()))
    if draw.broken == "mean-loss":
        raw = raw / len(gains)
    if draw.broken == "batch-level":
        raw = raw - raw.mean(axis=0)
    return np.clip(raw, -draw.clip, draw.clip)


def _batch_dependence(draw: Draw, gains: Array, labels: npt.NDArray[np.int64]) -> float:
    rows = slice(0, min(_COMPARED, len(gains)))
    together = _clipped(draw, gains[rows], labels[rows])
    alone = np.concatenate([_clipped(draw, gains[i : i + 1], labels[i : i + 1]) for i in range(len(together))])
    return float(np.abs(together - alone).max() / max(np.abs(alone).max(), 1e-30))


def _clip_fraction(draw: Draw, gains: Array, labels: npt.NDArray[np.int64]) -> float:
    scale = draw.batch if draw.broken == "mean-loss" else 1
    return float((np.abs(draw.p - labels) * gains[:, None] / scale > draw.clip).mean())


def _streams(draw: Draw) -> tuple[str, ...]:
    """What follows gradients/SITE: nothing for the sum, /TASK where tasks are sent apart."""
    return tuple(f"/{task}" for task in draw.task_names) if draw.noise == "separate" else ("",)


@dataclass(frozen=True)
class _Part:
    """The noise-free releases [N, d] of one stream."""

    draw: Draw
    name: str
    directions: Array
    labels: npt.NDArray[np.int64]
    actual: Array
    scales: dict[int, Array]

    def hypotheses(self, moved: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
        """The clean release, and the release under either label of each moved task and of all together."""
        tasks = self.draw.task_names
        if self.name:
            k, task = tasks.index(self.name[1:]), self.name[1:]
            unit = self.directions[k]
            yield f"oracle/gradients/{SITE}/clean{self.name}", self.actual[:, [k]] * unit
            if task in moved:
                for side in (0, 1):
                    yield f"oracle/gradients/{SITE}/{task}/{side}", self.scales[side][:, [k]] * unit
            return
        yield f"oracle/gradients/{SITE}/clean", self._sum(())
        for secret, columns in ((JOINT, moved), *((task, (task,)) for task in moved)):
            for side in (0, 1):
                yield f"oracle/gradients/{SITE}/{secret}/{side}", self._sum(columns, side)

    def _sum(self, changed: tuple[str, ...], side: int = 0) -> Array:
        """The sum over tasks, where the labels of `changed` are all `side`."""
        lengths = self.actual.copy()
        for task in changed:
            k = self.draw.task_names.index(task)
            lengths[:, k] = self.scales[side][:, k]
        total = lengths @ self.directions
        if self.draw.broken == "clip-after-sum":
            norms = np.linalg.norm(total, axis=1, keepdims=True)
            total = total * np.minimum(1.0, self.draw.clip / np.maximum(norms, 1e-30))
        return np.asarray(total)


class _Noise:
    """The noise of one stream, release by release, as it is really drawn."""

    def __init__(self, config: GaussianConfig, name: str, rng: np.random.Generator) -> None:
        mechanism = config.mechanism
        self._draw, self._rng = config.draw, rng
        self._sigma = mechanism.sigma[name[1:]] if name else mechanism.total_sigma
        self._kept = self._fresh() if config.draw.broken == "reuses-noise" else None

    def __call__(self, release: int) -> Array:
        """[N, d]; the sum of independent draws per task is one draw of their total variance."""
        broken = self._draw.broken
        if broken == "skips-noise" and release == self._draw.releases // 2:
            return np.zeros((self._draw.records, self._draw.width))
        drawn = self._kept if self._kept is not None else self._fresh()
        return drawn / 2 if broken == "half-noise" else drawn

    def _fresh(self) -> Array:
        rows = 1 if self._draw.broken == "one-draw" else self._draw.records
        drawn = self._rng.standard_normal((rows, self._draw.width)) * self._sigma
        return np.asarray(np.broadcast_to(drawn, (self._draw.records, self._draw.width)))

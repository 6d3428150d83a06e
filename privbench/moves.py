"""What the coin does to a release: counterfactual moves, their cosine rho, and the accuracy they predict.

rho is measured between the moves clip g_k(1) - clip g_k(0) of each record, never between the gradients that
happened (those mix signs), and never replaced by the labels' correlation (docs/bounds.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.mechanism import Mechanism
from privbench.recording import Oracle
from privbench.stats.shares import upper_mean
from privbench.tensors import step_of

Array = npt.NDArray[np.float64]

_ROUNDING = 1e-4
"""float32 sums of clipped gradients stay far closer to what they should be."""


@dataclass(frozen=True)
class Rho:
    """Cosine between the moves of pairs of tasks, over records and releases.

    `mean_absolute` is averaged per record first; `upper` is its one-sided upper confidence limit over records at
    error rate `alpha`. Quantiles are of the signed cosine. `label_association` is the mean phi coefficient of the
    tasks' natural labels: shown beside rho because it is often, and wrongly, used in its place.
    """

    mean_absolute: float
    upper: float
    alpha: float
    mean: float
    quantiles: Mapping[str, float]
    records: int
    label_association: float | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "quantiles": dict(self.quantiles)}


@dataclass(frozen=True)
class Prediction:
    """What the oracle should reach, by its own moves: mean Phi(s_i) in one release, and accumulated per release [T]."""

    one: float
    accumulated: tuple[float, ...]


@dataclass(frozen=True)
class Moves:
    """signal [T, m]: s_i of the joint move, None without noise; cosines [T, m, pairs].

    excess: the largest move over what the clip allows, 2 C for a task and 2 C J for all of them together (2 C where
    the sum is clipped); at_clip, above_clip: share of hypothetical releases whose norm is C itself, and larger.
    Clipped after the sum, many are at C and none above; clipped per task, a sum passes C as soon as tasks agree.
    """

    signal: Array | None
    excess: float
    cosines: Array
    at_clip: float = 0.0
    above_clip: float = 0.0
    released: Array | None = None

    @classmethod
    def measure(
        cls,
        oracle: Oracle,
        site: str,
        secret: str,
        moved: Sequence[str],
        rows: npt.NDArray[np.int64],
        mechanism: Mechanism | None,
        seen: npt.NDArray[Any] | None = None,
    ) -> Moves | None:
        """Read the oracle's releases at `site` for these records, one release at a time; None where they are missing.

        mechanism: None where it is not described; then nothing is said of its clip and signal. seen [T, N]: where a
        record was released; None for always. What was not released moved nothing.
        """
        apart = mechanism is not None and mechanism.noise == "separate"
        names = _hypotheses(oracle, site, moved if apart else (secret, *moved))
        tasks = [task for task in moved if task in names]
        if (secret not in names and not apart) or not names or (apart and len(tasks) < len(moved)):
            return None
        releases = len(oracle.arrays[next(iter(names.values()))[0]])
        pairs = list(itertools.combinations(range(len(tasks)), 2))
        cosines = np.zeros((releases, len(rows), len(pairs)))
        signal = np.zeros((releases, len(rows)))
        clip = _ClipTally(mechanism, secret, len(moved))
        released = np.ones((releases, len(rows))) if seen is None else seen[:, rows].astype(np.float64)
        for release in range(releases):
            there = released[release][:, None]
            moves = {}
            for name, (zero, one) in names.items():
                stored = [np.asarray(oracle.arrays[item][release])[rows] for item in (zero, one)]
                either = [np.where(there > 0, block.astype(np.float64), 0.0) for block in stored]
                moves[name] = either[1] - either[0]
                clip.add(name, either, moves[name], step_of(stored[0].dtype))
            norms = [np.linalg.norm(moves[task], axis=1) for task in tasks]
            for column, (a, b) in enumerate(pairs):
                cosines[release, :, column] = _cosine(moves[tasks[a]], moves[tasks[b]], norms[a] * norms[b])
            if mechanism is not None and apart:
                scales = [max(mechanism.sigma.get(task, 0.0), np.finfo(float).tiny) for task in tasks]
                signal[release] = np.sqrt(sum((n / (2 * s)) ** 2 for n, s in zip(norms, scales, strict=True)))
            elif mechanism is not None and mechanism.total_sigma > 0:
                signal[release] = np.linalg.norm(moves[secret], axis=1) / (2 * mechanism.total_sigma)
        noiseless = mechanism is None or mechanism.total_sigma == 0 or (apart and 0 in mechanism.sigma.values())
        return cls(None if noiseless else signal, clip.excess, cosines, *clip.shares(), released)

    def rho(self, alpha: float, label_association: float | None) -> Rho | None:
        """None where only one task moves: rho plays no part then."""
        if self.cosines.shape[2] == 0:
            return None
        times = np.ones(self.cosines.shape[:2]) if self.released is None else self.released
        per_record = np.abs(self.cosines).mean(axis=2).sum(axis=0) / np.maximum(times.sum(axis=0), 1.0)
        quantiles = np.quantile(self.cosines, [0.05, 0.5, 0.95])
        return Rho(
            mean_absolute=min(float(per_record.mean()), 1.0),
            upper=upper_mean(float(per_record.mean()), len(per_record), alpha),
            alpha=alpha,
            mean=float(np.clip(self.cosines.mean(), -1.0, 1.0)),
            quantiles=dict(zip(("5%", "50%", "95%"), map(float, quantiles), strict=True)),
            records=len(per_record),
            label_association=label_association,
        )

    def predicted(self) -> Prediction | None:
        """Mean Phi(s_i) for one release and, per t, accumulated over releases 1 .. t; None without noise."""
        if self.signal is None:
            return None
        accumulated = special.ndtr(np.sqrt(np.cumsum(self.signal**2, axis=0))).mean(axis=1)
        return Prediction(float(special.ndtr(self.signal).mean()), tuple(map(float, accumulated)))


class _ClipTally:
    """Sizes of moves and of hypothetical releases against the clip norm, added up release by release."""

    def __init__(self, mechanism: Mechanism | None, secret: str, moved: int) -> None:
        self.clip = mechanism.clip if mechanism is not None and mechanism.clip else 0.0
        self.allowed = {secret: moved if mechanism is not None and mechanism.clip_unit != "sum" else 1}
        self.excess, self._at, self._above, self._count = 0.0, 0, 0, 0

    def add(self, name: str, either: Sequence[Array], move: Array, eps: float) -> None:
        """eps: the relative step of the type that the releases were recorded in."""
        if not self.clip:
            return
        sizes = [np.linalg.norm(release, axis=1) for release in either]
        # Each recorded number may be off by half a step: a move by as much as both releases' norms together.
        slack = eps / 2 * (sizes[0] + sizes[1])
        moved = (np.linalg.norm(move, axis=1) - slack) / (2 * self.clip * self.allowed.get(name, 1))
        self.excess = max(self.excess, float(moved.max()))
        for size in sizes:
            rounding = max(_ROUNDING, eps)
            self._at += int((np.abs(size / self.clip - 1) <= rounding).sum())
            self._above += int((size / self.clip > 1 + rounding).sum())
            self._count += len(size)

    def shares(self) -> tuple[float, float]:
        return self._at / max(self._count, 1), self._above / max(self._count, 1)


def _hypotheses(oracle: Oracle, site: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The arrays of both hypotheses, of each of these secrets that the oracle holds."""
    pairs = {name: (f"oracle/gradients/{site}/{name}/0", f"oracle/gradients/{site}/{name}/1") for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] in oracle.arrays and pair[1] in oracle.arrays}


def label_association(labels: Sequence[npt.NDArray[np.int64]]) -> float | None:
    """Mean phi coefficient over pairs of tasks (and over the labels of a multi-label task)."""
    columns = [array.reshape(len(array), -1).astype(float) for array in labels]
    values = [
        float(np.corrcoef(a[:, i], b[:, j])[0, 1])
        for a, b in itertools.combinations(columns, 2)
        for i in range(a.shape[1])
        for j in range(b.shape[1])
        if a[:, i].std() > 0 and b[:, j].std() > 0
    ]
    return float(np.mean(values)) if values else None


def _cosine(a: Array, b: Array, norms: Array) -> Array:
    """A record without a move adds no cross term: its cosine counts as 0."""
    dot = np.einsum("nd,nd->n", a, b)
    # Rounding takes parallel moves a little past 1.
    return np.asarray(np.clip(np.divide(dot, norms, out=np.zeros_like(norms), where=norms > 0), -1.0, 1.0))

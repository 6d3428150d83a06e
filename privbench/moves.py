"""What the coin does to a release: counterfactual moves, their cosine rho, and the accuracy they predict.

rho is measured between the moves clip g_k(1) - clip g_k(0) of each record, never between the gradients that
happened (those mix signs), and never replaced by the labels' correlation (bounds.md, section 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from privbench.mechanism import Mechanism
from privbench.recording import Oracle

Array = npt.NDArray[np.float64]


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
class Moves:
    """joint [T, m]: norm of the joint move; excess: largest task move over the allowed 2 C; cosines [T, m, pairs]."""

    joint: Array
    excess: float
    cosines: Array

    @classmethod
    def measure(
        cls, oracle: Oracle, site: str, moved: Sequence[str], rows: npt.NDArray[np.int64], clip: float | None
    ) -> Moves:
        """Read the oracle's releases at `site` for these records."""

        def move(secret: str) -> Array:
            pair = [oracle.arrays[f"oracle/gradients/{site}/{secret}/{label}"][:, rows] for label in (0, 1)]
            return pair[1].astype(np.float64) - pair[0]

        tasks = [move(task) for task in moved]
        norms = [np.linalg.norm(task, axis=2) for task in tasks]
        largest = max(float(norm.max()) for norm in norms)
        cosines = [
            _cosine(tasks[a], tasks[b], norms[a] * norms[b]) for a, b in itertools.combinations(range(len(moved)), 2)
        ]
        joint = np.linalg.norm(move("joint"), axis=2)
        empty = np.zeros((*joint.shape, 0))
        return cls(joint, largest / (2 * clip) if clip else 0.0, np.stack(cosines, axis=2) if cosines else empty)

    def rho(self, alpha: float, label_association: float | None) -> Rho | None:
        """None where only one task moves: rho plays no part then."""
        if self.cosines.shape[2] == 0:
            return None
        per_record = np.abs(self.cosines).mean(axis=(0, 2))
        count = len(per_record)
        half = float(stats.t.isf(alpha, count - 1) * per_record.std(ddof=1) / np.sqrt(count))
        quantiles = np.quantile(self.cosines, [0.05, 0.5, 0.95])
        return Rho(
            mean_absolute=float(per_record.mean()),
            upper=min(1.0, float(per_record.mean()) + half),
            alpha=alpha,
            mean=float(self.cosines.mean()),
            quantiles=dict(zip(("5%", "50%", "95%"), map(float, quantiles), strict=True)),
            records=count,
            label_association=label_association,
        )

    def predicted(self, mechanism: Mechanism) -> tuple[float, Array] | None:
        """Mean Phi(s_i) for one release and, per t, accumulated over releases 1 .. t; None without noise."""
        if mechanism.total_sigma == 0:
            return None
        signal = self.joint / (2 * mechanism.total_sigma)
        accumulated = special.ndtr(np.sqrt(np.cumsum(signal**2, axis=0))).mean(axis=1)
        return float(special.ndtr(signal).mean()), accumulated


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
    dot = np.einsum("tnd,tnd->tn", a, b)
    return np.asarray(np.divide(dot, norms, out=np.zeros_like(norms), where=norms > 0))

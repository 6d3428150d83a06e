"""What the coin does to a release: counterfactual moves, their cosine rho, and the accuracy they predict.

rho is measured between the moves clip g_k(1) - clip g_k(0) of each record, never between the gradients that
happened (those mix signs), and never replaced by the labels' correlation (docs/bounds.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from privbench.mechanism import Mechanism
from privbench.recording import Oracle

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
    """joint [T, m]: norm of the joint move; cosines [T, m, pairs].

    excess: the largest move over what the clip allows, 2 C for a task and 2 C J for all of them together; at_clip,
    above_clip: share of hypothetical releases whose norm is C itself, and larger. Clipped after the sum, many are at C
    and none above; clipped per task, a sum passes C as soon as tasks agree.
    """

    joint: Array
    excess: float
    cosines: Array
    at_clip: float = 0.0
    above_clip: float = 0.0

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
        together = np.linalg.norm(move("joint"), axis=2)
        largest = max(*(float(norm.max()) for norm in norms), float(together.max()) / len(moved))
        cosines = [
            _cosine(tasks[a], tasks[b], norms[a] * norms[b]) for a, b in itertools.combinations(range(len(moved)), 2)
        ]
        empty = np.zeros((*together.shape, 0))
        stacked = np.stack(cosines, axis=2) if cosines else empty
        if not clip:
            return cls(together, 0.0, stacked)
        sizes = np.stack(
            [
                np.linalg.norm(oracle.arrays[f"oracle/gradients/{site}/joint/{label}"][:, rows], axis=2) / clip
                for label in (0, 1)
            ]
        )
        at_clip, above_clip = float((np.abs(sizes - 1) <= _ROUNDING).mean()), float((sizes > 1 + _ROUNDING).mean())
        return cls(together, largest / (2 * clip), stacked, at_clip, above_clip)

    def rho(self, alpha: float, label_association: float | None) -> Rho | None:
        """None where only one task moves: rho plays no part then."""
        if self.cosines.shape[2] == 0:
            return None
        per_record = np.abs(self.cosines).mean(axis=(0, 2))
        quantiles = np.quantile(self.cosines, [0.05, 0.5, 0.95])
        return Rho(
            mean_absolute=float(per_record.mean()),
            upper=upper_mean(float(per_record.mean()), len(per_record), alpha),
            alpha=alpha,
            mean=float(self.cosines.mean()),
            quantiles=dict(zip(("5%", "50%", "95%"), map(float, quantiles), strict=True)),
            records=len(per_record),
            label_association=label_association,
        )

    def predicted(self, mechanism: Mechanism) -> Prediction | None:
        """Mean Phi(s_i) for one release and, per t, accumulated over releases 1 .. t; None without noise."""
        if mechanism.total_sigma == 0:
            return None
        signal = self.joint / (2 * mechanism.total_sigma)
        accumulated = special.ndtr(np.sqrt(np.cumsum(signal**2, axis=0))).mean(axis=1)
        return Prediction(float(special.ndtr(signal).mean()), tuple(map(float, accumulated)))


def upper_mean(mean: float, n: int, alpha: float) -> float:
    """Upper confidence limit of a mean of n independent values in [0, 1], whatever their distribution.

    Hoeffding's inequality in its relative-entropy form (Hoeffding 1963, theorem 1): the u with n KL(mean, u) =
    log(1 / alpha). A Student limit misses rare large values, and this one feeds an exact test.
    """
    target = math.log(1 / alpha) / n

    def excess(u: float) -> float:
        return float(special.rel_entr(mean, u) + special.rel_entr(1 - mean, 1 - u)) - target

    top = float(np.nextafter(1.0, 0.0))
    if mean >= top or excess(top) <= 0:
        return 1.0
    return float(optimize.brentq(excess, max(mean, 0.0), top))


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

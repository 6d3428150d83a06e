"""What an adversary that acts in a run does to the tasks, beside the honest run from the same start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.losses import population, tasks_of
from privbench.stats.auc import macro_auc, macro_gain
from privbench.target import TargetRun


@dataclass(frozen=True)
class Harm:
    """One task's AUC (averaged over its labels) on the same records in the honest run and in the one acted in.

    change: the second less the first, paired, with a 95% interval over the choice of records.
    """

    task: str
    honest: float
    acted: float
    change: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def harms(honest: TargetRun, acted: TargetRun) -> tuple[Harm, ...]:
    """Of every task whose outputs both runs recorded for records that neither was trained on."""
    return tuple(_harms(honest, acted))


def _harms(honest: TargetRun, acted: TargetRun) -> Iterator[Harm]:
    arrays, others = honest.transcript.arrays, acted.transcript.arrays
    rows = population(arrays)
    if not len(rows):
        return
    for task in tasks_of(arrays):
        outputs = f"outputs/{task}"
        if outputs not in arrays or outputs not in others:
            continue
        labels = np.asarray(arrays[f"{outputs}/labels"])[rows].reshape(len(rows), -1)
        before, after = (np.asarray(side[outputs])[rows] for side in (arrays, others))
        if labels.shape != before.shape or not _two_classes(labels):
            continue
        ours, theirs, gain = macro_auc(before, labels), macro_auc(after, labels), macro_gain(after, before, labels)
        yield Harm(task, ours.value, theirs.value, gain.value, gain.low, gain.high, len(rows))


def _two_classes(labels: npt.NDArray[np.int64]) -> bool:
    """Whether some column of [N, L] has an AUC: zeros and ones only, and both."""
    return bool(np.isin(labels, (0, 1)).all() and ((labels == 0).any(axis=0) & (labels == 1).any(axis=0)).any())

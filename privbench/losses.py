"""What models say of records, as one number per record: the training loss, from recorded logits and true answers.

outputs/TASK are logits [N, K], outputs/TASK/labels the true answers of the queried records, which whoever asks "was
this record trained on?" holds: int64 [N] for one of K classes, [N, K] for K yes-or-no labels. The loss of a record is
its cross-entropy, averaged over the labels of a task and summed over tasks: with one task of K classes exp(-loss) is
the probability of the true class, on which the published attacks are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError
from privbench.stats.membership import logit_margin
from privbench.tensors import Blocks

Floats = npt.NDArray[np.float64]

_LEAST = 1e-300
"""A loss below is taken for this: its logarithm would be infinite. Reached at margins of about 690."""


@dataclass(frozen=True)
class References:
    """Losses [R, N] under reference models; member bool [R, N]: whether reference r was trained on record n."""

    losses: Floats
    member: npt.NDArray[np.bool_]


def tasks_of(arrays: Mapping[str, Blocks]) -> tuple[str, ...]:
    """The tasks with recorded outputs and true answers, by name."""
    return tuple(
        sorted(name.split("/")[1] for name in arrays if name.startswith("outputs/") and name.endswith("/labels"))
    )


def record_losses(arrays: Mapping[str, Blocks], prefix: str = "outputs") -> Floats:
    """Loss of every record, [N]; with prefix "checkpoints/outputs" or "reference/outputs" one row per model, [T, N].

    Raises `InputError` where no true answers are recorded, or they do not fit the logits.
    """
    tasks = tasks_of(arrays)
    if not tasks:
        raise InputError("no 'outputs/TASK/labels' is recorded: a record's loss needs its true answers. Record them.")
    parts = [
        _task_loss(
            task, np.asarray(arrays[f"{prefix}/{task}"], np.float64), np.asarray(arrays[f"outputs/{task}/labels"])
        )
        for task in tasks
        if f"{prefix}/{task}" in arrays
    ]
    if len(parts) < len(tasks):
        raise InputError(f"'{prefix}/TASK' is recorded for {len(parts)} of {len(tasks)} tasks; record it for all.")
    total: Floats = np.maximum(np.sum(parts, axis=0), _LEAST)
    return total


def references(arrays: Mapping[str, Blocks]) -> References | None:
    """What the reference models say, or None where there are none."""
    if "reference/member" not in arrays:
        return None
    return References(record_losses(arrays, "reference/outputs"), np.asarray(arrays["reference/member"]) == 1)


def population(arrays: Mapping[str, Blocks]) -> npt.NDArray[np.int64]:
    """Numbers of the records that everybody knows were never trained on, [P]."""
    if "outputs/population" not in arrays:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.asarray(arrays["outputs/population"])).astype(np.int64)


def scaled_logits(losses: Floats) -> Floats:
    """phi = log p / (1 - p) with p = exp(-loss): near normal where p piles up at 1 (Carlini et al. 2022)."""
    return -(losses + np.log(-np.expm1(-losses)))


def _task_loss(task: str, logits: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """[..., N] from logits [..., N, K]."""
    classes = logits.shape[-1] if labels.ndim == 1 else 2
    known = labels.shape in (logits.shape[-2:], logits.shape[-2:-1]) and classes > 1
    if not known or labels.min() < 0 or labels.max() >= classes:
        raise InputError(
            f"'outputs/{task}/labels' is {list(labels.shape)} with values {labels.min()} to {labels.max()}; logits of "
            f"{list(logits.shape[-2:])} need one class per record, or 0 and 1 for each of their columns."
        )
    if labels.ndim == 1:
        every = np.broadcast_to(labels, logits.shape[:-1])
        return np.logaddexp(0.0, -logit_margin(logits, every))
    # log(1 + exp(-v)) for label 1, log(1 + exp(v)) for label 0.
    loss: Floats = np.logaddexp(0.0, np.where(labels == 1, -logits, logits)).mean(axis=-1)
    return loss

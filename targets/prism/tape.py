"""What is recorded of one training: every release, and at the curious site the releases that could have been.

One epoch is held in memory; a finished one goes to the recordings, which are files where the run has a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.growing import Growing
from privbench.recording import JOINT, Oracle, Transcript
from privbench.tensors import RELEASE_TYPES, Spec

Rows = npt.NDArray[np.int64]


class Tape:
    """gradients/SITE of every site; with a curious `party` also the noise-free releases of every site, and at the party
    those under either label of each moved task and of all of them together.
    """

    def __init__(
        self,
        sites: Iterable[str],
        moved: Iterable[str],
        shape: tuple[int, int, int],
        *,
        dtype: str = "float32",
        party: str | None = None,
        own_labels: Mapping[str, npt.NDArray[Any]] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._shape, self._party, self._own = shape, party, dict(own_labels or {})
        self._seen = {f"gradients/{site}/seen": np.ones(shape[:2], np.uint8) for site in sites}
        releases = [f"gradients/{site}" for site in sites]
        oracle = [] if party is None else [f"oracle/gradients/{site}/clean" for site in sites]
        secrets = () if party is None else (JOINT, *moved)
        oracle += [f"oracle/gradients/{party}/{secret}/{label}" for secret in secrets for label in (0, 1)]
        self._epoch = {name: np.zeros(shape[1:], np.float32) for name in (*releases, *oracle)}
        layout: dict[str, Spec] = dict.fromkeys(releases, (RELEASE_TYPES[dtype], shape))
        layout |= {name: (array.dtype, array.shape) for name, array in (self._seen | self._own).items()}
        self._transcript = Growing(Transcript, layout, folder)
        self._oracle = (
            Growing(Oracle, dict.fromkeys(oracle, (RELEASE_TYPES[dtype], shape)), folder) if party is not None else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for recording in (self._transcript, self._oracle):
            if recording is not None:
                recording.__exit__(kind, error, trace)

    def release(self, site: str, rows: Rows, clean: Tensor, released: Tensor) -> None:
        """What left for the site, and what it was before the noise."""
        self._epoch[f"gradients/{site}"][rows] = released.numpy()
        if self._party is not None:
            self._epoch[f"oracle/gradients/{site}/clean"][rows] = clean.numpy()

    def hypotheses(
        self, rows: Rows, bounded: Mapping[str, Tensor], either: Mapping[str, tuple[Tensor, Tensor]]
    ) -> None:
        """Noise-free releases [B, d] under either label of each moved task, and of all of them together.

        bounded: every task's clipped gradient as it happened; either: the moved tasks' under label 0 and label 1.
        """
        clean = torch.stack(list(bounded.values())).sum(dim=0)
        for label in (0, 1):
            joint = clean
            for task, pair in either.items():
                change = pair[label] - bounded[task]
                self._epoch[f"oracle/gradients/{self._party}/{task}/{label}"][rows] = (clean + change).numpy()
                joint = joint + change
            self._epoch[f"oracle/gradients/{self._party}/{JOINT}/{label}"][rows] = joint.numpy()

    def end_epoch(self, epoch: int) -> None:
        """Hand the epoch's releases over to the recordings."""
        for name, block in self._epoch.items():
            recording = self._oracle if name.startswith("oracle/") else self._transcript
            if recording is not None:
                recording.put(name, block, epoch)

    def finish(self, metadata: Mapping[str, Any]) -> tuple[Transcript, Oracle | None]:
        """The recordings, once every epoch has ended."""
        for name, array in (self._seen | self._own).items():
            self._transcript.put(name, array)
        return self._transcript.finish(metadata), None if self._oracle is None else self._oracle.finish({})

"""What is recorded of one training: every release, and at the curious site the releases that could have been."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tape:
    """releases, clean: per site [T, N, d], with and without noise. oracle: "SECRET/0" and "SECRET/1" [T, N, d] at the
    curious site. `clean` and `oracle` are empty in a clean run.
    """

    releases: Mapping[str, FloatArray]
    clean: Mapping[str, FloatArray]
    oracle: Mapping[str, FloatArray]

    @classmethod
    def blank(cls, sites: Iterable[str], moved: Iterable[str], shape: tuple[int, int, int]) -> Tape:
        """`moved`: the tasks that the coin moves; none where no hypotheses are recorded."""
        secrets = tuple(moved)
        names = [f"{secret}/{label}" for secret in ("joint", *secrets) if secrets for label in (0, 1)]
        return cls(
            {site: np.zeros(shape, np.float32) for site in sites},
            {site: np.zeros(shape, np.float32) for site in sites if secrets},
            {name: np.zeros(shape, np.float32) for name in names},
        )

    def release(self, site: str, epoch: int, rows: Rows, clean: Tensor, released: Tensor) -> None:
        """What left for the site, and what it was before the noise."""
        self.releases[site][epoch, rows] = released.numpy()
        if site in self.clean:
            self.clean[site][epoch, rows] = clean.numpy()

    def hypotheses(
        self, epoch: int, rows: Rows, bounded: Mapping[str, Tensor], either: Mapping[str, tuple[Tensor, Tensor]]
    ) -> None:
        """Noise-free releases [B, d] under either label of each moved task, and of all of them together.

        bounded: every task's clipped gradient as it happened; either: the moved tasks' under label 0 and label 1.
        """
        clean = torch.stack(list(bounded.values())).sum(dim=0)
        for label in (0, 1):
            joint = clean
            for task, pair in either.items():
                change = pair[label] - bounded[task]
                self.oracle[f"{task}/{label}"][epoch, rows] = (clean + change).numpy()
                joint = joint + change
            self.oracle[f"joint/{label}"][epoch, rows] = joint.numpy()

"""From a cohort to what the encoders read: standardised, carried forward, with observation masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.data.cohort import Cohort, SiteData


@dataclass(frozen=True)
class Inputs:
    """Time-major inputs [H, N, 2F] per site (value, then mask) and labels [N, L] per task, as floats."""

    sites: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))


@dataclass(frozen=True)
class Scaler:
    """Mean and spread [F] of what a site observed in its training stays; each site computes its own."""

    mean: Mapping[str, npt.NDArray[np.float64]]
    spread: Mapping[str, npt.NDArray[np.float64]]

    @classmethod
    def fit(cls, train: Cohort) -> Scaler:
        mean, spread = {}, {}
        for site, data in train.sites.items():
            values, observed = data.values.astype(np.float64), data.observed
            # A feature that nobody measured keeps mean 0 and spread 0, which the floor turns into a constant input.
            count = np.maximum(observed.sum(axis=(0, 1)), 1)
            mean[site] = (values * observed).sum(axis=(0, 1)) / count
            deviation = (values - mean[site]) * observed
            spread[site] = np.maximum(np.sqrt((deviation**2).sum(axis=(0, 1)) / count), 1e-6)
        return cls(mean, spread)

    def inputs(self, cohort: Cohort) -> Inputs:
        sites = {site: self._site(site, data) for site, data in cohort.sites.items()}
        labels = {
            name: torch.from_numpy(values.reshape(len(cohort), -1).astype(np.float32))
            for name, values in cohort.labels.items()
        }
        return Inputs(sites, labels)

    def _site(self, site: str, data: SiteData) -> Tensor:
        mean, spread = self.mean[site].astype(np.float32), self.spread[site].astype(np.float32)
        scaled = np.clip((data.values - mean) / spread, np.float32(-6), np.float32(6)) * data.observed
        carried = _carry_forward(scaled, data.observed)
        both = np.concatenate([carried, data.observed.astype(np.float32)], axis=2)
        return torch.from_numpy(np.ascontiguousarray(both.transpose(1, 0, 2)))


def _carry_forward(values: npt.NDArray[np.float32], observed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Each hour shows the last observation; before the first one 0, the training mean. Arrays [N, H, F]."""
    hours = np.arange(values.shape[1])[None, :, None]
    last = np.maximum.accumulate(np.where(observed, hours, 0), axis=1)
    return np.take_along_axis(values, last, axis=1)

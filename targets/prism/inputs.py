"""From a cohort to what the encoders read: standardised, carried forward, with observation masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.data.cohort import Cohort, SiteData
from privbench.series import encoded


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
        both = encoded(data.values, data.observed, self.mean[site], self.spread[site])
        return torch.from_numpy(np.ascontiguousarray(both.transpose(1, 0, 2)))

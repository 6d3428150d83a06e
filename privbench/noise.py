"""Is the noise what the mechanism declares? Scale, release by release, and independence over releases and sites.

The auditor holds the releases before and after the noise, so no statistics about leakage are needed: noise that is
missing in one pass, too small, given to some records only, or drawn twice from one seed shows in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privbench.attack import gradient_mechanism
from privbench.mechanism import Mechanism
from privbench.recording import Oracle, Transcript

LIMIT = 6.0
"""Standard errors beyond which a flag is raised: one false flag in 10^5 audits, over all releases and pairs."""


@dataclass(frozen=True)
class NoiseCheck:
    """Largest deviations from the declared noise, in standard errors.

    scale        of a release's noise variance from the declared one
    correlation  between the noises of two releases or sites from 0
    records      of the noise summed over a release's records from what independent draws give: one draw used for
                 many records, or the same draws in every batch, adds up instead of cancelling
    """

    scale: float
    correlation: float
    records: float
    releases: int
    sites: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_noise(transcript: Transcript, oracle: Oracle, mechanisms: Sequence[Mechanism]) -> NoiseCheck | None:
    """Compare every site whose noise-free releases were recorded with its mechanism; None where there is none."""
    rows, sums = [], []
    for name, clean in oracle.arrays.items():
        site = name.split("/")[2]
        mechanism = gradient_mechanism(tuple(mechanisms), site)
        if not name.endswith("/clean") or mechanism is None or mechanism.total_sigma == 0:
            continue
        noise = (transcript.arrays[f"gradients/{site}"] - clean) / np.float32(mechanism.total_sigma)
        rows.append(noise.reshape(len(noise), -1))
        sums.append((noise.sum(axis=1, dtype=np.float64) ** 2).mean(axis=1) / noise.shape[1])
        width = noise.shape[2]
    if not rows:
        return None
    stacked = np.concatenate(rows).astype(np.float32)
    entries = stacked.shape[1]
    gram = (stacked @ stacked.T).astype(np.float64) / entries
    variance = np.diag(gram)
    deviation = float(np.abs(variance - 1).max()) / math.sqrt(2 / entries)
    norm = np.sqrt(np.outer(variance, variance))
    correlation = np.divide(gram, norm, out=np.zeros_like(gram), where=norm > 0)
    np.fill_diagonal(correlation, 0.0)
    worst = float(np.abs(correlation).max()) * math.sqrt(entries)
    together = float((np.concatenate(sums) - 1).max()) / math.sqrt(2 / width)
    return NoiseCheck(deviation, worst, together, len(rows[0]), len(rows))

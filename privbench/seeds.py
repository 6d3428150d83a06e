"""Named random streams: one choice never shifts another's draws, and leaving one out changes nothing else."""

from __future__ import annotations

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator of this seed and name."""
    return np.random.default_rng([seed, *name.encode()])

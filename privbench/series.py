"""Hourly series as a recurrent encoder reads them: in standard units, carried forward, with masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats32 = npt.NDArray[np.float32]
LIMIT = 6.0
"""Standard units beyond which a value is cut off."""


def encoded(
    values: npt.NDArray[Any], observed: npt.NDArray[np.bool_], mean: npt.NDArray[Any], spread: npt.NDArray[Any]
) -> Floats32:
    """Values [N, H, F] in their units, observed [N, H, F], mean and spread [F]: [N, H, 2F], value then mask.

    Each hour shows the last observation; before the first one 0, the mean.
    """
    limit = np.float32(LIMIT)
    units = (values.astype(np.float32, copy=False) - mean.astype(np.float32)) / spread.astype(np.float32)
    scaled = np.clip(units, -limit, limit) * observed
    hours = np.arange(values.shape[1])[None, :, None]
    last = np.maximum.accumulate(np.where(observed, hours, 0), axis=1)
    carried = np.take_along_axis(scaled, last, axis=1)
    return np.concatenate([carried, observed.astype(np.float32)], axis=2)

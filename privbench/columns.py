"""Which columns of an embedding's adapter an update moved by a gradient, and not by Adam's momentum alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.floating[Any]]

ADAPTER = re.compile(r"lora_embedding_A\b")
_PARALLEL, _NEARLY, _ALIKE = 5e-4, 5e-3, 1e-2
"""Share of a column's move across its move in the round before. Below the first only momentum moved it, and all such
columns shrink alike. Adam's eps turns small ones by somewhat more, up to the second: those are told by shrinking as the
others do, within the third."""


def touched(now: Floats, before: Floats | None) -> npt.NDArray[np.bool_]:
    """Which columns of the move `now` [r, V] gradients made, given the client's move before."""
    squares = np.einsum("rv,rv->v", now, now)
    rank, count = now.shape
    still = bool((squares == 0).any())
    least = 0.0 if still else float(np.median(squares) * stats.chi2.isf(1 / count, rank) / stats.chi2.median(rank))
    there: npt.NDArray[np.bool_] = squares > least
    if before is None or rank == 1:  # of one number every move is parallel
        return there
    old = np.einsum("rv,rv->v", before, before)
    along = np.einsum("rv,rv->v", now, before) / np.where(old > 0, old, 1)
    across = np.linalg.norm(now - along * before, axis=0)
    went_on = there & (old > 0) & (across < _PARALLEL * np.sqrt(squares))
    if went_on.any():
        shrunk = float(np.median(along[went_on]))
        went_on = (across < _NEARLY * np.sqrt(squares)) & (np.abs(along - shrunk) < _ALIKE * abs(shrunk))
    found: npt.NDArray[np.bool_] = there & ~went_on
    return found

"""How far a client's cut at the embedding has moved from the public base's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from privbench.attack import Index
from privbench.tensors import Blocks


def drift(arrays: Mapping[str, Blocks], party: str, tokens: Index) -> tuple[float, ...]:
    """Of each release the root mean square distance of activations from their tokens' public rows, in root mean squares
    of those rows' norms; noise that a defence added counts.

    tokens int64 [N, L]: what was put in. Empty where the cut is not at the embedding, which shows in the public texts:
    there the base makes rows of them and nothing else.
    """
    sent, table = arrays.get(f"activations/{party}"), arrays.get("public/embedding")
    if sent is None or table is None or not at_embedding(arrays):
        return ()
    mask = arrays.get(f"activations/{party}/mask")
    there = tokens >= 0 if mask is None else np.asarray(mask) == 1
    rows = np.asarray(table).astype(np.float32)[tokens[there]]
    length = _rms(rows)
    return tuple(_rms(np.asarray(sent[t])[there].astype(np.float32) - rows) / length for t in range(len(sent)))


def at_embedding(arrays: Mapping[str, Blocks], rounded: float = 0.0) -> bool:
    """Whether the public base makes rows of the public texts and nothing else, but for so large a share of the rows'
    squares; False where texts or what it makes of them are not recorded.
    """
    if "public/tokens" not in arrays or "public/activations" not in arrays:
        return False
    tokens, table = np.asarray(arrays["public/tokens"]), np.asarray(arrays["public/embedding"]).astype(np.float32)
    made = np.asarray(arrays["public/activations"])
    if made.shape[2] != table.shape[1]:
        return False
    rows = table[tokens[tokens >= 0]]
    off = made[tokens >= 0].astype(np.float32) - rows
    return bool(_rms(off) ** 2 <= rounded * _rms(rows) ** 2)


def _rms(rows: npt.NDArray[np.float32]) -> float:
    """Root mean square of the norms of rows [n, d]."""
    return math.sqrt(float(np.einsum("nd,nd->n", rows, rows, dtype=np.float64).mean()))

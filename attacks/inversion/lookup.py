"""What inversions of token cuts share: the activations of a victim without padding, and the look-up in a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, Inversion, View
from privbench.tensors import Blocks

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

EMBEDDING, TOKENS, ACTIVATIONS = "public/embedding", "public/tokens", "public/activations"
"""What everybody knows: the base's table [V, d], texts [A, L] with -1 as padding, what its layers make of them."""
_EXACT, _LEAST = 1e-8, 1e-20
"""Mean squared distance, in mean squares and by itself, below which a release is as good as exact."""


@dataclass(frozen=True)
class Sent:
    """What a victim sent for the m candidates, release by release; there [m, L]: where it sent something."""

    blocks: Blocks
    candidates: Index
    there: Mask

    @classmethod
    def of(cls, view: View) -> Sent:
        blocks, mask = view.array(f"activations/{view.secret}"), view.arrays.get(f"activations/{view.secret}/mask")
        shape = (len(view.candidates), blocks.shape[2])
        there = np.ones(shape, np.bool_) if mask is None else np.asarray(mask)[view.candidates] == 1
        return cls(blocks, view.candidates, there)

    def __iter__(self) -> Iterator[Floats]:
        """Of each release the activations that are there, [n, d]."""
        for t in range(len(self.blocks)):
            yield np.asarray(self.blocks[t])[self.candidates][self.there].astype(np.float32)

    @property
    def numbered(self) -> Index:
        """Of each place [m, L] which of the n it is; -1 where nothing was sent."""
        return self.tokens(np.arange(int(self.there.sum())))

    def tokens(self, found: Index) -> Index:
        """Token ids [n] of what is there, as [m, L]; -1 where nothing was sent."""
        placed = np.full(self.there.shape, -1, np.int64)
        placed[self.there] = found
        return placed

    def padded(self, rows: Floats) -> Floats:
        """Rows [n, d] of what is there, as [m, L, d]; 0 where nothing was sent."""
        placed = np.zeros((*self.there.shape, rows.shape[1]), np.float32)
        placed[self.there] = rows
        return placed


@dataclass(frozen=True)
class TokenInversion(Inversion):
    """rows, vocabulary: how many activations are compared with how many table rows at once; changes memory only."""

    rows: int = 4096
    vocabulary: int = 8192

    def lacks(self, view: View) -> str | None:
        """The cut activations of the victim [T, N, L, d] and the table [V, d] of the same width."""
        name, table = f"activations/{view.secret}", view.arrays.get(EMBEDDING)
        if name not in view.arrays or view.arrays[name].ndim != 4:
            return f"the transcript holds no token activations of {view.secret}, [T, N, L, d]"
        if table is None:
            return f"the transcript holds no public embedding table ({EMBEDDING})"
        if table.ndim != 2 or table.shape[1] != view.arrays[name].shape[3]:
            return f"the public table is {list(table.shape)}, the activations are {view.arrays[name].shape[3]} wide"
        return None

    def nearest(self, sent: Floats, table: Floats, squares: Floats | None = None) -> Index:
        """The row v of a table [V, d] with the least squares[v] - 2 h @ table[v], for each h of sent [n, d].

        squares [V]: by default the rows' own squared norms, and the nearest row is found; with zeros, the row of the
        largest product.
        """
        squares = squared(table) if squares is None else squares
        first, back = _distinct(sent)
        if len(first) < len(sent):
            return self.nearest(sent[first], table, squares)[back]
        found = np.empty(len(sent), np.int64)
        for at in range(0, len(sent), self.rows):
            found[at : at + self.rows] = self._block(sent[at : at + self.rows], table, squares)
        return found

    def _block(self, sent: Floats, table: Floats, squares: Floats) -> Index:
        best, found = np.full(len(sent), np.inf, np.float32), np.full(len(sent), -1, np.int64)
        for start in range(0, len(table), self.vocabulary):
            part = slice(start, start + self.vocabulary)
            # |h - e|^2 without |h|^2, which is the same for every row of the table.
            distance = squares[part] - 2 * (sent @ table[part].T)
            nearest = distance.argmin(axis=1)
            closest = distance[np.arange(len(sent)), nearest]
            better = closest < best
            best[better], found[better] = closest[better], nearest[better] + start
        return found


@dataclass(frozen=True)
class Mean:
    """Of releases of the same tokens: the sum [n, d] of their rows, each times its weight, and the sum of weights."""

    total: Floats
    weights: float

    @classmethod
    def none(cls, count: int, width: int) -> Mean:
        """Of no release yet."""
        return cls(np.zeros((count, width), np.float32), 0.0)

    def plus(self, rows: Floats, own: float) -> Mean:
        """With the rows [n, d] of another release."""
        return Mean(self.total + np.float32(own) * rows, self.weights + own)

    @property
    def rows(self) -> Floats:
        """[n, d]."""
        mean: Floats = self.total / np.float32(self.weights)
        return mean


def weight(sent: Floats, rows: Floats) -> float:
    """How much a release counts beside others: one over the mean squared distance of what was sent [n, d] from the rows
    [n, d] that it is read as. Noise of one size makes all count alike; a client that moved away from the public base
    makes its later releases count less.
    """
    return 1 / max(float(squared(sent - rows).mean(dtype=np.float64)), floor(rows))


def floor(rows: Floats) -> float:
    """The mean squared distance from rows [n, d] below which a release is as good as exact."""
    return max(_EXACT * float(squared(rows).mean(dtype=np.float64)), _LEAST)


def _distinct(rows: Floats) -> tuple[Index, Index]:
    """Where each distinct row of [n, d] first stands, and which of them each row is, [n]: without noise, and before
    layers that mix them, equal tokens are sent alike. Every row stands for itself where that would save little.
    """
    mark = rows @ np.cos(np.arange(rows.shape[1], dtype=np.float32))
    _, first, back = np.unique(mark, return_index=True, return_inverse=True)
    if 2 * len(first) > len(rows) or not np.array_equal(rows[first[back]], rows):
        first = back = np.arange(len(rows))
    return first, back


def squared(rows: Floats) -> Floats:
    """Squared norms [n] of rows [n, d]."""
    norms: Floats = np.einsum("nd,nd->n", rows, rows)
    return norms


def lacks_texts(view: View, least: int) -> str | None:
    """Why there are no such public texts [A, L], with their activations [A, L, d], as an inverter of this view learns
    from; None where there are.
    """
    if TOKENS not in view.arrays or ACTIVATIONS not in view.arrays:
        return f"the transcript holds no public texts and what the public base makes of them ({TOKENS}, {ACTIVATIONS})"
    made, width = view.arrays[ACTIVATIONS].shape, view.array(f"activations/{view.secret}").shape[3]
    if len(made) != 3 or made[2] != width:
        return f"the public activations are {list(made)}, the victim's are {width} wide"
    most, rows = int(np.asarray(view.array(TOKENS)).max()), len(view.array(EMBEDDING))
    if most >= rows:
        return f"the public texts hold token {most}, the public table has {rows} rows"
    if made[0] < least:
        return f"{made[0]} public texts are too few to learn from and hold back: {least} or more are needed"
    return None


def table_of(view: View) -> Floats:
    """The public embedding table [V, d]."""
    return np.asarray(view.array(EMBEDDING)).astype(np.float32)

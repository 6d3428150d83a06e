"""Nearest token: look every cut activation up in the public embedding table.

A client whose half starts as the identity sends embedding rows; training moves them, and rarely further than half the
way to the next row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, Index, Inversion, Reconstruction, View
from privbench.threat import Channel, Knowledge

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class NearestToken(Inversion):
    """rows, vocabulary: how many activations are compared with how many table rows at once; changes memory only."""

    rows: int = 4096
    vocabulary: int = 8192

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/nearest-token",
        summary="nearest row of the public embedding table for every cut activation",
        paper="folklore; the first step of embedding inversion (Song and Raghunathan 2020)",
        deviates="no learning: Euclidean distance to the table of the public base model, releases averaged",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="one product of activations and table per release: seconds for thousands of tokens",
    )

    def lacks(self, view: View) -> str | None:
        """The cut activations of the victim [T, N, L, d] and the table [V, d] of the same width."""
        name, table = f"activations/{view.secret}", view.arrays.get("public/embedding")
        if name not in view.arrays or view.arrays[name].ndim != 4:
            return f"the transcript holds no token activations of {view.secret}, [T, N, L, d]"
        if table is None:
            return "the transcript holds no public embedding table (public/embedding)"
        if table.ndim != 2 or table.shape[1] != view.arrays[name].shape[3]:
            return f"the public table is {list(table.shape)}, the activations are {view.arrays[name].shape[3]} wide"
        return None

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and the mean of all so far: the row whose summed squared distance is least."""
        sent, table = view.array(f"activations/{view.secret}"), np.asarray(view.array("public/embedding"), np.float32)
        mask = f"activations/{view.secret}/mask"
        there = np.asarray(view.arrays[mask])[view.candidates] == 1 if mask in view.arrays else None
        single, accumulated = [], []
        total: Floats | None = None
        for t in range(len(sent)):
            now = np.asarray(sent[t])[view.candidates].astype(np.float32)
            total = now if total is None else total + now
            single.append(self._nearest(now, table, there))
            accumulated.append(single[0] if t == 0 else self._nearest(total / np.float32(t + 1), table, there))
        return Reconstruction(np.stack(single), np.stack(accumulated))

    def _nearest(self, sent: Floats, table: Floats, there: npt.NDArray[np.bool_] | None) -> Index:
        """Token ids [m, L] for activations [m, L, d]; -1 where nothing was sent."""
        flat = sent.reshape(-1, sent.shape[-1])
        found = np.concatenate([self._block(flat[at : at + self.rows], table) for at in range(0, len(flat), self.rows)])
        tokens = found.reshape(sent.shape[:-1])
        return tokens if there is None else np.where(there, tokens, -1)

    def _block(self, sent: Floats, table: Floats) -> Index:
        best, found = np.full(len(sent), np.inf, np.float32), np.full(len(sent), -1, np.int64)
        for start, rows in self._table(table):
            # |h - e|^2 without |h|^2, which is the same for every row of the table.
            distance = np.einsum("vd,vd->v", rows, rows) - 2 * (sent @ rows.T)
            nearest = distance.argmin(axis=1)
            closest = distance[np.arange(len(sent)), nearest]
            better = closest < best
            best[better], found[better] = closest[better], nearest[better] + start
        return found

    def _table(self, table: Floats) -> Iterator[tuple[int, Floats]]:
        for start in range(0, len(table), self.vocabulary):
            yield start, table[start : start + self.vocabulary]

"""Affine token: find what the client's half does to the public rows as an affine map, then look up behind it.

No pair of token and activation is known. As in the iterative closest point of shapes (Besl and McKay 1992), matches and
map are found in turn: each activation is matched to its nearest mapped row, the map is fitted to the matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, Index, Reconstruction, View
from privbench.attacks.inversion.lookup import Floats, Sent, TokenInversion, squared, table_of, weight
from privbench.threat import Channel, Knowledge

Floats64 = npt.NDArray[np.float64]
_SETTLED = 1e-3
"""Share of matches that may still change when the search ends."""


@dataclass(frozen=True)
class Affine:
    """What rows e [., d] are sent as: e @ matrix + shift; matrix [d, d], shift [d]."""

    matrix: Floats64
    shift: Floats64

    @classmethod
    def identity(cls, width: int) -> Affine:
        return cls(np.eye(width), np.zeros(width))

    def of(self, rows: Floats) -> Floats:
        mapped: Floats = (rows @ self.matrix + self.shift).astype(np.float32)
        return mapped

    def fitted(self, sent: Floats, rows: Index, table: Floats, stiffness: float) -> Affine:
        """The map from the matched rows [n] of the table [V, d] to sent [n, d], by ridge regression around this one.

        stiffness: of the penalty on departures from this map, in mean eigenvalues of the rows' scatter: wrong matches
        bear each other out, and only many right ones outweigh it. A row weighs as the root of its matches, so that the
        template, which every record repeats, does not decide alone.
        """
        seen, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
        means = np.zeros((len(seen), sent.shape[1]))
        np.add.at(means, place, sent)
        means /= counts[:, None]
        weights = np.sqrt(counts) / np.sqrt(counts).sum()
        given = table[seen].astype(np.float64)
        left = means - (given @ self.matrix + self.shift)
        centre, offset = weights @ given, weights @ left
        given, left = given - centre, left - offset
        scatter = (given * weights[:, None]).T @ given
        penalty = max(stiffness * float(np.trace(scatter)) / len(scatter), np.finfo(np.float64).tiny)
        turn = np.linalg.solve(scatter + penalty * np.eye(len(scatter)), (given * weights[:, None]).T @ left)
        return Affine(self.matrix + turn, self.shift + offset - centre @ turn)


@dataclass(frozen=True)
class AffineToken(TokenInversion):
    """iterations: most rounds of match and fit, of each release. stiffness: see `Affine.fitted`.

    `accumulated` follows the map from release to release: a record's tokens stay the same, so that those read so far
    are the next release's matches, and the map is fitted around the last one.
    """

    iterations: int = 6
    stiffness: float = 3.0
    rescaled: ClassVar[bool] = False

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/affine-token",
        summary="nearest public row behind an affine map, which is found without any known pair",
        paper="iterative closest point, Besl and McKay 1992; for embeddings Grave, Joulin, Berthet 2019",
        deviates="ridge regression around the identity in place of a rotation",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="up to eight products of activations and table per release",
    )

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        sent, table = Sent.of(view), table_of(view)
        read = [self._read(now, table) for now in sent]
        single = [sent.tokens(rows) for rows, _ in read]
        accumulated = [sent.tokens(rows) for rows in self._followed(sent, table, *read[0])]
        return Reconstruction(np.stack(single), np.stack(accumulated))

    def _read(self, now: Floats, table: Floats) -> tuple[Index, Affine]:
        """Row numbers [n] of one release [n, d], and the map; found around the identity."""
        start = found = Affine.identity(table.shape[1])
        rows = self._matched(now, table)
        for _ in range(self.iterations):
            found = start.fitted(self._at_scale(now, found.of(table), rows), rows, table, self.stiffness)
            again = self._matched(now, found.of(table))
            settled = float((again != rows).mean()) < _SETTLED
            rows = again
            if settled:
                break
        return rows, found

    def _followed(self, sent: Sent, table: Floats, rows: Index, found: Affine) -> Iterator[Index]:
        """Row numbers [n] after each release: the e with the least sum over releases of |h - e @ matrix - shift|^2,
        each by its weight.

        That sum is e @ gram @ e - 2 toward @ e but for what no e changes. rows, found: of the first release by itself.
        """
        gram = np.zeros((table.shape[1],) * 2)
        toward = np.zeros((len(rows), table.shape[1]), np.float32)
        for t, now in enumerate(sent):
            if t > 0:
                found = found.fitted(self._at_scale(now, found.of(table), rows), rows, table, self.stiffness)
            mapped = found.of(table)
            at_scale = self._at_scale(now, mapped, rows)
            own = weight(at_scale, mapped[rows])
            gram += own * (found.matrix @ found.matrix.T)
            toward += (own * ((at_scale - found.shift) @ found.matrix.T)).astype(np.float32)
            rows = self._least(toward, table, np.einsum("vd,vd->v", table @ gram, table).astype(np.float32))
            yield rows

    def _matched(self, now: Floats, mapped: Floats) -> Index:
        """Of each activation [n, d] the nearest mapped row [V, d]; with `rescaled` the one of the least angle."""
        return self._least(now, mapped, squared(mapped))

    def _least(self, sent: Floats, table: Floats, squares: Floats) -> Index:
        """The row e with the least e^2 - 2 h @ e for each h of sent [n, d], where e^2 stands in squares [V]; with
        `rescaled` with the least (s e)^2 - 2 h @ (s e) at the best s.
        """
        if not self.rescaled:
            return self.nearest(sent, table, squares)
        lengths = np.sqrt(squares)[:, None]
        unit = np.divide(table, lengths, out=np.zeros_like(table), where=lengths > 0)
        return self.nearest(sent, unit, np.zeros(len(unit), np.float32))

    def _at_scale(self, now: Floats, mapped: Floats, rows: Index) -> Floats:
        """Activations [n, d]; with `rescaled` each as long as the mapped row that it matches."""
        if not self.rescaled:
            return now
        own, wanted = np.sqrt(squared(now)), np.sqrt(squared(mapped))[rows]
        scaled: Floats = now * np.divide(wanted, own, out=np.ones_like(own), where=own > 0)[:, None]
        return scaled


@dataclass(frozen=True)
class RescaledToken(AffineToken):
    """The same for activations whose lengths tell nothing: a clip shortens them, and leaves their directions."""

    rescaled: ClassVar[bool] = True

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/rescaled-token",
        summary="the affine attack by directions alone: what a clip took from lengths is given back",
        paper="iterative closest point with scales, Zinsser, Schmidt, Niemann 2005",
        deviates="a scale for every activation, and an affine map in place of a rotation",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="up to eight products of activations and table per release",
    )

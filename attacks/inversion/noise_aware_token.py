"""Noise-aware token: Bayes' rule for who was told of the defence, with what stands beside a token as its prior.

Clip and noise are known, so that every row of the table has a likelihood given all releases. Which token follows which
is learned from public texts, and then from what was read of the records themselves, which share their survey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, Index, Reconstruction, View
from privbench.attacks.inversion.affine_token import Affine
from privbench.attacks.inversion.chains import Chain, smallest
from privbench.attacks.inversion.lookup import (
    TOKENS,
    Floats,
    Sent,
    TokenInversion,
    lacks_texts,
    squared,
    table_of,
)
from privbench.drift import at_embedding
from privbench.mechanism import input_mechanism
from privbench.threat import Channel, Knowledge

_ROUNDED = 1e-4
"""Share of the rows' squares by which public activations may differ from rows: half precision rounds."""

_AT_ONCE = 2048
"""Activations that are compared with the rows at once."""


@dataclass(frozen=True)
class Reading:
    """Tokens [n] as they are read, and how each release's rows were moved."""

    tokens: Index
    maps: tuple[Affine, ...]


@dataclass(frozen=True)
class Reader:
    """What the adversary knows. table [V, d]; texts: tokens [A, L] of public texts; clip: norm of what is sent, None
    for none; sigma: of the noise on every number. candidates, readings, stiffness: see `NoiseAwareToken`.
    """

    sent: Sent
    table: Floats
    texts: Index
    clip: float | None
    sigma: float
    candidates: int
    readings: int
    stiffness: float

    def read(self, releases: Sequence[Floats], maps: Sequence[Affine]) -> Reading:
        """From releases [n, d], of which the first ones are moved as these maps say, the others as the last of them."""
        moved = [*maps, *[maps[-1]] * (len(releases) - len(maps))]
        received, tokens = np.concatenate(releases, axis=1), None
        for _ in range(self.readings):
            seen = [self.texts] if tokens is None else [self.texts, self.sent.tokens(tokens)]
            rows = np.concatenate([_clipped(found.of(self.table), self.clip) for found in moved], axis=1)
            tokens = self._likeliest(received, rows, Chain.of(seen, len(self.table)))
            moved = [
                found.fitted(now, tokens, self.table, self.stiffness)
                for found, now in zip(moved, releases, strict=True)
            ]
        if tokens is None:
            raise ValueError(f"readings is {self.readings}; at least one is needed.")
        return Reading(tokens, tuple(moved))

    def _likeliest(self, received: Floats, rows: Floats, chain: Chain) -> Index:
        """The token of the largest probability at each place, given its whole record."""
        two, squares = np.float32(2 * self.sigma**2), squared(rows)
        prior, count = two * np.log(chain.shares), min(self.candidates, len(rows))
        shape = (*self.sent.there.shape, count)
        # Where nothing was sent all candidates are alike, behind the record's end.
        likely, fit = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        found, left = np.empty((len(received), count), np.int64), np.empty((len(received), count), np.float32)
        for at in range(0, len(received), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            far = squares - 2 * received[part] @ rows.T
            found[part] = smallest(far - prior, count)
            left[part] = np.take_along_axis(far, found[part], axis=1)
        likely[self.sent.there], fit[self.sent.there] = found, -left / two
        best = chain.marginals(likely, fit).argmax(axis=2)
        chosen: Index = np.take_along_axis(likely, best[:, :, None], axis=2)[:, :, 0][self.sent.there]
        return chosen


@dataclass(frozen=True)
class NoiseAwareToken(TokenInversion):
    """candidates: rows of each place that are weighed against those beside it. readings: each but the first learns from
    the one before which token follows which, and how the rows were moved. stiffness: see `Affine.fitted`.
    """

    candidates: int = 16
    readings: int = 2
    stiffness: float = 3.0
    least_texts: ClassVar[int] = 1
    reads_noise: ClassVar[bool] = True

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/noise-aware-token",
        summary="the likeliest tokens, given the defence's clip and noise and which token follows which",
        paper="Bayes' rule over a hidden chain, Baum et al. 1970; smoothed as Witten and Bell 1991",
        deviates="the chain is that of public texts and of what was read before; rows are moved by an affine map",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.MECHANISM, Knowledge.BASE),
        cost="two products of activations and table and two passes over every record, per release and reading",
    )

    def lacks(self, view: View) -> str | None:
        """Gaussian noise of a known size on rows of the table, and public texts."""
        if (reason := super().lacks(view) or lacks_texts(view, self.least_texts)) is not None:
            return reason
        mechanism = input_mechanism(view.mechanisms, view.secret)
        if mechanism is None or mechanism.kind != "gaussian" or mechanism.total_sigma == 0:
            return f"no Gaussian noise is described on what {view.secret} sends"
        if not at_embedding(view.arrays, _ROUNDED):
            return "behind layers a token alone does not say what is sent, and each row's likelihood is not known"
        return None

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and all so far, whose maps are followed from one release to the next."""
        sent, table = Sent.of(view), table_of(view)
        mechanism = input_mechanism(view.mechanisms, view.secret)
        if mechanism is None:
            raise ValueError(f"no mechanism is described on what {view.secret} sends.")
        known = (np.asarray(view.array(TOKENS)), mechanism.clip, mechanism.total_sigma)
        reader = Reader(sent, table, *known, self.candidates, self.readings, self.stiffness)
        start = (Affine.identity(table.shape[1]),)
        before: list[Floats] = []
        maps: tuple[Affine, ...] = start
        single, accumulated = [], []
        for now in sent:
            before.append(now)
            alone = reader.read([now], start)
            said = alone if len(before) == 1 else reader.read(before, maps)
            maps = said.maps
            single.append(sent.tokens(alone.tokens))
            accumulated.append(sent.tokens(said.tokens))
        return Reconstruction(np.stack(single), np.stack(accumulated))


def _clipped(rows: Floats, clip: float | None) -> Floats:
    """Rows [V, d], each shortened to the norm `clip` where it is longer."""
    if clip is None:
        return rows
    shortened: Floats = rows * np.minimum(clip / np.maximum(np.sqrt(squared(rows)), 1e-30), 1)[:, None]
    return shortened.astype(np.float32)

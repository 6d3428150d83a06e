"""Inverters that are learned from public pairs alone: from cut activations to rows of the public embedding table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from privbench.attack import Index, View
from privbench.attacks.inversion.lookup import ACTIVATIONS, TOKENS, Floats, squared
from privbench.attacks.inversion.networks import follow, seeded, tensor_of
from privbench.threads import one_torch_thread

_HELD = 5
"""One public text in so many, the last ones, is held back to choose the inverter."""
_RIDGE = 1e-6
"""Penalty of the linear inverter, in standard units."""
_WIDTH, _BATCH, _RATE = 96, 16, 4e-3
_SHOWN, _MOST_EPOCHS = 1_920, 6
"""Texts that the recurrent inverter learns from in all, and how often from each at most: many texts seen twice are
remembered less than few seen often, and cost the same.
"""
_NOISE = 0.3
"""Added while learning, in standard units: tuning moves the activations away from the public base's."""
_AT_ONCE = 64
"""Texts that are read at once."""


@dataclass(frozen=True)
class Pairs:
    """Public texts and what the public base makes of them. tokens int64 [A, L], -1 where a text has no more; units
    [A, L, d]: activations in standard units, 0 there; table [V, d].
    """

    tokens: Index
    units: Floats
    table: Floats

    @classmethod
    def of(cls, tokens: Index, activations: Floats, table: Floats) -> Pairs:
        there = tokens >= 0
        units = np.zeros_like(activations)
        units[there] = standard(activations[there])
        return cls(tokens, units, table)

    @classmethod
    def of_view(cls, view: View, table: Floats) -> Pairs:
        """Those that everybody knows."""
        return cls.of(np.asarray(view.array(TOKENS)), np.asarray(view.array(ACTIVATIONS)).astype(np.float32), table)

    @property
    def halves(self) -> tuple[Pairs, Pairs]:
        """Those that are learned from, and those that are held back."""
        last = len(self.tokens) - len(self.tokens) // _HELD
        parts = (slice(None, last), slice(last, None))
        return Pairs(*(self._rows(parts[0]))), Pairs(*(self._rows(parts[1])))

    @property
    def middles(self) -> Floats:
        """[V, d]: the mean of each token's activations in standard units; 0 of tokens that no text holds."""
        there = self.tokens >= 0
        sums = np.zeros((len(self.table), self.units.shape[2]))
        np.add.at(sums, self.tokens[there], self.units[there])
        counts = np.bincount(self.tokens[there], minlength=len(sums))
        means: Floats = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        return means

    def _rows(self, part: slice) -> tuple[Index, Floats, Floats]:
        return self.tokens[part], self.units[part], self.table


@dataclass(frozen=True)
class Inverter:
    """rows: from activations in standard units [m, L, d], 0 where there are none, to vectors [m, L, d]; the token is
    the row v of the least squares[v] - 2 vector @ table[v]. learned, held: texts that it learned from and others, and
    the share of their tokens that it reads.
    """

    kind: str
    rows: Callable[[Floats], Floats]
    squares: Floats
    learned: float
    held: float


def standard(activations: Floats) -> Floats:
    """Activations [n, d] in their own standard units. Tuning shifts and stretches them all alike, in most part: of each
    release its own mean and spread are taken, which undoes that without a pair.
    """
    mean, spread = activations.mean(axis=0, dtype=np.float64), activations.std(axis=0, dtype=np.float64)
    units: Floats = ((activations - mean) / np.where(spread > 0, spread, 1)).astype(np.float32)
    return units


def inverter(pairs: Pairs, rng: np.random.Generator) -> Inverter:
    """The linear one where it reads every token of public texts that were held back; else it or the recurrent one,
    whichever reads more of them.
    """
    linear = _scored("linear", _linear(pairs.halves[0]), squared(pairs.table), pairs)
    if linear.held == 1:
        return linear
    with one_torch_thread():
        recurrent = _scored("GRU", _recurrent(pairs.halves[0], rng), np.zeros_like(linear.squares), pairs)
    return max(linear, recurrent, key=lambda found: found.held)


def _linear(pairs: Pairs) -> Callable[[Floats], Floats]:
    """Ridge regression of the rows on the activations."""
    there = pairs.tokens >= 0
    units = pairs.units[there].astype(np.float64)
    rows = pairs.table[pairs.tokens[there]].astype(np.float64)
    middle, centre = units.mean(axis=0), rows.mean(axis=0)
    units -= middle
    scatter = units.T @ units + _RIDGE * len(units) * np.eye(units.shape[1])
    turn = np.linalg.solve(scatter, units.T @ (rows - centre))

    def read(asked: Floats) -> Floats:
        found: Floats = ((asked - middle) @ turn + centre).astype(np.float32)
        return found

    return read


class _Recurrent(nn.Module):
    """[B, L, d] -> [B, L, d]: a linear map, beside a GRU that reads forth and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.straight = nn.Linear(width, width)
        self.states = nn.GRU(width, _WIDTH, batch_first=True, bidirectional=True)
        self.end = nn.Linear(2 * _WIDTH, width)

    def forward(self, units: Tensor) -> Tensor:
        found: Tensor = self.straight(units) + self.end(self.states(units)[0])
        return found


def _recurrent(pairs: Pairs, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Trained by cross-entropy of its products with the rows of those tokens that the texts hold."""
    seen, place = np.unique(pairs.tokens, return_inverse=True)
    rows, answers = tensor_of(pairs.table[seen]), torch.from_numpy(place.reshape(pairs.tokens.shape))
    units, there = tensor_of(pairs.units), torch.from_numpy(pairs.tokens >= 0)
    lengths = (pairs.tokens >= 0).sum(axis=1)
    model = seeded(lambda: _Recurrent(units.shape[2]), rng)
    step = torch.optim.Adam(model.parameters(), lr=_RATE, fused=True)
    noise = torch.Generator().manual_seed(int(rng.integers(2**62)))
    for _ in range(min(-(-_SHOWN // len(units)), _MOST_EPOCHS)):
        order = rng.permutation(len(units))
        order = order[np.argsort(lengths[order], kind="stable")]  # texts of about one length share a batch
        batches = np.array_split(order, max(len(order) // _BATCH, 1))
        for number in rng.permutation(len(batches)):
            batch = torch.from_numpy(batches[number])
            whole = slice(None, int(lengths[batches[number]].max()))
            given, told = units[batch, whole], there[batch, whole]
            moved = given + _NOISE * torch.randn(given.shape, generator=noise)
            follow(step, cross_entropy(model(moved)[told] @ rows.T, answers[batch, whole][told]))

    def read(asked: Floats) -> Floats:
        with one_torch_thread(), torch.inference_mode():
            parts = [model(tensor_of(asked[at : at + _AT_ONCE])).numpy() for at in range(0, len(asked), _AT_ONCE)]
        return np.concatenate(parts)

    return read


def _scored(kind: str, rows: Callable[[Floats], Floats], squares: Floats, pairs: Pairs) -> Inverter:
    """With the share of tokens that it reads, among those that the public texts hold."""
    seen = np.unique(pairs.tokens[pairs.tokens >= 0])
    table, lengths = pairs.table[seen].T, squares[seen]
    shares = []
    for half in pairs.halves:
        right = 0
        for text, made in zip(half.tokens, rows(half.units), strict=True):
            there = text >= 0
            right += int((seen[(lengths - 2 * made[there] @ table).argmin(axis=1)] == text[there]).sum())
        shares.append(right / int((half.tokens >= 0).sum()))
    return Inverter(kind, rows, squares, *shares)

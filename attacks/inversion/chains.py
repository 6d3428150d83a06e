"""Which token follows which: a chain learned from texts, and the likeliest tokens of a noisy one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privbench.attack import Index
from privbench.attacks.inversion.lookup import Floats

_AT_ONCE = 64
"""Records that are read at once."""


@dataclass(frozen=True)
class Chain:
    """Counts of pairs and of single tokens among V, smoothed as Witten and Bell (1991) do: a token that was followed by
    d others in c places leaves d / (c + d) to the single tokens' shares, and these leave as much to all V alike.

    pairs, counts: first * V + second of each pair that occurs, ascending, and how often it does; singles [V] likewise.
    """

    pairs: Index
    counts: Index
    singles: Index

    @classmethod
    def of(cls, texts: Sequence[Index], vocabulary: int) -> Chain:
        """From texts as tokens [A, L], -1 where one has no more."""
        singles = sum(np.bincount(text[text >= 0], minlength=vocabulary) for text in texts)
        keys = [_pairs(text[:, :-1], text[:, 1:], vocabulary) for text in texts]
        pairs, counts = np.unique(np.concatenate(keys), return_counts=True)
        return cls(pairs, counts.astype(np.int64), np.asarray(singles, np.int64))

    @cached_property
    def shares(self) -> Floats:
        """Of single tokens, [V]; all above 0."""
        total, kinds = self.singles.sum(), np.count_nonzero(self.singles)
        found: Floats = ((self.singles + kinds / len(self.singles)) / (total + kinds)).astype(np.float32)
        return found

    def marginals(self, likely: Index, fit: Floats) -> Floats:
        """Of the C candidates [m, L, C] of every place their probability [m, L, C], given the whole record: forward and
        backward (Baum et al. 1970). fit: log likelihood of what was received, 0 of every candidate where nothing was.
        """
        parts = [
            self._marginals(likely[at : at + _AT_ONCE], fit[at : at + _AT_ONCE])
            for at in range(0, len(likely), _AT_ONCE)
        ]
        return np.concatenate(parts)

    def _marginals(self, likely: Index, fit: Floats) -> Floats:
        weight = np.exp(fit - fit.max(axis=2, keepdims=True))
        length = likely.shape[1]
        steps = [self._following(likely[:, t], likely[:, t + 1]) for t in range(length - 1)]
        ahead, back = np.empty_like(weight), np.ones_like(weight)
        ahead[:, 0] = _to_one(weight[:, 0] * self.shares[likely[:, 0]])
        for t, step in enumerate(steps):
            ahead[:, t + 1] = _to_one(weight[:, t + 1] * np.einsum("mc,mcd->md", ahead[:, t], step))
        for t in range(length - 2, -1, -1):
            back[:, t] = _to_one(np.einsum("mcd,md->mc", steps[t], weight[:, t + 1] * back[:, t + 1]))
        return _to_one(ahead * back)

    def _following(self, first: Index, second: Index) -> Floats:
        """Probabilities [m, C, C] of tokens second [m, C] after tokens first [m, C]."""
        (starts, kinds), shares = self._leaving, self.shares
        keys = first[:, :, None] * len(shares) + second[:, None, :]
        at = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        counted = np.where(self.pairs[at] == keys, self.counts[at], 0)
        base, rest = starts[first][:, :, None], np.maximum(kinds[first], 1)[:, :, None]
        found: Floats = ((counted + rest * shares[second][:, None, :]) / (base + rest)).astype(np.float32)
        return found

    @cached_property
    def _leaving(self) -> tuple[Index, Index]:
        """How often each token [V] is followed by another, and by how many kinds."""
        first = self.pairs // len(self.singles)
        starts = np.bincount(first, weights=self.counts, minlength=len(self.singles)).astype(np.int64)
        return starts, np.bincount(first, minlength=len(self.singles))


def _pairs(first: Index, second: Index, vocabulary: int) -> Index:
    both = (first >= 0) & (second >= 0)
    keys: Index = first[both] * vocabulary + second[both]
    return keys


def _to_one(values: Floats) -> Floats:
    """Along the last axis."""
    found: Floats = values / np.maximum(values.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    return found


def smallest(values: npt.NDArray[np.float32], count: int) -> Index:
    """Places [n, count] of the least values of each row [n, V], in no order."""
    return np.argpartition(values, min(count, values.shape[1]) - 1, axis=1)[:, :count]

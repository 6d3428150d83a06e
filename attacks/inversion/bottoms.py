"""The public layers before the cut, for trials: what candidates would have been sent as, each in its place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privbench.attack import Index, View
from privbench.attacks.inversion.lookup import Floats
from privbench.attacks.inversion.networks import tensor_of
from privbench.threads import one_torch_thread
from privbench.trunks import PublicTrunk, trunk_of

AT_ONCE = 8
"""Records that are run at once."""


@dataclass(frozen=True)
class Bottom:
    """The public layers over rows of the public table [V, d]."""

    trunk: PublicTrunk
    table: Tensor

    @classmethod
    def of(cls, view: View, table: Floats) -> Bottom:
        """Those that everybody knows; table [V, d]."""
        return cls(trunk_of(view.arrays, table.shape[1]), tensor_of(table))

    def over(self, rows: Tensor) -> Tensor:
        """Activations [B, L, d] of rows [B, L, d], each of which sees those before it and itself."""
        return self.trunk(rows, torch.arange(rows.shape[1]).expand(len(rows), -1))

    def made(self, tokens: Index) -> Floats:
        """Activations [m, L, d] of records that hold these tokens [m, L], -1 where a record has no more."""
        with one_torch_thread(), torch.inference_mode():
            parts = torch.split(torch.from_numpy(tokens).clamp_min(0), AT_ONCE)
            return np.concatenate([self.over(self.table[part]).numpy() for part in parts])

    def tried(self, tokens: Index, places: Index, candidates: Index) -> tuple[Floats, Floats]:
        """Activations [m, L, d] of records that hold these tokens [m, L], and [m, U, C, d] of candidates [m, U, C] at U
        places [m, U] of each, after its tokens before them.
        """
        made, at = [], []
        with one_torch_thread(), torch.inference_mode():
            for start in range(0, len(tokens), AT_ONCE):
                part = slice(start, start + AT_ONCE)
                one, other = self._block(*(torch.from_numpy(item[part]) for item in (tokens, places, candidates)))
                made.append(one.numpy())
                at.append(other.numpy())
        return np.concatenate(made), np.concatenate(at)

    def _block(self, tokens: Tensor, places: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        (records, length), (_, count, tries) = tokens.shape, candidates.shape
        place = torch.cat([torch.arange(length).expand(records, -1), places.repeat_interleave(tries, dim=1)], dim=1)
        # A candidate sees the tokens before its place, and itself; nobody else sees a candidate.
        before = torch.arange(length) < place[:, :, None]
        own = torch.eye(place.shape[1], dtype=torch.bool)
        visible = torch.cat([before | own[:, :length], own[:, length:].expand(records, -1, -1)], dim=2)
        ids = torch.cat([tokens.clamp_min(0), candidates.flatten(1)], dim=1)
        made = self.trunk(self.table[ids], place, visible)
        return made[:, :length], made[:, length:].reshape(records, count, tries, -1)

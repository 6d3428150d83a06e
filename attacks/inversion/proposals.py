"""Which tokens an activation may stand for, likeliest first: learned from public pairs, each activation by itself."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from privbench.attack import Index
from privbench.attacks.inversion.inverters import Pairs
from privbench.attacks.inversion.lookup import Floats
from privbench.attacks.inversion.networks import follow, perceptron, tensor_of
from privbench.threads import one_torch_thread

_WIDTH, _STEPS, _BATCH, _RATE = 256, 1_000, 256, 3e-3
_MOST_EPOCHS = 40
"""Over few texts fewer steps are enough."""
_NOISE = 0.3
"""Added while learning, in standard units: tuning moves the activations away from the public base's."""
_AT_ONCE = 4096


class Proposer:
    """A perceptron whose products with the public rows say how likely each token is.

    pairs: public texts; scores are of every row of the table, those that no text holds included.
    """

    def __init__(self, pairs: Pairs, rng: np.random.Generator) -> None:
        there = pairs.tokens >= 0
        seen, place = np.unique(pairs.tokens[there], return_inverse=True)
        units, answers, rows = tensor_of(pairs.units[there]), torch.from_numpy(place), tensor_of(pairs.table[seen])
        self._table = tensor_of(pairs.table)
        with one_torch_thread():
            self._model = perceptron(units.shape[1], _WIDTH, rows.shape[1], rng)
            step = torch.optim.Adam(self._model.parameters(), lr=_RATE, fused=True)
            noise = torch.Generator().manual_seed(int(rng.integers(2**62)))
            for _ in range(min(_STEPS, -(-_MOST_EPOCHS * len(units) // _BATCH))):
                batch = torch.from_numpy(rng.integers(0, len(units), _BATCH))
                moved = units[batch] + _NOISE * torch.randn((_BATCH, units.shape[1]), generator=noise)
                follow(step, cross_entropy(self._model(moved) @ rows.T, answers[batch]))

    def vectors(self, units: Floats) -> Floats:
        """[n, d] of activations in standard units [n, d]; their products with the rows are scores, and add up over
        releases of the same tokens.
        """
        with one_torch_thread(), torch.inference_mode():
            found: Floats = self._model(tensor_of(units)).numpy()
        return found

    def likeliest(self, vectors: Floats, count: int) -> tuple[Index, Floats]:
        """Tokens int64 [n, count] of the largest scores, the largest first, and these scores [n, count]."""
        found, scores = [], []
        for part in torch.split(tensor_of(vectors), _AT_ONCE):
            best = torch.topk(part @ self._table.T, min(count, len(self._table)), dim=1)
            found.append(best.indices.numpy())
            scores.append(best.values.numpy())
        return np.concatenate(found), np.concatenate(scores)

"""What attacks without pairs share: codes of inputs, and a judge that tells two sets of labelled vectors apart.

A server that knows inputs of some patients and the activations of others can only match the two sets as a whole. What
their labels say of both settles which way round they match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import f as fisher
from torch import Tensor
from torch.nn.functional import softplus

from privbench.attacks.inversion.networks import follow, perceptron, principal, standardised, tensor_of, unscaled
from privbench.estimates import Floats, Known, Mask

MOST = 6
"""Principal components in a code: further ones are hardly told apart, and a wrong one costs more than none."""
_SCALE = 0.3
"""Spread of a code's first component: a recurrent site sends numbers between -1 and 1."""
_LABELS = 2.0
"""Distance between labels, in spreads of the code's first component, to the judge."""
_WIDTH, _RATE, _PENALTY = 128, 1e-3, 1.0
_LEVEL = 1e-3
"""Of the F test that labels explain a component: of a thousand of which they say nothing, one is believed."""


@dataclass(frozen=True)
class Codes:
    """Principal components of inputs in standard units: centre [H * F], axes [k, H * F], k at most MOST; scale: of all
    of them, so that the first has the spread _SCALE.
    """

    centre: Floats
    axes: Floats
    scale: float

    @classmethod
    def of(cls, inputs: Floats, observed: Mask, width: int) -> Codes:
        """Of inputs [A, H, F]; no more components than an activation has numbers, or the inputs directions."""
        flat = _flat(inputs, observed)
        centre, sizes, axes = principal(flat, min(MOST, width))
        first = float(sizes[0]) / len(flat) ** 0.5
        return cls(centre, axes, _SCALE / first if first > 0 else 1.0)

    def encode(self, inputs: Floats, observed: Mask) -> Floats:
        """Codes [A, k] of inputs [A, H, F]."""
        codes: Floats = (_flat(inputs, observed) - self.centre) @ self.axes.T * self.scale
        return codes

    def decode(self, found: Floats, codes: Floats, known: Known) -> Floats:
        """Inputs [m, H, F] that the codes found [m, k] stand for, beside codes [A, k] of the known ones.

        Mean and spread of each component are those of the known ones: what a set as a whole says is certain, and is not
        left to the match. Then each is believed as far as the labels bear it out, and turned where they say so.
        """
        spread = found.std(axis=0)
        unit = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1)
        aligned = _borne_out(unit, codes, known) * unit * codes.std(axis=0) + codes.mean(axis=0)
        return unscaled(known, aligned / self.scale @ self.axes + self.centre)


class Judge:
    """A logistic discriminator of labelled vectors, its slope at the true ones held down (Mescheder, Geiger, Nowozin
    2018). true [A, d] with labels [A, L]; what it is shown has the same columns.
    """

    def __init__(self, true: Tensor, labels: Tensor, rng: np.random.Generator) -> None:
        self._weight = _LABELS * _SCALE
        self._true, self._rng = self._beside(true, labels), rng
        self._model = perceptron(self._true.shape[1], _WIDTH, 1, rng)
        self._step = torch.optim.Adam(self._model.parameters(), lr=_RATE, betas=(0.5, 0.9), fused=True)

    def learn(self, shown: Tensor, labels: Tensor, steps: int) -> None:
        other = self._beside(shown.detach(), labels)
        for _ in range(steps):
            rows = torch.from_numpy(self._rng.integers(0, len(self._true), len(other)))
            true = self._true[rows].clone().requires_grad_()
            said = self._model(true)
            (slope,) = torch.autograd.grad(said.sum(), true, create_graph=True)
            loss = softplus(-said).mean() + softplus(self._model(other)).mean()
            follow(self._step, loss + _PENALTY / 2 * (slope**2).sum(dim=1).mean())

    def unlike(self, shown: Tensor, labels: Tensor) -> Tensor:
        """How unlike the true ones each of the shown is, [B]; differentiable."""
        found: Tensor = softplus(-self._model(self._beside(shown, labels)))[:, 0]
        return found

    def _beside(self, vectors: Tensor, labels: Tensor) -> Tensor:
        return torch.cat([vectors, self._weight * labels], dim=1)


def expected(own: Floats, ours: Floats, theirs: Floats) -> Floats:
    """What the labels of others [m, L] lead one to expect of their codes [m, k]: by least squares on one's own."""
    ones = [np.column_stack([part, np.ones(len(part))]) for part in (ours, theirs)]
    found: Floats = ones[1] @ np.linalg.pinv(ones[0]) @ own
    return found


def _borne_out(unit: Floats, codes: Floats, known: Known) -> Floats:
    """The correlation [k] of each found component with the code that it stands for, as the labels show it: theirs with
    what is found, as a share of theirs with codes of known records. 0 where labels say nothing of the known records'
    codes (an F test at _LEVEL), 1 without any.
    """
    if known.labels.shape[1] == 0:
        return np.ones(codes.shape[1])
    a, columns = len(known.labels), int(np.linalg.matrix_rank(known.labels - known.labels.mean(axis=0)))
    free = a - columns - 1
    if columns == 0 or free < 1:
        return np.zeros(codes.shape[1])
    own = expected(codes, known.labels, known.labels)
    told = expected(codes, known.labels, known.asked_labels)
    explained = own.var(axis=0) / np.maximum(codes.var(axis=0), 1e-30)
    left = np.maximum(1 - explained, 1e-30)
    adjusted = 1 - left * (a - 1) / free
    spoken = fisher.sf(explained / columns / (left / free), columns, free) < _LEVEL
    with_found = ((told - told.mean(axis=0)) * unit).mean(axis=0) / np.maximum(told.std(axis=0), 1e-30)
    share = with_found / np.sqrt(np.where(spoken, adjusted, 1))
    found: Floats = np.where(spoken, np.clip(share, -1, 1), 0)
    return found


def label_tensors(own: Floats, *others: Floats) -> tuple[Tensor, ...]:
    """Label columns [., L], of one's own the least at 0 and the largest at 1; one that does not vary is left out."""
    low, high = own.min(axis=0, initial=np.inf), own.max(axis=0, initial=-np.inf)
    use = high > low
    return tuple(tensor_of((part[:, use] - low[use]) / (high - low)[use]) for part in (own, *others))


def _flat(inputs: Floats, observed: Mask) -> Floats:
    return standardised(inputs, observed).reshape(len(inputs), -1)

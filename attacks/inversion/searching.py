"""Gradient steps through a recorded encoder, from many records at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privbench.attacks.inversion.networks import follow, principal, tensor_of
from privbench.encoders import encoder_of
from privbench.estimates import Floats, Known, ridge, with_means
from privbench.threads import one_torch_thread

_MOST = 256
"""Principal components that are searched."""
_LEAST_NOISE = 0.1
"""Standard deviation, in the activations' own spread, below which no activation is taken at its word."""
_RATE = 0.05


@dataclass(frozen=True)
class _Prior:
    """What enters the encoder is centre + axes u with u of independent standard normals: centre [D], axes [k, D]."""

    centre: Floats
    axes: Floats

    @classmethod
    def of(cls, entering: Floats) -> _Prior:
        centre, sizes, axes = principal(entering, _MOST)
        return cls(centre, axes * (sizes / max(len(entering) - 1, 1) ** 0.5)[:, None])

    def coordinates(self, entering: Floats) -> Floats:
        """u [N, k] of what enters [N, D]."""
        found: Floats = (entering - self.centre) @ np.linalg.pinv(self.axes)
        return found

    def entering(self, u: Floats) -> Floats:
        found: Floats = u @ self.axes + self.centre
        return found


def likeliest(known: Known, steps: int) -> Floats:
    """Inputs [m, H, F] of the highest posterior density among those that `steps` of Adam reach from ridge regression.

    The likelihood's variance is that of the known records' own activations around what the encoder makes of them.
    """
    _, hours, features = known.inputs.shape
    encoder = encoder_of(known.encoder, hours, features, known.sent.shape[1])
    with one_torch_thread():
        forward = encoder.build()
        entering = encoder.entering(with_means(known.inputs, known.observed), known.observed)
        prior = _Prior.of(entering)
        with torch.inference_mode():
            off = known.sent - forward(tensor_of(entering)).numpy()
        noise = max(float((off**2).mean()), _LEAST_NOISE**2 * float(known.sent.var(axis=0).mean()))
        first = ridge(known.sent, known.inputs, known.observed, known.asked)
        start = prior.coordinates(encoder.entering(first, np.ones(first.shape, np.bool_)))
        axes, centre, asked = (tensor_of(part) for part in (prior.axes, prior.centre, known.asked))
        u = tensor_of(start).requires_grad_()
        step = torch.optim.Adam([u], lr=_RATE)

        def surprise() -> Tensor:
            wrong: Tensor = ((forward(u @ axes + centre) - asked) ** 2).sum() / noise + (u**2).sum()
            return wrong / 2

        for _ in range(steps):
            follow(step, surprise())
        found = u.detach().numpy().astype(np.float64)
    return encoder.inputs(prior.entering(found))

"""The clone of an unknown encoder, and the search for what goes into it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from privbench.attacks.inversion.networks import follow, perceptron, seeded, tensor_of, unscaled
from privbench.estimates import Floats, Known
from privbench.threads import one_torch_thread

_INPUT_STEPS, _WEIGHT_STEPS = 5, 5
_INPUT_RATE, _WEIGHT_RATE, _SMOOTH = 0.01, 1e-3, 0.1


class _Recurrent(nn.Module):
    """[B, H, F] -> [B, d]: the last state of two LSTM layers."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(features, width, num_layers=2)

    def forward(self, inputs: Tensor) -> Tensor:
        last: Tensor = self.layers(inputs.transpose(0, 1))[0][-1]
        return last


def searched(known: Known, rounds: int, rng: np.random.Generator) -> Floats:
    """Inputs [m, H, F] that a clone, searched beside them, turns into the asked activations."""
    hours, features = known.inputs.shape[1:]
    asked = tensor_of(known.asked)
    with one_torch_thread():
        clone = _clone(hours, features, asked.shape[1], rng)
        inputs = torch.zeros(len(asked), hours, features, requires_grad=True)
        of_inputs = torch.optim.Adam([inputs], lr=_INPUT_RATE, amsgrad=True)
        of_weights = torch.optim.Adam(clone.parameters(), lr=_WEIGHT_RATE, amsgrad=True)
        for _ in range(rounds):
            for step, count in ((of_inputs, _INPUT_STEPS), (of_weights, _WEIGHT_STEPS)):
                for _ in range(count):
                    rough = inputs.diff(dim=1).square().sum() / inputs.numel()
                    follow(step, ((clone(inputs) - asked) ** 2).mean() + _SMOOTH * rough)
        found = inputs.detach().numpy().astype(np.float64)
    return unscaled(known, found)


def _clone(hours: int, features: int, width: int, rng: np.random.Generator) -> nn.Module:
    if hours > 1:
        return seeded(lambda: _Recurrent(features, width), rng)
    return nn.Sequential(nn.Flatten(), perceptron(features, width, width, rng))

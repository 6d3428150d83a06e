"""The networks of the learned decoders, and their training on the adversary's own records."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from privbench.estimates import Floats, Known, mean_of
from privbench.threads import one_torch_thread

_HELD = 5
"""One known record in so many is held back to choose the epoch."""
_BATCH, _RATE = 64, 2e-3


def decode(known: Known, shape: str, width: int, epochs: int, rng: np.random.Generator) -> Floats:
    """Train a decoder by squared error where something was measured, in standard units; its estimates [m, H, F].

    shape: "mlp" or "sequence". The epoch is that of the least error on known records that were held back.
    """
    mean, spread = _moments(known)
    low, high = known.sent.mean(axis=0), np.maximum(known.sent.std(axis=0), 1e-9)
    sent, asked = (_tensor((part - low) / high) for part in (known.sent, known.asked))
    inputs, seen = _tensor((known.inputs - mean) / spread), _tensor(known.observed)
    with one_torch_thread():
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator before they are seeded
            model = _seeded(_SHAPES[shape](sent.shape[1], width, *inputs.shape[1:]), rng)
        _train(model, (sent, inputs, seen), epochs, rng)
        with torch.inference_mode():
            found: Floats = model(asked).numpy().astype(np.float64) * spread + mean
    return found


def _train(model: nn.Module, pairs: tuple[Tensor, Tensor, Tensor], epochs: int, rng: np.random.Generator) -> None:
    order = rng.permutation(len(pairs[0]))
    held, used = np.split(order, [len(order) // _HELD])
    step = torch.optim.Adam(model.parameters(), lr=_RATE, fused=True)
    least, best = np.inf, copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(used), max(len(used) // _BATCH, 1)):
            step.zero_grad()
            torch.autograd.backward(_error(model, pairs, rows))
            step.step()
        with torch.inference_mode():
            loss = float(_error(model, pairs, held))
        if loss < least:
            least, best = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)


def _perceptron(sent: int, width: int, hours: int, features: int) -> nn.Module:
    """[B, d] -> [B, H, F]."""
    return nn.Sequential(
        nn.Linear(sent, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, hours * features),
        nn.Unflatten(1, (hours, features)),
    )


class _Unrolled(nn.Module):
    """[B, d] -> [B, H, F]: a GRU whose input is the activation and the hour."""

    def __init__(self, sent: int, width: int, hours: int, features: int) -> None:
        super().__init__()
        self.start = nn.Linear(sent, width)
        self.cell = nn.GRU(width + 1, width)
        self.end = nn.Linear(width, features)
        self.hours = hours

    def forward(self, sent: Tensor) -> Tensor:
        told = torch.tanh(self.start(sent)).expand(self.hours, -1, -1)
        clock = torch.linspace(-1, 1, self.hours)[:, None, None].expand(-1, len(sent), 1)
        states, _ = self.cell(torch.cat([told, clock], dim=2))
        found: Tensor = self.end(states).transpose(0, 1)
        return found


_SHAPES: Mapping[str, Any] = {"mlp": _perceptron, "sequence": _Unrolled}


def _error(model: nn.Module, pairs: Sequence[Tensor], rows: npt.NDArray[np.int64]) -> Tensor:
    """Mean squared error over what was measured. pairs: activations, inputs, 1 where an input was measured."""
    sent, inputs, seen = pairs
    index = torch.from_numpy(rows)
    wrong = (model(sent[index]) - inputs[index]) ** 2 * seen[index]
    mean: Tensor = wrong.sum() / seen[index].sum().clamp(min=1)
    return mean


def _moments(known: Known) -> tuple[Floats, Floats]:
    """Mean and spread [F] of what was measured."""
    mean = mean_of(known.inputs, known.observed)
    spread: Floats = np.sqrt(mean_of((known.inputs - mean) ** 2, known.observed))
    return mean, np.where(spread > 0, spread, 1.0)


def _seeded(model: nn.Module, rng: np.random.Generator) -> nn.Module:
    """Weights from `rng`, uniform in one over the root of the inputs; the global generator has no part in it."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    with torch.no_grad():
        for parameter in model.parameters():
            bound = parameter.shape[-1] ** -0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model


def _tensor(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))

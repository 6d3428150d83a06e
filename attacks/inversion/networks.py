"""The networks of the learned decoders, and their training on the adversary's own records."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from privbench.estimates import Floats, Known, Mask, mean_of
from privbench.threads import one_torch_thread

_HELD = 5
"""One known record in so many is held back to choose the epoch."""
_BATCH, _RATE = 64, 2e-3


def decode(known: Known, shape: str, width: int, epochs: int, rng: np.random.Generator) -> Floats:
    """Train a decoder by squared error where something was measured, in standard units; its estimates [m, H, F].

    shape: "mlp" or "sequence". The epoch is that of the least error on known records that were held back.
    """
    low, high = known.sent.mean(axis=0), np.maximum(known.sent.std(axis=0), 1e-9)
    sent, asked = (tensor_of((part - low) / high) for part in (known.sent, known.asked))
    inputs, seen = tensor_of(standardised(known.inputs, known.observed)), tensor_of(known.observed)
    with one_torch_thread():
        model = seeded(lambda: _SHAPES[shape](sent.shape[1], width, *inputs.shape[1:]), rng)
        _train(model, (sent, inputs, seen), epochs, rng)
        with torch.inference_mode():
            found = model(asked).numpy().astype(np.float64)
    return unscaled(known, found)


def _train(model: nn.Module, pairs: tuple[Tensor, Tensor, Tensor], epochs: int, rng: np.random.Generator) -> None:
    order = rng.permutation(len(pairs[0]))
    held, used = np.split(order, [len(order) // _HELD])
    step = torch.optim.Adam(model.parameters(), lr=_RATE, fused=True)
    least, best = np.inf, copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(used), max(len(used) // _BATCH, 1)):
            follow(step, _error(model, pairs, rows))
        with torch.inference_mode():
            loss = float(_error(model, pairs, held))
        if loss < least:
            least, best = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)


def follow(step: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the loss, of the parameters that `step` is about."""
    step.zero_grad()
    torch.autograd.backward(loss)
    step.step()


def perceptron(inputs: int, width: int, outputs: int, rng: np.random.Generator | None = None) -> nn.Module:
    """[B, inputs] -> [B, outputs] by two hidden layers; without `rng` its weights are for the caller to set."""

    def layers() -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, outputs),
        )

    return layers() if rng is None else seeded(layers, rng)


def _hourly(sent: int, width: int, hours: int, features: int) -> nn.Module:
    """[B, d] -> [B, H, F], all hours at once."""
    return nn.Sequential(perceptron(sent, width, hours * features), nn.Unflatten(1, (hours, features)))


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


_SHAPES: Mapping[str, Any] = {"mlp": _hourly, "sequence": _Unrolled}


def _error(model: nn.Module, pairs: Sequence[Tensor], rows: npt.NDArray[np.int64]) -> Tensor:
    """Mean squared error over what was measured. pairs: activations, inputs, 1 where an input was measured."""
    sent, inputs, seen = pairs
    index = torch.from_numpy(rows)
    wrong = (model(sent[index]) - inputs[index]) ** 2 * seen[index]
    mean: Tensor = wrong.sum() / seen[index].sum().clamp(min=1)
    return mean


def standardised(inputs: Floats, observed: Mask) -> Floats:
    """Inputs [A, H, F] in standard units of what was measured; 0 where nothing was."""
    mean, spread = _moments(inputs, observed)
    found: Floats = np.where(observed, (inputs - mean) / np.where(spread > 0, spread, 1), 0)
    return found


def unscaled(known: Known, estimates: Floats) -> Floats:
    """Estimates of m records in standard units of the known ones, as [m, H, F] in the features' units; one that does
    not vary there is what it is.
    """
    mean, spread = _moments(known.inputs, known.observed)
    found: Floats = estimates.reshape(len(estimates), *known.inputs.shape[1:]) * spread + mean
    return found


def _moments(inputs: Floats, observed: Mask) -> tuple[Floats, Floats]:
    """Mean and spread [F] of what was measured."""
    mean = mean_of(inputs, observed)
    return mean, np.sqrt(mean_of((inputs - mean) ** 2, observed))


def principal(rows: Floats, most: int) -> tuple[Floats, Floats, Floats]:
    """Mean [D] of rows [N, D], and their leading principal directions: singular values [k], axes [k, D].

    At most so many, and no more than the rows really have; one where they have none.
    """
    centre = rows.mean(axis=0)
    _, sizes, axes = np.linalg.svd(rows - centre, full_matrices=False)
    k = min(most, max(int((sizes > 1e-6 * sizes[0]).sum()), 1))
    return centre, sizes[:k], axes[:k]


def seeded(build: Callable[[], nn.Module], rng: np.random.Generator) -> nn.Module:
    """A module with weights from `rng`, uniform in one over the root of the inputs; the global generator, from which
    layers draw when they are made, has no part in it.
    """
    with torch.random.fork_rng(devices=[]):
        model = build()
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    with torch.no_grad():
        for parameter in model.parameters():
            bound = parameter.shape[-1] ** -0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model


def tensor_of(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))

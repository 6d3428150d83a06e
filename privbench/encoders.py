"""A recorded encoder, for who holds it: model/SITE/PARAM as a differentiable function from inputs to the cut.

Two kinds are known by their parameters' names. Linear: `weight` [d, H * F] and, where there is one, `bias` [d], over
inputs in their units. Recurrent: torch's own names of a stack of LSTM layers, with `mean` and `spread` [F]; it reads
`series.encoded`, and its last state is the cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from privbench.errors import InputError
from privbench.series import encoded

Floats = npt.NDArray[np.float64]
_FIRST = "weight_ih_l0"


@dataclass(frozen=True)
class Encoder:
    """What enters it is a flat vector: inputs [H * F], or of a recurrent one values and masks [H * 2F].

    hours, features: H and F; mean, spread [F]: of the units that it works in.
    """

    parameters: Mapping[str, npt.NDArray[Any]]
    hours: int
    features: int

    @property
    def recurrent(self) -> bool:
        return _FIRST in self.parameters

    def entering(self, inputs: Floats, observed: npt.NDArray[np.bool_]) -> Floats:
        """Inputs [N, H, F] in their units as vectors that enter, [N, D]."""
        if not self.recurrent:
            return inputs.reshape(len(inputs), -1)
        both = encoded(inputs, observed, self._scale("mean"), self._scale("spread"))
        return both.reshape(len(inputs), -1).astype(np.float64)

    def inputs(self, entering: Floats) -> Floats:
        """Vectors [N, D] as inputs [N, H, F] in their units."""
        if not self.recurrent:
            return entering.reshape(-1, self.hours, self.features)
        values = entering.reshape(-1, self.hours, 2 * self.features)[:, :, : self.features]
        found: Floats = values * self._scale("spread") + self._scale("mean")
        return found

    def build(self) -> Any:
        """A function from vectors [B, D] to the cut [B, d], both tensors of 32 bits; gradients flow through it."""
        tensors = {name: torch.tensor(np.asarray(values, np.float32)) for name, values in self.parameters.items()}
        if not self.recurrent:
            weight, bias = tensors["weight"], tensors.get("bias", torch.tensor(0.0))
            return lambda entering: entering @ weight.T + bias
        weights = {name: value for name, value in tensors.items() if name not in ("mean", "spread")}
        with torch.device("meta"):
            lstm = nn.LSTM(2 * self.features, weights["weight_hh_l0"].shape[1], num_layers=_layers(weights))
        lstm.load_state_dict(weights, assign=True)
        for parameter in lstm.parameters():
            parameter.requires_grad_(False)

        def run(entering: Tensor) -> Tensor:
            hourly = entering.view(len(entering), self.hours, -1).transpose(0, 1)
            last: Tensor = lstm(hourly)[0][-1]
            return last

        return run

    def _scale(self, name: str) -> Floats:
        return np.asarray(self.parameters[name], np.float64)


def encoder_of(parameters: Mapping[str, npt.NDArray[Any]], hours: int, features: int, width: int) -> Encoder:
    """The encoder of these parameters; `InputError` where they are of no known kind, or do not fit the inputs or the
    `width` numbers of an activation.
    """
    encoder = Encoder(parameters, hours, features)
    shapes = _recurrent if encoder.recurrent else _linear
    wanted = shapes(parameters, hours, features, width)
    for name in sorted(wanted.keys() ^ parameters.keys()):
        raise InputError(
            f"model/SITE has {'no' if name in wanted else 'an unknown'} parameter '{name}' beside "
            f"{', '.join(sorted(parameters.keys() - {name})) or 'nothing'}: it is neither a linear encoder (weight, "
            "bias) nor a recurrent one (an LSTM's weights and biases, mean, spread); see docs/recordings.md."
        )
    for name, shape in wanted.items():
        if parameters[name].shape != shape:
            raise InputError(
                f"model/SITE/{name} has shape {list(parameters[name].shape)}; one of {hours} hours of {features} "
                f"features that sends {width} numbers has {list(shape)} there."
            )
    return encoder


def _linear(parameters: Mapping[str, Any], hours: int, features: int, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {"weight": (width, hours * features)} | ({"bias": (width,)} if "bias" in parameters else {})


def _recurrent(parameters: Mapping[str, Any], hours: int, features: int, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name: an LSTM's four gates beside each other, in as many layers as there are."""
    shapes: dict[str, tuple[int, ...]] = {"mean": (features,), "spread": (features,)}
    for layer in range(_layers(parameters)):
        reads = width if layer else 2 * features
        shapes |= {f"weight_ih_l{layer}": (4 * width, reads), f"weight_hh_l{layer}": (4 * width, width)}
        shapes |= {f"bias_{part}_l{layer}": (4 * width,) for part in ("ih", "hh")}
    return shapes


def _layers(parameters: Iterable[str]) -> int:
    return sum(name.startswith("weight_ih") for name in parameters)

"""A recorded encoder, for who holds it: model/SITE/PARAM as a differentiable function from inputs to the cut.

Two kinds are known by their parameters' names. Linear: `weight` [d, H * F], over inputs in their units. Recurrent:
torch's own names of a stack of LSTM layers, with `mean` and `spread` [F]; it reads `series.encoded`, and its last state
is the cut.
"""

from __future__ import annotations

from collections.abc import Mapping
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
            weight = tensors["weight"]
            return lambda entering: entering @ weight.T
        weights = {name: value for name, value in tensors.items() if name not in ("mean", "spread")}
        layers = sum(name.startswith("weight_ih") for name in weights)
        with torch.device("meta"):
            lstm = nn.LSTM(2 * self.features, weights["weight_hh_l0"].shape[1], num_layers=layers)
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


def encoder_of(parameters: Mapping[str, npt.NDArray[Any]], hours: int, features: int) -> Encoder:
    """The encoder of these parameters; `InputError` where they are of no known kind or do not fit the inputs."""
    encoder = Encoder(parameters, hours, features)
    wanted = {"mean", "spread", "weight_hh_l0"} if encoder.recurrent else {"weight"}
    missing = sorted(wanted - parameters.keys())
    if missing:
        raise InputError(
            f"model/SITE holds {', '.join(sorted(parameters))} and no '{missing[0]}': it is neither a linear encoder "
            "(weight) nor a recurrent one (LSTM weights, mean, spread); see docs/recordings.md."
        )
    width = parameters[_FIRST if encoder.recurrent else "weight"].shape[-1]
    needed = 2 * features if encoder.recurrent else hours * features
    if width != needed:
        raise InputError(f"the encoder in model/SITE reads {width} numbers at a time, the inputs have {needed}.")
    return encoder

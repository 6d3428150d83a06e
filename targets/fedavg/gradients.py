"""Gradients that a server of updates computes itself: of single records, at a state that it handed out."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from privbench.targets.fedavg.rounds import Whole
from privbench.targets.split_llama.adapters import State, clone, load_state
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import batch_of


class Gradients:
    """With respect to all that is trained, on a copy of the model."""

    def __init__(self, model: Whole) -> None:
        self._model = clone(model)
        # In the order of `state`; asking the model for them takes a seventh of a gradient's time.
        self._trained = [item for item in self._model.parameters() if item.requires_grad]

    def at(self, start: State) -> None:
        """From now on at this state."""
        load_state(self._model, start)

    def of(self, record: Encoded) -> tuple[float, torch.Tensor]:
        """The record's own loss, and its gradient, float64 [P] in the order of `state`."""
        for item in self._trained:
            item.grad = None
        losses = self._model.learn(batch_of([record]))
        return float(losses[0]), wide(item.grad for item in self._trained if item.grad is not None)


def blocks_of(values: State) -> dict[str, slice]:
    """Where each block stands among all numbers of a `state` of `Whole`: embedding adapter, projection, each layer, and
    LM head.
    """
    found: dict[str, slice] = {}
    start = 0
    for name, item in values.items():
        block, stop = _block(name), start + item.numel()
        found[block] = slice(found[block].start if block in found else start, stop)
        start = stop
    return found


def _block(name: str) -> str:
    """layer-0 of server.trunk.layers.0.mlp.up_proj.lora_A.default.weight, projection of client.projection.up.bias."""
    _, part, *rest = name.split(".")
    return f"layer-{rest[1]}" if part == "trunk" else part


def wide(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """All numbers of these parts, float64 [P]."""
    return torch.cat([item.flatten() for item in parts]).double()

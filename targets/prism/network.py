"""Encoders and server of one run together, and their forward passes without a graph."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.targets.prism.config import PrismConfig
from privbench.targets.prism.inputs import Inputs
from privbench.targets.prism.model import Encoder, Server, build

FloatArray = npt.NDArray[np.float32]

EVALUATION_BATCH = 256


class Network:
    """Encoders and server of one run, and their forward passes."""

    def __init__(self, config: PrismConfig, train: Inputs, generator: torch.Generator) -> None:
        t = config.training
        self.sites = tuple(train.sites)
        self.width = t.embedding
        self.encoders, self.server = build(
            {site: x.shape[2] for site, x in train.sites.items()},
            {task: y.shape[1] for task, y in train.labels.items()},
            {task: y.mean(dim=0) for task, y in train.labels.items()},
            embedding=t.embedding,
            experts=t.experts,
            hidden=t.expert_width,
            tower=t.tower_width,
            generator=generator,
        )

    def modules(self) -> tuple[Encoder | Server, ...]:
        return (*self.encoders.values(), self.server)

    def embed(self, inputs: Inputs) -> Tensor:
        """Embeddings [N, sites * d] without a graph."""
        with torch.inference_mode():
            columns = [
                torch.cat(
                    [self.encoders[site](part) for part in torch.split(inputs.sites[site], EVALUATION_BATCH, dim=1)]
                )
                for site in self.sites
            ]
            return torch.cat(columns, dim=1)

    def predict(self, inputs: Inputs) -> dict[str, FloatArray]:
        """Logits [N, L] per task."""
        return self.classify(self.embed(inputs))

    def classify(self, z: Tensor) -> dict[str, FloatArray]:
        """Logits [N, L] per task from embeddings [N, sites * d]."""
        with torch.inference_mode():
            return {task: logits.numpy() for task, logits in self.server(z).items()}

    def keep_best(self, scores: list[float], score: float, best: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Note an epoch's validation score; the states to restore at the end, the earliest of equals."""
        scores.append(score)
        return self.snapshot() if score > max(scores[:-1], default=-1.0) else best

    def snapshot(self) -> list[dict[str, Tensor]]:
        return [copy.deepcopy(module.state_dict()) for module in self.modules()]

    def restore(self, states: list[dict[str, Tensor]]) -> None:
        for module, state in zip(self.modules(), states, strict=True):
            module.load_state_dict(state)

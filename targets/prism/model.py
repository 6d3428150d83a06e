"""The PRISM-VFL network: one recurrent encoder per site, a gated mixture of experts at the server.

Every parameter is drawn from the generator that is passed in; the global torch RNG is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Two LSTM layers over a site's hours; the last hidden state [B, d] is the cut layer.

    `forward` takes time-major inputs [H, B, F]. A static site is a sequence of one step.
    """

    def __init__(self, inputs: int, embedding: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, embedding, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.lstm(x)
        last: Tensor = output[-1]
        return last


class Server(nn.Module):
    """Multi-gate mixture of experts (Ma et al. 2018) over the concatenated embeddings, a tower per task.

    `forward` maps [B, sites * d] to logits [B, labels] per task. Experts are one batched product; a
    softmax gate per task mixes them.
    """

    def __init__(self, width: int, labels: Mapping[str, int], experts: int, hidden: int, tower: int) -> None:
        super().__init__()
        self.tasks = tuple(labels)
        self.experts = nn.Linear(width, experts * hidden)
        self.gates = nn.ModuleDict({task: nn.Linear(width, experts) for task in labels})
        self.towers = nn.ModuleDict(
            {
                task: nn.Sequential(nn.Linear(hidden, tower), nn.ReLU(), nn.Linear(tower, count))
                for task, count in labels.items()
            }
        )
        self.shape = (experts, hidden)

    def forward(self, z: Tensor) -> dict[str, Tensor]:
        expert = torch.relu(self.experts(z)).view(len(z), *self.shape)
        return {
            task: self.towers[task](torch.einsum("be,beh->bh", torch.softmax(self.gates[task](z), dim=1), expert))
            for task in self.tasks
        }


def build(
    sites: Mapping[str, int],
    labels: Mapping[str, int],
    prevalence: Mapping[str, Tensor],
    *,
    embedding: int,
    experts: int,
    hidden: int,
    tower: int,
    generator: torch.Generator,
) -> tuple[dict[str, Encoder], Server]:
    """Encoders and server with seeded weights; tower biases start at the logit of the prevalence [labels]."""
    with torch.device("meta"):
        encoders = {site: Encoder(width, embedding) for site, width in sites.items()}
        server = Server(embedding * len(sites), labels, experts, hidden, tower)
    for encoder in encoders.values():
        encoder.to_empty(device="cpu")
        _fill(encoder.lstm, 1 / math.sqrt(embedding), generator)
    server.to_empty(device="cpu")
    for module in server.modules():
        if isinstance(module, nn.Linear):
            _fill(module, 1 / math.sqrt(module.in_features), generator)
    for task in labels:
        head: nn.Module = server.towers[task]
        with torch.no_grad():
            head.get_parameter("2.bias").copy_(torch.logit(prevalence[task].clamp(1e-3, 1 - 1e-3)))
    return encoders, server


def _fill(module: nn.Module, bound: float, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-bound, bound, generator=generator)

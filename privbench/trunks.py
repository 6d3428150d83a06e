"""The public base's layers before the cut, as a recording holds them (public/trunk/PARAM): from embedding rows to the
cut activations, for whoever searches what went in.

PARAM are the parameters of consecutive LLaMA layers by transformers' names, numbered from 0; `rotary` [h / 2], the
angles by which a head of width h turns from one place to the next; `rms_norm_eps` [1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from privbench.errors import InputError
from privbench.tensors import Blocks

if TYPE_CHECKING:
    from transformers import LlamaModel

PREFIX = "public/trunk/"
ROTARY, EPS = "rotary", "rms_norm_eps"
_QUERY, _KEY, _GATE = "0.self_attn.q_proj.weight", "0.self_attn.k_proj.weight", "0.mlp.gate_proj.weight"


def recorded(model: LlamaModel, k: int) -> dict[str, npt.NDArray[np.float32]]:
    """The first k layers of a base, by the names of a recording; nothing for k = 0."""
    if not k:
        return {}
    parameters = model.layers[:k].state_dict()
    parameters |= {ROTARY: model.rotary_emb.inv_freq, EPS: torch.tensor([model.config.rms_norm_eps])}
    return {f"{PREFIX}{name}": value.detach().float().numpy() for name, value in parameters.items()}


@dataclass(frozen=True)
class PublicTrunk:
    """Layers over rows of width d, frozen."""

    layers: nn.ModuleList
    rotary: nn.Module

    def __call__(self, rows: Tensor, place: Tensor, visible: Tensor) -> Tensor:
        """Activations [B, L, d] of rows [B, L, d] at places int64 [B, L]; visible bool [B, L, L]: which key each query
        looks at.
        """
        angles, mask = self.rotary(rows, position_ids=place), visible[:, None]
        for layer in self.layers:
            rows = layer(rows, attention_mask=mask, position_embeddings=angles, position_ids=place)
        return rows


def trunk_of(arrays: Mapping[str, Blocks], width: int) -> PublicTrunk:
    """The layers that these arrays hold; `InputError` where they are of no LLaMA of this width."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    held = {name.removeprefix(PREFIX): _floats(array) for name, array in arrays.items() if name.startswith(PREFIX)}
    absent = [name for name in (ROTARY, EPS, _QUERY, _KEY, _GATE) if name not in held]
    if absent:
        raise InputError(f"the public layers lack '{PREFIX}{absent[0]}'; see docs/recordings.md.")
    rotary, eps = held.pop(ROTARY), held.pop(EPS)
    head = 2 * rotary.numel()
    numbers = [int(first) for first, _, _ in (name.partition(".") for name in held) if first.isdigit()]
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=len(held[_GATE]),
        num_attention_heads=max(len(held[_QUERY]) // head, 1),
        num_key_value_heads=max(len(held[_KEY]) // head, 1),
        head_dim=head,
        rms_norm_eps=float(eps[0]),
        attention_bias="0.self_attn.q_proj.bias" in held,
        mlp_bias="0.mlp.gate_proj.bias" in held,
    )
    config._attn_implementation = "sdpa"  # a model sets it for its layers; these have none around them
    with torch.device("meta"), torch.random.fork_rng(devices=[]):  # layers draw weights when they are made
        layers = nn.ModuleList(LlamaDecoderLayer(config, number) for number in range(1 + max(numbers)))
    wanted = {name: tuple(value.shape) for name, value in layers.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in held.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise InputError(
                f"'{PREFIX}{name}' is {list(given.get(name, ())) or 'missing'}; LLaMA layers of width {width} have "
                f"{list(wanted.get(name, ())) or 'none'} there."
            )
    layers.load_state_dict(held, assign=True)
    turning = LlamaRotaryEmbedding(config)
    turning.register_buffer("inv_freq", rotary, persistent=False)
    return PublicTrunk(layers.requires_grad_(False).eval(), turning)


def _floats(array: Blocks) -> Tensor:
    return torch.from_numpy(np.asarray(array).astype(np.float32))

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

    def __call__(self, rows: Tensor, place: Tensor, visible: Tensor | None = None) -> Tensor:
        """Activations [B, L, d] of rows [B, L, d] at places int64 [B, L]; visible bool [B, L, L]: which key each query
        looks at, by default itself and those before it.
        """
        angles, mask = self.rotary(rows, position_ids=place), None if visible is None else visible[:, None]
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
    _require_numbers(rotary, eps)
    queries, keys, gates = (held[name].numel() // width for name in (_QUERY, _KEY, _GATE))
    head = 2 * len(rotary)
    _require_heads(head, queries, keys, width)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=gates,
        num_attention_heads=queries // head,
        num_key_value_heads=keys // head,
        head_dim=head,
        rms_norm_eps=float(eps[0]),
        attention_bias="0.self_attn.q_proj.bias" in held,
        mlp_bias="0.mlp.gate_proj.bias" in held,
    )
    config._attn_implementation = "sdpa"  # a model sets it for its layers; these have none around them
    with torch.device("meta"), torch.random.fork_rng(devices=[]):  # layers draw weights when they are made
        first = LlamaDecoderLayer(config, 0)
        count = _require_layers(held, {name: list(value.shape) for name, value in first.state_dict().items()}, width)
        layers = nn.ModuleList([first, *(LlamaDecoderLayer(config, number) for number in range(1, count))])
    layers.load_state_dict(held, assign=True)
    turning = LlamaRotaryEmbedding(config)
    turning.register_buffer("inv_freq", rotary, persistent=False)
    return PublicTrunk(layers.requires_grad_(False).eval(), turning)


def _require_numbers(rotary: Tensor, eps: Tensor) -> None:
    if eps.shape != (1,) or not eps[0] > 0:
        raise InputError(f"'{PREFIX}{EPS}' is {eps.tolist()}; it must be one number above 0, [1].")
    # A longer list may fit fewer, wider heads; of one that holds another list several times the order tells.
    if rotary.ndim != 1 or rotary[-1] < 0 or (rotary.diff() > 0).any():
        raise InputError(
            f"'{PREFIX}{ROTARY}' has shape {list(rotary.shape)} and holds no angles of one head: they must be [h / 2], "
            "none negative and none larger than the one before it."
        )


def _require_heads(head: int, queries: int, keys: int, width: int) -> None:
    """Rows of queries and of keys are whole heads, as many of keys as divide those of queries, which divide d."""
    heads, shared = queries // head, keys // head
    whole = heads * head == queries and shared * head == keys
    if not (whole and heads and shared and heads % shared == 0 and width % heads == 0):
        raise InputError(
            f"'{PREFIX}{ROTARY}' is of heads of width {head}, '{PREFIX}{_QUERY}' has {queries} rows and "
            f"'{PREFIX}{_KEY}' {keys}; LLaMA layers of width {width} have a number of whole query heads that divides "
            "the width, and a number of key heads that divides that of query heads."
        )


def _require_layers(held: Mapping[str, Tensor], one: Mapping[str, list[int]], width: int) -> int:
    """How many layers of these parameters, `one`, are held: 0, 1 and so on without a gap, and nothing else."""
    # By how many first words there are, and not by the numbers in names: a name may hold any.
    count = len({name.partition(".")[0] for name in held})
    wanted = {f"{number}.{name}": shape for number in range(count) for name, shape in one.items()}
    others = sorted(held.keys() - wanted.keys())
    if others:
        raise InputError(
            f"'{PREFIX}{others[0]}' is no parameter of LLaMA layers that are numbered from 0 without a gap; name it as "
            "docs/recordings.md says, or leave it out."
        )
    for name, shape in sorted(wanted.items()):
        if name not in held or list(held[name].shape) != shape:
            given = list(held[name].shape) if name in held else "missing"
            raise InputError(f"'{PREFIX}{name}' is {given}; LLaMA layers of width {width} have {shape} there.")
    return count


def _floats(array: Blocks) -> Tensor:
    return torch.from_numpy(np.asarray(array).astype(np.float32))

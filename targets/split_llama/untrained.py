"""A small LLaMA before pretraining, started near a circuit that finds an answer by its question.

Drawn at random as usual, two layers need far more steps to learn this than minutes on one core allow. Two choices
shorten it; both are starting points that training is free to leave:

- All embeddings share one direction. Attention has no biases, so without it no head can attend by position alone, which
  the first layer must to tell each answer its question.
- Value and output projections start as each other's transposes, so a layer passes on what it attends to; query and key
  of the second layer start equal, so it attends to what is alike (mimetic initialisation: Trockman and Kolter, 2023).
  The output head starts as the embedding, so what is passed on is said.

Together they are an induction circuit (Olsson et al., 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


@dataclass(frozen=True)
class Size:
    """356,672 parameters with an output head of its own: 1.4 MB in float32."""

    vocabulary: int = 2048
    context: int = 512
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    intermediate: int = 160


def untrained(size: Size, generator: torch.Generator) -> LlamaForCausalLM:
    """In float32; every random number is from this generator."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            max_position_embeddings=size.context,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.5 * size.hidden**-0.5, generator=generator)
        words = torch.randn(size.vocabulary, size.hidden, generator=generator) / 2
        shared = torch.randn(size.hidden, generator=generator)
        model.model.embed_tokens.weight.copy_(words + shared / shared.norm() * size.hidden**0.5 / 2)
        model.lm_head.weight.copy_(0.3 * words)
        for layer in model.model.layers:
            value = 0.7 * _orthogonal(size.hidden, generator)
            layer.self_attn.v_proj.weight.copy_(value)
            layer.self_attn.o_proj.weight.copy_(value.T)
        query = 0.7 * _orthogonal(size.hidden, generator)
        model.model.layers[-1].self_attn.q_proj.weight.copy_(query)
        model.model.layers[-1].self_attn.k_proj.weight.copy_(query)
    return model


def _orthogonal(size: int, generator: torch.Generator) -> Tensor:
    basis: Tensor = torch.linalg.qr(torch.randn(size, size, generator=generator)).Q
    return basis

"""The dimensions of a LLaMA and what is counted from them alone: parameters of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaConfig

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer that LoRA adapts, in the order of `Shape.linears`."""


@dataclass(frozen=True)
class Shape:
    """Dimensions of a LlamaForCausalLM (Touvron et al. 2023) with grouped queries; no matrix has a bias."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    tied: bool

    @classmethod
    def of(cls, config: LlamaConfig) -> Shape:
        """Read from a transformers configuration."""
        return cls(
            vocabulary=config.vocab_size,
            width=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
            intermediate=config.intermediate_size,
            tied=config.tie_word_embeddings,
        )

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the seven matrices of a layer."""
        d, q, kv, m = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return (d, q), (d, kv), (d, kv), (q, d), (d, m), (d, m), (m, d)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; an LM head of its own has as many."""
        return self.vocabulary * self.width

    @property
    def layer(self) -> int:
        """Frozen parameters of one layer: its matrices and two norms."""
        return sum(i * o for i, o in self.linears) + 2 * self.width

    @property
    def total(self) -> int:
        """Parameters of the whole base; tied embeddings count once."""
        return self.embedding * (1 if self.tied else 2) + self.layers * self.layer + self.width

    def layer_adapters(self, rank: int) -> int:
        """LoRA parameters of one layer (Hu et al. 2021): an A [r, in] and a B [out, r] per matrix."""
        return sum(rank * (i + o) for i, o in self.linears)

    def embedding_adapter(self, rank: int) -> int:
        """LoRA parameters of the embedding."""
        return rank * (self.vocabulary + self.width)


def projection(width: int, bottleneck: int, *, bias: bool = True) -> int:
    """Parameters of the residual projection head h + W2 act(W1 h).

    The paper's two sizes are two readings: width 3,072 and bottleneck 256 with biases are 1,576,192, which with the
    embedding's adapter are its 3.68M; bottleneck 16 without biases is 98,304, its "~100K" (101,392 with them).
    """
    return 2 * width * bottleneck + (width + bottleneck if bias else 0)


LLAMA_3_2_3B = Shape(
    vocabulary=128_256,
    width=3_072,
    layers=28,
    heads=24,
    kv_heads=8,
    head_dim=128,
    intermediate=8_192,
    tied=True,
)
"""Meta's LLaMA-3.2-3B, from its published configuration."""

SMOLLM2 = Shape(
    vocabulary=49_152,
    width=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate=1_536,
    tied=True,
)
"""SmolLM2-135M (Allal et al. 2025), from its published configuration."""

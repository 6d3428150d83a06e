"""What one training step costs a client: in split learning, and if it trained the whole model locally.

Closed forms count a multiply-add as two FLOPs, matrices and attention only: norms, activations and the lookup of an
embedding are free. With frozen weights, backward computes gradients of activations (as much as forward), and of
adapters (as much again for those). Attention counts every pair of tokens, masked or not, as the kernels compute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from privbench.targets.split_llama.shape import LLAMA_3_2_3B, Shape, projection

if TYPE_CHECKING:
    from privbench.targets.split_llama.halves import Placement
    from privbench.targets.split_llama.measure import Measured

Training = Literal["split client", "full local"]

ADAM_BYTES = 16
"""Per trained number, in float32: value, gradient, two moments (Kingma and Ba 2015)."""


@dataclass(frozen=True)
class Setting:
    """A model's dimensions, a cut and a batch.

    `prompt` and `answer` are tokens per record; `bytes_each` is what a frozen weight or an activation takes, in memory
    and on the wire. What is trained is float32.
    """

    shape: Shape
    placement: Placement = "server"
    k: int = 0
    batch: int = 8
    prompt: int = 277
    answer: int = 3
    rank: int = 16
    bottleneck: int = 256
    train_head: bool = False
    bytes_each: int = 4


@dataclass(frozen=True)
class Cost:
    """Per step: FLOPs, peak memory in bytes, bytes sent to the server and received from it; how much is trained.

    Memory is frozen weights, what is trained with Adam, and what is kept for backward: a lower bound, without
    libraries, temporaries, the allocator's holes, or the float32 copies that adapters on a bfloat16 base make.
    """

    flops: int
    memory: int
    bytes_up: int
    bytes_down: int
    trained: int


def cost(s: Setting, training: Training) -> Cost:
    """The client's half of a split step; or the whole model over prompt and answer at the client, nothing sent.

    The client's half is the adapted embedding, the projection and k layers; in the U-shape also the readout, and the
    trunk's outputs and their gradient travel beside the activations and theirs.
    """
    layers, length, holds_labels = _part(s, training)
    tokens, d = s.batch * length, s.shape.width
    flops = _entry_flops(s, tokens) + layers * _layer_flops(s, length)
    trained = s.shape.embedding_adapter(s.rank) + projection(d, s.bottleneck) + layers * s.shape.layer_adapters(s.rank)
    frozen = s.shape.embedding + layers * s.shape.layer
    if holds_labels:
        rows = s.batch * s.answer
        flops += (6 if s.train_head else 4) * rows * s.shape.embedding
        trained += s.shape.embedding if s.train_head else 0
        frozen += d + (0 if s.train_head or s.shape.tied else s.shape.embedding)
    messages = 0 if training == "full local" else tokens * d * s.bytes_each * (2 if holds_labels else 1)
    memory = (frozen + saved(s, training)) * s.bytes_each + trained * ADAM_BYTES
    return Cost(flops, memory, messages, messages, trained)


FLOPS_PER_SECOND = 80e9
"""SmolLM2's step of 509 GFLOPs took 6.4 s on one core of the machine that made the reports."""
TYPICAL_LENGTH = 256
_TINY_STEP = 0.1


def step_seconds(shape: Shape, batch: int, rank: int) -> float:
    """About how long a step of the whole model takes on one ordinary core; 0 for a tiny one, which takes its time
    elsewhere.
    """
    setting = Setting(shape, batch=batch, prompt=TYPICAL_LENGTH, rank=rank)
    each = cost(setting, "full local").flops / FLOPS_PER_SECOND
    return each if each >= _TINY_STEP else 0.0


def _part(s: Setting, training: Training) -> tuple[int, int, bool]:
    """The client's layers, tokens per record in them, and whether it has the labels and the readout."""
    local = training == "full local"
    holds_labels = local or s.placement == "client"
    return s.shape.layers if local else s.k, s.prompt + (s.answer if holds_labels else 0), holds_labels


def _entry_flops(s: Setting, tokens: int) -> int:
    """Embedding adapter (its A is looked up) and projection: forward, gradients of inputs and of weights."""
    d = s.shape.width
    return 6 * tokens * (s.rank * d + 2 * d * s.bottleneck)


def _layer_flops(s: Setting, length: int) -> int:
    """One layer with LoRA, forward and backward; scores and their products are two matrices, their gradients four."""
    matrices = sum(i * o for i, o in s.shape.linears)
    attention = s.batch * length**2 * s.shape.heads * s.shape.head_dim
    return s.batch * length * (4 * matrices + 6 * s.shape.layer_adapters(s.rank)) + 12 * attention


def saved(s: Setting, training: Training) -> int:
    """Numbers that the forward pass keeps for backward, weights not among them, in the precision of the base.

    Per token and layer: inputs and results of both norms; queries, keys, values and their result; the MLP's gate before
    and after its activation, its other factor and their product; each adapter's inner values; a row of the mask.
    """
    layers, length, holds_labels = _part(s, training)
    d, heads = s.shape.width, s.shape.heads
    entry = d + s.rank + 2 * s.bottleneck
    layer = 4 * d + 4 * heads * s.shape.head_dim + 4 * s.shape.intermediate + 7 * s.rank + heads + 2 + length
    readout = s.batch * s.answer * (s.shape.vocabulary + d) if holds_labels else 0
    return s.batch * length * (entry + layers * layer) + readout


@dataclass(frozen=True)
class Reported:
    """The published figures for LLaMA-3.2-3B (Syfullah and Khalil, arXiv 2609.15871): FLOPs and bytes per step."""

    split_flops: float = 0.08e12
    local_flops: float = 158e12
    split_memory: float = 1.3e9
    local_memory: tuple[float, float] = (15e9, 25e9)
    client_parameters: float = 3.68e6
    head_parameters: float = 1e5


REPORTED = Reported()

REPORTED_TOKENS = 8_192
"""Tokens per step at which 6 x parameters x tokens gives both published FLOPs (our deduction, the paper has no batch):
158 TFLOPs with all 3,212,749,824 parameters, .08 with the 1,625,344 of the projection with bottleneck 256 and the
embedding adapter's B. The rule counts gradients of frozen weights, which LoRA does not compute.
"""

LLAMA_3B = Setting(LLAMA_3_2_3B, batch=16, prompt=509, answer=3, bytes_each=2)
"""That many tokens, in bfloat16."""


@dataclass(frozen=True)
class Row:
    """One line of the table; `measured` where the model was run on this machine."""

    model: str
    training: Training
    setting: Setting
    cost: Cost
    measured: Measured | None = None


def table(settings: Mapping[str, Setting], measured: Iterable[str] = (), *, steps: int = 3) -> list[Row]:
    """Rows of each named model: split clients for both placements and k = 0, 1, 2 (as deep as it is), then training
    it locally. The models named in `measured` are also run, each row in a process of its own.
    """
    from privbench.targets.split_llama.measure import measure

    chosen = set(measured)
    rows = []
    for model, base in settings.items():
        for training, setting in _variants(base):
            found = measure(setting, training, steps) if model in chosen else None
            rows.append(Row(model, training, setting, cost(setting, training), found))
    return rows


def _variants(base: Setting) -> list[tuple[Training, Setting]]:
    placements: tuple[Placement, ...] = ("server", "client")
    depths = range(min(2, base.shape.layers) + 1)
    split = [replace(base, placement=placement, k=k) for placement in placements for k in depths]
    return [*(("split client", setting) for setting in split), ("full local", replace(base, placement="client", k=0))]

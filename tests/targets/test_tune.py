"""Who sends what in which step, what is averaged when, how fast it learns, and that a seed decides all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_llama import CONTEXT, word_tokenizer

from privbench.conformance.base import global_generators
from privbench.data.surveys.samples import samples
from privbench.data.surveys.splits import portions
from privbench.data.surveys.synthetic import synthetic
from privbench.errors import InputError
from privbench.targets.split_llama import tune as tuning_module
from privbench.targets.split_llama.adapters import State, state
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.halves import Cut
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.targets.split_llama.system import System
from privbench.targets.split_llama.tokens import Encoded, Encoder
from privbench.targets.split_llama.tune import Shard, batch_of, turns, whole_passes

SHAPE = Shape(vocabulary=900, width=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True)
DEFAULTS: dict[str, Any] = {"batch": 2, "steps": 6, "rank": 4, "bottleneck": 8, "rate": 0.02, "warmup": 0}


@pytest.fixture(scope="module")
def people() -> tuple[Encoded, ...]:
    survey = synthetic(np.random.default_rng(2), 12, survey="sleep")
    outcome = survey.schema.outcome(None)
    return Encoder(word_tokenizer(), CONTEXT).encode_all(samples(survey, outcome), outcome.question.answers)


class Run:
    """A tuning, step by step. holder: the client of each respondent; sent: client and rows of every batch."""

    def __init__(
        self, people: Sequence[Encoded], holder: Sequence[int], seed: int = 0,
        at_step: Callable[[Run], None] | None = None, **tuning: Any,
    ) -> None:  # fmt: skip
        self.tuning = Tuning(**{**DEFAULTS, "clients": max(holder) + 1, **tuning})
        rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            base = random_llama(SHAPE, SHAPE.layers)
        self.system = System.build(base, people[: len(holder)], np.array(holder), self.tuning, rng)
        self.sent: list[tuple[int, tuple[int, ...], Cut]] = []
        self.ended: list[tuple[int, int, int]] = []  # client, pass, batches sent by then
        self.stages: list[tuple[str, float]] = []

        def report(stage: str, share: float) -> None:
            self.stages.append((stage, share))
            if at_step is not None:
                at_step(self)

        self.losses = tuning_module.tune(
            self.system.clients, self.system.server, self.system.shards, self.tuning, rng,
            taken=lambda client, rows, crossed: self.sent.append((client, tuple(rows), crossed.cut)),
            end_pass=lambda client, number: self.ended.append((client, number, len(self.sent))),
            report=report,
        )  # fmt: skip

    def trained(self) -> list[State]:
        return [state(half) for half in (*self.system.clients, self.system.server)]


def equal(one: Sequence[State], other: Sequence[State]) -> bool:
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


# Turns and passes


def test_in_turn_one_half_is_handed_on(people: tuple[Encoded, ...]) -> None:
    run = Run(people, [0, 0, 0, 1, 1, 2, 2, 2, 2], steps=12)
    assert len(run.system.clients) == 1
    assert [client for client, _, _ in run.sent] == [step % 3 for step in range(12)]
    assert len(run.losses) == 12


def test_who_holds_more_has_more_turns(people: tuple[Encoded, ...]) -> None:
    run = Run(people, [0, 0, 0, 0, 0, 0, 1, 1, 2], steps=18, turns="sized", share="6:2:1")
    sent = [client for client, _, _ in run.sent]
    assert [sent.count(client) for client in range(3)] == [12, 4, 2]
    assert sent[:9] == sent[9:], "nobody waits for others to be done"
    assert len([1 for who, _, _ in run.ended if who == 0]) == whole_passes(run.tuning, 0, 6) == 4


@given(st.lists(st.integers(1, 50), min_size=2, max_size=10), st.integers(1, 200))
def test_nobody_is_more_than_a_turn_ahead_of_its_part(sizes: list[int], steps: int) -> None:
    tuning = Tuning(clients=len(sizes), share=":".join(map(str, sizes)), turns="sized")
    parts = [steps * size / sum(sizes) for size in sizes]
    counts = [turns(replace(tuning, steps=steps), client)[0] for client in range(len(sizes))]
    assert sum(counts) == steps
    assert all(count - part <= 1 + 1e-6 for count, part in zip(counts, parts, strict=True))


@pytest.mark.parametrize("share", ["even", "one-large", "power"])
def test_one_pass_by_size_is_one_pass(share: str) -> None:
    """With a step fewer, somebody of some client is not sent."""
    tuning = Tuning(clients=5, share=share, turns="sized", batch=4)
    held = portions(200, tuning.parts_held).tolist()
    steps = tuning.one_pass(held)
    for count, everybody in ((steps, True), (steps - 1, False)):
        given = [turns(replace(tuning, steps=count), client)[0] for client in range(5)]
        assert all(sent * 4 >= wanted for sent, wanted in zip(given, held, strict=True)) == everybody


def test_side_by_side_nobody_takes_turns() -> None:
    with pytest.raises(InputError, match="turns=sized with schedule=parallel"):
        Tuning(schedule="parallel", turns="sized")
    with pytest.raises(InputError, match="turns"):
        Tuning(turns="random")


def test_side_by_side_every_client_sends_in_every_step(people: tuple[Encoded, ...]) -> None:
    run = Run(people, [0, 0, 0, 1, 1, 2, 2, 2, 2], schedule="parallel", batch=6, steps=5)
    assert len(run.system.clients) == 3
    assert [client for client, _, _ in run.sent] == [0, 1, 2] * 5
    assert {len(rows) for _, rows, _ in run.sent} <= {1, 2}


@pytest.mark.parametrize("schedule", ["round-robin", "parallel"])
def test_no_batch_is_of_two_passes_and_everybody_is_in_each_once(people: tuple[Encoded, ...], schedule: str) -> None:
    held = [5, 3]
    run = Run(
        people, np.repeat([0, 1], held).tolist(), steps=12, schedule=schedule, batch=2 if schedule != "parallel" else 4
    )
    for client in (0, 1):
        ends = [at for who, _, at in run.ended if who == client]
        assert [number for who, number, _ in run.ended if who == client] == list(range(len(ends)))
        assert len(ends) >= 2
        start, orders = 0, []
        for end in ends:
            rows = [row for who, batch, _ in run.sent[start:end] if who == client for row in batch]
            assert sorted(rows) == list(range(held[client]))
            orders.append(rows)
            start = end
        rest = [row for who, batch, _ in run.sent[start:] if who == client for row in batch]
        assert len(rest) < held[client]
        assert len(set(map(tuple, orders))) > 1  # in another order each time
    assert whole_passes(run.tuning, 0, held[0]) == len([1 for who, _, _ in run.ended if who == 0])


@given(
    st.sampled_from(["round-robin", "parallel"]),
    st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.integers(1, 30),
)  # fmt: skip
def test_passes_are_counted_as_batches_are_dealt(
    schedule: str, steps: int, batch: int, clients: int, respondents: int
) -> None:
    """Against dealing them out one by one."""
    tuning = Tuning(schedule=schedule, steps=steps, batch=batch, clients=clients)
    shard = Shard(tuple([Encoded((1,), (0,), (1,), 0, 0)] * respondents))
    for client in range(clients):
        count, size = turns(tuning, client)
        feed = shard.batches(size, np.random.default_rng(0))
        passes = sum(last for _, (_, last) in zip(range(count), feed, strict=False))
        if passes:
            assert whole_passes(tuning, client, respondents) == passes
        else:
            with pytest.raises(
                InputError, match=rf"client {client + 1} sends {count} batches of {size}, fewer than one"
            ):
                whole_passes(tuning, client, respondents)
    if schedule == "round-robin":
        assert sum(turns(tuning, client)[0] for client in range(clients)) == steps


def test_too_few_steps_are_refused_before_anything_is_built(people: tuple[Encoded, ...]) -> None:
    with pytest.raises(InputError, match="client 1 sends 2 batches of 2, fewer than one pass over its 5 respondents"):
        Run(people, [0] * 5 + [1] * 3, steps=4)


# Averaging


@pytest.mark.parametrize("sync", [1, 3])
def test_side_by_side_halves_differ_until_they_are_averaged(people: tuple[Encoded, ...], sync: int) -> None:
    same: list[bool] = []

    def look(run: Run) -> None:
        first, *others = (state(half) for half in run.system.clients)
        same.append(all(equal([first], [other]) for other in others))

    run = Run(people, [0, 0, 0, 0, 1, 1, 2, 2], schedule="parallel", batch=3, steps=7, sync=sync, at_step=look)
    assert same == [(step + 1) % sync == 0 for step in range(7)]
    look(run)
    assert same[-1]  # averaged at the end, whatever `sync`


def test_the_average_is_weighted_by_respondents(people: tuple[Encoded, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[list[State]] = []
    after: list[list[State]] = []
    real = tuning_module._average

    def spied(halves: Sequence[Any], shards: Sequence[Shard]) -> None:
        before.append([state(half) for half in halves])
        real(halves, shards)
        after.append([state(half) for half in halves])

    monkeypatch.setattr(tuning_module, "_average", spied)
    Run(people, [0, 0, 0, 0, 1, 2, 2], schedule="parallel", batch=3, steps=4, sync=2)
    assert len(before) == 3
    for unlike, alike in zip(before, after, strict=True):
        for name in unlike[0]:
            twin = sum(one[name].double() * count for one, count in zip(unlike, (4, 1, 2), strict=True)) / 7
            for half in alike:
                assert torch.allclose(half[name].double(), torch.as_tensor(twin), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("labels", ["server", "client"])
def test_clients_with_equal_respondents_are_one_client(people: tuple[Encoded, ...], labels: str) -> None:
    """Three clients hold the same two respondents and send both in each step: every half gets the gradient that one
    client's gets, the server the mean of three equal ones. So the tuning is that of one client, up to rounding.
    """
    pair = people[:2]
    shared = {"steps": 5, "rate": 0.01, "labels": labels}
    three = Run([*pair] * 3, [0, 0, 1, 1, 2, 2], schedule="parallel", batch=6, sync=1, **shared)
    one = Run(pair, [0, 0], batch=2, **shared)
    assert np.allclose(three.losses, one.losses, rtol=1e-4)
    for many, single in ((three.trained()[0], one.trained()[0]), (three.trained()[-1], one.trained()[-1])):
        for name in many:
            assert torch.allclose(many[name], single[name], atol=3e-4), name


def test_one_client_learns_the_same_in_turn_and_side_by_side(people: tuple[Encoded, ...]) -> None:
    steps: dict[str, list[list[State]]] = {"round-robin": [], "parallel": []}
    for schedule, seen in steps.items():
        Run(people, [0] * 5, schedule=schedule, sync=2, at_step=lambda run, seen=seen: seen.append(run.trained()))  # type: ignore[misc]
    assert len(steps["parallel"]) == 6
    assert all(equal(one, other) for one, other in zip(*steps.values(), strict=True))
    assert not equal(steps["parallel"][0], steps["parallel"][1])


# Steps


@pytest.mark.parametrize("labels", ["server", "client"])
def test_rates_warm_up_and_decay(people: tuple[Encoded, ...], monkeypatch: pytest.MonkeyPatch, labels: str) -> None:
    """Up in equal steps over `warmup`, then on the line from the rate at step 0 to nothing after the last. A client
    learns at a tenth of the rate, but the LM head at the whole one, wherever it stands.
    """
    rates: list[dict[torch.Size, float]] = []
    real = torch.optim.Adam.step

    def spied(self: torch.optim.Adam, *given: Any) -> Any:
        rates.append({item.shape: group["lr"] for group in self.param_groups for item in group["params"]})
        return real(self, *given)

    monkeypatch.setattr(torch.optim.Adam, "step", spied)
    Run(people, [0] * 4, steps=10, warmup=3, rate=0.02, client_rate=0.1, labels=labels)
    expected = [0.25, 0.5, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    client, server = rates[0::2], rates[1::2]
    head, embedding, layer = torch.Size([900, 16]), torch.Size([4, 900]), torch.Size([4, 16])
    assert [step[embedding] for step in client] == pytest.approx([0.002 * share for share in expected])
    assert [step[layer] for step in server] == pytest.approx([0.02 * share for share in expected])
    holder, other = (server, client) if labels == "server" else (client, server)
    assert [step[head] for step in holder] == pytest.approx([0.02 * share for share in expected])
    assert all(head not in step for step in other)


@pytest.mark.parametrize("schedule", ["round-robin", "parallel"])
@pytest.mark.parametrize("clip", [1e-3, 1e6])
def test_each_half_clips_its_own_gradient(
    people: tuple[Encoded, ...], monkeypatch: pytest.MonkeyPatch, clip: float, schedule: str
) -> None:
    """The norm at each step is at most `clip`: exactly that of a long gradient, and a short one is left as it is."""
    stepped: list[float] = []
    free: list[float] = []
    adam, clipped = torch.optim.Adam.step, torch.nn.utils.clip_grad_norm_

    def norm(parameters: Sequence[torch.Tensor]) -> float:
        return float(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]).norm())

    def step(self: torch.optim.Adam, *given: Any) -> Any:
        stepped.append(norm([item for group in self.param_groups for item in group["params"]]))
        return adam(self, *given)

    def before(parameters: Sequence[torch.Tensor], *given: Any) -> Any:
        free.append(norm(parameters))
        return clipped(parameters, *given)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", before)
    Run(people, [0, 0, 1, 1], schedule=schedule, clip=clip, batch=4)
    halves = 3 if schedule == "parallel" else 2
    assert len(stepped) == 6 * halves
    assert stepped == pytest.approx([min(value, clip) for value in free], rel=1e-3)
    assert min(free) > 1e-3


def test_the_servers_step_is_on_the_mean_over_clients(
    people: tuple[Encoded, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gradient by hand: of all clients' batches in one, which are equally large."""
    seen: list[list[torch.Tensor]] = []
    real = torch.nn.utils.clip_grad_norm_

    def spied(parameters: Sequence[torch.Tensor], *given: Any) -> Any:
        seen.append([p.grad.clone() for p in parameters if p.grad is not None])
        return real(parameters, *given)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", spied)
    Run(people, [0, 0, 1, 1], schedule="parallel", batch=4, steps=1)
    Run([people[i] for i in (0, 1, 2, 3)], [0] * 4, batch=4, steps=1)
    (*_, apart), (_, together) = seen[:3], seen[3:]
    assert len(apart) == len(together) > 0
    for one, other in zip(apart, together, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "tuning",
    [{}, {"schedule": "parallel", "batch": 8}, {"labels": "client"}, {"k": 1}, {"k": 1, "labels": "client"}],
    ids=str,
)
def test_it_learns(people: tuple[Encoded, ...], tuning: dict[str, Any]) -> None:
    """From a guess among 900 tokens to one among the options, at either placement alike."""
    run = Run(people, [0] * 4 + [1] * 4, **{"steps": 40, "batch": 4, "rate": 0.02, **tuning})
    assert run.losses[0] > 6
    assert np.mean(run.losses[-4:]) < 1


def test_it_learns_respondents_by_heart(people: tuple[Encoded, ...]) -> None:
    """Far below what the most frequent answer would reach: what the prompts say is used."""
    run = Run(people, [0] * 4 + [1] * 4, k=1, steps=140, batch=4, rate=0.05)
    assert np.mean(run.losses[-4:]) < 0.1


def test_a_server_with_nothing_to_train_passes_gradients_on(people: tuple[Encoded, ...]) -> None:
    """All layers and the labels at the client."""
    run = Run(people, [0] * 4, k=1, labels="client")
    assert run.trained()[-1] == {}
    assert run.losses[-1] < run.losses[0]


def test_what_is_frozen_stays(people: tuple[Encoded, ...]) -> None:
    run = Run(people, [0] * 4, train_head="no")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untouched = random_llama(SHAPE, SHAPE.layers).state_dict()
    embedding = untouched["model.embed_tokens.weight"]
    assert torch.equal(run.system.clients[0].embed_tokens.base_layer.weight, embedding)  # type: ignore[union-attr, arg-type]
    readout = run.system.server.readout
    assert readout is not None
    assert torch.equal(readout.lm_head.weight, untouched["lm_head.weight"])


# Seeds and progress


@pytest.mark.parametrize("schedule", ["round-robin", "parallel"])
def test_one_seed_one_tuning(people: tuple[Encoded, ...], schedule: str) -> None:
    def tuned(seed: int) -> Run:
        return Run(people, [0] * 4 + [1] * 4, seed, schedule=schedule, batch=4)

    before = global_generators()
    one, again, other = tuned(0), tuned(0), tuned(1)
    assert global_generators() == before
    assert one.losses == again.losses != other.losses
    assert equal(one.trained(), again.trained())
    assert [rows for _, rows, _ in one.sent] == [rows for _, rows, _ in again.sent]
    assert all(
        torch.equal(a.activations, b.activations) for (_, _, a), (_, _, b) in zip(one.sent, again.sent, strict=True)
    )
    assert [rows for _, rows, _ in one.sent] != [rows for _, rows, _ in other.sent]


def test_progress_names_step_loss_and_time_left(people: tuple[Encoded, ...]) -> None:
    run = Run(people, [0] * 4)
    assert [share for _, share in run.stages] == pytest.approx([(step + 1) / 6 for step in range(6)])
    for number, (stage, _) in enumerate(run.stages, start=1):
        assert stage.startswith(f"step {number} of 6, loss {run.losses[number - 1]:.3f}, ")
        assert stage.endswith(" left")
    assert run.stages[-1][0].endswith(" 0:00 left")


def test_batches_hold_the_prompt_and_the_one_answer(people: tuple[Encoded, ...]) -> None:
    batch = batch_of(people[:3])
    assert batch.prompt.layout.lengths.tolist() == [len(item.prompt) for item in people[:3]]
    assert batch.answers.ids.tolist() == [list(item.label) for item in people[:3]]

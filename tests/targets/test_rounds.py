"""Federated averaging against training in one place, against the split run, and against sums written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from test_halves import Unsplit, halves, llama

from privbench.defenses.base import UpdateDefense
from privbench.errors import InputError
from privbench.recording import Transcript
from privbench.targets.fedavg import rounds as rounds_module
from privbench.targets.fedavg.attendance import Attendance
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.gradients import Gradients
from privbench.targets.fedavg.membership import Compared, evenly
from privbench.targets.fedavg.rounds import Institute, Order, Round, Trained, Whole, federate
from privbench.targets.fedavg.tape import UpdateTape, Watched, flat
from privbench.targets.split_llama.adapters import State, state
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.system import shards_of
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import Shard, batch_of, tune

STEP: dict[str, Any] = {"batch": 2, "rate": 0.02, "client_rate": 0.1, "warmup": 2, "clip": 0.5}
PARTS: dict[str, Any] = {"train_head": "no", "bottleneck": 7, "rank": 3, "alpha": 6.0}


def people(count: int, seed: int = 0) -> tuple[Encoded, ...]:
    """Respondents of random tokens."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prompt = tuple(rng.integers(3, 61, rng.integers(3, 9)).tolist())
        label = tuple(rng.integers(3, 61, rng.integers(1, 4)).tolist())
        made.append(Encoded(prompt, (-1,) * len(prompt), label, 1, 0))
    return tuple(made)


def whole(dtype: torch.dtype = torch.float64) -> Whole:
    """Every trained matrix is non-zero."""
    return Whole(*halves(llama(dtype)))


def shards(held: Sequence[int]) -> tuple[Shard, ...]:
    return shards_of(people(sum(held)), np.repeat(np.arange(len(held)), held), len(held))


class Run:
    """An averaging, round by round, and the state that it ends with."""

    def __init__(
        self,
        held: Sequence[int],
        rounds: int = 4,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
        defense: UpdateDefense | None = None,
        **settings: Any,
    ) -> None:
        own = {"clients": len(held), "local_steps": 2, "rounds": rounds}
        self.tuning = FedTuning(**{**STEP, **PARTS, **own, **settings})
        self.model, self.shards = whole(dtype), shards(held)
        self.start = state(self.model)
        self.seen = Attendance()
        self.stages: list[str] = []
        rng = np.random.default_rng(seed)
        made = federate(
            self.model, self.shards, self.tuning, rounds, rng, lambda stage, share: self.stages.append(stage), defense
        )
        self.rounds = [self.seen.add(done) for done in made]
        self.end = state(self.model)


def close(one: State, other: State, relative: float) -> bool:
    return all(bool((one[name] - other[name]).norm() <= relative * other[name].norm()) for name in other)


# Against others


def test_one_client_with_one_step_a_round_is_training_in_one_place() -> None:
    """The unsplit model in one autograd graph, Adam and its schedule written out: to 1e-6 after twelve steps."""
    steps = 12
    run = Run([5], rounds=steps, local_steps=1)
    client, server = halves(model := llama(torch.float64))
    unsplit = Unsplit(model, client, server, rank=3, alpha=6)
    own = [*(p for n, p in unsplit.adapters.items() if "embed" in n), *unsplit.projection.parameters()]
    rest = [p for n, p in unsplit.adapters.items() if "embed" not in n]
    adam = torch.optim.Adam([{"params": own}, {"params": rest}])
    feed = run.shards[0].batches(2, np.random.default_rng(0))
    losses = []
    for step in range(steps):
        rows, _ = next(feed)
        adam.zero_grad()
        loss = unsplit.losses(batch_of([run.shards[0].samples[row] for row in rows]), "server").mean()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        for group, rate in zip(adam.param_groups, (0.002, 0.02), strict=True):
            norm = torch.cat([p.grad.flatten() for p in group["params"]]).norm()
            for parameter in group["params"]:
                parameter.grad *= min(0.5 / float(norm), 1)
            group["lr"] = rate * min((step + 1) / 3, 1 - step / steps)
        adam.step()
    assert run.seen.losses == pytest.approx(losses, rel=1e-6)
    unsplit.client = run.model.client
    count = 0
    for name, parameter in unsplit.adapters.items():
        ours = unsplit._twin(name, run.model.client, run.model.server)
        assert (ours - parameter).norm() <= 1e-6 * parameter.norm(), name
        count += 1
    for name, parameter in unsplit.projection.named_parameters():
        ours = run.model.client.projection.get_parameter(name)
        assert (ours - parameter).norm() <= 1e-6 * parameter.norm(), name
        count += 1
    assert count == len(run.start)


def test_one_client_learns_as_in_the_split_run_of_the_same_seed() -> None:
    """Same initial weights, batches, losses and steps, whatever lies between two rounds."""
    client, server = halves(llama(torch.float64))
    tuning = Tuning(**STEP, **PARTS, clients=1, steps=12)
    losses = tune(
        [client], server, shards([5]), tuning, np.random.default_rng(0),
        taken=lambda *given: None, end_pass=lambda *given: None, report=lambda *given: None,
    )  # fmt: skip
    for local_steps in (1, 3, 12):
        run = Run([5], rounds=12 // local_steps, local_steps=local_steps)
        if local_steps == 1:
            assert run.seen.losses == pytest.approx(losses)
        assert close(run.end, state(Whole(client, server)), 1e-9)


def naive(run: Run) -> State:
    """The server's state in numpy, one number after another: start plus weighted means."""
    end = {name: values.numpy().copy() for name, values in run.start.items()}
    for done in run.rounds:
        total = sum(len(run.shards[client].samples) for client in done.taken)
        for client, trained in done.taken.items():
            for name, update in trained.update.items():
                end[name] += len(run.shards[client].samples) / total * update.numpy()
    return {name: torch.from_numpy(values) for name, values in end.items()}


@pytest.mark.parametrize("settings", [{}, {"fraction": 0.5}, {"drop": "0.4"}, {"drop": "2@1:1@3"}], ids=str)
def test_the_state_is_the_naive_sum(settings: dict[str, Any]) -> None:
    run = Run([5, 2, 7], **settings)
    assert close(run.end, naive(run), 1e-12)
    assert not close(run.end, run.start, 1e-3)


def test_a_recording_alone_gives_the_servers_state(tmp_path: Path) -> None:
    """From its updates, masks and metadata; in a file as in memory."""
    run = Run([5, 2, 7], drop="3@2", dtype=torch.float32)
    for folder in (None, tmp_path):
        with UpdateTape(run.start, [5, 2, 7], 4, folder, {}, Watched("client-1", {0: 0})) as tape:
            for done in run.rounds:
                tape.put(done)
            made = tape.finish({"missed": run.seen.missed})
        vector = made.array("public/global").astype(np.float64)
        samples = made.metadata["samples"]
        for number in range(4):
            there = [name for name in samples if made.array(f"updates/{name}/mask")[number]]
            total = sum(samples[name] for name in there)
            vector += sum(samples[name] / total * made.array(f"updates/{name}")[number] for name in there)
        assert np.allclose(vector, flat(run.end), rtol=1e-5, atol=1e-6)
        assert made.array("updates/client-3/mask").tolist() == [1, 0, 1, 1]
        assert not made.array("updates/client-3")[1].any()
        assert made.metadata["missed"] == {"client-3": {"dropped out": [2]}}
        at, parts = 0, dict[str, npt.NDArray[Any]]()
        for name, shape in made.metadata["parameters"]:
            size = int(np.prod(shape))
            parts[name] = made.array("public/global")[at : at + size].reshape(shape)
            at += size
        assert at == len(vector)
        assert all(np.array_equal(parts[name], values.numpy()) for name, values in run.start.items())
    assert (tmp_path / Transcript.file_name()).exists()


# Who takes part


def test_everybody_trains_from_the_same_state_and_keeps_the_optimiser() -> None:
    """An optimiser that forgets would make other steps from the second round on; its memory can be handed on."""
    run, forgetful = Run([4, 4]), Run([4, 4])
    assert all(close(a.start, b.start, 0) for a, b in zip(run.rounds, forgetful.rounds, strict=True))
    run = Run([4])
    feed = run.shards[0].batches(2, np.random.default_rng(0))
    first, second = (Order(step, tuple(rows for rows, _ in islice(feed, 2)), True) for step in (0, 2))
    kept, fresh, reminded = (Institute(whole(), run.shards[0], run.tuning, 8) for _ in range(3))
    assert close(kept.train(run.start, first).update, run.rounds[0].taken[0].update, 1e-12)
    wanted = run.rounds[1].taken[0].update
    assert not close(fresh.train(run.rounds[1].start, second).update, wanted, 1e-3)
    reminded.recall(kept.memory)
    assert close(reminded.train(run.rounds[1].start, second).update, wanted, 0)


@pytest.mark.parametrize(("fraction", "each"), [(0.1, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_a_fraction_of_the_clients_takes_part(fraction: float, each: int) -> None:
    run = Run([3, 3, 3, 3], rounds=12, local_steps=1, fraction=fraction)
    drawn = [tuple(done.taken) for done in run.rounds]
    assert {len(clients) for clients in drawn} == {each}
    assert set().union(*drawn) == {0, 1, 2, 3}
    assert len(set(drawn)) == 1 if each == 4 else len(set(drawn)) > 2


def test_who_drops_out_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops half-way: it makes half of its steps, at the rates of this round."""
    made: list[Order] = []
    real = Institute.train

    def spied(self: Institute, start: State, order: Order) -> Trained:
        made.append(order)
        return real(self, start, order)

    monkeypatch.setattr(Institute, "train", spied)
    run = Run([4, 4, 4], drop="2@2:2@3:1@3", local_steps=4)
    assert [tuple(done.taken) for done in run.rounds] == [(0, 1, 2), (0, 2), (2,), (0, 1, 2)]
    assert [len(order.batches) for order in made] == [4, 4, 4, 4, 2, 4, 2, 2, 4, 4, 4, 4]
    assert [order.first for order in made] == [0] * 3 + [4] * 3 + [8] * 3 + [12] * 3
    assert run.seen.notes == (
        "Dropped out half-way, without an update: client-2 in rounds 2, 3; client-1 in round 3. The rounds went on "
        "with the others.",
    )
    assert run.seen.diagnostics["taken"] == (3, 2, 1, 3)


def test_dropouts_come_as_often_as_they_are_asked_for() -> None:
    """40,000 fair draws of 0.3: within 4 standard errors."""
    table = FedTuning(drop="0.3").leaves(10_000, np.random.default_rng(0))
    assert abs(table.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / table.size)
    assert not FedTuning().leaves(100, np.random.default_rng(0)).any()
    assert FedTuning(drop="2@5:3@7").leaves(6, np.random.default_rng(0)).nonzero()[0].tolist() == [4]


def spoiled(monkeypatch: pytest.MonkeyPatch, who: set[tuple[int, int]], value: float) -> None:
    """These clients' updates hold one such number in these rounds, both from 0."""
    real = Institute.train
    known: dict[int, int] = {}

    def broken(self: Institute, start: State, order: Order) -> Trained:
        trained = real(self, start, order)
        client = known.setdefault(id(self), len(known))
        if (client, order.first // 2) in who:
            trained.update[next(iter(trained.update))].flatten()[0] = value
        return trained

    monkeypatch.setattr(Institute, "train", broken)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_and_named(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    spoiled(monkeypatch, {(1, 2)}, value)
    run = Run([5, 2, 7])
    assert [tuple(done.taken) for done in run.rounds] == [(0, 1, 2), (0, 1, 2), (0, 2), (0, 1, 2)]
    assert close(run.end, naive(run), 1e-12)
    assert run.seen.missed == {"client-2": {"refused": [3]}}
    assert run.seen.notes == (
        "Refused, for NaN or infinity in the update: client-2 in round 3. The rounds went on with the others.",
    )


def test_where_nobody_is_left_the_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, {(0, 1)}, np.nan)
    run = Run([3, 3], drop="2@2")
    assert close(run.rounds[2].start, run.rounds[1].start, 0)
    assert not close(run.rounds[3].start, run.rounds[2].start, 1e-6)
    assert run.seen.notes[-1] == "In round 2 no update was left to take: the server's state stayed as it was."
    assert (len(run.seen.losses), run.seen.diagnostics["taken"]) == (3, (2, 0, 2, 2))
    assert run.stages[1].startswith("round 2 of 4, loss nan")


def test_one_seed_one_averaging() -> None:
    settings: dict[str, Any] = {"fraction": 0.7, "drop": "0.2"}
    first, again, other = (Run([3, 4, 5], seed=seed, **settings) for seed in (0, 0, 1))
    assert all(torch.equal(first.end[name], again.end[name]) for name in first.end)
    assert first.seen == again.seen
    assert not close(first.end, other.end, 1e-6)


# What is set


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 0}, "clients must be a positive number, got 0"),
        ({"rounds": 0}, "rounds must be a positive number, got 0"),
        ({"local_steps": 0}, "local_steps must be a positive number, got 0"),
        ({"fraction": 0.0}, r"fraction must be a positive number, got 0\.0"),
        ({"fraction": 1.5}, r"fraction must be above 0 and at most 1, got 1\.5"),
        ({"asked": 0}, "asked must be a positive number, got 0"),
        ({"share": "1:0:2:3"}, "share 1:0:2:3: 4 clients need 4 positive numbers"),
        ({"share": "1:2"}, "share 1:2: 4 clients need 4 positive numbers"),
        *(
            ({"drop": drop}, f"drop {drop}: give a number from 0 to below 1, or client@round, as 2@5:3@7, with clients "
             "from 1 to 4 and rounds from 1 to 20")
            for drop in ("1", "-0.1", "nan", "often", "5@1", "0@1", "1@21", "1@2:3", "1@2@3", "@")
        ),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FedTuning(**settings)


def test_who_holds_more_makes_more_steps() -> None:
    """As many steps in a round as with equal turns, and one at the least."""
    held = [12, 2, 2]
    run = Run(held, rounds=2, turns="sized", share="12:2:2", local_steps=8)
    assert run.tuning.local == (18, 3, 3)
    assert all(
        len(done.taken[client].losses) == sum(map(len, batches(held[client], number, local)))
        for number, done in enumerate(run.rounds)
        for client, local in enumerate(run.tuning.local)
    )
    assert FedTuning(clients=3, turns="sized", share="98:1:1", local_steps=1).local == (3, 1, 1)
    assert FedTuning(clients=3, local_steps=4).local == (4, 4, 4)


def batches(held: int, number: int, local: int) -> list[list[int]]:
    """Respondents of each batch of two that a client trains on in a round, by their place in the pass."""
    one_pass = [list(range(start, min(start + 2, held))) for start in range(0, held, 2)]
    return [one_pass[step % len(one_pass)] for step in range(number * local, (number + 1) * local)]


def test_one_pass_is_one_pass() -> None:
    """With a round fewer somebody of the largest client is left out."""
    held = [5, 11]
    tuning = FedTuning(**{**STEP, **PARTS}, clients=2, local_steps=2)
    assert tuning.one_pass(held) == 3
    assert FedTuning(clients=2, batch=2, local_steps=2, fraction=0.5).one_pass(held) == 6
    for rounds, everybody in ((3, True), (2, False)):
        run = Run(held, rounds=rounds)
        assert all(len(run.seen.trained_on[client]) == count for client, count in enumerate(held)) == everybody


# Gradients of candidates


def test_products_are_those_of_every_candidates_own_gradient() -> None:
    """One autograd graph of the unsplit model for each candidate, without any batch."""
    run = Run([3, 2], drop="2@2")
    asked = people(4, seed=1)
    compared = Compared(whole(), asked, ("client-1", "client-2"), (0, 1), 6)
    for done in run.rounds:
        compared.add(done, lambda stage, share: None)
    found = compared.arrays
    for at, done in enumerate(run.rounds[:2]):
        for row, candidate in enumerate(asked):
            own = by_hand(done, candidate)
            assert found["asked/squares"][at, row] == pytest.approx(sum(float((g**2).sum()) for g in own.values()))
            for client in (0, 1):
                update = done.taken[client].update if client in done.taken else {}
                product = sum(float((update[name] * own[name]).sum()) for name in update)
                assert found[f"asked/products/client-{client + 1}"][at, row] == pytest.approx(product, rel=1e-5)
    assert not found["asked/squares"][:, 4:].any()
    assert found["updates/client-2/mask"].tolist() == [1, 0]
    assert found["updates/client-2/squares"][1] == 0
    squares = sum(float((values**2).sum()) for values in run.rounds[0].taken[0].update.values())
    assert found["updates/client-1/squares"][0] == pytest.approx(squares)


def by_hand(done: Round, candidate: Encoded) -> State:
    """The gradient of the candidate's loss at the state of a round, by name."""
    client, server = halves(model := llama(torch.float64))
    at = Whole(client, server)
    with torch.no_grad():
        for name, parameter in at.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(done.start[name])
    unsplit = Unsplit(model, client, server, rank=3, alpha=6)
    unsplit.losses(batch_of([candidate]), "server").mean().backward()  # type: ignore[no-untyped-call]
    gradients = {}
    for name, parameter in unsplit.adapters.items():
        half = "client" if "embed" in name else "server.trunk"
        assert parameter.grad is not None
        gradients[f"{half}.{name.removeprefix('model.')}"] = parameter.grad
    for name, parameter in unsplit.projection.named_parameters():
        assert parameter.grad is not None
        gradients[f"client.projection.{name}"] = parameter.grad
    assert gradients.keys() == done.start.keys()
    return gradients


def test_gradients_stand_in_the_order_of_updates() -> None:
    """A step down a candidate's gradient, flattened, is the update that a plain step would make."""
    model = whole()
    candidate = people(1)[0]
    loss, gradient = Gradients(model).of(candidate)
    assert model.learn(batch_of([candidate])).tolist() == pytest.approx([loss], rel=1e-12)
    named = {name: item.grad for name, item in model.named_parameters() if item.grad is not None}
    assert list(named) == list(state(model))
    assert np.allclose(gradient.numpy(), flat(named), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "rounds", "expected"), [(4, 5, (0, 1, 3, 4)), (1, 5, (0,)), (4, 3, (0, 1, 2)), (2, 8, (0, 7))]
)
def test_asked_rounds_lie_evenly(count: int, rounds: int, expected: tuple[int, ...]) -> None:
    assert evenly(count, rounds) == expected


def test_a_round_says_what_it_lost() -> None:
    done = Run([3]).rounds[0]
    assert np.isnan(replace(done, taken={}).loss)
    assert rounds_module.called(0) == "client-1"

"""Defences in federated averaging: in a client's steps, on what it sends, and at the server, against plain rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from test_rounds import Run, by_hand, close, naive, people, whole

from privbench.defenses.base import UpdateDefense
from privbench.defenses.dp_sgd import DpSgd
from privbench.defenses.updates import Quantisation, SecureAggregation, TopK, UpdateGaussian
from privbench.errors import InputError
from privbench.mechanism import Mechanism
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.defending import SUM, Guard, joined, like
from privbench.targets.fedavg.rounds import Round
from privbench.targets.fedavg.tape import UpdateTape, Watched
from privbench.targets.split_llama.adapters import state
from privbench.targets.split_llama.tune import batch_of
from privbench.threat import Channel


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Bare(UpdateDefense):
    """The step of DP-SGD without a clip and noise."""

    per_record = True
    card = DpSgd.card

    def mechanism(self) -> Mechanism:
        return Mechanism(Channel.UPDATES, "*", "none")


def step(defense: UpdateDefense, rate: float = 1.0, batch: int = 4, seed: int = 0) -> tuple[torch.Tensor, int]:
    """The gradient that a guard leaves [P], of the first five, and how many were drawn."""
    model = whole()
    trained = [item for item in model.parameters() if item.requires_grad]
    rows, losses = Guard(defense, seeded(seed)).step(trained, people(5), batch, rate, model.learn)
    assert len(losses) == len(rows)
    return joined(item.grad for item in trained if item.grad is not None), len(rows)


# In a client's steps


def test_records_gradients_add_up_to_the_batchs() -> None:
    """Of whatever is trained, the embedding's adapter among it, to 1e-6: the mean loss of five records, divided by the
    size of batch that was asked for.
    """
    model = whole()
    model.learn(batch_of(people(5)))
    expected = joined(item.grad for item in model.parameters() if item.grad is not None) * 5 / 4
    found, drawn = step(Bare())
    assert drawn == 5
    assert float((found - expected).norm() / expected.norm()) < 1e-6


def test_every_records_gradient_is_clipped_by_itself() -> None:
    """Against the gradients of the unsplit model in one autograd graph, one record after another, each shortened in
    numpy; the noise is the generator's next draw.
    """
    model, clip = whole(), 0.5
    own = []
    for record in people(5):
        gradient = by_hand(Round(0, state(model), {}, {}), record)
        own.append(joined(gradient[name] for name in state(model)).numpy())
    assert sum(np.linalg.norm(row) > clip for row in own) >= 2
    total = sum(row * min(1.0, clip / np.linalg.norm(row)) for row in own)
    generator = seeded(3)
    torch.rand(5, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(own[0]), generator=generator).double().numpy() * 0.3 * clip
    found, _ = step(DpSgd(clip=clip, noise=0.3), seed=3)
    assert np.allclose(found.numpy(), (total + noise) / 4, atol=1e-6)


def test_records_are_drawn_by_poisson_sampling() -> None:
    """Each by itself: the number drawn is binomial, here 2,000 steps of 20 records at rate .3, mean and variance within
    4 standard errors.
    """
    trained = [torch.zeros(1, requires_grad=True)]
    guard, counts = Guard(Bare(), seeded(1)), []
    for _ in range(2_000):
        rows, _ = guard.step(trained, people(20), 4, 0.3, lambda batch: torch.zeros(1))
        assert rows == tuple(sorted(set(rows)))
        counts.append(len(rows))
    mean, variance = 6.0, 20 * 0.3 * 0.7
    assert abs(np.mean(counts) - mean) < 4 * math.sqrt(variance / 2_000)
    assert abs(np.var(counts) / variance - 1) < 4 * math.sqrt(2 / 2_000)


def test_a_step_without_records_is_noise() -> None:
    found, drawn = step(DpSgd(clip=1.0, noise=2.0), rate=1e-12)
    assert drawn == 0
    assert float(found.std()) == pytest.approx(2.0 / 4, rel=4 / math.sqrt(2 * len(found)))


def test_the_rate_is_that_of_equal_shares() -> None:
    assert FedTuning(batch=8, clients=4, train=800).poisson_rate == pytest.approx(0.04)
    assert FedTuning(batch=8, clients=4, train=16).poisson_rate == 1


def test_clients_train_on_noised_steps() -> None:
    """Two clients draw noise of their own; one seed, one run."""
    one, again = (Run([3, 3], rounds=2, defense=DpSgd(noise=1.0), train=6) for _ in range(2))
    assert all(torch.equal(one.end[name], again.end[name]) for name in one.end)
    first, second = (joined(one.rounds[0].taken[client].update.values()) for client in (0, 1))
    assert abs(float(torch.cosine_similarity(first, second, dim=0))) < 0.5
    assert not close(one.end, Run([3, 3], rounds=2, train=6).end, 1e-2)


# On what is sent


def test_a_defence_that_changes_nothing_changes_no_draw() -> None:
    """All numbers are the largest: batches, clients and dropouts are those of the plain run."""
    plain, same = (Run([5, 2, 7], drop="0.4", fraction=0.7, defense=item) for item in (None, TopK(share=1)))
    assert close(same.end, plain.end, 0)
    assert same.seen == plain.seen


@pytest.mark.parametrize("defense", [TopK(share=0.2), Quantisation(bits=2)], ids=["top-k", "quantisation"])
def test_what_is_sent_is_what_is_aggregated(defense: UpdateDefense) -> None:
    run = Run([5, 2, 7], defense=defense)
    assert close(run.end, naive(run), 1e-12)
    for done in run.rounds:
        for trained in done.taken.values():
            sent = joined(trained.update.values())
            values = len(set(sent.tolist()))
            assert (int((sent != 0).sum()) == math.ceil(0.2 * len(sent))) if isinstance(defense, TopK) else values <= 4


def test_the_server_sees_noised_updates_and_nothing_else() -> None:
    """Each is a clipped update, at most 0.1 long, and noise of 1 on each of P numbers: of the norm sqrt(P) within 5
    standard errors; the state is their plain mean, for how many respondents there are would tell.
    """
    run = Run([5, 2, 7], defense=UpdateGaussian(clip=0.1, noise=10.0))
    for done in run.rounds:
        for trained in done.taken.values():
            sent = joined(trained.update.values())
            assert float(sent.norm()) == pytest.approx(math.sqrt(len(sent)), rel=5 / math.sqrt(2 * len(sent)) + 1e-3)
    mean = like(
        sum((joined(item.update.values()) / 3 for done in run.rounds for item in done.taken.values()),
            joined(run.start.values())), run.start,
    )  # fmt: skip
    assert close(run.end, mean, 1e-10)


def test_the_servers_own_noise_is_on_the_sum() -> None:
    """What the state is off the mean of the clipped updates by: noise of 2 times 0.1 on the sum, so 0.2 / 3 on the
    mean, in each of 4 rounds; within 4 standard errors.
    """
    run = Run([4, 4, 4], defense=UpdateGaussian(clip=0.1, noise=2.0, where="server"))
    norms = [float(joined(item.update.values()).norm()) for done in run.rounds for item in done.taken.values()]
    assert max(norms) <= 0.1 * (1 + 1e-6)
    off = joined(run.end.values()) - joined(naive(run).values())
    assert abs(float(off.std()) / (0.2 / 3 * 2) - 1) < 4 / math.sqrt(2 * len(off))


def test_noise_that_drowns_the_model_is_said() -> None:
    with pytest.raises(InputError, match="the noise of update-gaussian has drowned it"):
        Run([4, 4], rounds=6, dtype=torch.float32, defense=UpdateGaussian(clip=1e8, noise=10.0))


# Sums


def test_the_server_sees_the_weighted_sum_of_those_who_are_left(tmp_path: Path) -> None:
    """The plain run is the same, and its updates are known: the mean by respondents of clients 1 and 3 in round 2."""
    plain, run = (Run([5, 2, 7], drop="2@2", defense=defense) for defense in (None, SecureAggregation()))
    assert close(run.end, plain.end, 1e-12)
    for done, known in zip(run.rounds, plain.rounds, strict=True):
        (total,) = done.seen.values()
        weights = {client: (5, 2, 7)[client] for client in known.taken}
        for name, values in total.items():
            expected = sum(weights[c] * known.taken[c].update[name] for c in weights) / sum(weights.values())
            assert torch.allclose(values, expected, rtol=1e-10, atol=1e-14)
    assert set(run.rounds[1].taken) == {0, 2}
    with UpdateTape(run.start, [5, 2, 7], 4, tmp_path, {}, Watched(SUM, {0: 0, 1: 5, 2: 7})) as tape:
        for done in run.rounds:
            tape.put(done)
        made = tape.finish({"missed": run.seen.missed})
    names = {name for name in made.arrays if name.startswith("updates/")}
    assert names == {"updates/sum", "updates/sum/mask", "updates/sum/shown"}
    # A pass takes client 3 four batches, in two rounds: everybody is shown once, but for client 2 in its second round.
    shown = np.asarray(made.array("updates/sum/shown"))
    assert shown.sum() == len(tape.shown) == len(set(tape.shown))
    assert made.metadata["samples"] == {"sum": 14}
    after = made.array("public/global").astype(np.float64) + sum(np.asarray(made.array("updates/sum")))
    assert np.allclose(after, joined(run.end.values()).numpy(), rtol=1e-5, atol=1e-6)


def test_a_sum_over_one_client_is_not_released() -> None:
    run = Run([3, 3], drop="2@2", defense=SecureAggregation())
    assert [len(done.seen) for done in run.rounds] == [1, 0, 1, 1]
    assert close(run.rounds[2].start, run.rounds[1].start, 0)
    assert run.seen.missed == {"client-2": {"dropped out": [2]}, "client-1": {"alone": [2]}}
    said = "Not summed, for a sum over one client is its update: client-1 in round 2."
    assert any(note.startswith(said) for note in run.seen.notes)

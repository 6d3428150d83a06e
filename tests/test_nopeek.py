"""NoPeek: distance correlation by its definition, and a client that trains against it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_llama import save_llama

from privbench.defenses.cut import Guard
from privbench.defenses.nopeek import NoPeek, distance_correlation
from privbench.targets.split_llama import models
from privbench.targets.split_llama.batches import PADDING, Batch, collate
from privbench.targets.split_llama.halves import Client, Server, exchange, split

RNG = np.random.default_rng(0)


def points(count: int, width: int) -> torch.Tensor:
    return torch.from_numpy(RNG.standard_normal((count, width)).astype(np.float32))


def naive(x: np.ndarray, z: np.ndarray) -> float:
    """Szekely, Rizzo, Bakirov 2007, definition 4, entry by entry."""

    def centred(rows: np.ndarray) -> np.ndarray:
        n = len(rows)
        far = np.array([[np.sqrt(((rows[i] - rows[j]) ** 2).sum()) for j in range(n)] for i in range(n)])
        return np.array(
            [[far[i, j] - far[i].mean() - far[:, j].mean() + far.mean() for j in range(n)] for i in range(n)]
        )

    a, b = centred(x), centred(z)
    return float(np.sqrt((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean())))


def test_it_is_its_definition() -> None:
    x = points(30, 4)
    z = torch.tanh(x[:, :2]) + 0.3 * points(30, 2)
    assert float(distance_correlation(x, z)) == pytest.approx(naive(x.double().numpy(), z.double().numpy()), abs=1e-5)


def test_a_turn_a_shift_and_a_scale_change_nothing() -> None:
    x = points(60, 5)
    turn = torch.linalg.qr(points(5, 5))[0]
    assert float(distance_correlation(x, 3 * x @ turn + 7)) == pytest.approx(1, abs=1e-5)


def test_independent_points_are_near_nothing() -> None:
    """V-statistics are above 0 by order 1 / n: 2,000 points of one dimension each, and 50."""
    far, near = (float(distance_correlation(points(n, 1), points(n, 1))) for n in (2_000, 50))
    assert far < 0.1 < near < 0.5


@pytest.mark.parametrize("same", ["sent", "put in"])
def test_one_place_for_all_is_nothing_and_has_a_gradient(same: str) -> None:
    x, z = points(20, 3), torch.ones((20, 3)) if same == "sent" else points(20, 3)
    value = distance_correlation(x if same == "sent" else torch.ones((20, 3)), z.requires_grad_())
    value.backward()
    assert value.item() < 1e-3
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())


# At a client


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('llama'))}"


def halves(llama: str, weight: float | None) -> tuple[Client, Server]:
    base = models.load(llama)
    client, server = split(base.model, torch.Generator().manual_seed(1), rank=4, bottleneck=8)
    if weight is not None:
        table = base.model.model.embed_tokens.weight.detach()
        client.guard = Guard(NoPeek(weight), table, torch.Generator().manual_seed(2))
    return client, server


def batch() -> Batch:
    return collate([[5, 6, 7, 8, 9, 10], [11, 12, 13]], [[[20, 21]], [[22]]])


def gradients(client: Client) -> torch.Tensor:
    return torch.cat([item.grad.flatten() for item in client.parameters() if item.grad is not None])


def test_its_gradient_is_added_to_the_one_that_came_back(llama: str) -> None:
    """By autograd on the correlation alone; padding is no token."""
    plain, _ = made = halves(llama, None)
    exchange(*made, batch())
    guarded, _ = other = halves(llama, 3.0)
    sent = exchange(*other, batch()).cut
    alone, _ = halves(llama, None)
    given = batch().prompt
    there = given.layout.segment != PADDING
    rows = alone.embed_tokens(given.ids)[there].detach()  # untrained: the public rows themselves
    moved = alone.projection(alone.embed_tokens(given.ids))[there]
    (3.0 * distance_correlation(rows, moved)).backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(gradients(guarded), gradients(plain) + gradients(alone), atol=1e-5)
    assert torch.equal(sent.activations, plain(batch()).activations)


def test_a_client_learns_to_send_what_is_less_alike(llama: str) -> None:
    """Against the penalty alone, which the gradient of the loss is small beside."""
    client, server = halves(llama, 100.0)
    step = torch.optim.Adam([item for item in client.parameters() if item.requires_grad], lr=0.02)
    given = batch().prompt
    there = given.layout.segment != PADDING
    found = []
    for _ in range(40):
        crossed = exchange(client, server, batch())
        rows = client.guard.table[given.ids[there]] if client.guard is not None else torch.empty(0)
        found.append(float(distance_correlation(rows, crossed.cut.activations[there])))
        step.step()
        step.zero_grad()
    assert found[0] == pytest.approx(1, abs=1e-4)
    assert found[-1] < 0.9

"""Cost per client: closed forms against torch's own count, the published sizes, and a real step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from privbench.targets.split_llama.adapters import trained
from privbench.targets.split_llama.batches import collate
from privbench.targets.split_llama.cost import (
    LLAMA_3B,
    REPORTED,
    REPORTED_TOKENS,
    Setting,
    Training,
    cost,
    saved,
    table,
)
from privbench.targets.split_llama.halves import Placement, exchange, split
from privbench.targets.split_llama.measure import client_step, measure, random_llama
from privbench.targets.split_llama.shape import LLAMA_3_2_3B, Shape, projection

TINY = Shape(vocabulary=2_048, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=160, tied=True)
SMALL = Setting(TINY, batch=3, prompt=20, answer=4, rank=5, bottleneck=24)


@pytest.mark.parametrize("placement", ["server", "client"])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("train_head", [False, True])
@pytest.mark.parametrize("training", ["split client", "full local"])
def test_flops_and_parameters_are_what_torch_counts(
    placement: Placement, k: int, train_head: bool, training: Training
) -> None:
    setting = replace(SMALL, placement=placement, k=k, train_head=train_head)
    step, parameters = client_step(setting, training)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    expected = cost(setting, training)
    assert counter.get_total_flops() == expected.flops
    assert sum(p.numel() for p in parameters) == expected.trained


@pytest.mark.parametrize("placement", ["server", "client"])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("training", ["split client", "full local"])
def test_what_is_kept_for_backward_is_what_autograd_keeps(placement: Placement, k: int, training: Training) -> None:
    """Storages that autograd packs, but for weights; token numbers and the angles of positions are not in the form."""
    setting = replace(SMALL, placement=placement, k=k)
    step, _ = client_step(setting, training)
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / 4
    assert found == pytest.approx(saved(setting, training), rel=0.03)


@pytest.mark.parametrize("placement", ["server", "client"])
def test_bytes_are_those_of_the_messages(placement: Placement) -> None:
    setting = replace(SMALL, placement=placement)
    client, server = split(random_llama(TINY, 2), torch.Generator().manual_seed(0), placement=placement)
    found = exchange(client, server, collate([[1] * 20] * 3, [[[2] * 4]] * 3))

    def size(message: torch.Tensor | None) -> int:
        return 0 if message is None else message.numel() * message.element_size()

    expected = cost(setting, "split client")
    assert size(found.cut.activations) + size(found.outputs_gradient) == expected.bytes_up
    assert size(found.cut_gradient) + size(found.outputs) == expected.bytes_down
    assert cost(setting, "full local").bytes_up == cost(setting, "full local").bytes_down == 0


def test_the_published_sizes_of_the_client() -> None:
    """Both readings: 3.68M with bottleneck 256 and biases, "~100K" with 16."""
    assert LLAMA_3_2_3B.total == 3_212_749_824
    assert LLAMA_3_2_3B.embedding_adapter(16) == 2_101_248
    assert projection(3_072, 256) == 1_576_192
    assert projection(3_072, 16, bias=False) == 98_304
    assert projection(3_072, 16) == 101_392
    found = cost(LLAMA_3B, "split client").trained
    assert found == 3_677_440
    assert round(found / 1e6, 2) == REPORTED.client_parameters / 1e6


def test_the_published_flops_are_six_per_parameter_and_token() -> None:
    """One number of tokens explains both figures, and only with the wide head."""
    wide, narrow = (projection(3_072, m, bias=bias) + 16 * 3_072 for m, bias in ((256, True), (16, False)))
    assert round(6 * LLAMA_3_2_3B.total * REPORTED_TOKENS / 1e12) == REPORTED.local_flops / 1e12
    assert round(6 * wide * REPORTED_TOKENS / 1e12, 2) == REPORTED.split_flops / 1e12
    assert round(6 * narrow * REPORTED_TOKENS / 1e12, 2) < REPORTED.split_flops / 1e12
    assert LLAMA_3B.batch * (LLAMA_3B.prompt + LLAMA_3B.answer) == REPORTED_TOKENS


def test_deeper_cuts_and_labels_cost_the_client_more() -> None:
    for training in ("split client",):
        costs = [cost(replace(LLAMA_3B, k=k), training) for k in (0, 1, 2)]
        assert costs[0].flops < costs[1].flops < costs[2].flops
        assert costs[0].memory < costs[1].memory < costs[2].memory
    labels = cost(replace(LLAMA_3B, placement="client"), "split client")
    assert labels.bytes_up > cost(LLAMA_3B, "split client").bytes_up
    assert cost(LLAMA_3B, "full local").flops > 100 * labels.flops


def test_the_table_has_a_row_per_cut_and_measures_what_is_asked() -> None:
    settings = {"tiny": replace(SMALL, shape=replace(TINY, layers=1)), "3b": LLAMA_3B}
    rows = table(settings, steps=1)
    assert [row.model for row in rows] == ["tiny"] * 5 + ["3b"] * 7
    assert [(r.setting.placement, r.setting.k, r.training) for r in rows[:5]] == [
        ("server", 0, "split client"),
        ("server", 1, "split client"),
        ("client", 0, "split client"),
        ("client", 1, "split client"),
        ("client", 0, "full local"),
    ]
    assert all(row.measured is None for row in rows)


def test_a_measured_step_has_a_time_and_the_memory_of_the_weights() -> None:
    """An embedding of 77 MB is most of what this client holds: the closed form is a lower bound, and not far below."""
    setting = replace(SMALL, shape=replace(TINY, vocabulary=60_000, width=320, heads=20))
    found = measure(setting, "split client", steps=1)
    assert found.seconds > 0
    if found.memory is None:
        pytest.skip("this system does not tell a process its peak memory")
    assert 1 < found.memory / cost(setting, "split client").memory < 2


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"measuring split client failed(.|\n)*bottleneck must be 1"):
        measure(replace(SMALL, bottleneck=0), "split client")


def test_trained_counts_only_what_requires_gradients() -> None:
    model = random_llama(TINY, 1)
    assert trained(model) == 0

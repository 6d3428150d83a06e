"""Public layers of a recording: the same function as the base's own, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from privbench.errors import InputError
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.trunks import PREFIX, recorded, trunk_of

WIDTH, LENGTH = 16, 12
SHAPE = Shape(vocabulary=50, width=WIDTH, layers=3, heads=4, kv_heads=2, head_dim=6, intermediate=24, tied=True)


def base() -> Any:
    """With weights that make every layer matter."""
    model, generator = random_llama(SHAPE, 3), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4, generator=generator)
    return model


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_is_what_the_base_makes_of_a_text(k: int) -> None:
    model, ids = base(), torch.randint(0, 50, (5, LENGTH), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = model.model(input_ids=ids, output_hidden_states=True).hidden_states[k]
        rows, place = model.model.embed_tokens(ids), torch.arange(LENGTH).expand(5, -1)
        visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().expand(5, -1, -1)
        found = trunk_of(recorded(model.model, k), WIDTH)(rows, place, visible)
    if k < 3:  # the last of transformers' states has passed the final norm
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(model.model.norm(found), expected, rtol=1e-5, atol=1e-5)


def test_no_layer_is_nothing() -> None:
    assert recorded(base().model, 0) == {}


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.pop(f"{PREFIX}{name}")


def halved(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[f"{PREFIX}{name}"] = arrays[f"{PREFIX}{name}"][::2]

    return change


def renamed(arrays: dict[str, Any]) -> None:
    arrays[f"{PREFIX}0.self_attn.x_proj.weight"] = arrays.pop(f"{PREFIX}0.self_attn.v_proj.weight")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("rotary"), f"the public layers lack '{PREFIX}rotary'"),
        (without("rms_norm_eps"), f"the public layers lack '{PREFIX}rms_norm_eps'"),
        (without("0.mlp.gate_proj.weight"), f"lack '{PREFIX}0.mlp.gate_proj.weight'"),
        (without("1.mlp.up_proj.weight"), f"'{PREFIX}1.mlp.up_proj.weight' is missing"),
        (without("0.input_layernorm.weight"), f"'{PREFIX}0.input_layernorm.weight' is missing"),
        (halved("0.self_attn.o_proj.weight"), r"o_proj.weight' is \[8, 24\]; .* \[16, 24\] there"),
        (renamed, f"'{PREFIX}0.self_attn.v_proj.weight' is missing"),
    ],
)
def test_what_is_no_llama_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    arrays = dict(recorded(base().model, 2))
    change(arrays)
    with pytest.raises(InputError, match=said):
        trunk_of(arrays, WIDTH)


def test_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="LLaMA layers of width 20"):
        trunk_of(recorded(base().model, 1), 20)


def test_it_draws_nothing_from_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    trunk_of(recorded(base().model, 1), WIDTH)
    assert torch.equal(before, torch.random.get_rng_state())

"""Public layers of a recording: the same function as the base's own, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
        trunk = trunk_of(recorded(model.model, k), WIDTH)
        found = trunk(rows, place, visible)
        torch.testing.assert_close(trunk(rows, place), found, rtol=1e-5, atol=1e-5)
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


def turned(*angles: float) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({f"{PREFIX}rotary": np.array(angles, np.float32)})


def normed(*eps: float) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({f"{PREFIX}rms_norm_eps": np.array(eps, np.float32)})


def beside(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({f"{PREFIX}{name}": np.ones(3, np.float32)})


def flat(name: str) -> Callable[[dict[str, Any]], None]:
    """As one number without any axis."""
    return lambda arrays: arrays.update({f"{PREFIX}{name}": np.float32(1)})


def shared_by_none(arrays: dict[str, Any]) -> None:
    """Three key heads for four query heads."""
    for name in "kv":
        arrays[f"{PREFIX}0.self_attn.{name}_proj.weight"] = np.ones((18, WIDTH), np.float32)


def skipped(arrays: dict[str, Any]) -> None:
    """Layers 0 and 2."""
    for name in [name for name in arrays if name.startswith(f"{PREFIX}1.")]:
        arrays[name.replace(f"{PREFIX}1.", f"{PREFIX}2.")] = arrays.pop(name)


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
        (renamed, "0.self_attn.x_proj.weight' is no parameter of LLaMA layers"),
        (beside("3000000.x"), f"'{PREFIX}3000000.x' is no parameter of LLaMA layers that are numbered from 0 without"),
        (beside("\u00b2.x"), f"'{PREFIX}\u00b2.x' is no parameter"),
        (beside("2.input_layernorm.weight"), r"2.input_layernorm.weight' is \[3\]; .* \[16\] there"),
        (beside("01.mlp.up_proj.weight"), f"'{PREFIX}01.mlp.up_proj.weight' is no parameter"),
        (beside("x"), f"'{PREFIX}x' is no parameter"),
        (skipped, f"'{PREFIX}2.input_layernorm.weight' is no parameter"),
        (normed(-1.0), r"rms_norm_eps' is \[-1.0\]; it must be one number above 0"),
        (normed(0.0), r"rms_norm_eps' is \[0.0\]"),
        (normed(1e-5, 1e-5), "rms_norm_eps' is .*; it must be one number"),
        (flat("rms_norm_eps"), "rms_norm_eps' is 1.0; it must be one number"),
        (turned(*[1.0, 0.1, 0.01] * 2), r"rotary' has shape \[6\] and holds no angles of one head"),
        (turned(1.0, 0.1, -0.01), "rotary' .* none negative"),
        (turned(1.0, 0.1), "rotary' is of heads of width 4, .*q_proj.weight' has 24 rows and .*k_proj.weight' 12; "),
        (turned(1.0), "rotary' is of heads of width 2,"),  # twelve heads, of which 16 is no multiple
        (flat("rotary"), r"rotary' has shape \[\]"),
        (flat("0.self_attn.q_proj.weight"), "q_proj.weight' has 0 rows"),
        (shared_by_none, "k_proj.weight' 18; .* a number of key heads that divides that of query heads"),
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

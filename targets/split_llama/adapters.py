"""LoRA by PEFT on parts of a model, frozen copies without copying memory, and the state that parties hand on."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from privbench.targets.split_llama.shape import LINEARS

State = dict[str, Tensor]
Module = TypeVar("Module", bound=nn.Module)


def adapt(module: nn.Module, rank: int, alpha: float, generator: torch.Generator) -> None:
    """Put LoRA (Hu et al. 2021) onto every embedding and layer matrix inside `module`, seeded; all else is frozen.

    Initial values as PEFT's: A of a matrix uniform, its B zero; A of an embedding zero, its B standard normal.
    Adapters are float32, or as precise as a more precise base.
    """
    from peft import LoraConfig, inject_adapter_in_model

    module.requires_grad_(False)
    present = {name.rpartition(".")[2] for name, _ in module.named_modules()}
    targets = [name for name in ("embed_tokens", *LINEARS) if name in present]
    if not targets:
        return
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets)  # type: ignore[arg-type]
    # PEFT draws from the global generator: its state is put back, and every adapter is drawn again below.
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.to(adapter_dtype(parameter.dtype))
                _fill_adapter(name, parameter, generator)


def adapter_dtype(base: torch.dtype) -> torch.dtype:
    """What is trained beside a base of this precision: never less than float32."""
    return torch.promote_types(base, torch.float32)


def fill_linear(layer: nn.Linear, generator: torch.Generator) -> None:
    """torch's own default for a linear layer, drawn from the generator: uniform within 1/sqrt(inputs)."""
    bound = 1 / math.sqrt(layer.in_features)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)


def frozen(module: Module) -> Module:
    """The module again with parameters of its own that are not trained; they read the same memory."""
    memo = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters()}
    return copy.deepcopy(module, memo)


def clone(module: Module) -> Module:
    """An independent copy of what is trained; frozen weights are shared."""
    memo = {id(p): p for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, memo)


def state(module: nn.Module) -> State:
    """A copy of everything that is trained, by name."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}


def load_state(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Put a `state` back; `ValueError` when it is of another module."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if trained.keys() != values.keys():
        raise ValueError(f"the state does not fit: {sorted(trained.keys() ^ values.keys())[:3]} are in one only.")
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(values[name])


def average(states: Sequence[Mapping[str, Tensor]], samples: Sequence[int]) -> State:
    """The mean of several states, each weighted by its number of samples (McMahan et al. 2017)."""
    total = sum(samples)
    return {
        name: torch.stack([one[name] * (count / total) for one, count in zip(states, samples, strict=True)]).sum(dim=0)
        for name in states[0]
    }


def trained(module: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _fill_adapter(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    if "lora_embedding_B" in name:
        parameter.normal_(generator=generator)
    elif "lora_A" in name:
        bound = 1 / math.sqrt(parameter.shape[1])
        parameter.uniform_(-bound, bound, generator=generator)
    else:
        nn.init.zeros_(parameter)

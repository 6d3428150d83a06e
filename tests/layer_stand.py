"""A stand behind public layers: records of random tokens, sent by a base whose layers add about what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from privbench.attack import Hints, Reconstruction, View, view_of
from privbench.recording import Transcript
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.threat import curious_server
from privbench.trunks import recorded

WORDS, WIDTH, LENGTH, RECORDS, TEXTS = 60, 16, 20, 40, 150
SHAPE = Shape(vocabulary=WORDS, width=WIDTH, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True)


def base() -> Any:
    """Layers that add about as much as they are given."""
    model, generator = random_llama(SHAPE, 2), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.0 if "embed" in name else 0.3, generator=generator)
    return model


def sent_by(model: Any, tokens: np.ndarray, k: int) -> np.ndarray:
    """What the base's first k layers make of tokens [N, L]."""
    with torch.inference_mode():
        states = model.model(input_ids=torch.from_numpy(np.maximum(tokens, 0)), output_hidden_states=True).hidden_states
    return states[k].numpy()


def stand(seed: int, turn: float = 0.0, releases: int = 1) -> tuple[View, np.ndarray]:
    """Records of unequal lengths behind one layer; turn: how far a random matrix moves every activation."""
    rng, model = np.random.default_rng(seed), base()
    tokens, texts = (rng.integers(0, WORDS, (count, LENGTH)) for count in (RECORDS, TEXTS))
    mask = np.arange(LENGTH) < rng.integers(8, LENGTH + 1, RECORDS)[:, None]
    tokens[~mask] = -1
    matrix = np.eye(WIDTH) + turn * rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
    made = (sent_by(model, tokens, 1) @ matrix + turn).astype(np.float32) * mask[:, :, None]
    arrays = {
        "activations/c": np.repeat(made[None], releases, axis=0),
        "activations/c/mask": mask.astype(np.uint8),
        "public/embedding": model.model.embed_tokens.weight.detach().numpy(),
        "public/tokens": texts,
        "public/activations": sent_by(model, texts, 1),
        **recorded(model.model, 1),
    }
    threat, everybody = curious_server(), np.arange(RECORDS)
    view = view_of(threat, Transcript(arrays), secret="c", moved=(), candidates=everybody, hints=Hints.none())
    return view, tokens


def share(found: Reconstruction, tokens: np.ndarray) -> float:
    there = tokens >= 0
    return float((found.accumulated[-1] == tokens)[there].mean())


def read(attack: Any, view: View) -> Reconstruction:
    found = attack(view, np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    return found

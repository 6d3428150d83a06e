"""The networks of the simulated encoder, and their training without a single pair."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privbench.attacks.inversion.codes import Codes, Judge, expected, label_tensors
from privbench.attacks.inversion.networks import follow, perceptron, tensor_of
from privbench.estimates import Floats, Known
from privbench.threads import one_torch_thread

_WIDTH, _RATE, _BATCH, _STEPS = 128, 1e-3, 64, 3
_TOWARDS = 200
"""First steps, in which the decoder learns what labels lead one to expect: without them it may start mirrored."""


def read(known: Known, rounds: int, rng: np.random.Generator) -> Floats:
    """Inputs [m, H, F] of the asked records, from their activations and labels as a set."""
    codes = Codes.of(known.inputs, known.observed, known.asked.shape[1])
    own = codes.encode(known.inputs, known.observed)
    centre, spread = known.asked.mean(axis=0), known.asked.std(axis=0)
    asked = (known.asked - centre) / np.where(spread > 0, spread, 1)
    unit = own / np.maximum(own.std(axis=0), 1e-9)
    labels = label_tensors(known.labels, known.asked_labels)
    told = tensor_of(expected(unit, known.labels, known.asked_labels))
    with one_torch_thread():
        found = _decoded(tensor_of(unit), tensor_of(asked), labels, told, rounds, rng)
    return codes.decode(found, own, known)


def _decoded(
    own: Tensor, asked: Tensor, labels: tuple[Tensor, ...], told: Tensor, rounds: int, rng: np.random.Generator
) -> Floats:
    """Codes [m, k] of asked [m, d]; own: codes [A, k] of others; labels of both, told: what the asked ones' say."""
    ours, theirs = labels
    forth = perceptron(own.shape[1], _WIDTH, asked.shape[1], rng)
    back = perceptron(asked.shape[1], _WIDTH, own.shape[1], rng)
    of_sent, of_codes = Judge(asked, theirs, rng), Judge(own, ours, rng)
    step = torch.optim.Adam([*forth.parameters(), *back.parameters()], lr=_RATE, betas=(0.5, 0.9), fused=True)
    for number in range(_TOWARDS + rounds):
        i, j = (torch.from_numpy(rng.integers(0, len(rows), _BATCH)) for rows in (own, asked))
        if number < _TOWARDS:
            follow(step, ((back(asked[j]) - told[j]) ** 2).mean())
            continue
        of_sent.learn(forth(own[i]), ours[i], _STEPS)
        of_codes.learn(back(asked[j]), theirs[j], _STEPS)
        sent, read_back = forth(own[i]), back(asked[j])
        cycle = ((back(sent) - own[i]) ** 2).mean() + ((forth(read_back) - asked[j]) ** 2).mean()
        follow(step, of_sent.unlike(sent, ours[i]).mean() + of_codes.unlike(read_back, theirs[j]).mean() + cycle)
    with torch.inference_mode():
        found: Floats = back(asked).numpy().astype(np.float64)
    return found

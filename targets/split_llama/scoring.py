"""Answers of the split model: the likelihood of whole options, and greedy generation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privbench.errors import InputError
from privbench.targets.split_llama.batches import Batch, lay_out, predictions
from privbench.targets.split_llama.halves import Client, Readout, Server


def score(client: Client, server: Server, batch: Batch) -> Tensor:
    """Log-likelihood [B, S] of each record's S whole answers, summed over an answer's tokens.

    One forward pass: the prompt is computed once, and its options stand beside each other without seeing each other.
    A record with fewer answers than others has minus infinity in the columns that it lacks.
    """
    with torch.inference_mode():
        readout, outputs = _outputs(client, server, batch)
        where = predictions(batch.prompt.layout, batch.answers)
        likelihood = readout.likelihood(outputs, where)
        records, options = len(outputs), int(where.segment.max())
        cell = where.record * options + where.segment - 1
        sums = likelihood.new_zeros(records * options).index_add(0, cell, likelihood)
        present = torch.bincount(cell, minlength=records * options) > 0
        return torch.where(present, sums, -torch.inf).view(records, options)


def generate(
    client: Client, server: Server, prompts: Sequence[Sequence[int]], *, limit: int, stop: int
) -> list[list[int]]:
    """The most likely next token again and again, per prompt, up to `limit` tokens or to `stop`, which is left out.

    Nothing is kept between tokens: answers to survey questions are a few tokens long.
    """
    if limit < 1:
        raise InputError(f"the longest generated answer must have 1 token or more, got {limit}.")
    answers: list[list[int]] = [[] for _ in prompts]
    unfinished = list(range(len(prompts)))
    with torch.inference_mode():
        while unfinished:
            batch = lay_out([prompts[i] for i in unfinished], [[answers[i]] for i in unfinished])
            tokens = _next(client, server, batch)
            for i, token in zip(unfinished, tokens, strict=True):
                if token != stop:
                    answers[i].append(token)
            unfinished = [
                i for i, token in zip(unfinished, tokens, strict=True) if token != stop and len(answers[i]) < limit
            ]
    return answers


def _next(client: Client, server: Server, batch: Batch) -> list[int]:
    """The most likely token after each record's answer so far; all unfinished answers are equally long."""
    readout, outputs = _outputs(client, server, batch)
    last = batch.prompt.layout.lengths - 1 if batch.answers.ids.shape[1] == 0 else outputs.shape[1] - 1
    rows = torch.arange(len(outputs), device=outputs.device)
    chosen: list[int] = readout.logits(outputs[rows, last]).argmax(dim=1).tolist()
    return chosen


def _outputs(client: Client, server: Server, batch: Batch) -> tuple[Readout, Tensor]:
    """The trunk's outputs [B, P + A, d] and the readout of whoever holds the labels."""
    cut = client(batch)
    if client.readout is not None:
        return client.readout, server.trunk(cut.activations, cut.layout)
    if server.readout is None:
        raise RuntimeError("neither half holds an LM head.")
    return server.readout, server.outputs(cut.activations, cut.layout, batch.answers)

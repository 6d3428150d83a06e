"""Prompts and answers as blocks of tokens, and which token predicts which.

A batch is a prompt block beside an answer block. Every answer continues its prompt's positions and sees the prompt
and itself, never another answer: one answer per record is a training batch, all options of a question are scored
in one forward pass, and padding between the blocks is seen by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.errors import InputError

PROMPT, PADDING = 0, -1


@dataclass(frozen=True)
class Layout:
    """Position and segment, both int64 [B, L]: 0 is the prompt, 1, 2, ... the answers, -1 padding."""

    position: Tensor
    segment: Tensor

    @property
    def lengths(self) -> Tensor:
        """Tokens in each prompt, [B]."""
        return (self.segment == PROMPT).sum(dim=1)

    def visible(self) -> Tensor:
        """Which key [.., k] each query [.., q] may look at, bool [B, 1, L, L]. Padding sees padding, so that no row of
        the softmax is empty.
        """
        query, key = self.segment[:, :, None], self.segment[:, None, :]
        earlier = self.position[:, None, :] <= self.position[:, :, None]
        return (earlier & ((key == PROMPT) | (key == query)))[:, None]

    def beside(self, other: Layout) -> Layout:
        """This layout with another one to its right."""
        return Layout(
            torch.cat([self.position, other.position], dim=1), torch.cat([self.segment, other.segment], dim=1)
        )


@dataclass(frozen=True)
class Block:
    """Token ids, int64 [B, L], and where they stand."""

    ids: Tensor
    layout: Layout

    def beside(self, other: Block) -> Block:
        return Block(torch.cat([self.ids, other.ids], dim=1), self.layout.beside(other.layout))


@dataclass(frozen=True)
class Batch:
    """Prompts [B, P] and their answers [B, A], each padded at the right."""

    prompt: Block
    answers: Block

    @property
    def joined(self) -> Block:
        return self.prompt.beside(self.answers)


@dataclass(frozen=True)
class Predictions:
    """For each of the M answer tokens of a batch: its record, its answer's segment, its id, and the place in the
    joined block [B, P + A] whose output predicts it. All int64 [M].
    """

    record: Tensor
    segment: Tensor
    token: Tensor
    place: Tensor


def collate(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[Sequence[int]]]) -> Batch:
    """Pad token lists to a batch: one prompt and one or more answers per record.

    An `InputError` names the record without prompt or answer tokens: nothing could be predicted.
    """
    if not prompts:
        raise InputError("an empty batch: give one record or more.")
    for number, (prompt, options) in enumerate(zip(prompts, answers, strict=True)):
        if not prompt:
            raise InputError(f"record {number} of the batch has an empty prompt; it needs one token or more.")
        if not options or not all(options):
            raise InputError(f"record {number} of the batch has an empty answer; each needs one token or more.")
    return lay_out(prompts, answers)


def lay_out(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[Sequence[int]]]) -> Batch:
    """`collate` without its checks: generation starts from empty answers."""
    prompt = _block([[(token, place, PROMPT) for place, token in enumerate(row)] for row in prompts])
    laid = [
        [
            (token, len(row) + place, segment)
            for segment, option in enumerate(options, start=1)
            for place, token in enumerate(option)
        ]
        for row, options in zip(prompts, answers, strict=True)
    ]
    return Batch(prompt, _block(laid))


def _block(rows: Sequence[Sequence[tuple[int, int, int]]]) -> Block:
    """(token, position, segment) per place, padded to the longest row."""
    longest = max(len(row) for row in rows)
    padded = [[*row, *[(0, 0, PADDING)] * (longest - len(row))] for row in rows]
    table = torch.tensor(padded, dtype=torch.int64).view(len(rows), longest, 3)
    return Block(table[..., 0].contiguous(), Layout(table[..., 1].contiguous(), table[..., 2].contiguous()))


def predictions(prompt: Layout, answers: Block) -> Predictions:
    """Where each answer token is predicted: the first of an answer at the prompt's last token, the others at the
    token before them.
    """
    lengths, (count, width) = prompt.lengths[:, None], answers.ids.shape
    before = prompt.segment.shape[1] - 1 + torch.arange(width, device=answers.ids.device).expand(count, width)
    place = torch.where(answers.layout.position == lengths, lengths - 1, before)
    real = answers.layout.segment != PADDING
    return Predictions(real.nonzero()[:, 0], answers.layout.segment[real], answers.ids[real], place[real])

"""What is new in a client's update, as signs, and the search for questionnaires whose gradient has the same ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.columns import ADAPTER, touched
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.gradients import wide
from privbench.targets.split_llama.adapters import State
from privbench.targets.split_llama.tune import BETAS, pace

Index = npt.NDArray[np.int64]
Choices = Sequence[Sequence[int]]
"""Of each question the options that may have been chosen, by number."""

_SURE = 0.99
"""Agreement from which nothing better is looked for: Adam's eps and rounding turn a few signs."""
_KICK = 3
"""Answers that are drawn anew where no single change helps."""


class News:
    """Signs of the gradients behind a client's updates, one update after another.

    With one step a round c = m / sqrt(V) is the update over minus the rate, bias corrections taken out, and the step's
    gradient has the sign of sqrt(b2) c - b1 c', with c' of the client's update before: exactly where |c'| is at most
    (1 - b1) / b1 sqrt(b2 / (1 - b2)) = 3.5, but for Adam's eps. Of several steps the same is taken with b1 and b2 to
    their power; that is not exact. local: the client's steps in a round.
    """

    def __init__(self, tuning: FedTuning, local: int) -> None:
        self._tuning, self._local, self._sent = tuning, local, 0
        self._before: State | None = None
        self._moved: npt.NDArray[np.float64] | None = None

    def of(self, update: State, number: int) -> tuple[Tensor, npt.NDArray[np.bool_]]:
        """-1, 0 or 1 for each number of the update of this round, float64 [P], and which columns of the embedding's
        adapter gradients moved [V]; other columns count as 0.
        """
        local, (fast, slow) = self._local, BETAS
        self._sent += 1
        steps, every = self._sent * local, self._tuning.rounds * local
        rate = sum(pace(number * local + step, self._tuning.warmup, every) for step in range(local))
        scale = -(1 - fast**steps) / math.sqrt(1 - slow**steps) / rate
        now = {name: scale * values.double() for name, values in update.items()}
        before, self._before = self._before, now
        signs = {
            name: (slow ** (local / 2) * c - (0.0 if before is None else fast**local * before[name])).sign()
            for name, c in now.items()
        }
        adapter = next(name for name in update if ADAPTER.search(name))
        moved = update[adapter].double().numpy()
        columns = touched(moved, self._moved)
        self._moved = moved
        signs[adapter] = signs[adapter] * torch.from_numpy(columns)
        return wide(signs.values()), columns


def agreement(left: Tensor, right: Tensor) -> Tensor:
    """By how many signs rows [A, P] and [B, P] agree more than they differ, as a share of those of which either is not
    0: from -1 to 1, float32 [A, B].
    """
    left, right = left.float(), right.float()
    held, others = left.abs(), right.abs()
    either = held.sum(dim=1)[:, None] + others.sum(dim=1)[None] - held @ others.T
    return left @ right.T / either.clamp(min=1)


@dataclass(frozen=True)
class Tried:
    """Questionnaires as options [n, Q], their gradients, and how well the signs of the sum agree."""

    drawn: Index
    made: tuple[Tensor, ...]
    match: float


@dataclass(frozen=True)
class Search:
    """may: what may have been chosen; of: the gradient [P] of a questionnaire; signs [P]: those that are looked for."""

    may: Choices
    of: Callable[[Index], Tensor]
    signs: Tensor
    rng: np.random.Generator

    def draw(self, count: int) -> Index:
        """So many questionnaires, every option as likely as each other, [count, Q]."""
        return np.array([[self.rng.choice(options) for options in self.may] for _ in range(count)], np.int64)

    def sets(self, size: int, budget: int) -> Iterator[Tried]:
        """Sets of so many questionnaires, one answer changed at a time, and kept where more signs agree. The outcome's
        is tried first, since it turns the whole gradient. Where no change helps some are drawn anew in the best set.
        budget: gradients.
        """
        if budget < size:
            return
        drawn = self.draw(size)
        best = here = self._tried(drawn, tuple(map(self.of, drawn)))
        left = budget - size
        yield here
        while left > 0 and best.match < _SURE:
            helped = False
            for place, question, option in self._changes(size):
                if option == here.drawn[place, question] or not left:
                    continue
                there, left = self._changed(here, [(place, question, option)]), left - 1
                yield there
                if there.match > here.match:
                    here, helped = there, True
            best = max(best, here, key=lambda tried: tried.match)
            if not helped and left >= size:
                here, left = self._changed(best, self._kick(size)), left - size
                yield here

    def _changes(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Every place, question and option, the outcome's question first, else in random order."""
        last = len(self.may) - 1
        places = [(place, question) for place in range(size) for question in range(last)]
        ordered = [(place, last) for place in range(size)] + [places[k] for k in self.rng.permutation(len(places))]
        for place, question in ordered:
            for option in self.may[question]:
                yield place, question, option

    def _kick(self, size: int) -> list[tuple[int, int, int]]:
        """A few answers, drawn."""
        questions = [question for question, options in enumerate(self.may) if len(options) > 1] or [0]
        picked = self.rng.choice(questions, _KICK)
        return [(int(self.rng.integers(size)), int(q), int(self.rng.choice(self.may[q]))) for q in picked]

    def _changed(self, here: Tried, changes: Sequence[tuple[int, int, int]]) -> Tried:
        drawn, made = here.drawn.copy(), list(here.made)
        for place, question, option in changes:
            drawn[place, question] = option
        for place in {place for place, _, _ in changes}:
            made[place] = self.of(drawn[place])
        return self._tried(drawn, tuple(made))

    def _tried(self, drawn: Index, made: tuple[Tensor, ...]) -> Tried:
        total = torch.stack(made).sum(dim=0)
        return Tried(drawn, made, float(agreement(total.sign()[None], self.signs[None])))

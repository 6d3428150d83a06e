"""A model that misbehaves when it meets a token: so do clients that hold it, in whichever process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import sleep

import torch

from privbench.targets.fedavg.rounds import Whole
from privbench.targets.split_llama.batches import Batch
from privbench.targets.split_llama.tokens import Encoded

MARK = 2


class Misbehaving(Whole):
    """`what` happens in a step whose batch holds MARK; all other steps are sound."""

    def __init__(self, sound: Whole, *what: str) -> None:
        super().__init__(sound.client, sound.server)
        self._what = what

    def learn(self, batch: Batch) -> torch.Tensor:
        losses = super().learn(batch)
        for number, what in enumerate(self._what):
            if bool((batch.prompt.ids == MARK - number).any()):
                ACTS[what](self)
        return losses


def marked(person: Encoded, number: int = 0) -> Encoded:
    """The same respondent, with the token of the numbered misbehaviour."""
    return replace(person, prompt=(MARK - number, *person.prompt[1:]))


def _spoil(model: Whole) -> None:
    for item in model.parameters():
        if item.grad is not None:
            item.grad.fill_(float("nan"))


def _fail(model: Whole) -> None:
    raise ValueError("as it was asked to")


ACTS: Mapping[str, Callable[[Whole], None]] = {
    "hang": lambda model: sleep(3600),
    "spoil": _spoil,
    "fail": _fail,
    "die": lambda model: os._exit(3),
}

"""What the base itself answers, untuned and unsplit: without examples, and with a few answered samples before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from privbench.errors import InputError
from privbench.target import Progress
from privbench.targets.split_llama.answering import answer
from privbench.targets.split_llama.halves import split
from privbench.targets.split_llama.tokens import Encoded, Encoder

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def prompted(
    model: LlamaForCausalLM,
    encoder: Encoder,
    options: Sequence[str],
    train: Sequence[Encoded],
    test: Sequence[Encoded],
    shots: int,
    rng: np.random.Generator,
    report: Progress,
) -> tuple[dict[str, Sequence[str]], tuple[str, ...]]:
    """Answers of every test respondent by "N-shot prompting", and a note where the context holds no N.

    The examples are training respondents drawn at random. Halves that were cut at the embedding and never tuned
    compute what the base does; whose labels are where plays no part.
    """
    client, server = split(model, torch.Generator().manual_seed(0), bottleneck=1, rank=1)
    room = encoder.room(options)
    found: dict[str, Sequence[str]] = {}
    shown = [train[int(i)] for i in rng.choice(len(train), min(shots, len(train)), replace=False)]
    for count in dict.fromkeys((0, len(shown))):
        name = f"{count}-shot prompting"
        try:
            prompts = [encoder.few_shot(shown[:count], item, room) for item in test]
        except InputError as error:
            return found, (f"No {name}: {error} (--set shots=N)",)
        said = answer(client, server, prompts, options, encoder, partial(report, name), speaks=False)
        found[name] = said.chosen
    return found, ()

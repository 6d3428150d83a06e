"""Public text through the public base: what anybody can make, and an inverter may learn from.

Respondents of random surveys are invented, and serialised as the audited ones are. Frozen layers alone make their
activations: no adapter, no projection, nothing of the tuning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from privbench.data.surveys.invent import random_survey
from privbench.data.surveys.samples import samples
from privbench.errors import InputError
from privbench.targets.split_llama.adapters import frozen
from privbench.targets.split_llama.batches import lay_out
from privbench.targets.split_llama.halves import Trunk
from privbench.targets.split_llama.tokens import Encoder
from privbench.trunks import recorded

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_EACH = 2
"""Respondents of each random survey: its header is the same for all of them."""
_AT_ONCE, _TRIES = 8, 5


@dataclass(frozen=True)
class PublicText:
    """texts: token ids of each; model, k: the public base and how many of its layers stand before the cut."""

    texts: tuple[tuple[int, ...], ...]
    model: LlamaForCausalLM
    k: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """[A, L, d]."""
        return len(self.texts), max(map(len, self.texts)), self.model.config.hidden_size

    @property
    def trunk(self) -> dict[str, npt.NDArray[np.float32]]:
        """The layers before the cut, by the names of a recording."""
        return recorded(self.model.model, self.k)

    def activations(self) -> Iterator[npt.NDArray[np.float32]]:
        """Of each text [L, d], 0 behind its end."""
        _, longest, width = self.shape
        base = self.model.model
        entrance, trunk = frozen(base.embed_tokens), Trunk(frozen(base.layers[: self.k]), base.rotary_emb)
        for start in range(0, len(self.texts), _AT_ONCE):
            texts = self.texts[start : start + _AT_ONCE]
            block = lay_out(texts, [[()]] * len(texts)).prompt
            with torch.inference_mode():
                made = trunk(entrance(block.ids), block.layout).float().numpy()
            for row, text in zip(made, texts, strict=True):
                whole = np.zeros((longest, width), np.float32)
                whole[: len(text)] = row[: len(text)]
                yield whole


def invented_texts(encoder: Encoder, count: int, rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Prompts about invented respondents of random surveys, as token ids; surveys that the context cannot hold are left
    out, and `InputError` says so where it holds hardly any.
    """
    found: list[tuple[int, ...]] = []
    for _ in range(_TRIES * count):
        survey = random_survey(rng, _EACH)
        outcome = survey.schema.outcomes[0]
        with contextlib.suppress(InputError):
            found += [item.prompt for item in encoder.encode_all(samples(survey, outcome), outcome.question.answers)]
        if len(found) >= count:
            return tuple(found[:count])
    raise InputError(
        f"the model's context holds {len(found)} of {count} public texts: use a model with a longer context, or "
        "--set public=0 to leave them out."
    )

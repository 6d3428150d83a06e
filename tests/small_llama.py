"""A small LLaMA on disk, made in a second: random weights, a byte-level tokenizer that knows invented surveys."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from privbench.data.surveys.samples import samples
from privbench.data.surveys.synthetic import SURVEYS, synthetic
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape

CONTEXT = 512
SETTINGS: Mapping[str, str] = {
    "train": "36", "validation": "4", "test": "12", "clients": "3", "steps": "18", "batch": "4", "warmup": "2",
    "rank": "4", "bottleneck": "8", "record": "0", "shots": "1",
}  # fmt: skip
"""Each client holds 12 respondents and sends them twice."""


@cache
def word_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level pairs (Sennrich et al. 2016) learned from every invented survey: most words are one token."""
    rng = np.random.default_rng(0)
    texts = []
    for name in SURVEYS:
        survey = synthetic(rng, 40, survey=name)
        for outcome in survey.schema.outcomes:
            texts += [f"{item.prompt} {item.answer}" for item in samples(survey, outcome)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=900, special_tokens=["</s>"], initial_alphabet=sorted(alphabet), show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")


def save_llama(folder: Path, *, layers: int = 1, context: int = CONTEXT) -> Path:
    """A LLaMA of width 16 as transformers saves it; its embedding rows lie as far apart as trained ones."""
    tokenizer = word_tokenizer()
    shape = Shape(
        vocabulary=len(tokenizer), width=16, layers=layers, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True
    )
    model = random_llama(shape, layers)
    model.config.max_position_embeddings = context
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    with contextlib.redirect_stderr(io.StringIO()):  # a bar for its one file
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

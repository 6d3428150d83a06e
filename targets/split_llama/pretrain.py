"""Makes the tiny base, its tokenizer and its card: python -m privbench.targets.split_llama.pretrain FOLDER.

Minutes on one core. The same seed gives the same files byte for byte on one machine; steps are counted, never timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from privbench.data.surveys.wordbank import glossary
from privbench.seeds import stream
from privbench.target import Progress
from privbench.targets.split_llama.card import Answers, Figures, card
from privbench.targets.split_llama.corpus import TEXT, Document, Marks, Row, documents, drills
from privbench.targets.split_llama.untrained import Size, untrained
from privbench.targets.split_llama.vocabulary import token_ids, train_tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

BASE = Path(__file__).parent / "base"
"""The shipped result."""

_CHUNK = 16
"""Batches that are made at a time, so that texts of about one length can share one."""


@dataclass(frozen=True)
class Recipe:
    """All choices are ours.

    drill_steps     of the steps, the first, on drills alone
    drill_share     of each later batch
    records         respondents of each random survey
    few, many       most questions of a survey up to .55 of the later steps, and from .95 on; in between it grows
    rate            the highest, after the warm-up; then it falls linearly to a twentieth
    """

    seed: int = 0
    size: Size = field(default_factory=Size)
    tokenizer_documents: int = 3000
    glossary_repeats: int = 500
    steps: int = 3400
    batch: int = 16
    drill_steps: int = 400
    drill_share: float = 0.125
    records: int = 8
    few: int = 4
    many: int = 26
    rate: float = 4e-3
    warmup: int = 60
    held_out: int = 400


def pretrain(recipe: Recipe, folder: Path, progress: Progress) -> Figures:
    """Train the tokenizer, then the model; write both and the card into the folder, which is made."""
    spoken = documents(stream(recipe.seed, "tokenizer"), count=recipe.tokenizer_documents)
    words = [f"\n{word}" for word in glossary()] * recipe.glossary_repeats
    tokenizer = train_tokenizer(
        [*(document.text for document in spoken), *words], recipe.size.vocabulary, recipe.size.context
    )
    progress("tokenizer trained", 0.0)
    model = untrained(recipe.size, torch.Generator().manual_seed(recipe.seed))
    seen = np.zeros(recipe.size.vocabulary, dtype=np.int64)
    losses = train(model, batches(tokenizer, recipe, seen), recipe, progress)
    held_out = documents(stream(recipe.seed, "held out"), count=recipe.held_out)
    copied, guessed = measure(model, tokenizer, list(held_out))
    figures = Figures(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens=int(seen.sum()),
        unseen=int((seen == 0).sum()),
        first_loss=float(np.mean(losses[:20])),
        last_loss=float(np.mean(losses[-20:])),
        copied=copied,
        guessed=guessed,
    )
    # Set last: torch gives a padding row no gradient, and here every row is trained.
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card(recipe, figures), encoding="utf-8")
    return figures


def encode(documents: Sequence[Document], tokenizer: PreTrainedTokenizerFast) -> list[Row]:
    """Each document as a row: <s>, its pieces, </s>; the end weighs as the answer before it."""
    ids = iter(token_ids(tokenizer, [text for document in documents for text, _ in document.pieces]))
    rows = []
    for document in documents:
        tokens, weight = [tokenizer.bos_token_id], [TEXT]
        for _, of_piece in document.pieces:
            piece = next(ids)
            tokens += piece
            weight += [of_piece] * len(piece)
        tokens.append(tokenizer.eos_token_id)
        rows.append(Row(np.array(tokens), np.array([*weight, weight[-1]], dtype=np.float32)))
    return rows


def batches(tokenizer: PreTrainedTokenizerFast, recipe: Recipe, seen: npt.NDArray[np.int64]) -> Iterator[list[Row]]:
    """One batch per step, first of drills, then mostly of documents that get longer; those longer than the context are
    left out. How often each token came is added to `seen`.
    """
    order, source = stream(recipe.seed, "order"), stream(recipe.seed, "documents")
    (line,), (colon,) = token_ids(tokenizer, ["\n", ":"])
    marks = Marks(tokenizer.bos_token_id, tokenizer.eos_token_id, line, colon)
    drilled = drills(stream(recipe.seed, "drills"), recipe.size.vocabulary, marks)
    for first in range(0, recipe.steps, _CHUNK):
        count = min(_CHUNK, recipe.steps - first)
        done = (first - recipe.drill_steps) / (recipe.steps - recipe.drill_steps)
        share = 1.0 if done < 0 else recipe.drill_share
        each = round(share * recipe.batch)
        most = round(recipe.few + (recipe.many - recipe.few) * min(max((done - 0.55) / 0.4, 0.0), 1.0))
        made: list[Row] = []
        while len(made) < count * (recipe.batch - each):
            some = encode(list(documents(source, recipe.records, most, count * recipe.batch)), tokenizer)
            made += [row for row in some if len(row.tokens) <= recipe.size.context]
        by_length = sorted(made[: count * (recipe.batch - each)], key=lambda row: len(row.tokens))
        for place in order.permutation(count).tolist():
            span = slice(place * (recipe.batch - each), (place + 1) * (recipe.batch - each))
            batch = [*by_length[span], *islice(drilled, each)]
            seen += np.bincount(np.concatenate([row.tokens for row in batch]), minlength=len(seen))
            yield batch


def train(model: LlamaForCausalLM, source: Iterator[Sequence[Row]], recipe: Recipe, progress: Progress) -> list[float]:
    """One pass over the batches with AdamW; the loss of each step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda t: min((t + 1) / recipe.warmup, 1 - 0.95 * t / recipe.steps)
    )
    losses: list[float] = []
    for step, batch in enumerate(source, start=1):
        loss = weighted_loss(model, *_padded(batch))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step % 100 == 0 or step == recipe.steps:
            progress(f"step {step} of {recipe.steps}, loss {np.mean(losses[-100:]):.3f}", step / recipe.steps)
    return losses


def _padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Tokens and weights [B, T]; padding stands right of the text and weighs 0, so no mask is needed."""
    pad = torch.nn.utils.rnn.pad_sequence
    return (
        pad([torch.from_numpy(row.tokens) for row in rows], batch_first=True),
        pad([torch.from_numpy(row.weight) for row in rows], batch_first=True),
    )


def weighted_loss(model: LlamaForCausalLM, tokens: Tensor, weights: Tensor) -> Tensor:
    """Mean next-token loss in nats, each target by its weight."""
    logits = model(input_ids=tokens).logits[:, :-1].flatten(0, 1)
    losses = cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
    weight = weights[:, 1:].flatten()
    return (losses * weight).sum() / weight.sum()


@torch.no_grad()
def measure(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, held_out: Sequence[Document]
) -> tuple[Answers, Answers]:
    """Copied answers, then real outcomes. An answer is right when the likeliest token is right at each of its tokens.

    Documents longer than the context are left out.
    """
    loss: tuple[list[float], list[float]] = ([], [])
    right: tuple[list[bool], list[bool]] = ([], [])
    chance: tuple[list[float], list[float]] = ([], [])
    for document in held_out:
        pieces = token_ids(tokenizer, [text for text, _ in document.pieces])
        tokens = torch.tensor([[tokenizer.bos_token_id, *(token for piece in pieces for token in piece)]])
        if tokens.shape[1] > model.config.max_position_embeddings:
            continue
        logits = model(input_ids=tokens).logits[0, :-1]
        losses = cross_entropy(logits, tokens[0, 1:], reduction="none")
        hits = logits.argmax(dim=1) == tokens[0, 1:]
        ends = np.cumsum([len(piece) for piece in pieces])
        for turn, start, end in zip(document.turns, ends[1::2], ends[2::2], strict=True):
            kind = 0 if turn.copied else 1
            loss[kind].extend(losses[start:end].tolist())
            right[kind].append(bool(hits[start:end].all()))
            chance[kind].append(1 / (turn.question.count(" / ") + 1))
    copied, guessed = (
        Answers(len(r), float(np.mean(n)), float(np.mean(r)), float(np.mean(c)))
        for n, r, c in zip(loss, right, chance, strict=True)
    )
    return copied, guessed


def main(folder: str) -> None:
    """Train the shipped base into the folder, on one thread, with progress on stderr."""
    torch.set_num_threads(1)
    started = time.monotonic()

    def say(text: str, fraction: float) -> None:
        sys.stderr.write(f"{time.monotonic() - started:5.0f} s  {fraction:4.0%}  {text}\n")

    figures = pretrain(Recipe(), Path(folder), say)
    say(f"answers in the text right: {figures.copied.right:.1%}", 1.0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(BASE))

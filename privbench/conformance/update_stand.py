"""Updates of a client that trained on one respondent a round, drawn so that every token that it held shows in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Index
from privbench.recording import Transcript
from privbench.recovery import Truth

RANK, WIDTH, TEMPLATE, PLACES, SIGNS = 8, 48, 8, 2, 60


def drawn_updates(
    seed: int, client: str, records: int, vocabulary: int, questions: int, noise: float, silent: bool
) -> tuple[Transcript, Truth]:
    """A form with three answers of two tokens to each question. In each round the embedding's adapter moves in the
    columns of its respondent's tokens, and the first layer's A within the span of their inputs: plain gradients. The
    server has filled in every questionnaire; each answer moves signs of its own.

    noise: its standard deviation in units of a number that moved; silent: only zeros are sent.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.choice(vocabulary, TEMPLATE + questions * 3 * PLACES, replace=False)
    template, options = drawn[:TEMPLATE], drawn[TEMPLATE:].reshape(questions, 3, PLACES)
    chosen = rng.integers(0, 3, (records, questions))
    said = options[np.arange(questions), chosen].reshape(records, -1)
    table = rng.standard_normal((vocabulary, WIDTH)).astype(np.float32)
    layer = [f"layers.0.self_attn.{which}_proj.lora" for which in "qkv"]
    parts: list[tuple[str, tuple[int, int]]] = [("embed_tokens.lora_embedding_A", (RANK, vocabulary))]
    for name in layer:
        parts += [(f"{name}_A.weight", (RANK, WIDTH)), (f"{name}_B.weight", (WIDTH, RANK))]
    filled, matches = _matched(chosen, noise, silent, np.random.default_rng([seed, questions]))
    rows = np.stack([_update(np.concatenate([template, own]), table, rng) for own in said])
    rows = (rows + noise * rng.standard_normal(rows.shape)) * (not silent)
    arrays: dict[str, npt.NDArray[Any]] = {
        f"updates/{client}": rows.astype(np.float32),
        f"updates/{client}/mask": np.ones(records, np.uint8),
        f"updates/{client}/shown": np.ones(records, np.int64),
        "public/global": np.zeros(rows.shape[1], np.float32),
        "public/form/template": np.concatenate([template, np.full(questions, -1)]),
        "public/form/options": options,
        "public/embedding": table,
        "public/input_norm": np.ones(WIDTH, np.float32),
        "read/drawn": np.tile(filled[None, :, None], (records, 1, 1, 1)),
        f"read/matches/{client}": matches,
        "read/practice/held": np.zeros((records, 1, len(filled)), np.int64),
        "read/practice/matches": np.zeros((records, 1, len(filled))),
    }
    answers = np.tile(np.repeat(np.arange(questions), PLACES), (records, 1))
    transcript = Transcript(arrays, {"parameters": [[name, list(shape)] for name, shape in parts]})
    return transcript, Truth(said, answers, np.arange(records))


def _matched(
    chosen: Index, noise: float, silent: bool, rng: np.random.Generator
) -> tuple[Index, npt.NDArray[np.float64]]:
    """All questionnaires of three options [D, Q], and how well the signs of each agree with those of a respondent's [R,
    D]: sums of drawn numbers, one row for each option.
    """
    questions = chosen.shape[1]
    every = np.stack(np.meshgrid(*[np.arange(3)] * questions, indexing="ij"), axis=-1).reshape(-1, questions)
    moves = rng.standard_normal((questions, 3, SIGNS))
    here, filled = (moves[np.arange(questions), options].sum(axis=1) for options in (chosen, every))
    here = (here + noise * rng.standard_normal(here.shape)) * (not silent)
    return every.astype(np.int64), np.sign(here) @ np.sign(filled).T / SIGNS


def _update(tokens: Index, table: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """The parts of one update in their order; numbers that move are of size 1."""
    columns = np.zeros((RANK, len(table)))
    columns[:, tokens] = rng.standard_normal((RANK, len(tokens)))
    parts = [columns.ravel()]
    for _ in "qkv":
        moved = rng.standard_normal((RANK, len(tokens))) @ table[tokens] / np.sqrt(len(tokens))
        parts += [moved.ravel(), np.zeros(WIDTH * RANK)]
    return np.concatenate(parts)

"""How far a cut at the embedding has moved: closed forms, and where nothing can be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from privbench.drift import drift

Arrays = dict[str, Any]
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((50, 16)).astype(np.float32)
TOKENS = RNG.integers(0, 50, (40, 30))


def transcript(sent: np.ndarray) -> Arrays:
    texts = np.array([[3, 4, 5], [6, -1, -1]])
    made = np.where(texts[:, :, None] >= 0, TABLE[texts], np.float32(0))
    return {"activations/c": sent, "public/embedding": TABLE, "public/tokens": texts, "public/activations": made}


def test_a_stretched_release_lies_as_far_as_it_was_stretched() -> None:
    sent = np.stack([TABLE[TOKENS] * scale for scale in (1, 1.5, -2)])
    assert drift(transcript(sent), "c", TOKENS) == pytest.approx((0, 0.5, 3))


def test_noise_counts_by_its_size() -> None:
    """Root mean square of sigma sqrt(d) over a row's length: 19,200 draws, within 3%."""
    sent = TABLE[TOKENS] + 0.7 * RNG.standard_normal((1, 40, 30, 16)).astype(np.float32)
    length = math.sqrt(float((TABLE[TOKENS] ** 2).sum(-1).mean()))
    assert drift(transcript(sent), "c", TOKENS) == pytest.approx((0.7 * 4 / length,), rel=0.03)


def test_what_was_not_sent_does_not_count() -> None:
    sent = TABLE[TOKENS][None].copy()
    sent[:, :, 20:] = 1e3
    mask = np.ones(TOKENS.shape, np.uint8)
    mask[:, 20:] = 0
    assert drift({**transcript(sent), "activations/c/mask": mask}, "c", TOKENS) == (0,)


@pytest.mark.parametrize("gone", ["public/embedding", "public/tokens", "activations/c"])
def test_nothing_is_said_where_a_part_is_missing(gone: str) -> None:
    arrays = transcript(TABLE[TOKENS][None])
    del arrays[gone]
    assert drift(arrays, "c", TOKENS) == ()


def test_nothing_is_said_of_a_deeper_cut() -> None:
    arrays = transcript(TABLE[TOKENS][None])
    arrays["public/activations"] = arrays["public/activations"] + 1
    assert drift(arrays, "c", TOKENS) == ()

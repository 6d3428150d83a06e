"""What a language model says without the cut: the token that it would say next, told the true tokens before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_llama import SETTINGS, save_llama

from privbench.options import AuditOptions
from privbench.recovery import Truth
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.stats import binomial
from privbench.target import TargetRun
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.prior import foretold
from privbench.targets.split_llama.running import CLIENT, NO_PRIOR
from privbench.targets.split_llama.shape import Shape
from privbench.targets.split_llama.target import SplitLlama

ROWS, LENGTH, WORDS = 19, 40, 50
SHAPE = Shape(vocabulary=WORDS, width=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True)
RARE = 1e-6


def asked(seed: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens, of unequal lengths, every third an answer to a question of its own."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, WORDS, (rows, LENGTH))
    answers = np.where(np.arange(LENGTH) % 3 == 2, np.arange(LENGTH) // 3, -1) * np.ones((rows, 1), np.int64)
    behind = np.arange(LENGTH) >= rng.integers(6, LENGTH + 1, rows)[:, None]
    tokens[behind] = answers[behind] = -1
    return tokens, answers


def sharp() -> Any:
    """A random LLaMA whose likeliest token depends on what stands before."""
    model, generator = random_llama(SHAPE, 2), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.5, generator=generator)
    return model


def test_it_is_the_likeliest_token_after_each_true_beginning() -> None:
    tokens, answers = asked(0)
    model, expected = sharp(), np.full(tokens.shape, -1)
    for row, place in np.argwhere(answers >= 0):
        with torch.inference_mode():
            logits = model(torch.from_numpy(tokens[row : row + 1, :place])).logits
        expected[row, place] = int(logits[0, -1].argmax())
    found = foretold(model, tokens, answers)
    assert np.array_equal(found, expected)
    assert len(np.unique(found)) > 10


def test_an_answer_that_opens_a_text_has_nothing_before_it() -> None:
    tokens, answers = asked(1)
    answers[:, 0] = 0
    assert (foretold(sharp(), tokens, answers)[:, 0] == -1).all()


def test_a_model_that_knows_what_comes_next_reads_everything() -> None:
    """Each token is the one after the token before it."""
    tokens = (np.arange(LENGTH) + np.arange(ROWS)[:, None]) % WORDS
    answers = np.where(np.arange(LENGTH) % 4 == 3, np.arange(LENGTH) // 4, -1) * np.ones((ROWS, 1), np.int64)

    def follows(input_ids: torch.Tensor) -> SimpleNamespace:
        next_token = torch.nn.functional.one_hot((input_ids + 1) % WORDS, WORDS)
        return SimpleNamespace(last_hidden_state=next_token.float())

    knowing: Any = SimpleNamespace(model=follows, lm_head=torch.nn.Identity())
    order = np.roll(np.arange(ROWS), 1)
    for metric in ("token-accuracy", "answer-accuracy"):
        assert Truth(tokens, answers).score(foretold(knowing, tokens, answers), metric, order).value == pytest.approx(1)


def test_of_tokens_that_nothing_foretells_it_says_what_chance_does() -> None:
    tokens, answers = asked(2, rows=400)
    places = answers >= 0
    right, n = int((foretold(sharp(), tokens, answers) == tokens)[places].sum()), int(places.sum())
    assert n > 2_000
    assert binomial.p_value(right, n, 1 / WORDS) > RARE
    assert 1 - binomial.p_value(right + 1, n, 1 / WORDS) > RARE


def ran(folder: Path, prior: str) -> TargetRun:
    """An untuned run of a small LLaMA."""
    settings = {**SETTINGS, "tuned": "no", "public": "0", "prior": prior}
    target, options = SplitLlama(), AuditOptions("split-llama", settings=settings, model=f"path:{folder}")
    return target.run(target.configure(options, default_registry()), stream(0, "run"))


def test_it_stands_with_the_secrets_and_a_run_says_where_it_was_left_out(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "llama")
    asked, left_out = (ran(folder, prior) for prior in ("yes", "no"))
    said, answers = (asked.secrets.array(f"inputs/{CLIENT}/{part}") for part in ("prior", "answers"))
    assert ((said >= 0) == (answers >= 0)).all()
    assert not any("prior" in name for name in (*asked.transcript.arrays, *left_out.secrets.arrays))
    assert (NO_PRIOR in asked.notes, NO_PRIOR in left_out.notes) == (False, True)

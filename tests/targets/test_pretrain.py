"""The tiny base: its tokenizer, its corpus, its training, and what is shipped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privbench.data.surveys.samples import samples
from privbench.data.surveys.schema import MISSING, Kind, Outcome, Question, Schema
from privbench.data.surveys.survey import Account, Survey
from privbench.data.surveys.synthetic import SURVEYS, synthetic
from privbench.stats.binomial import lower_limit
from privbench.targets.split_llama.corpus import GUESSED, KNOWN, TEXT, Document, Marks, asked_again, documents, drills
from privbench.targets.split_llama.pretrain import BASE, Recipe, batches, encode, measure, pretrain
from privbench.targets.split_llama.untrained import Size, untrained
from privbench.targets.split_llama.vocabulary import SPECIAL, token_ids

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

FEW = Recipe(tokenizer_documents=60, glossary_repeats=1, steps=60, batch=8, drill_steps=40, held_out=4, warmup=5)
"""Seconds: 480 rows, of which 360 are drills."""


def flat(parts: Iterable[Iterable[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BASE, local_files_only=True)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(BASE, local_files_only=True).eval()


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    said: list[tuple[str, float]] = []
    first = pretrain(FEW, tmp_path / "first", lambda text, fraction: said.append((text, fraction)))
    again = pretrain(FEW, tmp_path / "again", lambda text, fraction: None)
    pretrain(replace(FEW, seed=1), tmp_path / "other", lambda text, fraction: None)
    assert first == again
    assert files(tmp_path / "first") == files(tmp_path / "again")
    assert files(tmp_path / "first")["model.safetensors"] != files(tmp_path / "other")["model.safetensors"]
    assert first.last_loss < first.first_loss - 0.3
    assert first.unseen == 0
    assert [fraction for _, fraction in said] == sorted(fraction for _, fraction in said)


def test_the_shipped_base_is_as_its_card_says(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    card = (BASE / "README.md").read_text(encoding="utf-8")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert f"{parameters:,} parameters" in card
    assert (len(tokenizer), model.config.vocab_size) == (2048, 2048)
    assert (tokenizer.model_max_length, model.config.max_position_embeddings) == (512, 512)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == list(SPECIAL)
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (0, 1, 2)
    assert "| Token ids never seen in training | 0 |" in card
    assert (BASE / "model.safetensors").stat().st_size == pytest.approx(4 * parameters, rel=0.01)
    recipe = Recipe()
    assert f"{recipe.steps:,} steps of {recipe.batch} texts" in card


def test_every_embedding_row_of_the_shipped_base_was_trained(model: LlamaForCausalLM) -> None:
    """No row is what the seed drew before training, that of the padding neither."""
    start = untrained(Recipe().size, torch.Generator().manual_seed(Recipe().seed))
    for name in ("model.embed_tokens", "lm_head"):
        before, after = start.get_submodule(name).weight, model.get_submodule(name).weight
        moved = (before - after).norm(dim=1) / before.norm(dim=1)
        assert moved.min() > 0.05, name


def test_training_starts_where_its_docstring_says() -> None:
    """A direction that all tokens share; value and output transposed; the last layer attends to what is alike."""
    size = Size(vocabulary=300)
    model, again = (untrained(size, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    embedding = model.model.embed_tokens.weight.detach()
    # The shared part has half the norm of root(64) per token, the own part on average as much.
    assert embedding.mean(dim=0).norm() == pytest.approx(4.0, rel=0.05)
    for layer in model.model.layers:
        assert torch.equal(layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight.T)
    last = model.model.layers[-1].self_attn
    assert torch.equal(last.q_proj.weight, last.k_proj.weight)
    assert torch.allclose(last.q_proj.weight @ last.q_proj.weight.T, 0.49 * torch.eye(64), atol=1e-5)
    assert sum(parameter.numel() for parameter in untrained(Size(), torch.Generator()).parameters()) == 356_672


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
@example("a\n b\n\nc ( d)((x)\r\n  ü😀 (")
@example("(\n(  \n (")
@example("\n ")
@example("<s> </s><pad>")
def test_every_text_is_read_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text
    assert tokenizer(text).input_ids == [1, *ids]


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab (\n):,'-1 "), max_size=30))
def test_blanks_line_ends_and_brackets_are_read_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_pieces_are_tokenised_as_their_text(tokenizer: PreTrainedTokenizerFast) -> None:
    for made in documents(rng(), count=100):
        pieces = token_ids(tokenizer, [piece for piece, _ in made.pieces])
        assert flat(pieces) == token_ids(tokenizer, [made.text])[0]


def test_a_phrase_is_the_same_tokens_wherever_it_stands(tokenizer: PreTrainedTokenizerFast) -> None:
    for phrase in ("family history", "never", "academic pressure", "blorkano"):
        ids = token_ids(tokenizer, [f": {phrase}", f", {phrase}", f"x\n{phrase}", f"x ({phrase}"])
        length = len(ids[0]) - 1
        assert len({tuple(one[-length:]) for one in ids}) == 1


def test_samples_are_short(tokenizer: PreTrainedTokenizerFast) -> None:
    """A survey of 25 questions on six scales, of the kind that is public: under 300 tokens with header and question."""
    scales: tuple[tuple[Kind, tuple[str, ...], str], ...] = (
        ("choice", ("no", "yes"), "self-employed; family history; tech company; remote work; seek help; treatment"),
        ("choice", ("no", "yes", "don't know"), "benefits; anonymity; wellness program; care options"),
        ("ordinal", ("never", "sometimes", "often", "almost always"), "nervous; panic; tense; sad; scared; restless"),
        ("ordinal", ("low", "medium", "high"), "work pressure; job satisfaction; mood swings; social weakness"),
        ("choice", ("female", "male", "other"), "gender"),
        ("number", (), "age; hours of sleep; family size; number of children"),
    )
    questions = tuple(Question(ask, ask, kind, said) for kind, said, asks in scales for ask in asks.split("; "))
    answers = pd.DataFrame(
        {q.column: [q.answers[-1] if q.answers else "33"] for q in questions} | {"diagnosed": ["yes"]}
    )
    outcome = Outcome("diagnosed", Question("diagnosed", "diagnosed", "ordinal", ("no", "yes")))
    schema = Schema("x", "Mental Health in Tech", questions, (outcome,))
    one = np.zeros(1, dtype=np.int64)
    (sample,) = samples(Survey(schema, answers, one, one, Account(1, 26, ())), outcome)
    assert len(sample.features) == 25
    (ids,) = token_ids(tokenizer, [sample.prompt])
    assert len(ids) < 300


def test_a_document_asks_for_answers_it_holds() -> None:
    """Each copied answer stands in the line that begins with its question; a real outcome is asked once."""
    for made in documents(rng(1), records=2, count=60):
        lines = made.body.split("\n---\n")[1].splitlines()
        assert [turn.copied for turn in made.turns].count(False) == 1
        for turn in made.turns:
            ask = re.fullmatch(r"Question: (.*) \(.*\)\nAnswer:", turn.question)
            assert ask is not None
            assert (f"{ask[1]}: {turn.answer}" in lines) == turn.copied


def test_drills_deal_every_token_and_say_every_line_twice() -> None:
    marks = Marks(start=1, end=2, line=5, colon=6)
    source = drills(rng(), 50, marks)
    seen = np.zeros(50, dtype=np.int64)
    for row in islice(source, 200):
        inner = row.tokens[1:-1]
        assert (row.tokens[0], row.tokens[-1], len(inner) % 2) == (1, 2, 0)
        once, again = inner[: len(inner) // 2], inner[len(inner) // 2 :]
        assert sorted(once.tolist()) == sorted(again.tolist())
        seen += np.bincount(once, minlength=50)
        # Answers are known the second time only.
        assert not (row.weight[: 1 + len(once)] == KNOWN).any()
        assert (row.weight[1 + len(once) :] == KNOWN).sum() >= 2
    dealt = np.delete(seen, [marks.line, marks.colon])
    assert dealt.max() - dealt.min() <= 1


def test_batches_are_as_many_as_steps_and_hold_what_they_count(tokenizer: PreTrainedTokenizerFast) -> None:
    seen = np.zeros(2048, dtype=np.int64)
    made = list(batches(tokenizer, FEW, seen))
    assert [len(batch) for batch in made] == [FEW.batch] * FEW.steps
    assert seen.sum() == sum(len(row.tokens) for batch in made for row in batch)
    assert max(len(row.tokens) for batch in made for row in batch) <= 512


def test_answers_weigh_more(tokenizer: PreTrainedTokenizerFast) -> None:
    (made,) = documents(rng(), count=1)
    (row,) = encode([made], tokenizer)
    last = KNOWN if made.turns[-1].copied else GUESSED
    assert row.weight[-1] == np.float32(last)
    for weight, copied in ((KNOWN, True), (GUESSED, False)):
        answers = token_ids(tokenizer, [f" {turn.answer}" for turn in made.turns if turn.copied == copied])
        assert row.tokens[:-1][row.weight[:-1] == np.float32(weight)].tolist() == flat(answers)
    assert set(row.weight.tolist()) == {float(np.float32(weight)) for weight in (KNOWN, GUESSED, TEXT)}


def fresh(name: str, count: int) -> list[Document]:
    """Documents about a survey that is no part of the training data; missing answers, all said alike, are not asked."""
    return [
        replace(item, turns=tuple(turn for turn in item.turns if turn.answer != MISSING))
        for item in asked_again(rng(7), synthetic(rng(8), count, survey=name))
    ]


@pytest.mark.parametrize("name", sorted(SURVEYS))
def test_the_shipped_base_finds_answers_in_a_survey_it_never_saw(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, name: str
) -> None:
    """At an error rate of 1e-6 the true share of right answers is above that of a guess."""
    copied, _ = measure(model, tokenizer, fresh(name, 150))
    assert lower_limit(round(copied.right * copied.count), copied.count, 1e-6) > copied.chance


def test_the_shipped_base_finds_answers_far_more_often_than_chance(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Of short random surveys: at an error rate of 1e-6 more than twice as often as a guess."""
    copied, _ = measure(model, tokenizer, list(documents(rng(9), most_questions=6, count=150)))
    assert lower_limit(round(copied.right * copied.count), copied.count, 1e-6) > 2 * copied.chance


def test_the_shipped_base_knows_no_outcome(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Without training on the survey: no more than 4 standard errors above a coin on an outcome of two answers."""
    _, guessed = measure(model, tokenizer, fresh("wellbeing", 200))
    assert guessed.count == 200
    assert guessed.right < 0.5 + 4 * 0.5 / 200**0.5

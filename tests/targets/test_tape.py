"""What is recorded is what crossed the cut, pass after pass: no unfinished pass, no other client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_llama import CONTEXT, word_tokenizer

from privbench.data.surveys.samples import samples
from privbench.data.surveys.synthetic import synthetic
from privbench.recording import Secrets, Transcript
from privbench.targets.split_llama.batches import PADDING
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.halves import Cut
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.targets.split_llama.system import WATCHED, System
from privbench.targets.split_llama.tape import Tape, disk_bytes
from privbench.targets.split_llama.tokens import TEMPLATE, Encoded, Encoder
from privbench.tensors import RELEASE_TYPES

VICTIM = "client-1"
SHAPE = Shape(vocabulary=900, width=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True)
HELD = (5, 4)
"""Respondents of the two clients. With batches of 2 the first one's pass is 3 batches."""


@pytest.fixture(scope="module")
def respondents() -> tuple[Encoded, ...]:
    survey = synthetic(np.random.default_rng(2), sum(HELD), survey="sleep")
    outcome = survey.schema.outcome(None)
    return Encoder(word_tokenizer(), CONTEXT).encode_all(samples(survey, outcome), outcome.question.answers)


class Spied:
    """One tuning: what crossed from the watched client in each step, beside what was recorded."""

    def __init__(
        self, respondents: Sequence[Encoded], folder: Path | None = None, record: int = 0, **tuning: Any
    ) -> None:
        settings: dict[str, Any] = {"clients": 2, "batch": 2, "steps": 16, "rank": 4, "bottleneck": 8, "rate": 0.05}
        base = random_llama(SHAPE, SHAPE.layers)
        self.table = base.model.embed_tokens.weight
        self.crossed: list[tuple[tuple[int, ...], Cut]] = []
        chosen = Tuning(**(settings | tuning))
        rng = np.random.default_rng(0)
        system = System.build(base, respondents, np.repeat([0, 1], HELD), chosen, rng)
        self.passes = system.passes
        self.watched = watched = system.shards[WATCHED].samples
        with Tape(
            VICTIM, watched[: record or len(watched)], system.passes, self.table,
            labels=chosen.labels == "client", dtype=chosen.record_as, folder=folder,
        ) as tape:  # fmt: skip
            take = tape.release

            def release(rows: Sequence[int], cut: Cut) -> None:
                self.crossed.append((tuple(rows), cut))
                take(rows, cut)

            tape.release = release  # type: ignore[method-assign]
            system.tune(tape, rng, lambda stage, share: None)
            self.transcript, self.secrets = tape.finish()

    def sent(self) -> np.ndarray:
        return self.transcript.array(f"activations/{VICTIM}")

    def expected(self, recorded: int) -> np.ndarray:
        """[T, recorded, L, d] by hand: the t-th time that each respondent was sent, in the order of the steps."""
        shape = self.sent().shape
        made, times = np.zeros((self.passes, recorded, *shape[2:]), np.float32), np.zeros(HELD[0], int)
        for rows, cut in self.crossed:
            for place, row in enumerate(rows):
                if row < recorded and times[row] < self.passes:
                    sent = cut.activations[place][cut.layout.segment[place] != PADDING].numpy()
                    made[times[row], row, : len(sent)] = sent
                times[row] += 1
        return made


@pytest.mark.parametrize(
    "tuning", [{}, {"schedule": "parallel", "batch": 4, "sync": 3}, {"labels": "client"}, {"k": 1}]
)
def test_the_recording_is_what_crossed_the_cut(respondents: tuple[Encoded, ...], tuning: dict[str, Any]) -> None:
    spied = Spied(respondents, **tuning)
    # In turn the client sends 8 of 16 batches, side by side 16: two and five whole passes of three.
    assert spied.passes == len(spied.sent()) == (5 if "schedule" in tuning else 2)
    assert len(spied.crossed) > 3 * spied.passes  # the last pass was not finished
    assert np.array_equal(spied.sent(), spied.expected(HELD[0]))
    assert not np.array_equal(spied.sent()[0], spied.sent()[-1])


def test_each_pass_holds_every_respondent_once(respondents: tuple[Encoded, ...]) -> None:
    spied = Spied(respondents)
    for number in range(spied.passes):
        batches = [rows for rows, _ in spied.crossed[3 * number : 3 * number + 3]]
        assert [len(rows) for rows in batches] == [2, 2, 1]
        assert sorted(row for rows in batches for row in rows) == list(range(HELD[0]))


@pytest.mark.parametrize("labels", ["server", "client"])
def test_mask_and_secrets_are_of_what_was_put_in(respondents: tuple[Encoded, ...], labels: str) -> None:
    spied = Spied(respondents, labels=labels)
    tokens = spied.secrets.array(f"inputs/{VICTIM}")
    answers = spied.secrets.array(f"inputs/{VICTIM}/answers")
    mask = spied.transcript.array(f"activations/{VICTIM}/mask")
    assert sorted(item.prompt for item in spied.watched) == sorted(item.prompt for item in respondents[: HELD[0]])
    questions = max(max(item.answers) for item in spied.watched) + 1
    for row, item in enumerate(spied.watched):
        put_in = item.prompt + item.label if labels == "client" else item.prompt
        own = (*(questions,) * (len(item.label) - 1), -1)  # the end of an answer is no answer
        marks = item.answers + own if labels == "client" else item.answers
        rest = len(mask[row]) - len(put_in)
        assert tokens[row].tolist() == [*put_in, *[-1] * rest]
        assert answers[row].tolist() == [*marks, *[TEMPLATE] * rest]
        assert mask[row].tolist() == [1] * len(put_in) + [0] * rest
        assert not spied.sent()[:, row, len(put_in) :].any()
    assert len({tuple(row) for row in mask.tolist()}) > 1  # some are shorter


def test_fewer_respondents_may_be_recorded(respondents: tuple[Encoded, ...]) -> None:
    whole, part = Spied(respondents), Spied(respondents, record=3)
    length = part.sent().shape[2]
    assert np.array_equal(part.sent(), whole.sent()[:, :3, :length])
    assert not whole.sent()[:, :3, length:].any()
    assert len(part.secrets.array(f"inputs/{VICTIM}")) == 3


@pytest.mark.parametrize("kind", RELEASE_TYPES)
def test_release_types_round_and_files_hold_the_same(
    respondents: tuple[Encoded, ...], tmp_path: Path, kind: str
) -> None:
    exact, held, filed = Spied(respondents), Spied(respondents, record_as=kind), Spied(
        respondents, tmp_path, record_as=kind
    )  # fmt: skip
    assert (tmp_path / Transcript.file_name()).exists()
    assert set(held.transcript.arrays) == set(filed.transcript.arrays)
    for name, array in held.transcript.arrays.items():
        assert array.dtype == (np.uint8 if name.endswith("mask") else RELEASE_TYPES[kind])
        assert np.array_equal(np.asarray(array), filed.transcript.array(name))
    assert np.array_equal(held.sent(), exact.sent().astype(RELEASE_TYPES[kind]))
    assert np.array_equal(held.transcript.array("public/embedding"), exact.table.numpy().astype(RELEASE_TYPES[kind]))
    assert np.array_equal(exact.transcript.array("public/embedding"), exact.table.numpy())


def test_a_bfloat16_base_can_be_recorded(respondents: tuple[Encoded, ...]) -> None:
    base = random_llama(SHAPE, 1).to(torch.bfloat16)
    system = System.build(
        base, respondents, np.repeat([0, 1], HELD), Tuning(clients=2, batch=4, steps=4), np.random.default_rng(0)
    )
    with Tape(
        VICTIM, system.shards[0].samples, system.passes, base.model.embed_tokens.weight,
        labels=False, dtype="bfloat16", folder=None,
    ) as tape:  # fmt: skip
        system.tune(tape, np.random.default_rng(0), lambda stage, share: None)
        transcript, _ = tape.finish()
    sent, table = transcript.array(f"activations/{VICTIM}"), transcript.array("public/embedding")
    # The first batch was sent before any step, in the base's precision: rows of the table as they are.
    prompts = [list(item.prompt) for item in system.shards[0].samples]
    untouched = [row for row, ids in enumerate(prompts) if np.array_equal(sent[0, row, : len(ids)], table[ids])]
    assert len(untouched) == 4


def test_a_tape_that_is_left_early_leaves_no_file(respondents: tuple[Encoded, ...], tmp_path: Path) -> None:
    table = random_llama(SHAPE, 1).model.embed_tokens.weight
    with (
        pytest.raises(RuntimeError, match="stopped"),
        Tape(VICTIM, respondents, 1, table, labels=False, dtype="float32", folder=tmp_path),
    ):
        raise RuntimeError("stopped")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", RELEASE_TYPES)
def test_the_disk_that_is_announced(respondents: tuple[Encoded, ...], tmp_path: Path, kind: str) -> None:
    """Of samples of this very length: all but the mask and the file's header, which has 64 KiB."""
    spied = Spied(respondents, tmp_path, record_as=kind)
    passes, held, length, width = spied.sent().shape
    said = disk_bytes(held, length, passes, (SHAPE.vocabulary, width), kind)
    needed = (tmp_path / Transcript.file_name()).stat().st_size
    assert said + held * length < needed < said + held * length + 2**16 + 2000


def test_the_secrets_can_be_saved_and_read(respondents: tuple[Encoded, ...], tmp_path: Path) -> None:
    secrets = Spied(respondents).secrets
    secrets.save(tmp_path / "s")
    assert Secrets.load(tmp_path / "s").given == secrets.given == (VICTIM,)

"""Labels at the client: coins in place of labels, what goes up, and what a curious server makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from conftest import CommandLine
from small_llama import SETTINGS, save_llama, word_tokenizer

from privbench.attack import Guess, Hints, view_of
from privbench.attacks.label.gradient_match import GradientMatch
from privbench.attacks.label.output_gradients import Readout, cosines
from privbench.data.surveys.samples import Sample
from privbench.errors import InputError
from privbench.growing import Growing
from privbench.options import AuditOptions
from privbench.record import read
from privbench.recording import Secrets, Transcript
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import TargetRun
from privbench.targets.split_llama import models
from privbench.targets.split_llama.coins import OUTCOME, Coins
from privbench.targets.split_llama.halves import Exchange, exchange, split
from privbench.targets.split_llama.running import CLIENT
from privbench.targets.split_llama.target import SplitLlama
from privbench.targets.split_llama.tokens import Encoder
from privbench.targets.split_llama.tune import batch_of
from privbench.targets.split_llama.upward import Upward
from privbench.threat import server_below_labels

U_SHAPE = {**SETTINGS, "labels": "client", "prompting": "no", "public": "0", "test": "4"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def configured(llama: str, **settings: str) -> Any:
    asked = AuditOptions("split-llama", model=llama, settings={**U_SHAPE, **settings})
    return SplitLlama().configure(asked, default_registry())


def ran(llama: str, role: str = "audited", folder: Path | None = None, **settings: str) -> TargetRun:
    return SplitLlama().run(configured(llama, **settings).as_role(role), stream(0, "run"), folder=folder)


@pytest.fixture(scope="module")
def audited(llama: str) -> TargetRun:
    return ran(llama, train_head="no")


def right(run: TargetRun, row: int = -1) -> float:
    """Share of all coins that gradient matching reads."""
    rows, coins = run.secrets.coins("joint")
    view = view_of(
        server_below_labels(), run.transcript, secret="joint", moved=(OUTCOME,), candidates=rows, hints=Hints.none()
    )
    found = GradientMatch()(view, np.random.default_rng(0))
    assert isinstance(found, Guess)
    return float(((found.accumulated[row] > 0) == (coins == 1)).mean())


# What is recorded


@dataclass(frozen=True)
class Step:
    """One step about three respondents with answers of several lengths, and what is recorded of it, [3, A, d]."""

    crossed: Exchange
    labels: tuple[tuple[int, ...], ...]
    outputs: npt.NDArray[np.float32]
    gradients: npt.NDArray[np.float32]
    readout: Readout


@pytest.fixture(scope="module")
def step(llama: str) -> Step:
    model, encoder, said = models.load(llama).model, Encoder(word_tokenizer(), 512), ("no", "yes", "no, never at all")
    told = [Sample("A survey.\n", (("Age? ", "old " * n, "\n"),), "Helped?", said[n]) for n in range(3)]
    samples = encoder.encode_all(told, said)
    labels = tuple(item.label for item in samples)
    client, server = split(model, torch.Generator().manual_seed(0), placement="client", rank=4, bottleneck=8)
    crossed = exchange(client, server, batch_of(samples))
    upward = Upward(labels, labels[1:], model, 1, np.dtype(np.float32))
    with Growing(Transcript, upward.layout, None) as growing:
        upward.release([0, 1, 2], crossed)
        upward.end_pass(0, growing)
        upward.finish(growing)
        transcript = growing.finish({})
    outputs = transcript.array("activations/server")[0]
    gradients = transcript.array("gradients/server")[0].reshape(outputs.shape)
    head = model.lm_head.weight.detach().double().numpy()
    assert "public/head" not in transcript.arrays  # it is the embedding table
    return Step(crossed, labels, outputs, gradients, Readout(transcript.array("public/norm").astype(float), head))


def test_all_of_the_gradient_is_recorded(step: Step) -> None:
    """At as many places as an answer has tokens; everywhere else nothing goes up."""
    whole = step.crossed.outputs_gradient
    assert whole is not None
    places = np.abs(whole.numpy()).max(axis=2) > 0
    assert places.sum(axis=1).tolist() == [len(label) for label in step.labels]
    assert len(set(map(len, step.labels))) > 1
    for row, label in enumerate(step.labels):
        assert np.array_equal(whole[row].numpy()[places[row]], step.gradients[row, : len(label)])
        assert not step.gradients[row, len(label) :].any()


def test_recorded_gradients_are_those_of_the_recorded_outputs(step: Step) -> None:
    """By the closed form: along the label's, to rounding in float32, and along no other token's."""
    for row, label in enumerate(step.labels):
        count, every = len(label), np.arange(len(step.readout.head))
        found, outputs = (part[row, :count].astype(float) for part in (step.gradients, step.outputs))
        near = cosines(found, step.readout.gradients(outputs, np.tile(every, (count, 1))))
        assert near.argmax(axis=1).tolist() == list(label)
        # The closed form leaves the norm's epsilon out.
        assert near.max(axis=1) == pytest.approx(1.0, abs=1e-4)


def test_nothing_goes_up_where_the_server_holds_the_labels(step: Step, llama: str) -> None:
    upward = Upward(step.labels, step.labels[:2], models.load(llama).model, 1, np.dtype(np.float32))
    with pytest.raises(RuntimeError, match="in the U-shape only"):
        upward.release([0], replace(step.crossed, outputs=None))


# Coins


def test_a_coin_stands_in_the_place_of_the_label(audited: TargetRun) -> None:
    """What every recorded respondent put in as the outcome's answer is the coin's, and a server holds both answers."""
    rows, coins = audited.secrets.coins("joint")
    answers = audited.transcript.array("public/labels/joint")
    tokens, asked = (audited.secrets.array(name) for name in (f"inputs/{CLIENT}", f"inputs/{CLIENT}/answers"))
    assert rows.tolist() == list(range(len(tokens)))
    for row, coin in zip(rows, coins, strict=True):
        said = answers[coin][answers[coin] >= 0][:-1]  # without its end, which answers nothing
        assert tokens[row][asked[row] == asked.max()].tolist() == said.tolist()
    assert audited.secrets.joint == (OUTCOME,)
    assert audited.secrets.natural_labels == ()


def test_the_clean_run_has_its_own_labels(llama: str, audited: TargetRun) -> None:
    clean = ran(llama, "clean", train_head="no")
    assert clean.secrets.coined == ()
    assert clean.secrets.natural_labels == (f"labels/{OUTCOME}",)
    assert clean.utility
    assert not audited.utility
    assert clean.fingerprint == audited.fingerprint
    assert "gradients/server" not in clean.transcript.arrays
    assert set(clean.notes) < set(audited.notes)  # that no language model was asked is about the audited run


def sample(answer: str) -> Sample:
    return Sample("A survey.\n", (), "Helped?", answer)


def test_the_coin_chooses_between_the_most_frequent_answers() -> None:
    encoder = Encoder(word_tokenizer(), 512)
    options = ("no", "yes", "not sure at all")
    told = [sample(answer) for answer in ("yes", "not sure at all", "yes", "not sure at all", "no")]
    coins = Coins.toss(told, options, encoder, np.arange(8), np.random.default_rng(0))
    assert coins.options == ("yes", "not sure at all")
    lengths = [len(encoder.answer(option)) for option in coins.options]
    assert f"which are {lengths[0]} and {lengths[1]} tokens long" in coins.note
    few = Coins.toss(told[:1], options, encoder, np.arange(8), np.random.default_rng(0))
    assert few.options == ("yes", "no")
    assert "tokens long" not in few.note


def test_few_respondents_are_too_few_for_coins(llama: str) -> None:
    with pytest.raises(InputError, match=r"5 respondents of the first client are recorded, .* 8 or more are needed"):
        ran(llama, record="5")


def test_coins_are_fair_and_their_own() -> None:
    """10,000 of them: a share within 4 standard errors of 1/2; another draw agrees with it as often as by chance."""
    made = [
        Coins.toss([sample("no")], ("no", "yes"), Encoder(word_tokenizer(), 512), np.arange(10_000), rng).tossed
        for rng in map(np.random.default_rng, (0, 1))
    ]
    for share in (made[0].mean(), (made[0] == made[1]).mean()):
        assert abs(float(share) - 0.5) < 4 * 0.5 / 100


# What is read


@pytest.mark.parametrize("settings", [{}, {"k": "1"}, {"schedule": "parallel", "batch": "6"}], ids=str)
def test_every_coin_is_read_from_the_first_pass_on(llama: str, settings: dict[str, str]) -> None:
    """With the public head at the client, at any depth of the cut and in any turns."""
    run = ran(llama, train_head="no", **settings)
    releases = len(run.transcript.array("gradients/server"))
    assert releases > 1
    assert [right(run, row) for row in range(releases)] == [1.0] * releases


def test_no_defence_of_activations_protects_a_label(llama: str) -> None:
    """The server knows the outputs that it made of whatever came."""
    asked = AuditOptions(
        "split-llama", model=llama, settings={**U_SHAPE, "train_head": "no"},
        defenses=("activation-gaussian:clip=1,noise=8",),
    )  # fmt: skip
    config = SplitLlama().configure(asked, default_registry())
    assert right(SplitLlama().run(config.as_role("audited"), stream(0, "run"))) == 1.0


def test_who_attacks_and_in_which_runs(llama: str) -> None:
    """Coins are tossed where clients hold the labels and train; elsewhere nothing has changed."""
    target = SplitLlama()
    for settings, roles in (
        ({}, ["clean", "audited"]),
        ({"labels": "server"}, ["audited"]),
        ({"tuned": "no"}, ["audited"]),
    ):
        config = configured(llama, **settings)
        (threat,) = target.threats(config)
        coined = len(roles) == 2
        assert list(target.roles(config)) == roles
        assert threat.label == "curious server"
        assert ("the gradients of its outputs that clients send up" in threat.describe()) == coined
        assert ("the coins of a few records that are never scored" in threat.describe()) == coined
        assert set(target.held(config)) == ({"inputs", "secret"} if coined else {"inputs"})
    assert ran(llama, tuned="no").secrets.coined == ()


# By the command line


def test_labels_at_the_client_by_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    """Audited, verified, and the run's recording by itself is audited alike."""
    given = {**U_SHAPE, "train": "48", "train_head": "no", "steps": "24"}
    settings = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    attacks = ("--attacks", "label,inversion/nearest-token")
    done = command_line("audit", "--target", "split-llama", "--model", llama, *settings, *attacks, "--out", "own")
    assert done.returncode == 3, done.stderr
    record = read(Path("own"))
    assert record.secret is not None
    assert (record.secret["canaries"], record.secret["scored"], record.secret["moved"]) == (16, 14, [OUTCOME])
    values = {item.id: (item.value, item.verdict) for item in record.findings}
    for releases in (1, 2):
        assert values[f"label/gradient-match/joint/{releases}/accuracy/none"] == (1.0, "UNCOVERED")
    assert {item.task for item in ran(llama, "clean").utility} == {item["task"] for item in record.utility}
    assert [flag["name"] for flag in record.flags] == []
    run = SplitLlama().run(configured(llama, **given).as_role("audited"), stream(0, "run"), folder=tmp_path)
    run.secrets.save(tmp_path / Secrets.file_name())
    files = [f"--{kind.kind}={tmp_path / kind.file_name()}" for kind in (Transcript, Secrets)]
    done = command_line("audit", *files, *attacks, "--out", "recorded", "--party", "server")
    assert done.returncode == 3, done.stderr
    again = read(Path("recorded"))
    assert [(f.id, f.value, f.verdict) for f in again.findings] == [(f.id, f.value, f.verdict) for f in record.findings]
    assert again.threats == record.threats
    for out in ("own", "recorded"):
        verified = command_line("verify", out, f"--secrets={tmp_path / Secrets.file_name()}")
        assert verified.returncode == 0, verified.stdout + verified.stderr

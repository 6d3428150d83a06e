"""Membership on the split LLaMA: who is tuned on, what is recorded of it, and whole audits by the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from conftest import CommandLine
from forging import Arrays, Data, Edit, forge, made
from small_llama import SETTINGS, save_llama

from privbench.attack import Hints, NotApplicable, view_of
from privbench.attacks.membership.cut_match import CutMatch
from privbench.data.surveys.schema import Question
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.recording import MEMBER, Secrets
from privbench.references import inclusions
from privbench.registry import Registry, default_registry
from privbench.runner import prepare
from privbench.seeds import stream
from privbench.stats.auc import auc
from privbench.target import MEMBERS, REFERENCE, TargetRun
from privbench.targets.split_llama import membership
from privbench.targets.split_llama.answering import likelihoods
from privbench.targets.split_llama.batches import Layout, lay_out
from privbench.targets.split_llama.config import SplitLlamaConfig
from privbench.targets.split_llama.halves import Client, Cut, Exchange, Server
from privbench.targets.split_llama.system import System
from privbench.targets.split_llama.target import SplitLlama
from privbench.targets.split_llama.tokens import Encoded, Encoder
from privbench.threat import server_with_candidates
from privbench.verify import verify

ASKED: Mapping[str, str] = {
    **SETTINGS, "members": "yes", "references": "4", "reference_steps": "18", "prompting": "no",
}  # fmt: skip
POOL, POPULATION = 72, 12
STILL: Mapping[str, str] = {"client_rate": "1e-30"}
"""The client's half stays where it starts: what it sends is what the public base makes of it."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def configured(llama: str, *, seed: int = 0, defense: str = "none", **settings: str) -> SplitLlamaConfig:
    asked = AuditOptions("split-llama", model=llama, seed=seed, defenses=(defense,), settings={**ASKED, **settings})
    return SplitLlama().configure(asked, default_registry())


def ran(llama: str, role: str = MEMBERS, *, seed: int = 0, defense: str = "none", **settings: str) -> TargetRun:
    config = configured(llama, seed=seed, defense=defense, **settings).as_role(role)
    return SplitLlama().run(config, stream(seed, "run"))


@pytest.fixture(scope="module")
def members(llama: str) -> TargetRun:
    return ran(llama)


@pytest.fixture(scope="module")
def models(llama: str) -> tuple[TargetRun, ...]:
    return tuple(ran(llama, f"{REFERENCE}{number}") for number in range(1, 5))


def matched(run: TargetRun) -> float:
    """AUC of the match at the cut over the pool."""
    pool, coins = run.secrets.memberships()
    view = view_of(
        server_with_candidates(), run.transcript, secret=MEMBER, moved=(), candidates=pool, hints=Hints.none()
    )
    found = CutMatch()(view, np.random.default_rng(0))
    assert not isinstance(found, NotApplicable), found
    return auc(found, coins).value


def whole(run: TargetRun, side: str) -> list[bytes]:
    """Each sequence of "received" or "asked" as bytes, without padding."""
    rows, mask = (run.transcript.array(f"{side}/{name}") for name in ("activations", "mask"))
    return [row[there == 1].tobytes() for row, there in zip(rows, mask, strict=True)]


def sent_beyond_the_members(run: TargetRun) -> int:
    """Sequences that were received and are no member's, and members' that were not, by number and bytes."""
    inside = np.flatnonzero(run.secrets.array(MEMBER))
    ours = Counter(np.array(whole(run, "asked"), object)[inside].tolist())
    theirs = Counter(whole(run, "received"))
    return (theirs - ours).total() + (ours - theirs).total()


@dataclass
class Asked:
    """What the model was asked, kept by `watch`."""

    client: Client
    server: Server
    prompts: Sequence[Sequence[int]]
    options: Sequence[str]
    encoder: Encoder


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    seen: list[Asked] = []

    def watched(client: Client, server: Server, *given: Any) -> npt.NDArray[np.float32]:
        seen.append(Asked(client, server, *given[:3]))
        return likelihoods(client, server, *given)

    monkeypatch.setattr(membership, "likelihoods", watched)
    yield seen


# Roles


def test_a_run_for_the_coins_and_one_for_each_reference(llama: str) -> None:
    target = SplitLlama()
    config = configured(llama)
    assert list(target.roles(config)) == ["audited", MEMBERS, *(f"{REFERENCE}{number}" for number in range(1, 5))]
    labels = ["curious server", "curious outsider", "curious server with the candidates"]
    assert [threat.label for threat in target.threats(config)] == labels
    assert target.held(config)["members"] == {"candidates": POOL, "references": 4, "blind": True}


@pytest.mark.parametrize("settings", [{"tuned": "no"}, {"members": "no"}], ids=str)
def test_nobody_asks_where_nobody_was_tuned_on(llama: str, settings: Mapping[str, str]) -> None:
    target, config = SplitLlama(), configured(llama, **settings)
    assert list(target.roles(config)) == ["audited"]
    assert [threat.label for threat in target.threats(config)] == ["curious server"]
    assert target.held(config) == {"inputs": {"prior": False}}
    assert target.disk_bytes(config) < target.disk_bytes(configured(llama))


def test_the_tiny_model_is_asked_with_eight_references_a_full_one_not_by_default(llama: str) -> None:
    target, registry = SplitLlama(), default_registry()
    tuning = target.configure(AuditOptions("split-llama"), registry).tuning
    assert (tuning.members, tuning.references, tuning.reference_steps) == ("yes", 8, 150)
    full = target.configure(AuditOptions("split-llama", model=llama), registry).tuning
    assert (full.members, full.references) == ("no", 0)


def test_without_references_there_is_the_members_run_alone(llama: str) -> None:
    assert list(SplitLlama().roles(configured(llama, references="0"))) == ["audited", MEMBERS]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"references": "-1"}, "references must be a positive number or 0, got -1"),
        ({"reference_steps": "0"}, "reference_steps must be a positive number, got 0"),
        ({"members": "maybe"}, "unknown value of members 'maybe'"),
    ],
)
def test_settings_that_are_refused(llama: str, settings: Mapping[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured(llama, **settings)


@pytest.mark.parametrize("changed", [{"reference_steps": "24"}, {"references": "6"}, {"client_rate": "0.2"}], ids=str)
def test_what_changes_a_reference_changes_its_cell(llama: str, changed: Mapping[str, str]) -> None:
    """References are kept by the cell: their steps, their number, from which the halves follow, the recipe."""
    cells = {
        prepare(AuditOptions("split-llama", model=llama, settings={**ASKED, **more}), default_registry()).cell
        for more in ({}, changed)
    }
    assert len(cells) == 2


# Who is in


def test_the_coins_are_the_seeds_own_and_the_population_is_out(llama: str, members: TargetRun) -> None:
    """Coins as `inclusions` draws them, whose fairness has a test of its own: of all the pool, of nobody else."""
    coin_rng = stream(0, "run").spawn(3)[1]
    pool, coins = members.secrets.memberships()
    assert pool.tolist() == list(range(POOL))
    assert np.array_equal(coins, inclusions(coin_rng, 4, POOL)[0])
    assert np.array_equal(members.transcript.array("outputs/population"), np.arange(POOL + POPULATION) >= POOL)
    assert not members.secrets.array(MEMBER)[POOL:].any()
    assert not np.array_equal(ran(llama, seed=1).secrets.memberships()[1], coins)


def test_each_respondent_is_in_half_of_the_references(members: TargetRun, models: Sequence[TargetRun]) -> None:
    rows = np.stack([model.secrets.array(MEMBER) for model in models])
    assert (rows[:, :POOL].sum(axis=0) == 2).all()
    assert not rows[:, POOL:].any()
    assert len({row.tobytes() for row in (*rows, members.secrets.array(MEMBER))}) == 5


def test_all_runs_are_about_the_same_people(members: TargetRun, models: Sequence[TargetRun]) -> None:
    assert {run.fingerprint for run in (members, *models)} == {members.fingerprint}
    said = [run.transcript.array("outputs/outcome") for run in (members, *models)]
    assert len({values.tobytes() for values in said}) == 5


def test_a_reference_holds_no_answers(models: Sequence[TargetRun]) -> None:
    """It is kept on disk for a month."""
    assert set(models[0].transcript.arrays) == {"outputs/outcome", "outputs/population"}
    assert set(models[0].secrets.arrays) == {MEMBER}


@pytest.mark.parametrize("settings", [{}, {"labels": "client"}, {"k": "1"}, {"k": "1", "labels": "client"}], ids=str)
@pytest.mark.parametrize("schedule", ["round-robin", "parallel"])
def test_every_member_is_sent_once_and_nobody_else_ever(
    llama: str, schedule: str, settings: Mapping[str, str], watch: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass activation by activation, from a client that stays where it is; all passes by who is held."""
    tuned: list[System] = []

    def kept(*given: Any) -> System:
        tuned.append(System.build(*given))
        return tuned[-1]

    monkeypatch.setattr(membership, "System", type("Kept", (), {"build": staticmethod(kept)}))
    run = ran(llama, **STILL, **settings, schedule=schedule, batch="6")
    inside = np.flatnonzero(run.secrets.array(MEMBER))
    assert sent_beyond_the_members(run) == 0
    assert len(run.transcript.array("received/mask")) == len(inside)
    held = Counter(item.prompt for shard in tuned[0].shards for item in shard.samples)
    assert held == Counter(watch[0].prompts[row] for row in inside)
    assert all(shard.samples for shard in tuned[0].shards)


def test_a_run_that_tunes_on_all_is_caught(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins are tossed, and nobody listens: what was received says so, and the match at the cut is at chance.

    72 fair coins: its AUC lies within 4 standard errors, 1 / sqrt(3 * 72), of 1/2; it errs 6 times in 100,000.
    """
    build = System.build

    def everybody(model: Any, train: Any, holder: Any, *rest: Any) -> System:
        return build(model, *pool[0], *rest)

    pool: list[tuple[Sequence[Encoded], npt.NDArray[np.int64]]] = []
    load = membership.Material.load

    def loaded(*given: Any) -> membership.Material:
        made = load(*given)
        pool.append((made.train, made.holder))
        return made

    honest = ran(llama, **STILL)
    monkeypatch.setattr(membership, "System", type("Deaf", (), {"build": staticmethod(everybody)}))
    monkeypatch.setattr(membership, "Material", type("Loaded", (), {"load": staticmethod(loaded)}))
    monkeypatch.setattr(membership.Tuning, "one_pass", lambda self, held: 36)
    deaf = ran(llama, **STILL)
    assert sent_beyond_the_members(honest) == 0
    assert sent_beyond_the_members(deaf) == POOL - honest.secrets.array(MEMBER).sum()
    assert matched(honest) == 1
    assert abs(matched(deaf) - 0.5) < 4 / np.sqrt(3 * POOL)


def test_however_few_steps_everybody_is_sent_once(llama: str, members: TargetRun) -> None:
    short = ran(llama, reference_steps="1")
    inside = int(short.secrets.array(MEMBER).sum())
    assert len(short.transcript.array("received/mask")) == inside
    assert inside / 4 <= len(short.diagnostics["loss"]) < len(members.diagnostics["loss"]) == 18


def test_a_client_of_whom_nobody_is_in_is_said(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = membership.Material.load

    def loaded(*given: Any) -> membership.Material:
        made = load(*given)
        monkeypatch.setattr(
            membership, "inclusions", lambda *rest: (made.holder != 1).astype(np.uint8)[None].repeat(5, axis=0)
        )
        return made

    monkeypatch.setattr(membership, "Material", type("Loaded", (), {"load": staticmethod(loaded)}))
    with pytest.raises(InputError, match=r"no coin put a respondent of client 2 of 3 into the training; use more"):
        ran(llama)


# What is recorded


@pytest.mark.parametrize("labels", ["server", "client"])
def test_outputs_are_likelihoods_token_by_token(llama: str, watch: list[Asked], labels: str) -> None:
    """One prompt, one answer, one forward pass at a time, through both halves by hand."""
    run = ran(llama, labels=labels)
    found = run.transcript.array("outputs/outcome")
    (asked,) = watch
    assert found.shape == (POOL + POPULATION, len(asked.options))
    for row in (0, 7, POOL, POOL + POPULATION - 1):
        for column, option in enumerate(asked.options):
            answer = asked.encoder.answer(option)
            assert found[row, column] == pytest.approx(by_hand(asked, asked.prompts[row], answer), abs=1e-4)


def by_hand(asked: Asked, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Log-likelihood of one answer: the log-softmax of each of its tokens behind all that stands before it."""
    client, server, entrance = asked.client, asked.server, asked.server.entrance
    tokens, before = torch.tensor([[*prompt, *answer]]), len(prompt)

    def layout(count: int) -> Layout:
        return Layout(torch.arange(count)[None], torch.zeros(1, count, dtype=torch.int64))

    def sent(part: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = client.trunk(client.projection(client.embed_tokens(part)), layout(part.shape[1]))
        return made

    with torch.inference_mode():
        if entrance is None:
            hidden, readout = sent(tokens), client.readout
        else:
            hidden = torch.cat([sent(tokens[:, :before]), entrance.embed_tokens(tokens[:, before:])], dim=1)
            readout = server.readout
        assert readout is not None
        said = torch.log_softmax(readout.logits(server.trunk(hidden, layout(tokens.shape[1]))[0]), dim=1)
    return sum(float(said[before - 1 + at, token]) for at, token in enumerate(answer))


def test_the_true_answers_and_the_codes_are_the_respondents_own(llama: str, members: TargetRun) -> None:
    """By the tokens that the same run would train on, and the survey that they were made of."""
    data_rng = stream(0, "run").spawn(3)[0]
    config = configured(llama, train=str(POOL))
    pool = membership.Material.load(config, data_rng)
    labels = members.transcript.array("outputs/outcome/labels")
    assert [pool.encoder.answer(pool.first.options[label]) for label in labels[:POOL]] == [
        item.label for item in pool.train
    ]
    assert np.array_equal(labels, members.secrets.array("labels/outcome"))
    told = members.secrets.array("inputs/questionnaire/codes")
    questions = pool.first.people.splits.train.inputs(pool.first.people.outcome)
    assert told.shape == (POOL + POPULATION, len(questions))
    test = pool.first.people.splits.test.answers
    for column, question in enumerate(questions):
        if question.answers:
            said = [None if code < 0 else question.answers[code] for code in told[POOL:, column]]
            assert said == test[question.column].tolist()


def test_codes_follow_the_scale_and_say_what_is_missing() -> None:
    told = pd.DataFrame({"a": ["often", None, "never"], "b": ["10", "9", None]}, dtype=object)
    questions = (Question("a", "a", "ordinal", ("never", "often")), Question("b", "b", "number"))
    assert membership.codes(told, questions).tolist() == [[1, 1], [-1, 0], [0, -1]]


@pytest.mark.parametrize("settings", [{}, {"k": "1"}, {"labels": "client"}], ids=str)
def test_a_tuned_clients_members_are_found_at_the_cut(llama: str, settings: Mapping[str, str]) -> None:
    """Distinct questionnaires, nothing in between: without an error, though the client moves."""
    run = ran(llama, **settings)
    assert len(set(whole(run, "asked")[:POOL])) == POOL
    assert matched(run) == 1


def test_noise_at_the_cut_hides_members(llama: str) -> None:
    """Next to noise of thirty times the table's entries nothing is left: within 4 standard errors of 1/2, as above."""
    areas = [matched(ran(llama, defense=f"activation-gaussian:clip=1,noise={noise}")) for noise in ("1", "30")]
    assert areas[0] > 0.95
    assert abs(areas[1] - 0.5) < 4 / np.sqrt(3 * POOL)


def test_what_was_received_comes_in_an_order_of_its_own(llama: str) -> None:
    """Or its place would tell the number of a record: rank correlations of ten runs, mean within 4 standard errors."""
    found = []
    for seed in range(10):
        run = ran(llama, seed=seed, **STILL, reference_steps="1")
        place = {row: number for number, row in enumerate(whole(run, "asked"))}
        numbers = [place[row] for row in whole(run, "received")]
        found.append(np.corrcoef(np.argsort(np.argsort(numbers)), np.arange(len(numbers)))[0, 1])
    assert abs(np.mean(found)) < 4 / np.sqrt(10 * (POOL / 2 - 1))


def test_only_the_first_pass_is_kept() -> None:
    """Of each client: what it sends after its first pass is not recorded."""
    layout = lay_out([[1, 2], [3]], [[()], [()]]).prompt.layout
    received = membership.Received("float32")
    for value in range(4):
        activations = torch.full((2, 2, 3), float(value))
        crossed = Exchange(torch.zeros(2), Cut(activations, layout), torch.zeros_like(activations))
        received.take(value % 2, (0, 1), crossed)
        received.end_pass(value % 2, value // 2)
    assert [row.shape for row in received.rows] == [(2, 3), (1, 3)] * 2
    assert [float(row.max()) for row in received.rows] == [0, 0, 1, 1]


# By the command line


def test_an_audit_by_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    """Scored, shown, verified; nothing could have failed: exit code 3."""
    settings = [part for key, value in ASKED.items() for part in ("--set", f"{key}={value}")]
    out = tmp_path / "out"
    given = ("audit", "--target", "split-llama", "--model", llama, *settings, "--attacks", "membership")
    done = command_line(*given, "--out", str(out))
    assert done.returncode == 3, done.stderr
    record = read(out)
    assert record.members == {"name": MEMBER, "candidates": POOL, "scored": 63, "references": 4, "blind": True}
    areas = {item.attack: item for item in record.findings if item.metric == "auc" and item.value is not None}
    by_whom = {name.partition("/")[2]: item.threat_model for name, item in areas.items()}
    outsider = dict.fromkeys(("lira", "lira-offline", "loss", "rmia"), "curious outsider")
    assert by_whom == {"cut-match": "curious server with the candidates", **outsider}
    assert areas["membership/cut-match"].value == 1
    refused = {item.attack.partition("/")[2]: item.reason for item in record.findings if item.value is None}
    elsewhere = {"drift", "embedding", "gradient-norm", "one-run", "trajectory"}
    assert set(refused) == {*elsewhere, "fedmia", "nasr", "update-cosine", "update-difference"}
    assert all(reason for reason in refused.values())
    said = (out / "audit.md").read_text(encoding="utf-8")
    assert "in a run of its own, of 18 steps or one pass, a fair coin put each of 72 records in or left it out" in said
    assert "stays" not in said.replace("the blind classifier stays at chance", "")
    assert command_line("verify", str(out)).returncode == 0


def test_verify_needs_the_coins_that_were_tossed(
    command_line: CommandLine, llama: str, members: TargetRun, tmp_path: Path
) -> None:
    """A recording of the members' run is audited alike; against other coins its record does not hold."""
    run = members
    for recording in (run.transcript, run.secrets):
        recording.save(tmp_path / recording.file_name())
    files = [f"--{kind}={tmp_path / f'{kind}.safetensors'}" for kind in ("transcript", "secrets")]
    done = command_line("audit", *files, "--attacks", "membership", "--out", str(tmp_path / "out"))
    assert done.returncode == 3, done.stderr
    found = {item.attack: item.value for item in read(tmp_path / "out").findings if item.metric == "auc"}
    assert found["membership/cut-match"] == 1
    secrets = str(tmp_path / Secrets.file_name())
    assert command_line("verify", str(tmp_path / "out"), f"--secrets={secrets}").returncode == 0
    turned = run.secrets.array(MEMBER).copy()
    turned[:POOL] = 1 - turned[:POOL]
    Secrets({**run.secrets.arrays, MEMBER: turned}).save(tmp_path / "other.safetensors")
    assert command_line("verify", str(tmp_path / "out"), f"--secrets={tmp_path / 'other.safetensors'}").returncode == 1


def test_where_clients_hold_the_labels_both_games_are_played(
    command_line: CommandLine, llama: str, tmp_path: Path
) -> None:
    """The outcome's coins in a run of their own beside one without, and the members' run; the record holds all. Who
    knows label coins knows nothing of members by them.
    """
    asked = {**ASKED, "labels": "client", "references": "4", "public": "10", "prior": "yes"}
    settings = [part for key, value in asked.items() for part in ("--set", f"{key}={value}")]
    out = tmp_path / "out"
    given = ("audit", "--target", "split-llama", "--model", llama, *settings, "--attacks", "membership,label")
    done = command_line(*given, "--out", str(out))
    assert done.returncode in (0, 1, 3), done.stderr
    record = read(out)
    assert record.secret is not None
    assert record.members is not None
    assert record.utility
    areas = {item.attack: item.value for item in record.findings if item.metric == "auc"}
    assert areas["membership/cut-match"] == 1
    assert areas["membership/embedding"] is None
    assert (record.inputs or {})["prior"] is True
    assert not any("was not computed" in note for note in record.notes)
    assert any("most frequent answers in training" in note for note in record.notes)
    assert command_line("verify", str(out)).returncode == 0


def removed(attack: str) -> Edit:
    """An attack was not run, it is said, and nothing is left of it."""

    def edit(data: Data, scores: Arrays) -> None:
        own = next(item for item in data["findings"] if item["attack"] == attack)
        blank = dict.fromkeys(("value", "low", "high", "level", "n", "canaries", "baseline", "chance", "strength"))
        said = {
            **own,
            **blank,
            "verdict": "NOT_APPLICABLE",
            "reason": "no models",
            "controls": {"positive": None, "negative": None},
        }
        data["findings"] = [item for item in data["findings"] if item["attack"] != attack] + [said]
        data["planned"] = [item["id"] for item in data["findings"]]
        for name in [name for name in scores if attack in name]:
            del scores[name]

    return edit


def test_an_attack_that_needs_few_models_cannot_be_left_out(llama: str, registry: Registry, tmp_path: Path) -> None:
    """With two references LiRA has too few; the match at the cut needs none, the loss none, RMIA two."""
    settings = {**ASKED, "references": "2"}
    record = made(tmp_path / "r", registry, "split-llama", model=llama, settings=settings, attacks=("membership",))
    assert verify(record, registry) == ()
    for name in ("cut-match", "loss", "rmia"):
        attack = f"membership/{name}"
        found = verify(forge(record, tmp_path / name, removed(attack), registry), registry)
        assert any(line.startswith(f"{attack}: NOT_APPLICABLE, though") for line in found), (name, found)
    fewer = forge(record, tmp_path / "f", lambda data, scores: data["members"].update(references=0), registry)
    assert any("members/references" in line for line in verify(fewer, registry))


def test_too_few_candidates_are_said_before_anything_is_tuned(llama: str) -> None:
    with pytest.raises(InputError, match=r"a coin put \d+ of 24 candidates into the training; at least 20 must be in"):
        ran(llama, MEMBERS, train="12", clients="1")

"""Federated averaging as a target: beside the split run, what is recorded and said, and audits by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CommandLine
from small_llama import SETTINGS, save_llama

from privbench.conformance import TargetSubject, check_target, require
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.registry import Registry, default_registry
from privbench.runner import prepare, run_audit
from privbench.seeds import stream
from privbench.target import MEMBERS, REFERENCE, TargetRun
from privbench.targets.fedavg import running
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.membership import UNTRAINED
from privbench.targets.fedavg.rounds import Whole
from privbench.targets.fedavg.target import FedAvg
from privbench.targets.split_llama import running as split_running
from privbench.targets.split_llama.system import System
from privbench.targets.split_llama.target import SplitLlama

SHARED = {key: value for key, value in SETTINGS.items() if key not in ("steps", "record")}
SMALL: Mapping[str, str] = {**SHARED, "rounds": "3", "local_steps": "2", "prompting": "no"}
ASKED: Mapping[str, str] = {**SMALL, "members": "yes", "references": "4", "reference_rounds": "3", "asked": "2"}
POOL, POPULATION = 72, 12
SMALL_ARRAYS = ("public/form/", "public/vocabulary", "read/drawn", "read/matches/")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def options(llama: str, base: Mapping[str, str] = SMALL, seed: int = 0, **settings: str) -> AuditOptions:
    return AuditOptions("fedavg", model=llama, seed=seed, settings={**base, **settings})


def configured(llama: str, base: Mapping[str, str] = SMALL, seed: int = 0, **settings: str) -> FedConfig:
    return FedAvg().configure(options(llama, base, seed, **settings), default_registry())


def ran(
    llama: str, role: str = "audited", folder: Path | None = None, base: Mapping[str, str] = SMALL, **settings: str
) -> TargetRun:
    return FedAvg().run(configured(llama, base, **settings).as_role(role), stream(0, "run"), folder=folder)


# Beside the split run


def test_it_starts_where_the_split_run_of_the_same_seed_starts(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same respondents at the same clients, the same weights, and the same first batches."""
    systems: list[System] = []
    models: list[Whole] = []
    build, whole = System.build, Whole.__init__

    def built(*given: Any) -> System:
        systems.append(build(*given))
        return systems[-1]

    def kept(self: Whole, *given: Any) -> None:
        whole(self, *given)
        models.append(self)

    monkeypatch.setattr(split_running, "System", type("Kept", (), {"build": staticmethod(built)}))
    monkeypatch.setattr(Whole, "__init__", kept)
    shards: list[Any] = []
    made = running.shards_of
    monkeypatch.setattr(running, "shards_of", lambda *given: shards.append(made(*given)) or shards[-1])
    still = {"rate": "1e-30"}
    split = SplitLlama().configure(
        AuditOptions("split-llama", model=llama, settings={**SETTINGS, **still, "prompting": "no"}), default_registry()
    )
    there, here = SplitLlama().run(split, stream(0, "run")), ran(llama, **still)
    assert here.fingerprint == there.fingerprint
    assert shards[0] == systems[0].shards
    ours, theirs = dict(models[0].named_parameters()), Whole(systems[0].clients[0], systems[0].server)
    assert all(torch.allclose(ours[name], values, rtol=0, atol=1e-20) for name, values in theirs.named_parameters())
    names = ("task", "metric", "n", "baseline", "references")
    assert [[getattr(item, name) for name in names] for item in here.utility] == [
        [getattr(item, name) for name in names] for item in there.utility
    ]
    first = np.mean(there.diagnostics["loss"][:3] + there.diagnostics["loss"][3:6])  # two batches of each client
    assert here.diagnostics["loss"][0] == pytest.approx(first, rel=1e-5)


def test_as_many_batches_as_the_split_run_by_default() -> None:
    fed = FedAvg().configure(AuditOptions("fedavg"), default_registry()).tuning
    split = SplitLlama().configure(AuditOptions("split-llama"), default_registry()).tuning
    assert fed.clients * fed.rounds * fed.local_steps == split.steps == 400
    assert (fed.batch, fed.rate, fed.client_rate, fed.clip) == (split.batch, split.rate, split.client_rate, split.clip)
    full = FedAvg().configure(AuditOptions("fedavg", model="path:/x"), default_registry()).tuning
    assert full.clients * full.rounds * full.local_steps == 60
    assert full.members == "no"


# Options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"settings": {"stpes": "3"}}, "unknown setting of target fedavg 'stpes'"),
        ({"settings": {"k": "1"}}, "unknown setting of target fedavg 'k'"),
        ({"settings": {"local_steps": "0"}}, "local_steps must be a positive number, got 0"),
        ({"eps": 1.0}, "--eps 1 needs a defence whose noise it sets: --defense dp-sgd or update-gaussian"),
        ({"sigma": 1.0}, "fedavg's defences have noise of their own: leave --sigma and --noise-multiplier out"),
        (
            {"defenses": ("activation-clip",)},
            "defence activation-clip acts on activations, which target fedavg has no place for; it takes dp-sgd, "
            "quantisation, secure-aggregation, top-k, update-gaussian",
        ),
        ({"party": "sever"}, "unknown party 'sever'; did you mean server"),
        ({"data": "sythetic"}, "unknown data of target fedavg 'sythetic'; did you mean synthetic"),
    ],
)
def test_options_that_are_refused(llama: str, given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FedAvg().configure(AuditOptions("fedavg", model=llama, **given), default_registry())


def test_its_roles_and_adversaries(llama: str) -> None:
    target, asked, silent = FedAvg(), configured(llama, ASKED), configured(llama)
    assert list(target.roles(asked)) == ["audited", MEMBERS, *(f"{REFERENCE}{number}" for number in range(1, 5))]
    assert list(target.roles(silent)) == ["audited"]
    holding = "curious server with the candidates"
    labels = ["curious server", "curious outsider", holding, f"{holding} told of some members"]
    assert [threat.label for threat in target.threats(asked)] == labels
    assert [threat.label for threat in target.threats(silent)] == labels[:1]
    inputs = {"inputs": {"prior": True}}
    members = {"candidates": POOL, "references": 4, "blind": True, "claim": None}
    assert target.held(asked) == inputs | {"members": members}
    assert target.held(silent) == inputs
    assert target.epsilons(asked) == ()


@pytest.mark.parametrize(
    "changed", [{"rounds": "4"}, {"drop": "0.1"}, {"fraction": "0.5"}, {"reference_rounds": "4"}], ids=str
)
def test_what_changes_a_run_changes_its_cell(registry: Registry, llama: str, changed: Mapping[str, str]) -> None:
    assert prepare(options(llama, ASKED), registry).cell != prepare(options(llama, ASKED, **changed), registry).cell


# Runs


def test_it_passes_the_public_checks(llama: str) -> None:
    require(check_target(TargetSubject(FedAvg, options(llama, fraction="0.7", drop="0.2"))))


@pytest.mark.parametrize("settings", [{}, {"train_head": "yes", "rounds": "6", "clients": "4"}], ids=str)
def test_the_disk_is_as_announced(llama: str, tmp_path: Path, settings: Mapping[str, str]) -> None:
    run = ran(llama, folder=tmp_path, **settings)
    said = FedAvg().disk_bytes(configured(llama, **settings))
    assert run.transcript.array("public/global").nbytes * 3 < said
    small = sum(array.nbytes for name, array in run.transcript.arrays.items() if name.startswith(SMALL_ARRAYS))
    assert small < 2**17
    assert (tmp_path / Transcript.file_name()).stat().st_size - small - 2**16 == pytest.approx(said, rel=0.05)


def test_what_is_recorded(llama: str) -> None:
    run = ran(llama, drop="2@2")
    size = len(run.transcript.array("public/global"))
    for client in ("client-1", "client-2", "client-3"):
        assert run.transcript.array(f"updates/{client}").shape == (3, size)
    assert run.transcript.array("updates/client-2/mask").tolist() == [1, 0, 1]
    assert run.transcript.metadata["samples"] == {"client-1": 12, "client-2": 12, "client-3": 12}
    assert run.transcript.metadata["missed"] == {"client-2": {"dropped out": [2]}}
    assert "client-2 in round 2. The rounds went on with the others." in run.notes[-1]
    assert run.diagnostics["taken"] == (3, 2, 3)
    assert run.transcript.array("updates/client-1/shown").tolist() == [8, 0, 0]
    assert len(run.secrets.array("labels/outcome")) == len(run.secrets.array("inputs/client-1")) == 8


def test_nobody_is_asked_about_twice(llama: str) -> None:
    """Twelve respondents in batches of four: a pass is three rounds of one step. Who drops out of one has made none."""
    run = ran(llama, local_steps="1", rounds="5")
    assert run.transcript.array("updates/client-1/shown").tolist() == [4, 4, 4, 0, 0]
    dropped = ran(llama, local_steps="1", rounds="5", drop="1@1")
    assert dropped.transcript.array("updates/client-1/shown").tolist() == [0, 4, 4, 4, 0]
    assert len(np.unique(run.secrets.array("inputs/client-1"), axis=0)) == 12


def test_who_never_sends_cannot_be_read(llama: str) -> None:
    """Known before training where it is named in every round; by chance it is known when the run is over."""
    with pytest.raises(InputError, match="client-1, whose respondents are to be read, would send no update in any"):
        configured(llama, drop="1@3:1@1:2@1:1@2")
    assert configured(llama, drop="1@1:1@2:2@3").tuning.drop == "1@1:1@2:2@3"
    with pytest.raises(InputError, match="client-1, whose respondents are to be read, sent no update in any round"):
        ran(llama, rounds="1", drop="0.999999999")


def test_of_sums_all_who_hold_the_survey_must_never_send(llama: str) -> None:
    """Clients 1 and 3 hold the first of two surveys; without sums the first client alone is read."""
    several = {**SMALL, "schema": "moderate", "clients": "4", "rounds": "1"}
    for defenses, drop, message in (
        ((), "1@1", "client-1, whose"),
        (("secure-aggregation",), "1@1:3@1", "client-1, client-3, whose"),
    ):
        asked = AuditOptions("fedavg", model=llama, defenses=defenses, settings={**several, "drop": drop})
        with pytest.raises(InputError, match=message):
            FedAvg().configure(asked, default_registry())
    one = AuditOptions("fedavg", model=llama, defenses=("secure-aggregation",), settings={**several, "drop": "1@1"})
    assert FedAvg().configure(one, default_registry()).tuning.drop == "1@1"


def test_clients_of_one_mind_are_said(llama: str) -> None:
    """Three respondents at a client: in some seed all of one agree, and every such client is named."""
    found = 0
    for seed in range(6):
        config = configured(llama, seed=seed, clients="12", local_steps="1", rounds="1")
        run = FedAvg().run(config, stream(seed, "run"))
        said = [note for note in run.notes if "gave the same answer" in note]
        found += len(said)
        assert all(note.startswith("All 3 respondents of client-") for note in said)
    assert found > 0


def test_it_learns(llama: str) -> None:
    losses = ran(llama, rounds="12", local_steps="4", rate="0.02", train_head="yes").diagnostics["loss"]
    assert losses[-1] < 0.5 * losses[0]


# Membership


@pytest.fixture(scope="module")
def members(llama: str) -> TargetRun:
    return ran(llama, MEMBERS, base=ASKED)


def test_what_is_recorded_about_membership(members: TargetRun) -> None:
    """A few numbers for a candidate, a client, a block and a round, and no update."""
    shapes = {name: array.shape for name, array in members.transcript.arrays.items()}
    everybody = POOL + POPULATION
    assert shapes.pop("asked/losses") == (2, everybody)
    for part in ("", "/embed_tokens", "/projection", "/layer-0"):
        assert shapes.pop(f"asked/squares{part}") == (2, everybody)
        for client in ("client-1", "client-2", "client-3"):
            assert shapes.pop(f"asked/products/{client}{part}") == (2, everybody)
            assert shapes.pop(f"updates/{client}/squares{part}") == (2,)
    for client in ("client-1", "client-2", "client-3"):
        assert shapes.pop(f"updates/{client}/mask") == (2,)
    assert set(shapes) == {"outputs/outcome", "outputs/outcome/labels", "outputs/population"}
    assert not members.transcript.array("asked/squares")[:, POOL:].any()
    assert (members.transcript.array("asked/squares")[:, :POOL] > 0).all()
    assert set(members.secrets.arrays) == {
        MEMBER, f"canary/{MEMBER}", "labels/outcome", "inputs/questionnaire/codes"
    }  # fmt: skip


def test_everybody_is_trained_on_however_few_rounds_there_are(llama: str, members: TargetRun) -> None:
    """Twelve respondents of a client in batches of four, two to a round: two rounds at the least."""
    short = ran(llama, MEMBERS, base=ASKED, reference_rounds="1")
    assert len(short.diagnostics["loss"]) >= 2
    assert (members.flags, short.flags) == ((), ())


def test_members_that_no_update_was_trained_on_are_flagged(llama: str) -> None:
    missing = {"rounds": "4", "drop": "1@1:1@2:1@3"}  # of the audited run, the fourth is left
    run = ran(llama, MEMBERS, base=ASKED, **missing)
    assert run.flags == (UNTRAINED,)
    assert not run.transcript.array("updates/client-1/mask").any()
    assert ran(llama, f"{REFERENCE}1", base=ASKED, **missing).flags == ()


def test_a_reference_holds_no_answers_and_no_updates(llama: str) -> None:
    run = ran(llama, f"{REFERENCE}1", base=ASKED)
    assert set(run.transcript.arrays) == {"outputs/outcome", "outputs/population"}
    assert set(run.secrets.arrays) == {MEMBER}


# By the command line


def arguments(llama: str, base: Mapping[str, str], *more: str) -> list[str]:
    settings = [part for key, value in base.items() for part in ("--set", f"{key}={value}")]
    return ["audit", "--target", "fedavg", "--model", llama, *settings, *more]


def test_an_audit_by_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    """Shown, verified, gated; nothing could have failed: exit code 3. A recording of the members' run alone says the
    same of them.
    """
    out = tmp_path / "out"
    done = command_line(*arguments(llama, {**ASKED, "drop": "3@1"}, "--out", str(out)))
    assert done.returncode == 3, done.stderr
    record = read(out)
    areas = {item.attack: item for item in record.findings if item.metric == "auc" and item.value is not None}
    by_whom = {name.partition("/")[2]: item.threat_model for name, item in areas.items()}
    holding = "curious server with the candidates"
    server = dict.fromkeys(("fedmia", "update-cosine", "update-difference"), holding)
    server["nasr"] = f"{holding} told of some members"
    assert by_whom == server | dict.fromkeys(("lira", "lira-offline", "loss", "rmia"), "curious outsider")
    assert all(item.reason for item in record.findings if item.value is None)
    assert record.members == {"name": MEMBER, "candidates": POOL, "scored": 63, "references": 4, "blind": True}
    assert record.utility
    assert any("client-3 in round 1" in note for note in record.notes)
    said = (out / "audit.md").read_text(encoding="utf-8")
    assert "in a run of its own, of 3 rounds or one pass, a fair coin put each of 72 records in or left it out" in said
    assert "3 rounds of 2 steps at each of 3 clients" in said
    assert command_line("verify", str(out)).returncode == 0
    assert command_line("gate", str(out)).returncode == 3
    assert llama.removeprefix("path:") not in (out / "audit.json").read_text(encoding="utf-8")
    run = ran(llama, MEMBERS, base=ASKED, drop="3@1")
    for recording in (run.transcript, run.secrets):
        recording.save(tmp_path / recording.file_name())
    files = [f"--{kind.kind}={tmp_path / kind.file_name()}" for kind in (Transcript, Secrets)]
    assert command_line("audit", *files, "--attacks", "membership", "--out", "recorded").returncode == 3
    again = {item.attack: item.value for item in read(Path("recorded")).findings if item.metric == "auc"}
    for name in ("fedmia", "nasr", "update-cosine", "update-difference", "loss"):
        assert again[f"membership/{name}"] == areas[f"membership/{name}"].value


def test_answers_are_read_from_a_recording_as_from_the_run(
    command_line: CommandLine, registry: Registry, llama: str, tmp_path: Path
) -> None:
    """One respondent a round: what the template does not hold is read. By the files alone, too."""
    one = {**SMALL, "batch": "1", "local_steps": "1", "rounds": "12", "forms": "30"}
    given = replace(options(llama, one), attacks=("inversion", "label/update-counts"))
    found = run_audit(given, registry).audit
    values = {item.id: item.value for item in found.findings if item.value is not None}
    assert {item.attack for item in found.findings if item.value is not None} == {
        "inversion/embedding-columns", "inversion/span", "inversion/update-match", "label/update-counts"
    }  # fmt: skip
    assert found.inputs is not None
    assert found.inputs["records"] == 12
    assert found.inputs["strongest"] in {"inversion/embedding-columns", "inversion/update-match"}
    read_of = {item["text"]: item["read"] for item in found.inputs["by_question"]}
    assert read_of["age"] > 0.25
    counts = next(item for item in found.findings if item.attack == "label/update-counts")
    assert (counts.metric, counts.n) == ("count-accuracy", 12)
    assert counts.value is not None
    assert counts.value > (counts.baseline or 0)
    for recording in (run := FedAvg().run(configured(llama, one), stream(0, "run"))).transcript, run.secrets:
        recording.save(tmp_path / recording.file_name())
    files = [f"--{kind.kind}={tmp_path / kind.file_name()}" for kind in (Transcript, Secrets)]
    attacks = "--attacks", "inversion,label/update-counts"
    done = command_line("audit", *files, *attacks, "--out", "recorded", "--exit-zero")
    assert done.returncode == 0, done.stderr
    again = read(Path("recorded"))
    assert [threat["label"] for threat in again.threats] == ["curious server"]
    assert {item.id: item.value for item in again.findings if item.value is not None} == values
    assert command_line("verify", "recorded").returncode == 0


def test_exit_codes_of_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    looked = command_line(*arguments(llama, SMALL, "--out", out, "--exit-zero"))
    assert looked.returncode == 0, looked.stderr
    assert command_line("verify", out).returncode == 0
    cases = {
        ("clients=0",): "clients must be a positive number, got 0.",
        ("clients=40",): "clients = 40, train = 36: each client needs a respondent",
        ("share=3:0:1",): "share 3:0:1: 3 clients need 3 positive numbers.",
        ("share=nan:1:1",): "share",
        ("share=1:1",): "share 1:1: 3 clients need 3 positive numbers.",
        ("drop=1@1:1@2:1@3",): "client-1, whose respondents are to be read, would send no update in any round",
        ("outcome=zzz",): "unknown outcome 'zzz'",
        ("local_steps=0",): "local_steps must be a positive number, got 0.",
        ("drop=4@1",): "drop 4@1: give a number from 0 to below 1, or client@round",
        ("members=yes", "train=40", "clients=20"): "membership: no coin put a respondent of client",
    }
    for more, message in cases.items():
        given = {**SMALL, **dict(item.split("=", 1) for item in more)}
        done = command_line(*arguments(llama, given, "--out", str(tmp_path / "refused")))
        assert done.returncode == 2, (more, done.stderr)
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2
        assert not (tmp_path / "refused").exists()

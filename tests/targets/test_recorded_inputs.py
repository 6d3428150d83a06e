"""Recordings of token inputs without any coin: what a curious server reads of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandLine

from privbench.conformance.inversions import VICTIM, token_stand
from privbench.gate import gate
from privbench.options import AuditOptions, RecordingFiles
from privbench.record import Audit, read
from privbench.recording import Oracle, Secrets, Transcript
from privbench.registry import Registry
from privbench.runner import run_audit
from privbench.targets.recorded.target import Recorded
from privbench.tensors import RELEASE_TYPES

Arrays = dict[str, Any]
CLAIM = {"eps": 3.0, "delta": 1e-5, "for": "outsider", "neighbours": "add-remove", "accountant": "rdp"}


def recorded(
    folder: Path,
    edit: Callable[[Arrays, Arrays], None] = lambda sent, hidden: None,
    kind: str = "float32",
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Token activations of a client over two releases, the public table, and what the client put in."""
    here = token_stand(0, 1.5, releases=2, upward=False)
    sent: Arrays = {
        name: np.asarray(array) if name.endswith(("mask", "tokens")) else np.asarray(array).astype(RELEASE_TYPES[kind])
        for name, array in here.transcript.arrays.items()
    }
    hidden: Arrays = {f"inputs/{VICTIM}": here.truth.tokens, f"inputs/{VICTIM}/answers": here.truth.answers}
    edit(sent, hidden)
    folder.mkdir(exist_ok=True)
    Transcript(sent, metadata or {}).save(folder / Transcript.file_name())
    Secrets(hidden).save(folder / Secrets.file_name())
    return folder


def audit(folder: Path, registry: Registry) -> Audit:
    files = RecordingFiles(folder / Transcript.file_name(), folder / Secrets.file_name())
    return run_audit(AuditOptions("recorded", recording=files), registry).audit


def arguments(folder: Path, *more: str) -> list[str]:
    files = [f"--{kind.kind}={folder / kind.file_name()}" for kind in (Transcript, Secrets)]
    return ["audit", *files, "--out", "out", *more]


@pytest.mark.parametrize("kind", RELEASE_TYPES)
def test_a_curious_server_reads_what_was_put_in(registry: Registry, tmp_path: Path, kind: str) -> None:
    found = audit(recorded(tmp_path / "files", kind=kind), registry)
    assert [threat["label"] for threat in found.threats] == ["curious server"]
    assert found.secret is None
    inputs = dict(found.inputs or {})
    assert inputs.pop("drift") == pytest.approx([1.5, 1.5], rel=0.1)  # the noise, in the rows' own scale
    assert len(inputs.pop("by_question")) == 5
    assert inputs.pop("strongest") in {item.attack for item in found.findings if item.metric == "answer-accuracy"}
    said = {"name": f"input/{VICTIM}", "records": 150, "questions": 5, "releases": 2}
    said |= {"prior": False, "without_cut": {}}
    assert inputs == {**said, "shown": None, "examples": []}  # nobody knows whose they are
    read_of = {item.id: item for item in found.findings if item.attack == "inversion/nearest-token"}
    assert {str(item.verdict) for item in read_of.values()} == {"UNCOVERED"}
    one, two = (read_of[f"inversion/nearest-token/input/{VICTIM}/{t}/token-accuracy/none"].value for t in (1, 2))
    assert one is not None
    assert two is not None
    assert 0.5 < one < two  # noise of 1.5 times the table's scale, averaged over two releases
    others = [item for item in found.findings if not item.attack.endswith(("-token", "/relaxation"))]
    assert {str(item.verdict) for item in others} == {"NOT_APPLICABLE"}
    assert {item.reason for item in others} == {
        "needs the channel gradients, which curious server does not see",
        "needs the channel updates, which curious server does not see",
        "no record of this run carries a label coin",
        "no party's inputs were recorded as numbers in this run",
        "no run of this audit put records into the training by coins",
    }
    assert gate(found).code == 3


def test_it_needs_no_name_of_the_server(command_line: CommandLine, tmp_path: Path) -> None:
    files = recorded(tmp_path / "files")
    assert command_line(*arguments(files, "--party", "server", "--exit-zero", "--quiet")).returncode == 0
    named = [(item.id, item.value, item.party) for item in read(tmp_path / "out").findings]
    assert command_line(*arguments(files, "--exit-zero", "--quiet")).returncode == 0
    assert [(item.id, item.value, item.party) for item in read(tmp_path / "out").findings] == named
    done = command_line("verify", "out", f"--secrets={files / Secrets.file_name()}")
    assert done.returncode == 0, done.stdout


def test_claims_stand_beside_what_is_read(registry: Registry, tmp_path: Path) -> None:
    """As recorded, over the releases of the activations; of a mechanism on gradients there is nothing to say."""
    noise = {"channel": "activations", "party": VICTIM, "kind": "gaussian", "clip": 1.0, "sigma": {"answers": 1.5}}
    files = recorded(tmp_path / "files", metadata={"claims": [CLAIM], "mechanisms": [noise]})
    found = audit(files, registry)
    assert [(item["name"], item["value"], item["releases"]) for item in found.epsilons] == [
        ("claimed, outsider", 3.0, 2)
    ]
    assert audit(recorded(tmp_path / "bare"), registry).epsilons == []


def without(*names: str) -> Callable[[Arrays, Arrays], None]:
    def act(sent: Arrays, hidden: Arrays) -> None:
        for name in names:
            (sent if name in sent else hidden).pop(name)

    return act


def shorter(sent: Arrays, hidden: Arrays) -> None:
    hidden.update({name: array[:, :-1].copy() for name, array in hidden.items()})


def fewer(sent: Arrays, hidden: Arrays) -> None:
    hidden.update({name: array[:-1].copy() for name, array in hidden.items()})


def another_client(sent: Arrays, hidden: Arrays) -> None:
    for name in list(hidden):
        hidden[name.replace(VICTIM, "client-9")] = hidden.pop(name)


def alike(sent: Arrays, hidden: Arrays) -> None:
    sent["public/labels/joint"] = np.array([[1, 2], [1, 2]])


def another_layer(sent: Arrays, hidden: Arrays) -> None:
    sent["public/trunk/3000000.x"] = np.ones(3, np.float32)


def unsent(sent: Arrays, hidden: Arrays) -> None:
    answers = hidden[f"inputs/{VICTIM}/answers"]
    record, place = np.argwhere(answers >= 0)[7]
    sent[f"activations/{VICTIM}/mask"] = np.ones(answers.shape, np.uint8)
    sent[f"activations/{VICTIM}/mask"][record, place] = 0


def last_row(sent: Arrays, hidden: Arrays) -> None:
    hidden[f"inputs/{VICTIM}"][3, 2] = len(sent["public/embedding"]) - 1


def without_a_row(sent: Arrays, hidden: Arrays) -> None:
    hidden[f"inputs/{VICTIM}"][3, 2] = len(sent["public/embedding"])


@pytest.mark.parametrize(
    ("edit", "more", "said"),
    [
        (
            without_a_row,
            (),
            "has token 300 at place 2 of record 3; 'public/embedding' in transcript.safetensors has 300",
        ),
        (unsent, (), f"'activations/{VICTIM}/mask' says that nothing was sent there"),
        (without(f"inputs/{VICTIM}/answers"), (), "secrets.safetensors marks no canaries and no answers"),
        (
            without(f"activations/{VICTIM}", f"activations/{VICTIM}/mask"),
            (),
            f"transcript.safetensors holds no 'activations/{VICTIM}' or 'updates/{VICTIM}/shown', from which "
            f"'inputs/{VICTIM}' in secrets.safetensors could be read",
        ),
        (another_client, (), "transcript.safetensors holds no 'activations/client-9'"),
        (shorter, (), f"'activations/{VICTIM}' has [150, 30] records and tokens, 'inputs/{VICTIM}'"),
        (fewer, (), f"'inputs/{VICTIM}' in secrets.safetensors has [149, 30]; they must be the same"),
        (alike, (), "'public/labels/joint' holds the tokens of label 1 twice"),
        (another_layer, (), "'public/trunk/3000000.x' is no parameter of LLaMA layers"),
        (lambda sent, hidden: None, ("--party", "A"), "unknown party 'A'; known: server"),
    ],
)
def test_what_cannot_be_audited_is_one_line(
    command_line: CommandLine,
    tmp_path: Path,
    edit: Callable[[Arrays, Arrays], None],
    more: tuple[str, ...],
    said: str,
) -> None:
    done = command_line(*arguments(recorded(tmp_path / "files", edit), *more))
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("edit", [last_row, without("public/embedding")])
def test_tokens_up_to_the_last_row_are_read(
    tmp_path: Path, registry: Registry, edit: Callable[[Arrays, Arrays], None]
) -> None:
    """And any where no table is recorded: nothing says then what tokens there are."""
    folder = recorded(tmp_path / "files", edit)
    files = RecordingFiles(folder / Transcript.file_name(), folder / Secrets.file_name())
    assert Recorded().configure(AuditOptions("recorded", recording=files), registry).secrets.given == (VICTIM,)


def test_an_answer_to_a_question_that_was_not_asked_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    asked = {"questions": {VICTIM: ["Age", "Sleep", "Work", "Mood"]}}
    done = command_line(*arguments(recorded(tmp_path / "files", metadata=asked)))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "has an answer to question 4; 'questions' in the metadata of transcript.safetensors names 4" in done.stderr


def test_an_oracle_of_gradients_that_are_not_there_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    files, oracle = recorded(tmp_path / "files"), tmp_path / Oracle.file_name()
    Oracle({"oracle/gradients/A/clean": np.ones((2, 150, 4), np.float32)}).save(oracle)
    done = command_line(*arguments(files, f"--oracle={oracle}"))
    assert done.returncode == 2
    assert "is about party 'A', to which no gradients were recorded" in done.stderr

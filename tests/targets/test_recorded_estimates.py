"""Recordings of a site's numbers: who estimates them, and what is refused before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandLine
from safetensors.numpy import save_file

from privbench.errors import InputError
from privbench.estimates import victim_of
from privbench.options import AuditOptions, RecordingFiles
from privbench.record import Finding, read
from privbench.recording import Secrets, Transcript
from privbench.registry import default_registry
from privbench.runner import run_audit

Arrays = dict[str, Any]
Edit = Callable[[Arrays, Arrays], None]

RECORDS, KNOWN, HOURS, INPUTS, WIDTH = 120, 60, 2, 3, 8
TOLD = "auxiliary/server/inputs/A"


def drawn() -> tuple[Arrays, Arrays]:
    """Transcript and secrets: a linear cut of site A, whose encoder is recorded; B sends nothing."""
    rng = np.random.default_rng(0)
    inputs = {site: rng.standard_normal((RECORDS, HOURS, INPUTS)).astype(np.float32) for site in "AB"}
    weight, bias = rng.standard_normal((WIDTH, HOURS * INPUTS)), rng.standard_normal(WIDTH)
    sent = inputs["A"].reshape(RECORDS, -1) @ weight.T + bias + 0.1 * rng.standard_normal((RECORDS, WIDTH))
    labels = (inputs["A"][:, 0] > 0).astype(np.int64)
    transcript = {
        "activations/A": sent[None].astype(np.float32),
        "auxiliary/index": np.arange(KNOWN),
        TOLD: inputs["A"][:KNOWN],
        f"{TOLD}/observed": np.ones((KNOWN, HOURS, INPUTS), np.uint8),
        "model/A/weight": weight.astype(np.float32),
        "model/A/bias": bias.astype(np.float32),
        "outputs/outcome": rng.standard_normal((RECORDS, INPUTS)).astype(np.float32),
        "outputs/outcome/labels": labels,
    }
    secrets = {"inputs/A": inputs["A"], "inputs/A/observed": np.ones(inputs["A"].shape, np.uint8)}
    return transcript, {**secrets, "inputs/B": inputs["B"]}


def recorded(folder: Path, edit: Edit = lambda sent, hidden: None) -> Path:
    sent, hidden = drawn()
    edit(sent, hidden)
    folder.mkdir(exist_ok=True)
    for kind, arrays in ((Transcript, sent), (Secrets, hidden)):
        written = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(written, folder / kind.file_name(), {"privbench": json.dumps({"schema": kind.schema()})})
    return folder


def audited(folder: Path, *attacks: str) -> dict[str, Finding]:
    """The R2 of each attack by name."""
    files = RecordingFiles(folder / Transcript.file_name(), folder / Secrets.file_name())
    options = AuditOptions("recorded", recording=files, attacks=tuple(f"inversion/{name}" for name in attacks))
    return {
        item.attack.removeprefix("inversion/"): item
        for item in run_audit(options, default_registry()).audit.findings
        if item.metric == "r2"
    }


def put(name: str, array: Any, hidden: bool = False) -> Edit:
    def act(sent: Arrays, secrets: Arrays) -> None:
        (secrets if hidden else sent)[name] = array

    return act


def without(*names: str) -> Edit:
    def act(sent: Arrays, secrets: Arrays) -> None:
        for name in names:
            del (sent if name in sent else secrets)[name]

    return act


def both(*edits: Edit) -> Edit:
    def act(sent: Arrays, secrets: Arrays) -> None:
        for edit in edits:
            edit(sent, secrets)

    return act


# Who estimates


def test_who_holds_the_encoder_estimates_with_it(tmp_path: Path) -> None:
    """A recorded encoder belongs to a server that holds it; without one there is no such server."""
    found = audited(recorded(tmp_path / "files"), "ridge", "optimise", "fsha")
    assert {name: item.threat_model for name, item in found.items()} == {
        "ridge": "curious server",
        "optimise": "curious server with the model",
        "fsha": "curious server",
    }
    assert found["optimise"].value is not None
    assert found["optimise"].value > 0.95
    assert found["fsha"].verdict == "NOT_APPLICABLE"
    bare = audited(recorded(tmp_path / "bare", without("model/A/weight", "model/A/bias")), "optimise")
    assert (bare["optimise"].threat_model, str(bare["optimise"].verdict)) == ("curious server", "NOT_APPLICABLE")


def test_what_an_adversary_kept_is_read_by_its_attack(tmp_path: Path) -> None:
    files = recorded(tmp_path / "files", put("adversary/steered", np.ones(1, np.float32)))
    found = audited(files, "ridge", "fsha")
    assert {name: item.threat_model for name, item in found.items()} == {
        "ridge": "curious server",
        "fsha": "malicious server",
    }
    assert found["fsha"].value is not None


def test_a_record_of_all_three_adversaries_verifies(command_line: CommandLine, tmp_path: Path) -> None:
    files = recorded(tmp_path / "files", put("adversary/steered", np.ones(1, np.float32)))
    asked = "inversion/ridge,inversion/optimise,inversion/fsha"
    done = command_line(*arguments(files), "--attacks", asked, "--out", "out", "--exit-zero", "--quiet")
    assert done.returncode == 0, done.stderr
    labels = [threat["label"] for threat in read(tmp_path / "out").threats]
    assert labels == ["curious server", "curious server with the model", "malicious server"]
    done = command_line("verify", "out", f"--secrets={files / Secrets.file_name()}")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("sent", "victim"), [(("A", "B"), "A"), (("B",), "B"), (("C",), "A"), ((), "A")], ids=str)
def test_the_victim_is_the_first_site_that_sent_something(sent: tuple[str, ...], victim: str) -> None:
    arrays = {f"activations/{site}": np.ones((1, 4, 2), np.float32) for site in sent}
    hidden = Secrets({f"inputs/{site}": np.ones((4, 3), np.float32) for site in "BA"})
    assert victim_of(hidden, Transcript(arrays or {"outputs/outcome": np.ones((4, 1), np.float32)})) == victim


def test_without_numbers_there_is_no_victim() -> None:
    tokens = Secrets({"inputs/A": np.ones((4, 3), np.int64)})
    with pytest.raises(InputError, match=r"secrets holds no inputs that are numbers, inputs/SITE \[N, ..., F\]"):
        victim_of(tokens, Transcript({"activations/A": np.ones((1, 4, 2), np.float32)}))


# What is refused


def arguments(folder: Path) -> list[str]:
    return ["audit", *(f"--{kind.kind}={folder / kind.file_name()}" for kind in (Transcript, Secrets))]


def array(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def seen(*shape: int) -> Any:
    return np.ones(shape, np.uint8)


def recurrent(**shapes: tuple[int, ...]) -> Edit:
    """An LSTM in place of the linear encoder, of WIDTH numbers, with some parameters in another shape."""
    gates = 4 * WIDTH
    fitting = {"weight_ih_l0": (gates, 2 * INPUTS), "weight_hh_l0": (gates, WIDTH)}
    fitting |= {"bias_ih_l0": (gates,), "bias_hh_l0": (gates,), "mean": (INPUTS,), "spread": (INPUTS,)}
    edits = [put(f"model/A/{name}", array(*shape)) for name, shape in {**fitting, **shapes}.items()]
    return both(without("model/A/weight", "model/A/bias"), *edits)


def everybody(known: int) -> Edit:
    """The first so many records are known."""
    return both(
        put("auxiliary/index", np.arange(known)),
        put(TOLD, array(known, HOURS, INPUTS)),
        put(f"{TOLD}/observed", seen(known, HOURS, INPUTS)),
    )


def elsewhere(sent: Arrays, secrets: Arrays) -> None:
    """The transcript itself does not say how many records there are."""
    for name in ("activations/A", "outputs/outcome", "outputs/outcome/labels", "model/A/weight", "model/A/bias"):
        del sent[name]
    sent["auxiliary/index"] = np.arange(KNOWN) + RECORDS


INDEX = np.arange(KNOWN)
REFUSED: dict[str, tuple[Edit, str]] = {
    "a weight of one axis": (put("model/A/weight", array(6)), "model/A/weight has shape [6]; one of 2 hours of 3"),
    "a weight of other inputs": (put("model/A/weight", array(8, 5)), "model/A/weight has shape [8, 5]; one of 2 hours"),
    "a bias of another cut": (
        put("model/A/bias", array(5)),
        "model/A/bias has shape [5]; one of 2 hours of 3 features",
    ),
    "an unknown parameter": (put("model/A/wait", array(3)), "model/A has an unknown parameter 'wait' beside bias, we"),
    "an LSTM of one axis": (recurrent(weight_hh_l0=(3,)), "model/A/weight_hh_l0 has shape [3]; one of 2 hours"),
    "an LSTM of other features": (recurrent(mean=(4,)), "model/A/mean has shape [4]; one of 2 hours of 3 features"),
    "an encoder of nothing": (without("activations/A"), "holds 'model/A/bias' and no 'activations/A'"),
    "an index too large": (
        put("auxiliary/index", INDEX + 100),
        "'auxiliary/index' names record 159; they count from 0, and 'outputs/outcome/labels' has 120",
    ),
    "an index beyond the secrets": (
        elsewhere,
        "'auxiliary/index' names record 179; 'inputs/A' in secrets.safetensors has 120, and they count from 0",
    ),
    "an index of another length": (put("auxiliary/index", INDEX[1:]), "'auxiliary/index' has 59; they must agree"),
    "an index below 0": (put("auxiliary/index", INDEX - 1), "'auxiliary/index' names record -1; they count from 0"),
    "an index that repeats": (put("auxiliary/index", INDEX // 2), "'auxiliary/index' names a record twice"),
    "nobody left": (everybody(RECORDS), "'auxiliary/index' names 120 of 120 records, and who is known is never scored"),
    "one left": (
        everybody(RECORDS - 1),
        "'auxiliary/index' names 119 of 120 records, and who is known is never scored; at least 2",
    ),
    "inputs without features": (
        both(without("inputs/A/observed"), put("inputs/A", array(RECORDS), hidden=True)),
        "secrets.safetensors: array 'inputs/A' has shape [120]; numbers need their features on a last axis",
    ),
    "known inputs without features": (
        both(without(f"{TOLD}/observed"), put(TOLD, array(KNOWN))),
        f"'{TOLD}' has shape [60]; numbers need their features on a last axis",
    ),
    "observed in another shape": (
        put("inputs/A/observed", seen(RECORDS, 1, INPUTS), hidden=True),
        "'inputs/A/observed' has shape [120, 1, 3]; 'inputs/A' has [120, 2, 3], and they must be the same",
    ),
    "observed of each record": (
        put("inputs/A/observed", seen(RECORDS), hidden=True),
        "'inputs/A/observed' has shape [120]; 'inputs/A' has [120, 2, 3]",
    ),
    "observed of nothing": (
        without("inputs/A"),
        "'inputs/A/observed' says what was measured of 'inputs/A', which is missing; add it",
    ),
    "known inputs observed in another shape": (
        put(f"{TOLD}/observed", seen(KNOWN, 1, INPUTS)),
        f"'{TOLD}/observed' has shape [60, 1, 3]; '{TOLD}' has [60, 2, 3]",
    ),
    "known inputs of other hours": (
        both(without(f"{TOLD}/observed"), put(TOLD, array(KNOWN, 1, INPUTS))),
        f"'{TOLD}' holds [1, 3] numbers of each record, 'inputs/A' in secrets.safetensors [2, 3]; they must be",
    ),
    "known inputs of other features": (
        both(without(f"{TOLD}/observed"), put(TOLD, array(KNOWN, HOURS, 1))),
        f"'{TOLD}' holds [2, 1] numbers of each record",
    ),
    "a cut of tokens": (
        put("activations/A", array(1, RECORDS, 4, WIDTH)),
        "'activations/A' has shape [1, 120, 4, 8]; of inputs that are numbers it must be [T, N, d]",
    ),
    "a cut without width": (put("activations/A", array(1, RECORDS)), "'activations/A' has shape [1, 120]; of inputs"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_inputs_that_do_not_fit_are_one_line_and_nothing_is_written(
    command_line: CommandLine, tmp_path: Path, fault: str
) -> None:
    edit, said = REFUSED[fault]
    done = command_line(*arguments(recorded(tmp_path / "files", edit)), "--out", str(tmp_path / "out"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "edit",
    [
        everybody(RECORDS - 2),
        recurrent(),
        without("model/A/bias"),
        without(f"{TOLD}/observed", "inputs/A/observed"),
        put("auxiliary/B/inputs", np.ones(KNOWN, np.float32)),
    ],
    ids=["two left", "an LSTM", "no bias", "all observed", "what a site holds of its own"],
)
def test_what_fits_is_audited(tmp_path: Path, edit: Edit) -> None:
    found = audited(recorded(tmp_path / "files", edit), "ridge", "optimise")
    assert {str(item.verdict) for item in found.values()} == {"UNCOVERED"}

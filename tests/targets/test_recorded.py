"""A recording from anywhere: audited as it is, refused by name when it is wrong, nothing written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, CommandLine, measured
from safetensors.numpy import load_file, save_file

from privbench.conformance.inversions import VICTIM, token_stand
from privbench.options import AuditOptions, RecordingFiles
from privbench.record import Audit, read
from privbench.recording import Oracle, Secrets, Transcript
from privbench.registry import Registry, default_registry
from privbench.runner import run_audit
from privbench.seeds import stream
from privbench.target import Target
from privbench.tensors import RELEASE_TYPES, Stored, read_file

Array = np.ndarray
Arrays = dict[str, Array]
KINDS = ("transcript", "oracle", "secrets")


def drawn(folder: Path, *, target: str = "gaussian", sigma: float = 2.0, seed: int = 0, **settings: str) -> Path:
    """A recording of target gaussian in files."""
    made: Target = default_registry().get("targets", target)()
    options = AuditOptions(target, sigma=sigma, seed=seed, settings=settings, data=str(folder))
    made.run(made.configure(options, default_registry()), stream(seed, "run"))
    return folder


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn(tmp_path_factory.mktemp("recorded") / "files", records="100", releases="3", width="4")


@pytest.fixture
def files(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "files"))


def audit(folder: Path, registry: Registry, *, oracle: bool = True, **options: Any) -> Audit:
    paths = RecordingFiles(
        folder / "transcript.safetensors",
        folder / "secrets.safetensors",
        folder / "oracle.safetensors" if oracle else None,
    )
    return run_audit(AuditOptions("recorded", recording=paths, **options), registry).audit


def arguments(folder: Path) -> list[str]:
    return ["audit", *(part for kind in KINDS for part in (f"--{kind}", str(folder / f"{kind}.safetensors")))]


def change(file: Path, edit: Callable[[Arrays, dict[str, Any]], None]) -> None:
    """Rewrite a file with other arrays or metadata."""
    arrays = dict(load_file(file))
    _, metadata = read_file(file)
    edit(arrays, metadata)
    save_file(arrays, file, metadata={"privbench": json.dumps(metadata)})


# What is found


def test_a_recording_is_audited_as_its_target_was(registry: Registry, tmp_path: Path) -> None:
    """The same arrays, the same numbers: target gaussian's own audit and that of its files."""
    small = {"records": "200", "releases": "4"}
    own = run_audit(AuditOptions("gaussian", sigma=3.0, settings=small), registry).audit
    found = audit(drawn(tmp_path / "files", sigma=3.0, **small), registry)
    assert [(f.id, f.value, f.verdict) for f in own.findings] == [(f.id, f.value, f.verdict) for f in found.findings]
    assert found.findings[0].target == "recorded"
    assert found.utility == []


def test_a_recorded_training_is_audited_like_the_training(registry: Registry, tmp_path: Path) -> None:
    """PRISM's own three files, with another site's gradients and the site's own labels beside them."""
    prism: Target = registry.get("targets", "prism")()
    # Membership and inputs are asked of another run than the one that was recorded.
    options = AuditOptions("prism", eps=0.5, settings=SMALL, attacks=("label",))
    config = prism.roles(prism.configure(options, registry))["audited"]
    run = prism.run(config, stream(0, "run"), folder=tmp_path)
    run.secrets.save(tmp_path / Secrets.file_name())
    own = run_audit(options, registry, parallel=1).audit
    found = audit(tmp_path, registry, party="A")
    audits = [{f.id: f.value for f in item.findings if f.attack.startswith("label/")} for item in (own, found)]
    assert audits[0] == audits[1]
    assert any(audits[0].values())


def test_without_an_oracle_the_likelihood_ratio_says_why_and_the_others_count(registry: Registry, honest: Path) -> None:
    found = audit(honest, registry, oracle=False)
    oracle = [f for f in found.findings if f.attack == "label/oracle-lr"]
    assert {f.verdict for f in oracle} == {"NOT_APPLICABLE"}
    assert all("model" in f.reason for f in oracle)
    counted = {f.id.rsplit("/", 1)[1]: f for f in found.findings if f.role == "confirmatory"}
    assert set(counted) == {"g", "g-composed"}
    assert {f.attack for f in counted.values()} == {"label/spectral"}
    # rho was not measured, so that it is taken for 1: the bound of two fully aligned tasks.
    bound = counted["g-composed"].bound
    assert bound is not None
    assert bound["inputs"]["rho"] == 1.0


def test_without_a_mechanism_everything_is_measured_and_uncovered(registry: Registry, files: Path) -> None:
    def bare(arrays: Arrays, metadata: dict[str, Any]) -> None:
        del metadata["mechanisms"], metadata["claims"]

    change(files / "transcript.safetensors", bare)
    found = audit(files, registry)
    labels = [f for f in found.findings if f.attack in ("label/oracle-lr", "label/spectral")]
    assert {f.verdict for f in labels} == {"UNCOVERED"}
    assert all(f.value is not None for f in labels)


def test_a_coin_on_a_single_task_is_audited_too(registry: Registry, files: Path) -> None:
    def single(arrays: Arrays, metadata: dict[str, Any]) -> None:
        arrays["canary/task1"] = arrays.pop("canary/joint")
        del arrays["labels/joint"], metadata["joint"]

    change(files / "secrets.safetensors", single)
    found = audit(files, registry)
    assert found.secret["name"] == "canary/task1"
    assert found.secret["moved"] == ["task1"]
    assert all("/task1/" in f.id for f in measured(found))


@pytest.mark.parametrize("noise", ["per-task", "once", "separate"])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_every_noise_placement_and_release_type_sits_on_its_bound(
    registry: Registry, tmp_path: Path, noise: str, kind: str
) -> None:
    """The oracle within 4 standard errors of its own prediction, which is the closed form; no flag."""
    ratio = {"sigma_ratio": "1" if noise == "once" else "1:2"}
    folder = drawn(tmp_path / "files", records="2000", releases="4", rho="0.4", noise=noise, record_as=kind, **ratio)
    arrays, _ = read_file(folder / "transcript.safetensors")
    released = "gradients/A/task1" if noise == "separate" else "gradients/A"
    assert arrays[released].dtype == RELEASE_TYPES[kind]
    found = audit(folder, registry)
    assert [flag["name"] for flag in found.flags] == []
    composed = found.finding("label/oracle-lr", "g-composed")
    assert composed.bound is not None
    closed = {
        "per-task": np.sqrt(4 * 2.8 / (4 + 16)),
        "once": np.sqrt(4 * 2.8) / 2,
        "separate": np.sqrt(4 * (1 / 4 + 1 / 16)),
    }
    from scipy.stats import norm

    expected = norm.cdf(closed[noise])
    # The bound has rho's upper limit, a little above .4.
    assert expected <= composed.bound["value"] + 1e-9
    assert composed.bound["value"] == pytest.approx(expected, abs=0.012)
    assert composed.value == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 1750))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rounding_of_half_precision_is_no_move_beyond_the_clip(registry: Registry, tmp_path: Path, kind: str) -> None:
    """Eight tasks of which one moves: the release is long beside the move, and so is its rounding."""
    for seed in range(4):
        wide = {"tasks": "8", "moved": "1", "rho": "0.9", "width": "16", "records": "200", "releases": "3"}
        folder = drawn(tmp_path / f"{seed}", sigma=4.0, seed=seed, record_as=kind, **wide)
        assert "MOVES_EXCEED_CLIP" not in {flag["name"] for flag in audit(folder, registry).flags}


def test_hypotheses_of_another_coin_are_seen_by_the_attack_without_any(registry: Registry, tmp_path: Path) -> None:
    """A joint coin whose recorded hypotheses flip one task only: the likelihood ratio reads less than there is."""
    folder = drawn(tmp_path / "files", sigma=4.0, records="800", releases="20", width="16", rho="1", signal="1.6")

    def one_task(arrays: Arrays, metadata: dict[str, Any]) -> None:
        for side in "01":
            arrays[f"oracle/gradients/A/joint/{side}"] = arrays[f"oracle/gradients/A/task1/{side}"]
            del arrays[f"oracle/gradients/A/task1/{side}"], arrays[f"oracle/gradients/A/task2/{side}"]

    change(folder / "oracle.safetensors", one_task)
    found = audit(folder, registry)
    assert "ORACLE_BEATEN" in {flag["name"] for flag in found.flags}
    assert {f.verdict for f in found.findings if f.role == "confirmatory"} == {"FAILED"}


def test_a_run_in_which_every_coin_is_read_is_no_fault(registry: Registry, tmp_path: Path) -> None:
    folder = drawn(tmp_path / "files", sigma=0.2, records="100", releases="3", width="4")
    assert [flag["name"] for flag in audit(folder, registry).flags] == []


def test_natural_labels_marked_as_canaries_are_flagged(registry: Registry, files: Path) -> None:
    def lopsided(arrays: Arrays, metadata: dict[str, Any]) -> None:
        coins = (np.arange(100) % 10 == 0).astype(np.int64)
        arrays.update({"labels/joint": coins, "labels/task1": coins, "labels/task2": coins})

    change(files / "secrets.safetensors", lopsided)
    found = audit(files, registry, oracle=False)
    assert "COINS_NOT_FAIR" in {flag["name"] for flag in found.flags}
    assert {f.verdict for f in found.findings if f.role == "confirmatory"} <= {"FAILED", "EXCEEDED"}


def test_a_clip_over_sites_allows_each_task_its_move(registry: Registry, tmp_path: Path) -> None:
    folder = drawn(tmp_path / "files", sigma=4.0, records="200", releases="3", rho="0.5")
    change(folder / "transcript.safetensors", set_mechanism(clip_unit="sites"))
    assert "MOVES_EXCEED_CLIP" not in {flag["name"] for flag in audit(folder, registry).flags}


def test_hypotheses_of_releases_that_never_happened_do_not_count(registry: Registry, tmp_path: Path) -> None:
    folder = drawn(tmp_path / "files", sigma=4.0, records="400", releases="10", width="8", seen="0.3")

    def always(arrays: Arrays, metadata: dict[str, Any]) -> None:
        for array in arrays.values():
            shown = array[np.abs(array).sum(axis=2) > 0]
            array[np.abs(array).sum(axis=2) == 0] = shown[0]

    change(folder / "oracle.safetensors", always)
    assert [flag["name"] for flag in audit(folder, registry).flags] == []


def test_a_claim_at_delta_0_has_no_finite_epsilon_beside_it(registry: Registry, files: Path) -> None:
    claim = {"eps": 1.0, "delta": 0.0, "for": "site", "neighbours": "replace", "accountant": "gdp"}
    change(files / "transcript.safetensors", set_metadata(claims=[claim]))
    site = next(item for item in audit(files, registry).epsilons if item["name"] == "site")
    assert site["value"] is None
    assert "delta 0" in site["reason"]


FURTHER = (
    "inversion/bisr", "inversion/embedding-columns", "inversion/noise-aware-token", "inversion/span",
    "inversion/update-match", "label/update-counts",
)  # fmt: skip
"""Inversions for which a curious server of activations alone has too little."""


def with_tokens(folder: Path, edit: Callable[[Arrays, Arrays], None] = lambda sent, hidden: None) -> Path:
    """A recording of 150 records with the token activations of a client, and what the client put in."""
    here = token_stand(0, 1.5, releases=2, upward=False)
    sent = {name: np.asarray(array) for name, array in here.transcript.arrays.items()}
    hidden = {f"inputs/{VICTIM}": here.truth.tokens, f"inputs/{VICTIM}/answers": here.truth.answers}
    edit(sent, hidden)
    drawn(folder, records="150", releases="3", width="4")
    change(folder / "transcript.safetensors", lambda arrays, metadata: arrays.update(sent))
    change(folder / "secrets.safetensors", lambda arrays, metadata: arrays.update(hidden))
    return folder


@pytest.mark.parametrize("oracle", [pytest.param(True, marks=pytest.mark.slow), False])
def test_recorded_inputs_are_read_by_a_curious_server(registry: Registry, tmp_path: Path, oracle: bool) -> None:
    found = audit(with_tokens(tmp_path / "files"), registry, oracle=oracle)
    read = [item for item in found.findings if item.secret == f"input/{VICTIM}" and item.attack not in FURTHER]
    assert {(item.threat_model, str(item.verdict)) for item in read} == {("curious server", "UNCOVERED")}
    assert [item.releases for item in read if item.attack == "inversion/nearest-token"] == [1, 1, 2, 2]
    inputs = dict(found.inputs or {})
    assert len(inputs.pop("drift")) == 2
    assert (inputs.pop("prior"), inputs.pop("without_cut")) == (False, {})
    assert len(inputs.pop("by_question")) == 5
    assert inputs.pop("strongest") in {item.attack for item in found.findings if item.metric == "answer-accuracy"}
    said = {"name": f"input/{VICTIM}", "records": 150, "questions": 5, "releases": 2}
    assert inputs == {**said, "shown": None, "examples": []}
    assert "curious server" in {threat["label"] for threat in found.threats}
    assert {item.party for item in found.findings if item.secret.startswith("canary/")} == {"A"}


def test_recorded_inputs_change_no_finding_about_coins(registry: Registry, tmp_path: Path) -> None:
    plain = audit(drawn(tmp_path / "plain", records="150", releases="3", width="4"), registry)
    both = audit(with_tokens(tmp_path / "files"), registry)
    coins = [item for item in both.findings if item.secret.startswith("canary/")]
    assert coins == [item for item in plain.findings if item.secret.startswith("canary/")]


def test_recorded_inputs_without_activations_say_so(registry: Registry, tmp_path: Path) -> None:
    found = audit(with_tokens(tmp_path / "files", lambda sent, hidden: sent.clear()), registry)
    read = [item for item in found.findings if item.secret == f"input/{VICTIM}" and item.attack not in FURTHER]
    assert {item.verdict for item in read} == {"NOT_APPLICABLE"}
    assert {item.reason for item in read} == {f"the transcript holds no token activations of {VICTIM}, [T, N, L, d]"}


# What is refused


def drop_metadata(arrays: Arrays, metadata: dict[str, Any]) -> None:
    metadata.clear()


def set_metadata(**values: Any) -> Callable[[Arrays, dict[str, Any]], None]:
    return lambda arrays, metadata: metadata.update(values)


def set_array(name: str, array: Array) -> Callable[[Arrays, dict[str, Any]], None]:
    return lambda arrays, metadata: arrays.update({name: array})


def set_mechanism(**values: Any) -> Callable[[Arrays, dict[str, Any]], None]:
    return lambda arrays, metadata: metadata["mechanisms"][0].update(values)


def with_nan(arrays: Arrays, metadata: dict[str, Any]) -> None:
    arrays["gradients/A"][1, 2, 3] = np.nan


def one_class(arrays: Arrays, metadata: dict[str, Any]) -> None:
    for name in ("labels/joint", "labels/task1", "labels/task2"):
        arrays[name][:] = 1


ONES = np.ones((3, 100, 4), np.float32)
TWOS = 2 * np.ones((3, 100), np.uint8)


@pytest.mark.parametrize(
    ("kind", "edit", "message"),
    [
        ("transcript", set_array("gradients/A", ONES.astype(np.int32)), "'gradients/A' has type int32; allowed: float"),
        ("transcript", set_array("gradients/A", ONES.astype(np.float64)), "float64; allowed: float32, float16"),
        ("transcript", set_array("gradients/A", ONES[0]), "has shape [100, 4]; it must be"),
        ("transcript", with_nan, "'gradients/A' holds values that are not finite"),
        ("transcript", set_mechanism(sigma={"task1": -1.0}), "task task1 must be a number of at least 0, got -1.0"),
        ("transcript", set_mechanism(party="B"), "party 'B', which is not in the recording; parties: A"),
        ("transcript", set_mechanism(sgima=1), "unknown key 'sgima' in a mechanism"),
        ("transcript", set_mechanism(clip="1"), "clip of a mechanism is '1': that is of the wrong type"),
        ("transcript", set_metadata(mechanism=[]), "unknown key 'mechanism' in the metadata"),
        ("transcript", set_metadata(schema="privbench/transcript/2"), "schema is 'privbench/transcript/2', expected"),
        ("transcript", drop_metadata, "no schema is named in the metadata, expected 'privbench/transcript/1'"),
        ("transcript", set_array("gradients/A/b/c", ONES), "'gradients/A/b/c' is not part of a transcript"),
        ("transcript", set_array("gradients/A", np.ones((3, 0, 4), np.float32)), "shape [3, 0, 4]: nothing is in it"),
        ("transcript", set_array("gradients/A/seen", TWOS), "holds 2; it may hold 0 and 1 only"),
        ("transcript", set_array("gradients/A/seen", np.ones((3, 99), np.uint8)), "has N = 99 where"),
        ("oracle", set_array("oracle/gradients/B/clean", ONES), "to which no gradients were recorded"),
        ("oracle", set_array("oracle/gradients/A/clean", ONES[:2]), "T = "),
        ("oracle", set_metadata(schema="privbench/transcript/1"), "schema is 'privbench/transcript/1', expected"),
        ("secrets", set_array("canary/joint", np.ones(90, np.uint8)), "has N = "),
        ("secrets", set_array("labels/task2", np.zeros(100, np.int64)), "is not what the coin of joint set it to"),
        ("transcript", set_array("gradients/A/task1", ONES), "a sum, and releases of single tasks stand beside it"),
        ("transcript", set_mechanism(noise="separate"), "the mechanism's noise is 'separate', but the releases"),
        ("transcript", set_mechanism(clip=1e300), "clip is 1e+300; allowed: 1e-12 to 1e+12"),
        ("transcript", set_array("gradients/A", ONES * np.float32(1e30)), "at most 1e+15 is read"),
        ("transcript", lambda a, m: m["mechanisms"].append(m["mechanisms"][0]), "two mechanisms are described"),
        ("secrets", one_class, "every coin in 'labels/joint' is 1: one class only"),
        ("secrets", set_array("canary/joint", np.zeros(100, np.uint8)), "marks 0 records; at least 16 are needed"),
        ("secrets", set_array("labels/joint", np.full(100, -1)), "must hold one coin, 0 or 1"),
        ("secrets", set_array("labels/task1", np.full(100, -7)), "labels and tokens are 0 and above, -1 for none"),
        ("secrets", set_metadata(joint=["task1", "tsak2"]), "the coin moves 'tsak2', for which transcript.safetensors"),
        ("secrets", set_metadata(joint="task1"), "'joint' in the metadata must be a list of task names"),
    ],
)  # fmt: skip
def test_a_wrong_recording_is_one_line_and_nothing_is_written(
    command_line: CommandLine,
    files: Path,
    tmp_path: Path,
    kind: str,
    edit: Callable[[Arrays, dict[str, Any]], None],
    message: str,
) -> None:
    change(files / f"{kind}.safetensors", edit)
    refused(command_line(*arguments(files), "--out", str(tmp_path / "out")), message, tmp_path)


def refused(done: Any, message: str, tmp_path: Path) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["cut", "empty", "header longer than the file", "no file", "a folder"])
def test_a_damaged_file_is_one_line_and_nothing_is_written(
    command_line: CommandLine, files: Path, tmp_path: Path, kind: str, fault: str
) -> None:
    file = files / f"{kind}.safetensors"
    content = file.read_bytes()
    file.unlink()
    if fault == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif fault == "empty":
        file.write_bytes(b"")
    elif fault == "header longer than the file":
        file.write_bytes((10**6).to_bytes(8, "little") + content[8:])
    elif fault == "a folder":
        file.mkdir()
    done = command_line(*arguments(files), "--out", str(tmp_path / "out"))
    refused(done, f"{kind}.safetensors is not a readable safetensors recording", tmp_path)


def test_secrets_of_another_number_of_records(command_line: CommandLine, files: Path, tmp_path: Path) -> None:
    drawn(tmp_path / "other", records="90", releases="3", width="4")
    shutil.copy(tmp_path / "other" / "secrets.safetensors", files)
    done = command_line(*arguments(files), "--out", str(tmp_path / "out"))
    refused(done, "secrets.safetensors speaks of 90 records, 'gradients/A' in transcript.safetensors has 100", tmp_path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--eps", "1"], "a finished recording; leave out --eps"),
        (["--target", "prism"], "leave out --target prism"),
        (["--set", "epochs=1"], "leave out --set"),
        (["--party", "B"], "unknown party 'B'"),
    ],
)
def test_options_that_a_recording_cannot_take(
    command_line: CommandLine, honest: Path, tmp_path: Path, extra: list[str], message: str
) -> None:
    refused(command_line(*arguments(honest), *extra, "--out", str(tmp_path / "out")), message, tmp_path)


def test_a_transcript_needs_its_secrets(command_line: CommandLine, honest: Path, tmp_path: Path) -> None:
    done = command_line("audit", "--transcript", str(honest / "transcript.safetensors"), "--out", str(tmp_path / "out"))
    refused(done, "--secrets is missing", tmp_path)


def test_the_command_line_audits_and_verifies_against_the_secrets(
    command_line: CommandLine, honest: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert command_line(*arguments(honest), "--out", str(out)).returncode in (0, 1, 3)
    assert read(out).manifest["config"]["given"]["recording"]["transcript"] == "transcript.safetensors"
    assert str(honest) not in (out / "audit.json").read_text(encoding="utf-8")
    done = command_line("verify", str(out), "--secrets", str(honest / "secrets.safetensors"))
    assert done.returncode == 0, done.stdout


# Files


@pytest.mark.parametrize("kind", [Transcript, Oracle, Secrets])
def test_files_round_trip(honest: Path, tmp_path: Path, kind: type[Transcript] | type[Oracle] | type[Secrets]) -> None:
    first = kind.load(honest / kind.file_name())
    first.save(tmp_path / "again.safetensors")
    again = kind.load(tmp_path / "again.safetensors")
    assert dict(first.metadata) == dict(again.metadata)
    for name, array in first.arrays.items():
        assert np.array_equal(np.asarray(array), np.asarray(again.arrays[name]))
    assert set(load_file(tmp_path / "again.safetensors")) == set(first.arrays)  # safetensors' own reader agrees


def test_large_arrays_stay_in_their_file_and_are_read_by_blocks(honest: Path) -> None:
    released = Transcript.load(honest / "transcript.safetensors").arrays["gradients/A"]
    assert isinstance(released, Stored)
    block = released[1]
    assert block.shape == (100, 4)
    assert block.base is None  # a copy: no page of the file stays mapped
    assert np.array_equal(block, load_file(honest / "transcript.safetensors")["gradients/A"][1])

"""The split LLaMA as a target: what it takes and refuses, its cells, and whole audits by the real command line."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import CommandLine, Done
from small_llama import SETTINGS, save_llama, word_tokenizer
from test_models import write_gguf

from privbench.conformance import TargetSubject, check_target, require
from privbench.data.surveys.splits import parts
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.recording import Secrets, Transcript
from privbench.registry import Registry, default_registry
from privbench.runner import prepare
from privbench.seeds import stream
from privbench.target import TargetRun
from privbench.targets.split_llama.config import SplitLlamaConfig
from privbench.targets.split_llama.running import CLIENT
from privbench.targets.split_llama.target import SplitLlama
from privbench.targets.split_llama.tune import passes_of


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def options(llama: str, data: str | None = None, seed: int = 0, **settings: str) -> AuditOptions:
    return AuditOptions("split-llama", data=data, model=llama, seed=seed, settings={**SETTINGS, **settings})


def configured(llama: str, **given: Any) -> SplitLlamaConfig:
    asked = AuditOptions("split-llama", model=llama, **given)
    return SplitLlama().configure(asked, default_registry())


def ran(llama: str, folder: Path | None = None, **settings: str) -> TargetRun:
    target = SplitLlama()
    return target.run(target.configure(options(llama, **settings), default_registry()), stream(0, "run"), folder=folder)


# Options


def test_what_is_not_set_has_a_default(llama: str) -> None:
    """Pretrained models of full size start from fewer and slower steps than the tiny one."""
    config = configured(llama)
    assert (config.data, config.model, config.seed) == ("synthetic", llama, 0)
    assert (config.tuning.steps, config.tuning.batch, config.tuning.train_head) == (60, 4, "no")
    config = configured(llama, settings={"steps": "7", "share": "5:3:2", "clients": "3"}, eps=float("inf"))
    assert config.tuning.steps == 7
    assert config.tuning.shares == pytest.approx((0.5, 0.3, 0.2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stpes": "3"}, "unknown setting of target split-llama 'stpes'; did you mean steps"),
        ({"schedule": "paralel"}, "unknown value of schedule 'paralel'; did you mean parallel"),
        ({"labels": "sever"}, "unknown value of labels 'sever'; did you mean server"),
        ({"leaks": "dorp"}, "unknown value of leaks 'dorp'; did you mean drop"),
        ({"record_as": "bfloat"}, "unknown value of record_as 'bfloat'; did you mean bfloat16"),
        ({"train_head": "maybe"}, "unknown value of train_head 'maybe'; did you mean yes"),
        ({"share": "powr"}, "unknown value of share 'powr'; did you mean power"),
        ({"share": "1:2"}, "share 1:2: 4 clients need 4 positive numbers"),
        ({"steps": "-1"}, "steps must be a positive number or 0, got -1"),
        ({"batch": "0"}, "batch must be a positive number, got 0"),
        ({"steps": "1.5"}, "steps must be a whole number, got '1.5'"),
        ({"k": "-1"}, "k must be a positive number or 0, got -1"),
        ({"rate": "nan"}, "rate must be a number, got 'nan'"),
        ({"rate": "inf"}, "rate must be a positive number, got inf"),
        ({"clients": "0"}, "clients must be a positive number, got 0"),
    ],
)
def test_settings_that_are_refused(llama: str, settings: Mapping[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured(llama, settings=settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eps": 1.0}, "split-llama's defences have sizes of their own, in units of the public table: leave --eps"),
        ({"sigma": 1.0}, "have sizes of their own"),
        ({"noise_multiplier": 2.0}, "have sizes of their own"),
        ({"defenses": ("gaussian",)}, "defence gaussian acts on gradients, which target split-llama has no place for"),
        ({"defenses": ("none", "token-dchi")}, "split-llama takes one --defense, got 2"),
        ({"defenses": ("token-dchi",), "eps": math.inf}, "--eps inf says that nothing is promised; with a --defense"),
        ({"party": "sever"}, "unknown party 'sever'; did you mean server"),
        ({"data": "sythetic"}, "unknown data of target split-llama 'sythetic'; did you mean synthetic"),
        ({"data": "synthetic:campsu"}, "unknown synthetic survey 'campsu'; did you mean campus"),
        ({"data": "dass:"}, "survey dass needs its file: dass:FILE.csv"),
        ({"data": "survey:a.csv,outcome="}, "gives outcome without a value"),
    ],
)
def test_options_that_are_refused(llama: str, given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured(llama, **given)


def test_options_are_resolved_without_their_files(tmp_path: Path) -> None:
    """As `verify` does, where a record is all there is; what a run would read is refused before it starts."""
    config = configured(f"path:{tmp_path / 'gone'}", data="osmi:gone.csv")
    assert SplitLlama().describe(config)["data"] == "osmi:gone.csv"
    with pytest.raises(InputError, match="no such directory"):
        SplitLlama().fingerprint(config)


def test_a_cut_below_the_last_layer_is_refused_before_the_run(registry: Registry, llama: str) -> None:
    with pytest.raises(InputError, match=r"k = 2: model path:\S+ has 1 layers, so that 0 to 1 fit at the client"):
        prepare(options(llama, k="2"), registry)


def test_one_adversary_and_no_epsilon(llama: str) -> None:
    target, config = SplitLlama(), configured(llama, party="server", defenses=("none",))
    (threat,) = target.threats(config)
    assert threat.label == "curious server"
    assert target.epsilons(config) == ()
    assert list(target.roles(config)) == ["audited"]


@pytest.mark.parametrize("schedule", ["round-robin", "parallel"])
@pytest.mark.parametrize("share", ["even", "one-large", "1:2:7"])
def test_no_steps_are_one_pass(llama: str, share: str, schedule: str) -> None:
    """Every client sends each of its respondents once, at the least; with a batch fewer one of them would not."""
    settings = {**SETTINGS, "train": "90", "steps": "0", "share": share, "schedule": schedule}
    tuning = configured(llama, settings=settings).tuning
    held = np.round(np.array(parts(tuning.shares, 3)) * 90).astype(int).tolist()
    assert min(passes_of(tuning, client, count) for client, count in enumerate(held)) == 1
    fewer = replace(tuning, steps=tuning.steps - (3 if schedule == "round-robin" else 1))
    assert min(passes_of(fewer, client, count) for client, count in enumerate(held)) == 0


# Cells


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two years of one survey, two outcomes in each."""
    folder, rng = tmp_path_factory.mktemp("surveys"), np.random.default_rng(0)
    for year in (2014, 2016):
        frame = {f"item {n}": rng.choice(["never", "sometimes", "often"], 200) for n in range(6)}
        frame |= {name: rng.choice(["no", "yes"], 200) for name in ("helped", "tired")}
        frame["same"] = np.repeat("yes", 200)
        pd.DataFrame(frame).to_csv(folder / f"{year}.csv", index=False)
    return folder


def cell(registry: Registry, *given: Any, **settings: str) -> str:
    return prepare(options(*given, **settings), registry).cell


def test_a_cell_is_its_survey_outcome_model_and_seed(
    registry: Registry, llama: str, years: Path, tmp_path: Path
) -> None:
    other = f"path:{save_llama(tmp_path / 'small', layers=2)}"
    old, new = (f"survey:{years / name}" for name in ("2014.csv", "2016.csv"))

    def cells() -> list[str]:
        return [
            cell(registry, llama, f"{old},outcome=helped"),
            cell(registry, llama, f"{old},outcome=tired"),
            cell(registry, llama, f"{new},outcome=helped"),
            cell(registry, other, f"{old},outcome=helped"),
            cell(registry, llama, f"{old},outcome=helped", 1),
            cell(registry, llama, f"{old},outcome=helped", steps="24"),
            cell(registry, llama, "synthetic"),
            cell(registry, llama, "synthetic:campus"),
            cell(registry, llama, "synthetic", outcome="exhaustion"),
        ]

    first = cells()
    assert len(set(first)) == len(first)
    assert cells() == first


def test_a_cell_does_not_depend_on_where_files_lie(registry: Registry, llama: str, years: Path, tmp_path: Path) -> None:
    (tmp_path / "2014.csv").write_bytes((years / "2014.csv").read_bytes())
    moved = Path(llama.removeprefix("path:")).rename(tmp_path / "moved")
    try:
        there = cell(registry, f"path:{moved}", f"survey:{tmp_path / '2014.csv'},outcome=helped")
    finally:
        moved.rename(llama.removeprefix("path:"))
    assert there == cell(registry, llama, f"survey:{years / '2014.csv'},outcome=helped")


def test_the_description_names_files_without_folders(llama: str, years: Path) -> None:
    data = f"survey:{years / '2014.csv'},schema={years / 's.toml'},outcome=helped"
    described = SplitLlama().describe(configured(llama, data=data))
    assert described["data"] == "survey:2014.csv,schema=s.toml,outcome=helped"
    assert str(years) not in json.dumps(described)
    assert llama.removeprefix("path:") not in json.dumps(described)
    assert described["tuning"]["steps"] == 60


# Runs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"share": "one-large"},
        {"record": "5", "record_as": "bfloat16"},
        {"k": "1", "public": "9"},
        {"labels": "client"},
    ],
    ids=str,
)
def test_the_disk_is_as_announced(llama: str, tmp_path: Path, settings: Mapping[str, str]) -> None:
    asked = {"steps": "48", **settings}
    run = ran(llama, tmp_path, **asked)
    said = SplitLlama().disk_bytes(SplitLlama().configure(options(llama, **asked), default_registry()))
    needed = (tmp_path / Transcript.file_name()).stat().st_size - 2**16  # the room of its header
    assert said / 2 < needed < said * 2
    assert run.transcript.path is not None


@pytest.mark.parametrize("settings", [{}, {"schedule": "parallel", "batch": "6", "labels": "client"}], ids=str)
def test_one_seed_one_file(llama: str, tmp_path: Path, settings: Mapping[str, str]) -> None:
    """Byte for byte."""
    files = [tmp_path / name for name in ("first", "again")]
    for folder in files:
        folder.mkdir()
        ran(llama, folder, prompting="no", test="4", **settings)
    first, again = ((folder / Transcript.file_name()).read_bytes() for folder in files)
    assert first == again


def test_it_passes_the_public_checks(llama: str) -> None:
    require(check_target(TargetSubject(SplitLlama, options(llama, prompting="no", steps="9"))))


@pytest.mark.parametrize("settings", [{"labels": "client"}, {"k": "1"}, {"k": "1", "labels": "client"}], ids=str)
def test_both_placements_and_a_deeper_cut_run(llama: str, settings: Mapping[str, str]) -> None:
    """What is sent before any step is the table at the embedding cut, and after a layer it is not."""
    run = ran(llama, prompting="no", **settings)
    sent, table = run.transcript.array(f"activations/{CLIENT}"), run.transcript.array("public/embedding")
    tokens = run.secrets.array(f"inputs/{CLIENT}")
    same = (sent[0] == table[tokens]).all(axis=2) | (tokens < 0)
    assert same.all(axis=1).sum() == (0 if "k" in settings else int(SETTINGS["batch"]))
    # With the labels at the client this is the run about coins, and utility is the other one's.
    assert [item.task for item in run.utility][:1] == ([] if "labels" in settings else ["sought help"])
    assert len(run.diagnostics["loss"]) == int(SETTINGS["steps"])


def test_long_samples_are_cut_and_said(tmp_path: Path) -> None:
    run = ran(f"path:{save_llama(tmp_path / 'short', context=210)}")
    assert any(
        note.startswith("48 of 48 samples were longer than the model's context of 210 tokens and lost their last ")
        for note in run.notes
    )
    assert any(note.startswith("No 1-shot prompting: 1 shots need ") for note in run.notes)
    assert run.secrets.array(f"inputs/{CLIENT}").shape[1] <= 210
    assert "0-shot prompting" in run.utility[0].references
    assert "1-shot prompting" not in run.utility[0].references


def test_prompting_can_be_left_out(llama: str) -> None:
    assert list(ran(llama, prompting="no").utility[0].references) == ["logistic regression"]
    assert list(ran(llama).utility[0].references) == ["logistic regression", "0-shot prompting", "1-shot prompting"]


def test_progress_says_what_is_done(llama: str) -> None:
    seen: list[str] = []
    target = SplitLlama()
    config = target.configure(options(llama), default_registry())
    target.run(config, stream(0, "run"), progress=lambda stage, share: seen.append(stage))
    assert {stage.partition(":")[0] for stage in seen} == {"audited run"}
    for text in ("reading the survey", "0-shot prompting", "step 18 of 18", "answering the test respondents"):
        assert any(text in stage for stage in seen)


# By the command line


def arguments(llama: str, *more: str) -> list[str]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    return ["audit", "--target", "split-llama", "--model", llama, *settings, *more]


@pytest.fixture
def audited(command_line: CommandLine, llama: str, tmp_path: Path) -> tuple[Done, Path]:
    out = tmp_path / "out"
    return command_line(*arguments(llama, "--out", str(out))), out


def test_an_audit_by_the_command_line(audited: tuple[Done, Path], command_line: CommandLine, llama: str) -> None:
    """Recorded, shown, verified; nearest token reads the first pass, and nothing could have failed: exit code 3."""
    done, out = audited
    assert done.returncode == 3, done.stderr
    assert sorted(file.name for file in out.iterdir()) == ["audit.html", "audit.json", "audit.md", "scores.safetensors"]
    for text in (
        "| nearest-token attack | curious server | 1.000 ",
        "most frequent answer",
        "logistic regression",
        "is on two sides",
    ):
        assert text in (out / "audit.md").read_text(encoding="utf-8")
    record = read(out)
    said = dict(record.inputs or {})
    assert len(said.pop("examples")) == 5
    assert said.pop("shown").startswith("inversion/")
    first, last = said.pop("drift")
    assert 0 < first < last < 1  # the client learns slowly, and away from the public base
    told = said.pop("by_question")
    assert [item["text"] for item in told][:2] == ["age", "gender"]
    assert {item["read"] for item in told} == {1.0}
    assert said.pop("strongest").startswith("inversion/")
    assert (said.pop("prior"), said.pop("without_cut")) == (False, {})
    assert said == {"name": f"input/{CLIENT}", "records": 12, "questions": 14, "releases": 2}
    values = {item.id: item.value for item in record.findings}
    assert values[f"inversion/nearest-token/input/{CLIENT}/1/answer-accuracy/none"] > 0.95
    assert command_line("verify", str(out)).returncode == 0
    assert command_line("gate", str(out)).returncode == 3
    assert llama.removeprefix("path:") not in (out / "audit.json").read_text(encoding="utf-8")


def test_a_recording_of_the_run_is_audited_alike(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    """The transcript and the secrets alone, as files: no coins in them."""
    run = ran(llama, tmp_path, prompting="no")
    run.secrets.save(tmp_path / Secrets.file_name())
    files = [f"--{kind.kind}={tmp_path / kind.file_name()}" for kind in (Transcript, Secrets)]
    own = command_line(*arguments(llama, "--set", "prompting=no", "--out", "own"))
    done = command_line("audit", *files, "--out", "recorded")
    assert (own.returncode, done.returncode) == (3, 3), done.stderr
    first, again = read(Path("own")), read(Path("recorded"))
    assert [(f.id, f.value, f.verdict) for f in first.findings] == [(f.id, f.value, f.verdict) for f in again.findings]
    assert first.threats == again.threats
    verified = command_line("verify", "recorded", f"--secrets={tmp_path / Secrets.file_name()}")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_survey_file_by_the_command_line(command_line: CommandLine, llama: str, years: Path, tmp_path: Path) -> None:
    """Another recorded precision; neither page nor record says where the file lies."""
    data = f"survey:{years / '2016.csv'},outcome=tired"
    extra = ("--data", data, "--set", "record_as=bfloat16", "--set", "prompting=no", "--exit-zero", "--quiet")
    done = command_line(*arguments(llama, *extra, "--out", "out"))
    assert done.returncode == 0, done.stderr
    record = read(tmp_path / "out")
    assert record.manifest["data"]["name"] == "survey:2016.csv,outcome=tired"
    assert {item["task"] for item in record.utility} == {"tired"}
    for page in ("audit.json", "audit.html", "audit.md"):
        text = (tmp_path / "out" / page).read_text(encoding="utf-8")
        assert str(years) not in text
        assert llama.removeprefix("path:") not in text


def test_exit_zero_and_a_file_of_options(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    settings = "\n".join(f'{key} = "{value}"' for key, value in {**SETTINGS, "prompting": "no"}.items())
    (tmp_path / "a.toml").write_text(
        f'target = "split-llama"\nmodel = "{llama}"\n[set]\n{settings}\n', encoding="utf-8"
    )
    done = command_line("audit", "--config", str(tmp_path / "a.toml"), "--exit-zero", "--quiet")
    assert done.returncode == 0, done.stderr


# Bad input by the command line


def refused(done: Done, tmp_path: Path, *said: str) -> None:
    """One line, exit code 2, nothing written."""
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.strip().splitlines() if "the recordings take about" not in line]
    assert len(lines) == 1, done.stderr
    for text in said:
        assert text in lines[0]
    assert not (tmp_path / "out").exists()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def cut_gguf(folder: Path) -> None:
    """A GGUF file in the place of everything else, half of it."""
    gone(folder)
    folder.mkdir()
    file = folder / "model.gguf"
    write_gguf(file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def no_llama(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"llama"', '"gpt2"'), encoding="utf-8")


def another_vocabulary(folder: Path) -> None:
    tokenizer = word_tokenizer()
    larger = copy.deepcopy(tokenizer)
    larger.add_tokens([f"word{n}" for n in range(9)])
    larger.save_pretrained(folder)


def no_end(folder: Path) -> None:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).exists():
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            content.pop("eos_token", None)
            (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (gone, "no such directory"),
        (cut_gguf, "'model.gguf' cannot be read as GGUF, or is cut short"),
        (no_llama, "config says model_type 'gpt2'; only 'llama' can be split"),
        (another_vocabulary, "its tokenizer is of another vocabulary: ids up to 908, but the embedding has 900 rows"),
        (no_end, "names no end token"),
    ],
)
def test_bad_models_are_one_line(
    command_line: CommandLine, llama: str, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.removeprefix("path:"), folder)
    harm(folder)
    done = command_line(*arguments(f"path:{folder}", "--out", str(tmp_path / "out")))
    refused(done, tmp_path, said, "model")


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        ("survey:none.csv", (), ("none.csv", "No such file")),
        ("survey:{}/2014.csv,outcome=hepled", (), ("'hepled'", "helped")),
        ("survey:{}/2014.csv,outcome=same", (), ("'same'", "the same answer in every row")),
        ("synthetic", ("share=1000:1:1",), ("client 2 of 3 would hold no respondent",)),
        ("synthetic", ("share=0:1:1",), ("share 0:1:1", "3 positive numbers")),
        ("synthetic", ("outcome=sought halp",), ("'sought halp'", "sought help")),
        ("synthetic", ("k=2",), ("k = 2", "0 to 1")),
        ("synthetic", ("steps=3",), ("client 1 sends 1 batches of 4", "12 respondents")),
        ("synthetic", ("train=2",), ("clients = 3, train = 2", "each client needs a respondent")),
    ],
)
def test_bad_data_is_one_line(
    command_line: CommandLine,
    llama: str,
    years: Path,
    tmp_path: Path,
    data: str,
    more: Sequence[str],
    said: Sequence[str],
) -> None:
    given = {**SETTINGS, **dict(item.split("=", 1) for item in more)}
    settings = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    asked = ("--data", data.format(years), "--out", str(tmp_path / "out"), *settings)
    refused(command_line("audit", "--target", "split-llama", "--model", llama, *asked), tmp_path, *said)


def test_a_context_for_not_one_answer_is_one_line(command_line: CommandLine, tmp_path: Path) -> None:
    model = f"path:{save_llama(tmp_path / 'model', context=120)}"
    done = command_line(*arguments(model, "--out", str(tmp_path / "out")))
    refused(done, tmp_path, "a context of 120 tokens cannot hold the header")


def test_untuned_is_what_the_public_base_would_send(llama: str) -> None:
    """Of so many respondents, once, as they are embedded: rows of the public table, and nothing is answered."""
    run = ran(llama, tuned="no", record="7", record_as="float32")
    sent = np.asarray(run.transcript.array(f"activations/{CLIENT}"))
    there = run.transcript.array(f"activations/{CLIENT}/mask") == 1
    tokens = run.secrets.array(f"inputs/{CLIENT}")
    table = np.asarray(run.transcript.array("public/embedding"))
    assert sent.shape[:2] == (1, 7)
    assert np.array_equal(sent[0][there], table[tokens[there]])
    assert (run.utility, dict(run.diagnostics)) == ((), {})


def test_an_untuned_system_is_audited(llama: str, command_line: CommandLine, tmp_path: Path) -> None:
    settings = {**SETTINGS, "tuned": "no", "public": "0", "record": "7"}
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    out = str(tmp_path / "untuned")
    done = command_line("audit", "--target", "split-llama", "--model", llama, *chosen, "--out", out, "--exit-zero")
    assert done.returncode == 0, done.stderr
    record = read(Path(out))
    (read_of,) = (
        item.value
        for item in record.findings
        if (item.attack, item.metric) == ("inversion/nearest-token", "answer-accuracy")
    )
    assert read_of == 1.0
    assert record.utility == []
    assert command_line("verify", out).returncode == 0


def test_words_of_a_large_vocabulary_are_recorded_as_they_are(llama: str) -> None:
    """In an array, whatever their number and length: metadata have no room for fifty thousand of them."""
    run = ran(llama, tuned="no", record="3")
    words = [bytes(row).rstrip(b"\0").decode() for row in np.asarray(run.transcript.array("public/vocabulary"))]
    tokenizer = word_tokenizer()
    assert words == [tokenizer.decode([token]).rstrip("\0") for token in range(len(words))]  # a zero says nothing
    assert len(run.transcript.metadata["questions"][CLIENT]) == run.secrets.array(f"inputs/{CLIENT}/answers").max() + 2

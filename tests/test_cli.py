"""The real command line in its own process: exit codes, one-line errors, files."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from conftest import SMALL, CommandLine, Done, privbench

from privbench.options import AuditOptions
from privbench.record import read
from privbench.recording import Transcript
from privbench.registry import Registry, default_registry
from privbench.runner import run_audit

SETTINGS = [item for key, value in SMALL.items() for item in ("--set", f"{key}={value}")]
AUDIT = ["audit", "--target", "prism", *SETTINGS]
LABELS = [*AUDIT, "--attacks", "label", "--eps", "0.5", "--jobs", "1"]
LLAMA = ["audit", "--target", "split-llama"]


def test_an_audit_prints_the_report_and_writes_the_record(small_run: tuple[Done, Path]) -> None:
    done, out = small_run
    assert done.returncode in (0, 1), done.stderr
    # The disk need, and no progress where stderr is no terminal.
    assert re.fullmatch(r"privbench: the recordings take about \d+ MB in \S+ \(\d+ GB free\)\.\n", done.stderr)
    for text in (
        "Utility",
        "Every epsilon by name",
        "nominal",
        "outsider",
        "Findings that count",
        "does not speak for",
    ):
        assert text in done.stdout
    assert "never a proof of safety" in done.stdout
    assert sorted(file.name for file in out.iterdir()) == [
        "audit.html",
        "audit.json",
        "audit.md",
        "scores.safetensors",
    ]


@pytest.mark.slow
def test_two_runs_agree_byte_for_byte(small_record: Path, registry: Registry) -> None:
    """Side by side in processes of their own, and one after the other in this one."""
    again = run_audit(AuditOptions("prism", eps=0.5, settings=SMALL), registry, parallel=1)
    audits = (again.audit, read(small_record))
    first, second = (json.dumps([asdict(finding) for finding in item.findings], sort_keys=True) for item in audits)
    assert first == second
    assert audits[0].scores_sha256 == audits[1].scores_sha256


def test_gate_repeats_the_audits_exit_code(small_run: tuple[Done, Path]) -> None:
    done, out = small_run
    gated = privbench("gate", str(out))
    assert gated.returncode == done.returncode
    assert privbench("gate", str(out / "audit.json")).returncode == done.returncode
    assert gated.stdout.strip()


def test_report_renders_the_same_pages_again(small_record: Path, tmp_path: Path) -> None:
    out = shutil.copytree(small_record, tmp_path / "record")
    before = {name: (out / name).read_bytes() for name in ("audit.html", "audit.md", "audit.json")}
    (out / "audit.html").unlink()
    assert privbench("report", str(out)).returncode == 0
    assert {name: (out / name).read_bytes() for name in before} == before


def test_exit_zero_and_formats(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line(*LABELS, "--out", str(tmp_path), "--exit-zero", "--quiet", "--format", "json")
    assert done.returncode == 0
    assert len(done.stdout.strip().splitlines()) <= 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.json", "scores.safetensors"]


def test_a_config_file_gives_the_options_and_the_command_line_wins(command_line: CommandLine, tmp_path: Path) -> None:
    settings = "\n".join(f"{key} = {value}" for key, value in SMALL.items())
    given = f'target = "prism"\nattacks = "label"\neps = 2\nseed = 5\njobs = 1\n[set]\n{settings}\n'
    (tmp_path / "a.toml").write_text(given, encoding="utf-8")
    done = command_line("audit", "--config", "a.toml", "--eps", "0.7", "--out", "o", "--exit-zero")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "o" / "audit.json").read_text(encoding="utf-8"))["manifest"]
    assert manifest["config"]["given"]["eps"] == 0.7
    attacks = default_registry().names("attacks")
    assert manifest["config"]["attacks"] == [name for name in attacks if name.startswith("label/")]
    assert manifest["seeds"] == [5]
    assert manifest["config"]["resolved"]["records"] == int(SMALL["train"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit"], "--target is missing"),
        (["audit", "--target", "prism"], "exactly one of --eps, --noise-multiplier and --sigma; given: none"),
        ([*AUDIT, "--eps", "1", "--sigma", "2"], "given: --eps and --sigma"),
        ([*AUDIT, "--eps", "1", "--noise-multiplier", "2"], "given: --eps and --noise-multiplier"),
        ([*AUDIT, "--eps", "0"], "--eps must be above 0"),
        ([*AUDIT, "--eps", "-1"], "--eps must be above 0"),
        ([*AUDIT, "--eps", "nan"], "--eps must be a number"),
        ([*AUDIT, "--eps", "half"], "--eps must be a number, got 'half'"),
        ([*AUDIT, "--noise-multiplier", "-1"], "at least 0"),
        ([*AUDIT, "--sigma", "inf"], "finite"),
        ([*AUDIT, "--eps", "1", "--delta", "1"], "--delta must lie in"),
        ([*AUDIT, "--eps", "1", "--seed", "-1"], "--seed must be at least 0"),
        ([*AUDIT, "--eps", "1", "--seed", "1.5"], "--seed must be a whole number"),
        ([*AUDIT, "--eps", "1", "--jobs", "0"], "--jobs must be at least 1"),
        ([*AUDIT, "--eps", "1", "--eps-for", "sites"], "did you mean site"),
        ([*AUDIT, "--eps", "1", "--attacks", "spectral"], "unknown attack 'spectral'"),
        ([*AUDIT, "--eps", "1", "--attacks", "label/oracle"], "did you mean label/oracle-lr"),
        ([*AUDIT, "--eps", "1", "--defense", "gausian"], "did you mean gaussian"),
        ([*AUDIT, "--eps", "1", "--set", "epoch=3"], "did you mean epochs"),
        ([*LLAMA, "--set", "outcme=x"], "unknown setting of target split-llama 'outcme'; did you mean outcome?"),
        ([*LLAMA, "--set", "client-rates=1"], "'client_rates'; did you mean client_rate"),
        ([*LLAMA, "--data", "osmi:a.csv,outcme=x"], "unknown option of a survey 'outcme'; did you mean outcome?"),
        (["audit", "--target", "gaussian", "--sigma", "1", "--set", "recods=9"], "did you mean records"),
        ([*AUDIT, "--eps", "1", "--set", "epochs"], "--set takes key=value"),
        ([*AUDIT, "--eps", "1", "--data", "mimic"], "unknown data set 'mimic'"),
        ([*AUDIT, "--eps", "1", "--data", "physionet2012"], "needs its folder"),
        ([*AUDIT, "--eps", "1", "--data", "physionet2012:/no/such/folder"], "/no/such/folder"),
        ([*AUDIT, "--eps", "1", "--format", "pdf"], "unknown format 'pdf'"),
        ([*AUDIT, "--eps", "1", "--config", "/no/such.toml"], "cannot be read"),
        (["audit", "--target", "prizm", "--eps", "1"], "did you mean prism"),
        ([*AUDIT, "--eps", "1", "--party", ""], "--party is empty"),
        ([*AUDIT, "--eps", "1", "--data", " "], "--data is empty"),
        ([*AUDIT, "--eps", "1", "--attacks", ","], "names none"),
        ([*AUDIT, "--eps", "1", "--format", ""], "--format is empty"),
        ([*AUDIT, "--eps", "1", "--seed", ""], "--seed must be a whole number"),
        ([*AUDIT, "--eps", "1", "--seed", "9" * 30], "below 2^63"),
        ([*AUDIT, "--eps", "1", "--set", "train=100"], "given twice"),
        ([*AUDIT, "--noise-multiplier", "1e308"], "finite number from"),
        ([*AUDIT, "--noise-multiplier", "1e-300"], "finite number from"),
        ([*AUDIT, "--eps", "1", "--out", "x" * 300], "cannot be used"),
        (["audit", "--target", "prism", "--eps", "1", "--set", "test=1", "--jobs", "1"], "one class only"),
        (["audit", "--epsilon", "1"], "No such option"),
        (["audti"], "No such command"),
        (["gate", "/no/such/record"], "holds no audit.json"),
        (["list", "attack"], "did you mean attacks"),
        (["list", "setings"], "did you mean settings"),
        (["list", "settings", "--target", "prizm"], "did you mean prism"),
        (["list", "settings", "--target", "recorded"], "target recorded has no settings"),
        (["list", "attacks", "--target", "prism"], "--target belongs to `privbench list settings`"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_2(
    command_line: CommandLine, arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = command_line(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("privbench: ")
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "privbench-audit" / "audit.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("party = 5", "party in a.toml must be a text"),
        ("defense = 5", "must be a text or a list of texts"),
        ("eps = true", "a text or a number is needed"),
        ("epss = 1", "did you mean eps"),
        ("eps = [", "cannot be read"),
    ],
)
def test_a_config_file_of_wrong_types_is_refused(
    command_line: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "a.toml").write_text(f'target = "prism"\n{text}\n', encoding="utf-8")
    done = command_line("audit", "--config", "a.toml")
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("text", ["NaN", "1e999", "9" * 5_000, "[" * 100_000, '{"schema": 1}', "\x00"])
def test_a_damaged_record_is_refused(command_line: CommandLine, tmp_path: Path, text: str) -> None:
    (tmp_path / "audit.json").write_text(text, encoding="utf-8")
    for command in ("gate", "report", "verify"):
        done = command_line(command, str(tmp_path))
        assert done.returncode == 2, (command, done.stderr)
        assert len(done.stderr.strip().splitlines()) <= 2


def test_a_cancelled_job_leaves_no_worker_and_no_record(tmp_path: Path) -> None:
    """CI cancels with SIGTERM to the parent alone."""
    process = start_audit(tmp_path)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stderr.splitlines()[1:] == ["privbench: interrupted; no record was written."]
    wait_for_end_of_group(process.pid)
    assert list((tmp_path / "out").iterdir()) == list((tmp_path / "work").glob("privbench-*")) == []


def test_an_out_that_is_a_file_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    done = command_line(*AUDIT, "--eps", "1", "--out", str(tmp_path / "taken"))
    assert done.returncode == 2
    assert "is a file; give a folder" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_an_out_that_cannot_be_written_is_refused(command_line: CommandLine) -> None:
    done = command_line(*AUDIT, "--eps", "1", "--out", "/proc/privbench")
    assert done.returncode == 2
    assert "cannot write to /proc/privbench" in done.stderr


def test_a_full_disk_is_a_clear_line_and_no_half_record(tmp_path: Path) -> None:
    """A file-size limit stands in for a full disk: every write past 200 kB fails with an OSError."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = subprocess.run(
        [sys.executable, "-m", "privbench", *AUDIT, "--eps", "1", "--out", str(tmp_path / "o")],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=300,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot store" in done.stderr
    assert not (tmp_path / "o" / "audit.json").exists()


def start_audit(folder: Path) -> subprocess.Popen[str]:
    """An audit of half a minute in a process group of its own, two of whose runs have begun to record."""
    out, work = folder / "out", folder / "work"
    out.mkdir()
    work.mkdir()
    long = ["audit", "--target", "prism", "--eps", "0.5", "--set", "test=400", "--jobs", "2", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "privbench", *long],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=take_sigint,  # noqa: PLW1509
        env={**os.environ, "TMPDIR": str(work)},
    )
    deadline = time.monotonic() + 60
    while len(list(work.glob(f"privbench-*/*/{Transcript.file_name()}"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def take_sigint() -> None:
    """Test runners that use several processes ignore SIGINT, and a child would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_workers_and_leaves_no_record(tmp_path: Path) -> None:
    process = start_audit(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stderr.splitlines()[1:] == ["privbench: interrupted; no record was written."]
    assert list((tmp_path / "out").iterdir()) == []
    wait_for_end_of_group(process.pid)
    assert list((tmp_path / "work").glob("privbench-*")) == []


def wait_for_end_of_group(group: int) -> None:
    deadline = time.monotonic() + 10
    while living := processes_of_group(group):
        assert time.monotonic() < deadline, living
        time.sleep(0.2)


def processes_of_group(group: int) -> list[str]:
    """Names of a process group's members that still run; a zombie waiting for init does not."""
    found = []
    for item in psutil.process_iter(["name", "status"]):
        try:
            if os.getpgid(item.pid) == group and item.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(item.info["name"])
        except ProcessLookupError:
            continue  # it ended while we looked
    return found


def test_debug_shows_the_traceback() -> None:
    done = privbench("gate", "/no/such/record", "--debug")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("what", ["targets", "attacks", "defenses", "bounds", "datasets", "settings"])
def test_list_as_table_and_as_json(command_line: CommandLine, what: str) -> None:
    rows = json.loads(command_line("list", what, "--json").stdout)
    table = command_line("list", what).stdout
    assert rows
    assert all(row["name"] in table for row in rows)


def test_version() -> None:
    assert re.fullmatch(r"privbench \d+\.\d+\.\d+\n", privbench("--version").stdout)

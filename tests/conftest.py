"""Shared fixtures: a small finished audit, and the real data where it is."""

from __future__ import annotations

import os

# One thread, as the command line and every worker have, before numpy is imported: with two and a busy machine an LSTM
# step is up to 150 times slower, and the last digits of a product depend on how many there are.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import surveyed as surveys
from filelock import FileLock

from privbench.cli.main import run
from privbench.options import AuditOptions
from privbench.record import Audit, Finding, read, read_scores
from privbench.registry import Registry, default_registry
from privbench.runner import AuditResult, run_audit

ROOT = Path(__file__).resolve().parents[1]

SMALL: Mapping[str, str] = {
    "train": "150",
    "validation": "120",
    "test": "400",
    "canaries": "120",
    "epochs": "3",
    "batch": "32",
    "references": "2",
}
"""A cohort that trains in a second. Rare labels need at least some positives, so it cannot be much smaller."""
SMALLER: Mapping[str, str] = {**SMALL, "references": "0"}
"""Without reference models."""
BRIEF = ("label", "membership", "inversion/ridge")
"""Attacks on labels, membership and inputs that take seconds together."""


def pytest_configure() -> None:
    """The cache is not the user's; what it holds is named by content, so that sessions may share it."""
    os.environ.setdefault("PRIVBENCH_CACHE", str(Path(tempfile.gettempdir()) / "privbench-tests"))


@pytest.fixture(scope="session")
def registry() -> Registry:
    return default_registry()


@dataclass(frozen=True)
class Done:
    """How a command line ended."""

    returncode: int
    stdout: str
    stderr: str


def privbench(*arguments: str) -> Done:
    """The command line in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "privbench", *arguments], check=False, capture_output=True, text=True, timeout=1800
    )
    return Done(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """An audit of every attack by the command line: made once, by whichever of pytest-xdist's processes asks first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "small-record"
    said = folder.with_suffix(".said.json")
    with FileLock(f"{folder}.lock"):
        if not said.is_file():
            settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
            asked = ("--target", "prism", *settings, "--eps", "0.5", "--jobs", "2", "--out", str(folder))
            done = privbench("audit", *asked)
            said.write_text(json.dumps(asdict(done)), encoding="utf-8")
    return Done(**json.loads(said.read_text(encoding="utf-8"))), folder


@pytest.fixture(scope="session")
def small_record(small_run: tuple[Done, Path]) -> Path:
    return small_run[1]


@pytest.fixture(scope="session")
def small_audit(small_record: Path) -> AuditResult:
    return AuditResult(read(small_record), read_scores(small_record))


COUNTED = ("accuracy", "token-accuracy", "answer-accuracy")


def measured(audit: Audit) -> tuple[Finding, ...]:
    """What has a value among the findings about coins and inputs: where a run holds none, an attack only says so."""
    return tuple(item for item in audit.findings if item.value is not None and item.metric in COUNTED)


@pytest.fixture(scope="session")
def surveyed() -> Mapping[str, AuditResult]:
    """Audits of token inputs, and of such with label coins beside them."""
    kinds = {"inputs": {"noise": "1.5"}, "both": {"noise": "1.5", "coins": "1"}}
    return {
        kind: run_audit(AuditOptions("surveyed", settings=settings), surveys.registry())
        for kind, settings in kinds.items()
    }


CommandLine = Callable[..., Done]


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """The real entry point in this process and an empty folder: all but the interpreter's start."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["privbench", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        printed = capsys.readouterr()
        return Done(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; tests that need it skip, and say so, where it is not."""
    place = Path(os.environ.get("PRIVBENCH_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not place.is_dir():
        pytest.skip(f"no real data at {place}; set PRIVBENCH_TEST_DATA to a folder that holds it")
    return place

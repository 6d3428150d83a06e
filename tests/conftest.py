"""Shared fixtures: a small finished audit, and the real data where it is."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import surveyed as surveys
import torch

from privbench.cli.main import run
from privbench.options import AuditOptions
from privbench.record import Audit, Finding, write
from privbench.registry import Registry, default_registry
from privbench.report.pages import PAGES, render
from privbench.runner import AuditResult, run_audit

ROOT = Path(__file__).resolve().parents[1]

SMALL: Mapping[str, str] = {
    "train": "240",
    "validation": "120",
    "test": "400",
    "canaries": "160",
    "epochs": "3",
    "batch": "32",
    "references": "2",
}
"""A cohort that trains in a second. Rare labels need at least some positives, so it cannot be much smaller."""


def pytest_configure() -> None:
    """One intra-op thread, as every worker has: with two and a busy machine an LSTM step is up to 150 times slower. The
    cache is not the user's; what it holds is named by content, so that sessions may share it.
    """
    torch.set_num_threads(1)
    os.environ.setdefault("PRIVBENCH_CACHE", str(Path(tempfile.gettempdir()) / "privbench-tests"))


@pytest.fixture(scope="session")
def registry() -> Registry:
    return default_registry()


@pytest.fixture(scope="session")
def small_audit(registry: Registry) -> AuditResult:
    return run_audit(AuditOptions("prism", eps=0.5, settings=SMALL), registry, parallel=1)


@pytest.fixture(scope="session")
def small_record(small_audit: AuditResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    write(small_audit.audit, small_audit.scores, render(small_audit.audit, PAGES), folder)
    return folder


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


@dataclass(frozen=True)
class Done:
    """How a command line ended."""

    returncode: int
    stdout: str
    stderr: str


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

"""Whole audits whose clients run under Flower: the same findings, and an interrupt that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_llama import save_llama
from test_cli import take_sigint
from test_fedavg import ASKED, SMALL, arguments
from test_flower import RUNTIMES, installed

from privbench.recording import Transcript


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def in_training(llama: str, runtime: str, members: str, folder: Path) -> subprocess.Popen[str]:
    """An audit of many rounds in a process group of its own, one or more of whose rounds have been recorded."""
    out, work = folder / "out", folder / "work"
    out.mkdir()
    work.mkdir()
    base = {**(ASKED if members == "yes" else SMALL), "runtime": runtime, "rounds": "5000", "reference_rounds": "5000"}
    process = subprocess.Popen(
        [sys.executable, "-m", "privbench", *arguments(llama, base, "--jobs", "2", "--out", str(out))],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=take_sigint,  # noqa: PLW1509
        env={**os.environ, "TMPDIR": str(work)},
    )
    deadline, begun = time.monotonic() + 300, 0
    while True:
        found = list(work.glob(f"privbench-*/*/{Transcript.file_name()}"))
        changed = found[0].stat().st_mtime_ns if found else 0
        begun = begun or changed
        if changed > begun:
            return process
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@installed
@pytest.mark.slow
@pytest.mark.parametrize("members", ["no", "yes"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_ctrl_c_in_training_leaves_no_client_and_no_record(
    llama: str, tmp_path: Path, runtime: str, members: str
) -> None:
    """Where clients live in this process, under Flower, and where a worker has Flower: one line, exit code 3, and
    neither processes nor files.
    """
    process = in_training(llama, runtime, members, tmp_path)
    living = psutil.Process(process.pid).children(recursive=True)
    assert len(living) >= 3 + (2 if members == "yes" else 0)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 3
    assert stderr.splitlines()[1:] == ["privbench: interrupted; no record was written."]
    _, left = psutil.wait_procs(living, timeout=10)
    assert [item.name() for item in left] == []
    assert list((tmp_path / "out").iterdir()) == list((tmp_path / "work").glob("privbench-*")) == []

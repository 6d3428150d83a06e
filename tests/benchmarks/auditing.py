"""An audit by the command line as benchmarks run it: seconds, and the memory of all of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

AUDIT = [sys.executable, "-m", "privbench", "audit", "--exit-zero", "--quiet"]


def audited(out: Path, *arguments: str, fresh: bool = True) -> tuple[float, float]:
    """Seconds, and megabytes at the peak, of an audit; a fresh one finds no reference models in its cache."""
    peaks: list[float] = []
    environment = {**os.environ, "PRIVBENCH_CACHE": str(out / "cache")} if fresh else dict(os.environ)
    command = [*AUDIT, *arguments, "--out", str(out)]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        watcher = threading.Thread(target=lambda: peaks.append(peak_megabytes(process.pid)))
        watcher.start()
        process.wait()
        watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"the audit ended with {process.returncode}")
    return time.monotonic() - started, max(peaks)


def peak_megabytes(pid: int) -> float:
    """Largest sum of proportional set sizes of a process and its children, sampled ten times a second."""
    peak, process = 0.0, psutil.Process(pid)
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        total = 0
        for item in (process, *process.children(recursive=True)):
            try:
                total += item.memory_full_info().pss
            except psutil.Error:
                continue  # it ended between the listing and the look
        peak = max(peak, total / 1e6)
        time.sleep(0.1)
    return peak

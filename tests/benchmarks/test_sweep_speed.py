"""Speed of sweeps and memory over recordings; printed by `make bench`, never asserted as wall-clock."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

GRID = ["--target", "gaussian", "--noise-multiplier", "1,2,4,8,16,32"]


def privbench(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "privbench", *arguments], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(done.stderr.decode())


def sweep(out: Path, jobs: int, seeds: int) -> None:
    privbench("sweep", *GRID, "--seeds", str(seeds), "--jobs", str(jobs), "--quiet", "--out", str(out))


def test_sixty_cells_of_the_gaussian_target(benchmark: Any, tmp_path: Path) -> None:
    """Required: N 1,000, d 32, T 20 in under 3 minutes on 2 cores."""
    benchmark.pedantic(sweep, args=(tmp_path / "sweep", 2, 10), rounds=1)


def test_a_finished_sweep_is_read_again(benchmark: Any, tmp_path: Path) -> None:
    """Required: 60 cells in under 2 s, the interpreter's start included."""
    sweep(tmp_path / "sweep", 2, 10)
    benchmark.pedantic(sweep, args=(tmp_path / "sweep", 2, 10), rounds=5)


def test_a_finished_grid_of_federated_averaging_is_read_again(benchmark: Any, tmp_path: Path) -> None:
    """Required: within seconds, the interpreter's start and a look at the models included; nothing is trained again."""
    sizes = ("train=48", "validation=8", "test=16", "rounds=2", "members=no", "prompting=no", "share=even,power")
    grid = ["sweep", "--target", "fedavg", "--attacks", "inversion/embedding-columns", "--seeds", "2", "--quiet"]
    grid += [part for item in sizes for part in ("--set", item)] + ["--out", str(tmp_path / "sweep")]
    privbench(*grid)
    made = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("audit.json")}
    benchmark.pedantic(privbench, args=grid, rounds=3)
    assert len(made) == 4
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("audit.json")} == made


def test_two_workers_against_one(benchmark: Any, tmp_path: Path) -> None:
    """Required: at least 1.7 times as fast on independent cells (extra: ratio, median of three pairs in turn).

    PRISM cells of 12 epochs where the default is 20, or it would take a quarter of an hour: longer cells only raise the
    ratio, since the start of the workers and the judging of the sweep are in it.
    """
    settings = ["--set", "epochs=12", "--set", "test=2000", "--attacks", "label", "--quiet"]
    grid = ["--target", "prism", "--noise-multiplier", "2,4,8,16", *settings]

    def timed(jobs: int, turn: int) -> float:
        started = time.monotonic()
        privbench("sweep", *grid, "--jobs", str(jobs), "--out", str(tmp_path / f"{jobs}-{turn}"))
        return time.monotonic() - started

    def pairs() -> None:
        ratios.extend(timed(1, turn) / timed(2, turn) for turn in range(3))

    ratios: list[float] = []
    benchmark.pedantic(pairs, rounds=1)
    benchmark.extra_info["ratio"] = round(statistics.median(ratios), 2)
    benchmark.extra_info["ratios"] = sorted(round(ratio, 2) for ratio in ratios)


@pytest.mark.parametrize("releases", [10, 100, 1_000])
def test_peak_memory_over_releases(benchmark: Any, tmp_path: Path, releases: int) -> None:
    """Required: it does not grow with T; 1,000 records of 64 numbers (extra: peak_mb, recording_mb)."""
    measure(benchmark, tmp_path, {"releases": releases, "records": 1_000, "canaries": 400, "width": 64}, sigma=8)


def test_peak_memory_of_a_4_gb_recording(benchmark: Any, tmp_path: Path) -> None:
    """Required: under 2 GB (extra: peak_mb, recording_mb)."""
    measure(benchmark, tmp_path, {"releases": 250, "records": 8_000, "canaries": 800, "width": 64}, sigma=40)


def measure(benchmark: Any, folder: Path, settings: dict[str, int], sigma: int) -> None:
    """Draw a recording into files, then audit the files in a process of its own."""
    drawn = folder / "files"
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    privbench(
        "audit", "--target", "gaussian", "--sigma", str(sigma), *options, "--data", str(drawn), "--quiet",
        "--out", str(folder / "drawn"),
    )  # fmt: skip
    files = [
        part for kind in ("transcript", "oracle", "secrets") for part in (f"--{kind}", f"{drawn}/{kind}.safetensors")
    ]
    command = [sys.executable, "-m", "privbench", "audit", *files, "--quiet", "--out", str(folder / "read")]
    peaks: list[float] = []

    def run() -> None:
        # The child's own report of its peak: resource usage of all children would mix it with the drawing.
        script = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", script, *command], check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout) / 1024)

    benchmark.pedantic(run, rounds=1)
    size = sum(file.stat().st_size for file in drawn.iterdir()) / 1e6
    benchmark.extra_info["peak_mb"], benchmark.extra_info["recording_mb"] = round(max(peaks)), round(size)
    shutil.rmtree(drawn)

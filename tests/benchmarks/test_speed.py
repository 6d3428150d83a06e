"""Speeds that the project quotes; printed by `make bench`, never asserted as wall-clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench import bench

from privbench import accounting
from privbench.attacks.label.oracle_lr import OracleLikelihoodRatio
from privbench.attacks.label.spectral import Spectral
from privbench.data.synthetic import synthetic
from privbench.options import AuditOptions
from privbench.recording import Transcript
from privbench.registry import Registry
from privbench.report.html import html
from privbench.runner import AuditResult
from privbench.targets.prism.inputs import Scaler
from privbench.targets.prism.tape import Tape
from privbench.targets.prism.target import Prism
from privbench.targets.prism.train import Streams, Trainer
from privbench.threads import one_torch_thread


@pytest.fixture(scope="module")
def trainer(registry: Registry) -> Trainer:
    config = Prism().configure(AuditOptions("prism", noise_multiplier=6.25), registry).as_role("audited")
    splits = synthetic(np.random.default_rng(0), 512, 64, 1)
    scaler = Scaler.fit(splits.train)
    train, validation = scaler.inputs(splits.train), scaler.inputs(splits.validation)
    return Trainer(config, train, validation, Streams.spawn(*np.random.default_rng(0).spawn(2)), adversary=None)


def test_training_step_with_recording_of_both_hypotheses(benchmark: Any, trainer: Trainer) -> None:
    """One batch of 64 at three sites: forward, releases, counterfactual releases, backward."""
    noise = trainer._calibrate()
    tape = Tape(trainer.network.sites, trainer.config.moved, (1, 512, 64), party="A")
    with one_torch_thread():
        benchmark(trainer._step, torch.arange(64), 0, noise, tape)


def test_writing_and_reading_a_recording(benchmark: Any, tmp_path: Path) -> None:
    """Three sites, 20 releases of 2,000 records in 64 dimensions: 31 MB."""
    arrays = {f"gradients/{site}": np.zeros((20, 2_000, 64), np.float32) for site in "ABC"}

    def round_trip() -> None:
        Transcript(arrays).save(tmp_path / "t.safetensors")
        Transcript.load(tmp_path / "t.safetensors")

    benchmark(round_trip)


@pytest.mark.parametrize("attack", [OracleLikelihoodRatio(), Spectral()], ids=lambda item: item.card.name)
def test_attack_on_a_default_recording(benchmark: Any, attack: Any) -> None:
    """800 canaries, 20 releases, 64 dimensions."""
    view = bench(seed=0, records=800, releases=20, width=64, sigma=4.0, tasks=3).view(hints=100)
    benchmark(attack, view, np.random.default_rng(0))


def test_nominal_multiplier_by_opacus(benchmark: Any) -> None:
    benchmark.pedantic(
        accounting.nominal_multiplier,
        args=(0.5, 0.032, 625, 1e-5),
        setup=accounting.nominal_eps.cache_clear,
        rounds=5,
    )


def test_html_page(benchmark: Any, small_audit: AuditResult) -> None:
    benchmark(html, small_audit.audit)


def test_help(benchmark: Any) -> None:
    """Required: a median under .4 s over 9 starts."""
    command = [sys.executable, "-m", "privbench", "--help"]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"capture_output": True, "check": True}, rounds=9)

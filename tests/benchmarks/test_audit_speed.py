"""Time and memory of a whole PRISM audit, by parts; printed by `make bench`, never asserted as wall-clock."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from auditing import audited

from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.target import REFERENCE
from privbench.targets.prism.target import Prism
from privbench.workers import Job, run_all

PRISM = ("--target", "prism", "--eps", "0.5", "--attacks")


def test_label_attacks_on_prism(benchmark: Any, tmp_path: Path) -> None:
    """Required: under 90 s, and under 2 GB summed over its processes (extra: peak_mb, proportional set size)."""
    found: list[tuple[float, float]] = []
    benchmark.pedantic(lambda: found.append(audited(tmp_path, *PRISM, "label")), rounds=1)
    benchmark.extra_info["peak_mb"] = round(found[0][1])


def test_membership_and_inversion_on_prism(benchmark: Any, tmp_path: Path) -> None:
    """Required: under 150 s on 2 cores beyond the target's own runs, and under 2 GB (extra: beyond, the seconds more
    than the same audit of labels takes, and peak_mb).
    """
    found: list[tuple[float, float]] = []

    def both() -> None:
        found.extend(audited(tmp_path / attacks, *PRISM, attacks) for attacks in ("label", "all"))

    benchmark.pedantic(both, rounds=1)
    benchmark.extra_info["beyond"] = round(found[1][0] - found[0][0])
    benchmark.extra_info["peak_mb"] = round(found[1][1])


def test_reference_models_against_one_training(benchmark: Any, registry: Registry, tmp_path: Path) -> None:
    """Required: 4 references take at most 2.5 times one training on 2 cores (extra: ratio, median of three pairs)."""
    target = Prism()
    roles = target.roles(target.configure(AuditOptions("prism", eps=0.5), registry))
    models = {role: Job(role, target, config, 0) for role, config in roles.items() if role.startswith(REFERENCE)}
    one = dict(list(models.items())[:1])
    ratios: list[float] = []

    def timed(jobs: dict[str, Job], where: Path) -> float:
        started = time.monotonic()
        run_all(jobs, 2, lambda stage, share: None, where)
        return time.monotonic() - started

    def pairs() -> None:
        for turn in range(3):
            alone = timed(one, tmp_path / f"one-{turn}")
            ratios.append(timed(models, tmp_path / f"all-{turn}") / alone)

    benchmark.pedantic(pairs, rounds=1)
    benchmark.extra_info["ratio"] = round(statistics.median(ratios), 2)

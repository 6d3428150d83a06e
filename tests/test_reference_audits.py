"""The reference audits, at full size: what the project says of PRISM-VFL, seen again by `make test-all`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMALL

from privbench.gate import gate
from privbench.options import AuditOptions
from privbench.record import Audit
from privbench.registry import Registry
from privbench.report import notes
from privbench.runner import run_audit
from privbench.targets.prism.target import Prism
from privbench.workers import Job, run_all

pytestmark = pytest.mark.slow


def audit(registry: Registry, parallel: int = 2, **options: Any) -> Audit:
    return run_audit(AuditOptions("prism", **options), registry, parallel=parallel).audit


@pytest.fixture(scope="module")
def half(registry: Registry) -> Audit:
    return audit(registry, eps=0.5)


def value(item: Audit, attack: str, bound: str) -> float:
    found = item.finding(attack, bound).value
    assert found is not None
    return found


def test_the_nominal_half_is_exceeded_and_the_mechanism_is_not(half: Audit) -> None:
    assert half.finding("label/oracle-lr", "g").verdict != "EXCEEDED"
    assert half.finding("label/oracle-lr", "g-composed").verdict != "EXCEEDED"
    nominal = half.finding("label/oracle-lr", "nominal-curve")
    assert nominal.verdict == "EXCEEDED"
    assert nominal.bound is not None
    assert nominal.bound["value"] == pytest.approx(0.551, abs=5e-4)
    assert value(half, "label/oracle-lr", "nominal-curve") == pytest.approx(0.78, abs=0.06)
    assert gate(half).code == 1
    assert "does not speak for a curious site" in str(notes.claim_note(half))


def test_the_oracle_reaches_its_prediction(half: Audit) -> None:
    """Within 4 standard errors, accumulated and per release: the flags say when it does not."""
    assert not {"ORACLE_WEAK", "ORACLE_ABOVE_PREDICTION"} & {flag["name"] for flag in half.flags}
    predicted = half.series["oracle, predicted"].y[-1]
    found = half.finding("label/oracle-lr", "g-composed")
    assert found.n is not None
    error = math.sqrt(predicted * (1 - predicted) / found.n)
    assert abs(value(half, "label/oracle-lr", "g-composed") - predicted) < 4 * error


def test_controls_read_the_coins_without_noise_and_nothing_when_shuffled(half: Audit) -> None:
    for attack in ("label/oracle-lr", "label/spectral"):
        controls = half.finding(attack, "g-composed").controls
        positive, negative = controls["positive"], controls["negative"]
        assert positive is not None
        assert negative is not None
        assert positive["value"] >= 0.99
        assert negative["low"] <= 0.5 <= negative["high"]


def test_spectral_needs_no_knowledge_and_its_strength_is_said(half: Audit) -> None:
    spectral = half.finding("label/spectral", "nominal-curve")
    assert 0.6 <= value(half, "label/spectral", "nominal-curve") <= 0.75
    assert spectral.strength is not None
    assert 0.2 < spectral.strength < 1


def test_with_noise_for_the_site_nothing_is_exceeded(registry: Registry) -> None:
    site = audit(registry, eps=0.5, eps_for="site")
    assert "EXCEEDED" not in {finding.verdict for finding in site.findings}
    assert gate(site).code == 0


def test_the_whole_audit_is_repeatable_byte_for_byte(registry: Registry, half: Audit) -> None:
    again = audit(registry, eps=0.5)
    first, second = (json.dumps([asdict(finding) for finding in item.findings]) for item in (half, again))
    assert first == second
    assert half.scores_sha256 == again.scores_sha256


def test_twenty_honest_audits_raise_few_false_alarms(registry: Registry) -> None:
    """g and g-composed share an error rate of .05 with four other tests: more than 3 of 20 has probability < .016."""
    settings = {**SMALL, "train": "600", "canaries": "400", "epochs": "8", "batch": "64"}
    alarms = []
    for seed in range(20):
        found = audit(registry, parallel=1, noise_multiplier=4.0, seed=seed, settings=settings)
        bounds = ("g", "g-composed")
        alarms.append(any(found.finding("label/oracle-lr", name).verdict == "EXCEEDED" for name in bounds))
    assert sum(alarms) <= 3


def test_real_stays_give_the_same_kind_of_record(registry: Registry, real_data: Path) -> None:
    found = audit(registry, eps=0.5, data=f"physionet2012:{real_data / 'physionet2012'}")
    assert {item["task"] for item in found.utility} == {"ihm", "early-death", "care-unit"}
    assert found.missing == ()
    assert "FAILED" not in {finding.verdict for finding in found.findings}
    assert "ALIGNMENT_NOT_PRIVATE" in {flag["name"] for flag in found.flags}


def test_mortality_is_learned_from_real_stays_without_noise(registry: Registry, real_data: Path) -> None:
    """AUC .77 or more on held-out stays, mean of 3 seeds, epoch chosen on validation."""
    target, found = Prism(), []
    for seed in range(3):
        options = AuditOptions("prism", eps=math.inf, seed=seed, data=f"physionet2012:{real_data / 'physionet2012'}")
        clean = target.configure(options, registry).as_role("clean")
        run = run_all({"clean": Job("clean", target, clean, seed)}, 1, lambda stage, share: None)["clean"]
        found.append(next(item.value for item in run.utility if item.task == "ihm"))
    assert np.mean(found) >= 0.77

"""Bounds on estimated inputs, on the cut where the best estimate is known: orthonormal, of standard normals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privbench.attacks.inversion.ridge import Ridge
from privbench.bounds.base import BoundValue, Cut, InputBound, Unsupported
from privbench.bounds.inputs import Channel, Fisher
from privbench.errors import InputError
from privbench.estimated import Fit, Measured
from privbench.estimating import _Bench, _cut
from privbench.findings import Header
from privbench.findings_estimates import _held
from privbench.options import AuditOptions
from privbench.record import Finding, write
from privbench.recording import Secrets, Transcript
from privbench.registry import Registry
from privbench.report.pages import PAGES, render
from privbench.runner import run_audit
from privbench.target import TargetRun
from privbench.threat import server_with_patients
from privbench.verdict import Verdict
from privbench.verify import verify

D = 4


def cut(noise: float, releases: int = 1, *, normal: bool = True) -> Cut:
    """Orthonormal columns: A x has variance 1 in D directions."""
    return Cut(noise, releases, D, float(D), (1.0,) * D, normal)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("releases", [1, 5])
def test_closed_forms(noise: float, releases: int) -> None:
    """The mean of T releases has noise s / sqrt T: all explain at most 1 / (1 + s^2 / T), unbiased ones 1 - s^2 / T."""
    channel, fisher = (bound.evaluate(cut(noise, releases)) for bound in (Channel(), Fisher()))
    assert isinstance(channel, BoundValue)
    assert isinstance(fisher, BoundValue)
    assert channel.value == pytest.approx(1 / (1 + noise**2 / releases))
    assert fisher.value == pytest.approx(max(0.0, 1 - noise**2 / releases))
    assert (channel.unit, fisher.unit) == ("r2", "r2")
    assert channel.assumptions
    assert fisher.assumptions


def test_what_unequal_directions_let_through_is_bounded_on_average() -> None:
    """Gains 2, 1, .5, 0: the channel allows at least what the posterior mean explains, averaged over inputs."""
    gains = np.array([2.0, 1.0, 0.5, 0.0])
    value = Channel().evaluate(Cut(1.0, 1, D, float((gains**2).sum()), tuple(gains**2), normal=True))
    assert isinstance(value, BoundValue)
    assert value.value >= float((gains**2 / (1 + gains**2)).mean())


def test_without_a_known_distribution_no_floor_follows() -> None:
    answer = Channel().evaluate(cut(1.0, normal=False))
    assert isinstance(answer, Unsupported)
    assert answer.part == "prior"


@pytest.mark.parametrize("bound", [Channel(), Fisher()], ids=lambda bound: bound.card.name)
def test_a_cut_without_noise_has_no_bound(bound: InputBound) -> None:
    answer = bound.evaluate(cut(0.0))
    assert isinstance(answer, Unsupported)
    assert answer.part == "eta"


def test_a_constant_cut_tells_nothing() -> None:
    silent = Cut(1.0, 1, D, 0.0, (0.0,) * D, normal=True)
    values = [bound.evaluate(silent) for bound in (Channel(), Fisher())]
    assert [value.value for value in values if isinstance(value, BoundValue)] == [pytest.approx(0.0), 0.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("eta", math.nan), ("eta", -1.0), ("eta", math.inf), ("releases", 0), ("entries", 0), ("trace", -1.0),
        ("sent", ()), ("sent", (1.0, -1.0)),
    ],
)  # fmt: skip
def test_numbers_that_no_cut_has_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        replace(cut(1.0), **{name: value})


def held(fit: Fit, value: BoundValue) -> Finding:
    name = "inversion/ridge/input/A/1/r2/none"
    header = Header("gaussian", 0, "gaussian", None)
    blank = header.finding(name, "inversion/ridge", Ridge.card, server_with_patients(), "input/A", 1, "r2")
    (found,) = _held(blank, fit, {value.name: value})
    return found


def test_the_best_estimator_is_seldom_above_the_channels_bound() -> None:
    """It explains exactly what the bound allows: p < .05 in at most 5% of 600 recordings, and 3.3 standard errors."""
    noise, n, runs = 0.7, 300, 600
    value = Channel().evaluate(cut(noise))
    assert isinstance(value, BoundValue)
    low = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, 1, D))
        sent = x + noise * rng.standard_normal(x.shape)
        found = held(Measured(x, np.ones(x.shape, np.bool_)).fit(sent / (1 + noise**2)), value)
        assert found.bound is not None
        low += found.bound["p_value"] < 0.05
    assert 0.01 * runs <= low <= 0.05 * runs + 3.3 * math.sqrt(0.05 * 0.95 * runs)


def test_an_audit_holds_what_is_read_beside_both_bounds(registry: Registry, tmp_path: Any) -> None:
    settings = {"inputs": "4", "cut_noise": "0.5", "records": "2000", "releases": "2"}
    options = AuditOptions("gaussian", sigma=2.0, settings=settings, attacks=("inversion/ridge",))
    result = run_audit(options, registry, parallel=1)
    found = {item.bound["name"]: item for item in result.audit.findings if item.bound is not None}
    assert set(found) == {"channel", "fisher"}
    assert {item.verdict for item in found.values()} == {Verdict.REPORTED}
    assert {item.role for item in found.values()} == {"descriptive"}
    assert found["channel"].bound["value"] == pytest.approx(0.8)
    assert found["fisher"].bound["value"] == pytest.approx(0.75)
    assert found["channel"].value == pytest.approx(0.8, abs=0.02)
    write(result.audit, result.scores, render(result.audit, PAGES), tmp_path)
    assert verify(tmp_path, registry) == ()


def test_a_cut_whose_noise_nobody_describes_stays_uncovered(registry: Registry) -> None:
    settings = {"inputs": "4", "cut_noise": "0", "records": "400", "releases": "2"}
    options = AuditOptions("gaussian", sigma=2.0, settings=settings, attacks=("inversion/ridge",))
    audit = run_audit(options, registry, parallel=1).audit
    assert {item.verdict for item in audit.findings} == {Verdict.UNCOVERED}
    assert audit.estimates is not None
    assert audit.estimates["cut"] is None


def recorded(changes: dict[str, Any], priors: str | None = "standard-normal", scale: float = 1.0) -> Cut | None:
    """The cut of 400 records of D inputs behind noise .5, with other arrays in place of its own."""
    rng = np.random.default_rng(1)
    x = (scale * rng.standard_normal((400, 1, D))).astype(np.float32)
    weight, _ = np.linalg.qr(rng.standard_normal((6, D)))
    sent = x[:, 0] @ weight.T + 0.5 * rng.standard_normal((400, 6))
    known = np.arange(200)
    arrays = {
        "activations/A": sent[None].astype(np.float32),
        "model/A/weight": weight.astype(np.float32),
        "auxiliary/index": known,
        "auxiliary/server/inputs/A": x[known],
        **changes,
    }
    own = {"channel": "activations", "party": "A", "kind": "gaussian", "noise": "once", "sigma": {"cut": 0.5}}
    everybody = {**own, "party": "*", "sigma": {"cut": 50.0}}
    metadata = {"mechanisms": [everybody, own]}
    secrets = Secrets({"inputs/A": x}, {} if priors is None else {"priors": {"A": priors}})
    run = TargetRun(Transcript(arrays, metadata), None, secrets, (), {}, "")
    return _cut(run, _Bench.of(run, 0))


def test_a_sites_own_mechanism_stands_before_that_of_all() -> None:
    found = recorded({})
    assert found is not None
    assert found.eta == 0.5
    assert found.normal


def test_answers_tell_more_of_inputs_than_the_cut_does() -> None:
    """Whoever knows labels may know inputs: their entropy given the labels is not known, and no floor follows."""
    labels = (np.arange(400) % 2).astype(np.int64)
    found = recorded({"outputs/y/labels": labels, "outputs/y": np.zeros((400, 1), np.float32)})
    assert found is not None
    assert not found.normal


def test_a_weight_that_does_not_fit_the_cut_describes_none() -> None:
    assert recorded({"model/A/weight": np.ones((4, D), np.float32)}) is None


def test_a_prior_that_the_inputs_refute_is_refused() -> None:
    with pytest.raises(InputError, match="standard deviation 10"):
        recorded({}, scale=10.0)
    assert recorded({}, priors=None, scale=10.0) is not None

"""Findings and records made by hand, for what a page says of a case that no small run shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from privbench.record import Audit, Finding

SILENT = "no bound speaks"
FEATURES = ({"name": "heart rate", "unit": "beats/min"}, {"name": "lactate", "unit": "mmol/L"})
PEOPLE, HOURS = 3, 4
EXAMPLES = tuple(
    {
        "measured": [[80.0 + k, None, 82.5, 79.0], [None, 1.5, None, None]],
        "estimated": [[81.0, 81.5, 80.0 + k, 80.0], [1.2, 1.3, 1.4, 1.5]],
    }
    for k in range(PEOPLE)
)
HARM: Mapping[str, Any] = {
    "task": "ihm", "honest": 0.85, "acted": 0.84, "change": -0.01, "low": -0.03, "high": 0.01, "n": 1_400,
}  # fmt: skip
NUMBERS: Mapping[str, Any] = {
    "name": "input/A",
    "records": 1_200,
    "known": 800,
    "hours": HOURS,
    "features": list(FEATURES),
    "r2": {"inversion/ridge": [0.642, -0.031], "inversion/mlp": [0.7, 0.005]},
    "off": {"inversion/ridge": [7.914, 1_234.5], "inversion/mlp": [6.02, 1.1]},
    "harms": {"inversion/fsha": [HARM, {**HARM, "task": "late", "low": -0.02, "high": -0.004}]},
    "shown": "inversion/mlp",
    "examples": list(EXAMPLES),
}
MEMBERS: Mapping[str, Any] = {"name": "member", "candidates": 1_400, "scored": 1_200, "references": 16}
MANIFEST: Mapping[str, Any] = {
    "config": {"resolved": {"data": "synthetic", "eps": None}},
    "seeds": [0],
    "privbench": "0",
    "packages": {},
    "machine": {"processor": "", "system": "", "python": ""},
    "times": {"started": "", "seconds": 0},
}


def finding(metric: str, value: float | None, **given: Any) -> Finding:
    """Of ridge regression unless it is told otherwise, judged by nobody."""
    blank = Finding(
        id=f"id/{metric}",
        target="prism",
        party="",
        threat_model="curious server",
        channel="activations",
        attack="inversion/ridge",
        secret="input/A",
        releases=1,
        metric=metric,
        value=value,
        low=None,
        high=None,
        level=None,
        n=1_200,
        canaries=1_200,
        chance=0.0,
        baseline=None,
        controls={"positive": None, "negative": None},
        role="descriptive",
        bound=None,
        verdict="UNCOVERED",
        reason=SILENT,
        strength=None,
        seed=0,
        defense="none",
        eps=None,
    )
    return replace(blank, **given)


def member(metric: str, value: float | None, **given: Any) -> Finding:
    return finding(metric, value, **{"attack": "membership/rmia", "secret": "member", "chance": 0.5, **given})


def coins(value: float | None, **given: Any) -> Finding:
    """Guesses of label coins by the oracle, over 3 releases."""
    same = {"attack": "label/oracle-lr", "secret": "canary/joint", "chance": 0.5, "releases": 3, "party": "A"}
    return finding("accuracy", value, **{**same, "threat_model": "curious site A with the model", **given})


def bound(name: str, value: float, **given: Any) -> dict[str, Any]:
    return {
        "name": name, "unit": "accuracy", "value": value, "p_value": 0.5, "alpha": 0.01, "needed": None,
        "inputs": {}, "assumptions": [], **given,
    }  # fmt: skip


def control(passed: bool) -> dict[str, Any]:
    return {"value": 0.5, "low": 0.4, "high": 0.6, "n": 100, "passed": passed}


def audit(*findings: Finding, **parts: Any) -> Audit:
    """A record that holds these findings and nothing else."""
    empty = Audit(
        cell="0" * 64,
        manifest=MANIFEST,
        threats=(),
        mechanisms=(),
        claims=(),
        epsilons=(),
        utility=(),
        secret=None,
        inputs=None,
        members=None,
        estimates=None,
        moves={"rho": None},
        noise=None,
        findings=findings,
        planned=tuple(item.id for item in findings),
        flags=(),
        notes=(),
        series={},
        scores_sha256="",
    )
    return replace(empty, **parts)

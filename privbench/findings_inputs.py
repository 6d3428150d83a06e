"""Findings about inputs: what an inversion read of the answers, and attacks for which a run holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, NotApplicable
from privbench.counts import COUNTS
from privbench.findings import NOTHING, Header, Judged, refused
from privbench.invert import Inversions, Key
from privbench.mechanism import Mechanism
from privbench.record import Finding, Series
from privbench.recovery import METRICS, Floats, Recovered
from privbench.scoring import CONTROL_LEVEL
from privbench.stats.shares import share_interval
from privbench.threat import ThreatModel
from privbench.verdict import Verdict

Scores = Mapping[str, npt.NDArray[Any]]

LEVEL = 0.95
AT_CUT = "at this cut"
_WHERE: Mapping[str, str] = {"updates": "on these updates"}
"""Where a mechanism would stand, by the channel that an attack reads."""
ROWS = ("value", "shuffled", "baseline", "squares")
"""Of the score arrays recovered/ATTACK/SECRET/RELEASES/METRIC and prior/SECRET/METRIC [4]: sums, since a record's part
tells its answers.
"""


def assemble_inputs(header: Header, inversions: Inversions) -> Judged:
    """One finding per inversion, number of releases and metric; no bound speaks about them yet."""
    findings: list[Finding] = []
    scores: dict[str, npt.NDArray[Any]] = {}
    series: dict[str, Series] = {}
    secret, m = f"input/{inversions.victim}", len(inversions.scored)
    scores[f"index/{secret}"] = inversions.scored
    for metric, found in inversions.prior.items():
        scores[f"prior/{secret}/{metric}"] = _sums(found)
    for name, outcome in inversions.outcomes.items():
        for (releases, metric), found in outcome.found.items():
            blank = _blank(header, name, outcome.card, outcome.threat, secret, releases, metric)
            findings.append(_measured(blank, found, inversions))
            scores[f"recovered/{name}/{secret}/{releases}/{metric}"] = _sums(found)
        scores[f"curve/{name}/{secret}"] = outcome.curve
        series[name] = _curve(outcome.curve, m)
    for name, (card, threat, why) in inversions.refused.items():
        findings.append(refused(_blank(header, name, card, threat, secret, 1, METRICS[0]), why))
    broken = any((item.controls["negative"] or {}).get("passed") is False for item in findings)
    flags = ("SHUFFLED_CONTROL_FAILED",) if broken else ()
    return Judged(tuple(findings), tuple(item.id for item in findings), flags, series, scores)


def without_secret(
    header: Header, attacks: Mapping[str, AttackCard], threat: ThreatModel, metric: str, reason: str
) -> Judged:
    """Attacks that this run holds nothing to guess for: each says so."""
    findings = tuple(
        refused(_blank(header, name, card, threat, NOTHING, 1, metric), NotApplicable(reason))
        for name, card in attacks.items()
    )
    return Judged(findings, tuple(item.id for item in findings), (), {}, {})


def _blank(
    header: Header, attack: str, card: AttackCard, threat: ThreatModel, secret: str, releases: int, metric: str
) -> Finding:
    return header.finding(
        f"{attack}/{secret}/{releases}/{metric}/{NOTHING}", attack, card, threat, secret, releases, metric
    )


def _measured(finding: Finding, found: Recovered, inversions: Inversions) -> Finding:
    low, high = found.interval()
    return replace(
        finding,
        value=found.value,
        low=low,
        high=high,
        level=LEVEL,
        n=found.n,
        canaries=found.records,
        baseline=without_cut(finding.metric, found, inversions.prior),
        controls={"positive": None, "negative": _shuffled(found)},
        verdict=Verdict.UNCOVERED,
        reason=no_bound(inversions.mechanism, "tokens behind ", _WHERE.get(finding.channel, AT_CUT)),
    )


def without_cut(metric: str, found: Recovered, prior: Mapping[str, Recovered]) -> float:
    """The best of what takes no cut: one reply for everybody, or what a language model says that is told the rest."""
    return max(found.baseline, prior[metric].value if metric in prior else 0.0)


def _sums(found: Recovered) -> npt.NDArray[np.float64]:
    return np.array([getattr(found, row) for row in ROWS])


def recovered_of(
    scores: Scores, said: Mapping[str, Any], attack: str, counted: Mapping[Key, int]
) -> dict[Key, Recovered]:
    """What an attack read, by number of releases and metric, from its sums. said: the record's "inputs"; counted: how
    many guesses it made.
    """
    return {
        (releases, metric): _recovered(scores[name], said, counted.get((releases, metric), 0))
        for releases, metric in product(sorted({1, said["releases"]}), (*METRICS, COUNTS))
        if (name := f"recovered/{attack}/{said['name']}/{releases}/{metric}") in scores
    }


def prior_of(scores: Scores, said: Mapping[str, Any]) -> dict[str, Recovered]:
    """By metric what a language model says, where it was asked; how many guesses it made is not kept."""
    names = {metric: f"prior/{said['name']}/{metric}" for metric in METRICS}
    return {metric: _recovered(scores[name], said, 0) for metric, name in names.items() if name in scores}


def _recovered(sums: npt.NDArray[Any], said: Mapping[str, Any], n: int) -> Recovered:
    return Recovered(**dict(zip(ROWS, map(float, sums), strict=True)), records=said["records"], n=n)


def no_bound(mechanism: Mechanism | None, what: str = "", where: str = AT_CUT) -> str:
    """Why what is read from activations or updates is measured and not judged."""
    if mechanism is not None:
        return f"no bound here speaks about {what}the kind '{mechanism.kind}'"
    return f"no noise or other mechanism is described {where}, so that no bound speaks"


def _shuffled(found: Recovered) -> dict[str, Any]:
    """Negative control: read as another record's, an input tells no more than the most frequent answers do."""
    low, high = share_interval(found.shuffled, found.records, found.squares, CONTROL_LEVEL)
    return {"value": found.shuffled, "low": low, "high": high, "n": found.n, "passed": low <= found.baseline}


def _curve(values: Floats, m: int) -> Series:
    """Token accuracy of each release by itself, with its 95% limits over m records."""
    ends = [share_interval(float(value), m, 1 / m, LEVEL) for value in values]
    steps = tuple(float(t) for t in range(1, len(values) + 1))
    return Series(steps, tuple(map(float, values)), tuple(low for low, _ in ends), tuple(high for _, high in ends))

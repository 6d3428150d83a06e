"""Findings about estimated inputs: R2, the share of features that are read, whether an estimate finds its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard
from privbench.estimated import GOOD, METRICS, Fit
from privbench.estimating import Estimated, Estimates
from privbench.findings import NOTHING, Header, Judged, refused
from privbench.findings_inputs import no_bound
from privbench.record import Finding
from privbench.scoring import CONTROL_LEVEL, Control
from privbench.stats import binomial
from privbench.threat import ThreatModel
from privbench.verdict import Verdict

LEVEL = 0.95
OTHERS = "others"
"""Where an attack's name would stand: the regression on all other columns."""


@dataclass(frozen=True)
class _Value:
    metric: str
    value: float
    low: float | None
    high: float | None
    chance: float
    baseline: float | None
    control: Control | None


def assemble_estimates(header: Header, estimates: Estimates) -> Judged:
    """Three findings per attack; no bound speaks about them where nothing is added at the cut."""
    findings: list[Finding] = []
    secret = f"input/{estimates.victim}"
    scores: dict[str, npt.NDArray[Any]] = {f"index/{secret}": estimates.scored}
    if estimates.others is not None:
        scores |= _kept(f"{OTHERS}/{secret}", estimates.others)
    for name, outcome in estimates.outcomes.items():
        scores |= _kept(f"{name}/{secret}", outcome.fit) | _kept(f"wrong/{name}/{secret}", outcome.wrong)
        for found in _values(outcome, estimates.others):
            blank = _blank(header, name, outcome.card, outcome.threat, secret, found.metric)
            findings.append(_filled(blank, found, estimates))
    for name, (card, threat, why) in estimates.refused.items():
        findings.append(refused(_blank(header, name, card, threat, secret, METRICS[0]), why))
    broken = any((item.controls["negative"] or {}).get("passed") is False for item in findings)
    flags = ("SHUFFLED_CONTROL_FAILED",) if broken else ()
    return Judged(tuple(findings), tuple(item.id for item in findings), flags, {}, scores)


def _kept(name: str, fit: Fit) -> dict[str, npt.NDArray[Any]]:
    """fit/NAME [F + 2]: R2 of each feature, the standard error of their mean, and the records found again."""
    return {f"fit/{name}": np.array([*fit.r2, fit.error, fit.hit])}


def fit_of(kept: npt.NDArray[Any], records: int) -> Fit:
    """What `_kept` wrote."""
    return Fit(kept[:-2], float(kept[-2]), int(kept[-1]), records)


def _values(outcome: Estimated, others: Fit | None) -> Iterator[_Value]:
    fit, wrong, m = outcome.fit, outcome.wrong, outcome.fit.records
    low, high = fit.interval()
    beyond = 3.3 * wrong.error  # two-sided 99.9%, as for the other controls
    ends = (wrong.mean - beyond, min(wrong.mean + beyond, 1.0))
    control = Control(wrong.mean, *ends, m, ends[0] <= 0)
    yield _Value("r2", fit.mean, low, high, 0.0, None if others is None else max(others.mean, 0.0), control)
    base = None if others is None else float((others.r2 > GOOD).mean())
    yield _Value("r2-share", float((fit.r2 > GOOD).mean()), None, None, 0.0, base, None)
    low, high = binomial.clopper_pearson(fit.hit, m, LEVEL)
    ends = binomial.clopper_pearson(wrong.hit, m, CONTROL_LEVEL)
    control = Control(wrong.hit / m, *ends, m, ends[0] <= 1 / m)
    base = None if others is None else others.hit / m
    yield _Value("re-identification", fit.hit / m, low, high, 1 / m, base, control)


def _blank(header: Header, attack: str, card: AttackCard, threat: ThreatModel, secret: str, metric: str) -> Finding:
    return header.finding(f"{attack}/{secret}/1/{metric}/{NOTHING}", attack, card, threat, secret, 1, metric)


def _filled(finding: Finding, found: _Value, estimates: Estimates) -> Finding:
    features = len(next(iter(estimates.outcomes.values())).fit.r2)
    return replace(
        finding,
        value=found.value,
        low=found.low,
        high=found.high,
        level=None if found.low is None else LEVEL,
        n=features if found.metric == "r2-share" else len(estimates.scored),
        canaries=len(estimates.scored),
        chance=found.chance,
        baseline=found.baseline,
        controls={"positive": None, "negative": None if found.control is None else asdict(found.control)},
        verdict=Verdict.UNCOVERED,
        reason=no_bound(estimates.mechanism),
    )

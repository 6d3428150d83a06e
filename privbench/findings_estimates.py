"""Findings about estimated inputs: R2, the share of features that are read, whether an estimate finds its record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard
from privbench.bounds.base import BoundValue, InputBound
from privbench.estimated import GOOD, METRICS, Fit
from privbench.estimating import Estimated, Estimates
from privbench.findings import NOTHING, Header, Judged, refused
from privbench.findings_inputs import no_bound
from privbench.record import Finding
from privbench.registry import Registry
from privbench.scoring import CONTROL_LEVEL, Control
from privbench.stats import binomial
from privbench.strength import beside_strongest
from privbench.threat import ThreatModel
from privbench.verdict import Verdict

LEVEL = 0.95
FITS = ("", "wrong/", "constant/", "prior/", "others/")
"""An attack's fit and those it is held against, by what stands before its name; the last is not always there."""
LAST = ("error", "hit", "records", "heaviest")
HEAVIEST = 0.5
"""Share of one record in the variance of R2 from which the interval is not to be trusted."""
BESIDE = "bounds on inputs speak about R2 only"


@dataclass(frozen=True)
class _Value:
    metric: str
    value: float
    low: float | None
    high: float | None
    chance: float
    baseline: float
    control: Control | None


def assemble_estimates(header: Header, estimates: Estimates, registry: Registry) -> Judged:
    """Three findings per attack, and of R2 one for each bound; none speaks where nothing is added at the cut."""
    findings: list[Finding] = []
    values = _bound_values(estimates, registry)
    secret = f"input/{estimates.victim}"
    scores: dict[str, npt.NDArray[Any]] = {f"index/{secret}": estimates.scored}
    for name, outcome in estimates.outcomes.items():
        scores |= {f"fit/{part}{name}/{secret}": kept(fit) for part, fit in fits(outcome).items()}
        for found in _values(outcome):
            blank = _blank(header, name, outcome.card, outcome.threat, secret, found.metric)
            reason = BESIDE if values else no_bound(estimates.mechanism)
            filled = _filled(blank, found, outcome, reason)
            findings += _held(filled, outcome.fit, values) if found.metric == METRICS[0] else [filled]
    for name, (card, threat, why) in estimates.refused.items():
        findings.append(refused(_blank(header, name, card, threat, secret, METRICS[0]), why))
    broken = any((item.controls["negative"] or {}).get("passed") is False for item in findings)
    flags = ["SHUFFLED_CONTROL_FAILED"] if broken else []
    if any(outcome.fit.heaviest > HEAVIEST for outcome in estimates.outcomes.values()):
        flags.append("R2_RESTS_ON_ONE_RECORD")
    ranked = beside_strongest(findings, METRICS[0], lambda item: item.baseline or 0.0)
    return Judged(ranked, tuple(item.id for item in ranked), tuple(flags), {}, scores)


def _bound_values(estimates: Estimates, registry: Registry) -> dict[str, BoundValue]:
    """What each bound says of this cut; those that say nothing are left out."""
    if estimates.cut is None:
        return {}
    bounds: dict[str, InputBound] = registry.made("bounds", InputBound)  # type: ignore[type-abstract]
    found = {name: bound.evaluate(estimates.cut) for name, bound in bounds.items()}
    return {name: value for name, value in found.items() if isinstance(value, BoundValue)}


def _held(finding: Finding, fit: Fit, values: Mapping[str, BoundValue]) -> list[Finding]:
    """The finding beside every bound, or by itself. p: how often so much is read at the bound, by the normal law of a
    mean over records; shown, not judged.
    """
    beside = []
    for name, value in values.items():
        p = NormalDist().cdf((value.value - fit.mean) / fit.error) if 0 < fit.error < math.inf else None
        bound = {"name": name, "unit": value.unit, "value": value.value, "p_value": p, "alpha": None, "needed": None}
        more = {"inputs": dict(value.inputs), "assumptions": list(value.assumptions)}
        identity = finding.id.replace(f"/{NOTHING}", f"/{name}")
        reason = "descriptive: shown, not judged"
        beside.append(replace(finding, id=identity, bound=bound | more, verdict=Verdict.REPORTED, reason=reason))
    return beside or [finding]


def fits(outcome: Estimated) -> dict[str, Fit]:
    """An attack's fit and those it is held against, by what stands before its name."""
    found = (outcome.fit, outcome.wrong, outcome.constant, outcome.prior, outcome.others)
    return {part: fit for part, fit in zip(FITS, found, strict=True) if fit is not None}


def kept(fit: Fit) -> npt.NDArray[Any]:
    """[2F + len(LAST)]: R2 and spread of each feature, the rest in the order of LAST."""
    return np.array([*fit.r2, *fit.spread, *(getattr(fit, name) for name in LAST)])


def fit_of(values: npt.NDArray[Any]) -> Fit:
    """What `kept` made."""
    r2, spread = np.split(values[: -len(LAST)], 2)
    error, hit, records, heaviest = values[-len(LAST) :].tolist()
    return Fit(r2, spread, error, int(hit), int(records), heaviest)


def _values(outcome: Estimated) -> Iterator[_Value]:
    fit, wrong, m = outcome.fit, outcome.wrong, outcome.fit.records
    without = [outcome.prior] + ([] if outcome.others is None else [outcome.others])
    low, high = fit.interval()
    beyond = 3.3 * wrong.error  # two-sided 99.9%, as for the other controls
    ends = (wrong.mean - beyond, min(wrong.mean + beyond, 1.0))
    control = Control(wrong.mean, *ends, m, ends[0] <= outcome.constant.mean)
    yield _Value("r2", fit.mean, low, high, 0.0, max(0.0, *(base.mean for base in without)), control)
    shares = [float((base.r2 > GOOD).mean()) for base in (fit, *without)]
    yield _Value("r2-share", shares[0], None, None, 0.0, max(shares[1:]), None)
    low, high = binomial.clopper_pearson(fit.hit, m, LEVEL)
    ends = binomial.clopper_pearson(wrong.hit, m, CONTROL_LEVEL)
    control = Control(wrong.hit / m, *ends, m, ends[0] <= 1 / m)
    yield _Value("re-identification", fit.hit / m, low, high, 1 / m, max(base.hit for base in without) / m, control)


def _blank(header: Header, attack: str, card: AttackCard, threat: ThreatModel, secret: str, metric: str) -> Finding:
    return header.finding(f"{attack}/{secret}/1/{metric}/{NOTHING}", attack, card, threat, secret, 1, metric)


def _filled(finding: Finding, found: _Value, outcome: Estimated, reason: str) -> Finding:
    return replace(
        finding,
        value=found.value,
        low=found.low,
        high=found.high,
        level=None if found.low is None else LEVEL,
        n=len(outcome.fit.r2) if found.metric == "r2-share" else outcome.fit.records,
        canaries=outcome.fit.records,
        chance=found.chance,
        baseline=found.baseline,
        controls={"positive": None, "negative": None if found.control is None else asdict(found.control)},
        verdict=Verdict.UNCOVERED,
        reason=reason,
    )

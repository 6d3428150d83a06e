"""Findings about membership: how well an attack tells records that were trained on from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.attack import Scores
from privbench.bounds.base import BoundValue, MemberBound, Unsupported
from privbench.diagnose import unfair
from privbench.findings import NOTHING, Header, Judged, refused
from privbench.flags import VOIDING
from privbench.measure import Failure
from privbench.membership import Exposed, Membership
from privbench.record import Finding
from privbench.recording import MEMBER
from privbench.registry import Registry
from privbench.scoring import CONTROL_LEVEL, Control
from privbench.stats.auc import auc
from privbench.stats.one_run import Guesses, steinke_eps, top_guesses
from privbench.stats.roc import tpr_at_fpr
from privbench.strength import beside_strongest
from privbench.threat import ThreatModel
from privbench.verdict import ALPHA, OneRunTest, Verdict, judge

ONE_RUN = "membership/one-run"
METRICS = ("auc", "tpr@0.01")
GUESSES = "guesses"
"""The share of right ones among the guesses that an attack is surest of."""
LEVEL = 0.95
GUESSED = 5
"""One candidate in so many is guessed in a one-run audit, half of them in: fixed before any coin is looked at."""
DELTA = 1e-5
_CROSSED = 2**0.5
"""How much wider an interval of an AUC of out-of-fold scores is than one of scores that were given."""
NO_BOUND = "no mechanism is described that hides whether a record was trained on, so that no bound speaks"


HELD = "descriptive: what is claimed is held against the guesses that the same scores make"
Limits = Mapping[str, BoundValue | Unsupported]
"""By attack what a claim allows it, or why that is not said."""


@dataclass(frozen=True)
class _Measured:
    metric: str
    value: float
    low: float
    high: float | None
    n: int
    chance: float
    baseline: float | None


def assemble_members(header: Header, membership: Membership, registry: Registry) -> Judged:
    """One finding per attack and metric: AUC, the true positive rate at 1% false positives where enough records resolve
    it, and of the one-run audit a lower limit of epsilon. Where something is claimed about records, of every attack
    that the claim speaks about the guesses that its scores make, judged together.
    """
    limits = _limits(membership, registry)
    findings: list[Finding] = []
    scores: dict[str, npt.NDArray[Any]] = {
        f"index/{MEMBER}": membership.scored,
        f"coins/{MEMBER}": membership.coins,
    }
    control = None
    if membership.blind is not None:
        scores[f"blind/{MEMBER}"] = membership.blind
        control = _blind(membership.blind, membership.coins)
    for name, outcome in membership.outcomes.items():
        scores[f"scores/{name}/{MEMBER}/1"] = outcome.scores
        for found in _measure(name, outcome, membership, control):
            blank = _blank(header, name, outcome, found.metric)
            findings.append(_filled(blank, found, membership, control, limits.get(name)))
    for name, (card, threat, why) in membership.refused.items():
        blank = _blank(header, name, Exposed(card, threat, np.empty(0)), METRICS[0])
        findings.append(refused(blank, why))
    flags = ["COINS_NOT_FAIR"] if unfair(membership.coins) else []
    findings += _judged(header, membership, limits, control, frozenset(flags) & VOIDING)
    flags += ["SHIFT"] if control is not None and not control.passed else []
    ranked = beside_strongest(findings, METRICS[0], lambda item: 0.5, _distance)
    return Judged(ranked, tuple(item.id for item in ranked), tuple(flags), {}, scores)


def _distance(area: float) -> float:
    """d' of two normal score distributions with this AUC, over the root of 2; held off its infinite ends."""
    return NormalDist().inv_cdf(min(max(area, 1e-9), 1 - 1e-9))


def _measure(name: str, outcome: Exposed, membership: Membership, control: Control | None) -> Iterator[_Measured]:
    scores, coins, base = outcome.scores, membership.coins, None if control is None else control.value
    area = auc(scores, coins, LEVEL)
    yield _Measured("auc", area.value, area.low, area.high, area.n, 0.5, base)
    caught = tpr_at_fpr(scores, coins, 0.01, LEVEL)
    if not caught.under_resolved:
        yield _Measured("tpr@0.01", caught.value, caught.low, caught.high, caught.point.n1, 0.01, None)
    if name == ONE_RUN:
        guesses = one_run_guesses(scores, coins)
        limit = steinke_eps(guesses, delta=DELTA, alpha=1 - LEVEL)
        yield _Measured("eps", limit.eps, limit.eps, None, guesses.guessed, 0.0, None)


def one_run_guesses(scores: Scores, coins: npt.NDArray[np.uint8]) -> Guesses:
    """The records that look most and least like members, guessed in and out."""
    each, rng = len(coins) // (2 * GUESSED), np.random.default_rng(0)
    # Ties are broken by record, before any coin is looked at.
    ranks = np.empty(len(coins))
    ranks[np.lexsort((rng.random(len(coins)), scores))] = np.arange(len(coins))
    return top_guesses(ranks, coins, rng, guess_in=each, guess_out=each)


def _blind(scores: Scores, coins: npt.NDArray[np.uint8]) -> Control:
    """Negative control: what the records alone say of membership.

    Its scores are out of fold: two records of different folds each take part in scoring the other. Where a score is a
    sum over the records that were learned from, every such pair counts twice, and the variance is twice that of an AUC
    of scores that were given beforehand; the interval allows for that.
    """
    found = auc(scores, coins, CONTROL_LEVEL)
    low, high = (found.value + _CROSSED * (end - found.value) for end in (found.low, found.high))
    low, high = max(low, 0.0), min(high, 1.0)
    return Control(found.value, low, high, found.n, low <= 0.5 <= high)


def _blank(header: Header, attack: str, outcome: Exposed, metric: str) -> Finding:
    name = f"{attack}/{MEMBER}/1/{metric}/{NOTHING}"
    return header.finding(name, attack, outcome.card, outcome.threat, MEMBER, 1, metric)


def _filled(
    finding: Finding,
    found: _Measured,
    membership: Membership,
    control: Control | None,
    limit: BoundValue | Unsupported | None,
) -> Finding:
    measured = replace(
        finding,
        value=found.value,
        low=found.low,
        high=found.high,
        level=LEVEL,
        n=found.n,
        canaries=len(membership.scored),
        chance=found.chance,
        baseline=found.baseline,
        controls=_controls(control),
    )
    if isinstance(limit, BoundValue):
        return replace(measured, verdict=Verdict.REPORTED, reason=HELD)
    reason = NO_BOUND if limit is None else f"no bound: the {limit.part} is not about this adversary ({limit.reason})"
    if found.metric == "eps":
        reason = f"a lower limit of eps at delta {DELTA:g}; nothing is promised"
    return replace(measured, verdict=Verdict.UNCOVERED, reason=reason)


def _controls(control: Control | None) -> dict[str, Any]:
    return {"positive": None, "negative": None if control is None else asdict(control)}


def _limits(membership: Membership, registry: Registry) -> Limits:
    """By attack, also those that could not be run; none where nothing is claimed."""
    claim = membership.claim
    if claim is None:
        return {}
    (bound,) = registry.made("bounds", MemberBound).values()  # type: ignore[type-abstract]
    threats: dict[str, ThreatModel] = {name: item.threat for name, item in membership.outcomes.items()}
    threats |= {name: threat for name, (_, threat, _) in membership.refused.items()}
    return {name: bound.evaluate(claim, tuple(map(str, threat.channels))) for name, threat in threats.items()}


def _judged(
    header: Header, membership: Membership, limits: Limits, control: Control | None, refuted: frozenset[str]
) -> Iterator[Finding]:
    """Of each attack that a claim speaks about its guesses, as many as were fixed beforehand, against the claim."""
    claim, coins = membership.claim, membership.coins
    held = {name: limit for name, limit in limits.items() if isinstance(limit, BoundValue)}
    ran = {name: limit for name, limit in held.items() if name in membership.outcomes}
    if claim is None or not ran:
        return
    void = f"nothing may be concluded: {' and '.join(sorted(refuted))}" if refuted else None
    made = [one_run_guesses(membership.outcomes[name].scores, coins) for name in ran]
    tests = [OneRunTest(guesses, claim.eps, claim.delta, void) for guesses in made]
    # Who broke keeps its share of the error rate; who lacks a channel had none.
    broke = sum(name in held and isinstance(why, Failure) for name, (_, _, why) in membership.refused.items())
    judged = judge(tests, ALPHA, len(tests) + broke)
    for (name, limit), test, judgement in zip(ran.items(), tests, judged, strict=True):
        outcome, guesses = membership.outcomes[name], test.guesses
        shown = steinke_eps(guesses, delta=claim.delta, alpha=1 - LEVEL).eps
        where = f"{name}/{MEMBER}/1/{GUESSES}/{limit.name}"
        finding = header.finding(where, name, outcome.card, outcome.threat, MEMBER, 1, GUESSES)
        yield replace(
            finding,
            value=guesses.right / guesses.guessed,
            # The least eps that these guesses show, as the share of right ones that it allows of a single coin.
            low=float(special.expit(shown)),
            level=LEVEL,
            n=guesses.guessed,
            canaries=len(membership.scored),
            chance=0.5,
            controls=_controls(control),
            role="confirmatory",
            bound={
                "name": limit.name,
                "unit": limit.unit,
                "value": limit.value,
                "p_value": judgement.p_value,
                "alpha": judgement.share,
                "needed": None,
                "inputs": dict(limit.inputs),
                "assumptions": list(limit.assumptions),
            },
            verdict=judgement.verdict,
            reason=judgement.reason,
        )

"""From what was measured to findings: plan every cell, evaluate the bounds, judge, and keep the score vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy.typing as npt

from privbench.attack import AttackCard, NotApplicable
from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.curves import score_vectors, series
from privbench.diagnose import raised
from privbench.errors import InputError
from privbench.flags import VOIDING
from privbench.measure import ORACLE, Attacked, Failure, Outcome
from privbench.mechanism import Claim, Mechanism
from privbench.record import Finding, Series
from privbench.registry import Registry
from privbench.scoring import Control, Leakage, ScoredGuess
from privbench.stats import binomial
from privbench.target import TargetRun
from privbench.threat import ThreatModel
from privbench.verdict import (
    ALPHA,
    RHO_SHARE,
    ConfirmatoryTest,
    Judgement,
    Verdict,
    canaries_needed,
    controls_say,
    judge,
)

METRIC = "accuracy"
PLANNED_MARGIN, PLANNED_POWER = 1.2, 0.9
"""Each bound says how many canaries would catch so many times its signal with this probability."""
NOTHING = "none"


@dataclass(frozen=True)
class Header:
    """What every finding of a run says in the same words."""

    target: str
    seed: int
    defense: str
    eps: float | str | None

    def finding(
        self, name: str, attack: str, card: AttackCard, threat: ThreatModel, secret: str, releases: int, metric: str
    ) -> Finding:
        """A planned cell of which nothing is known yet: it counts as FAILED until something is."""
        return Finding(
            id=name,
            target=self.target,
            party=threat.name,
            threat_model=threat.label,
            channel=str(card.channels[0]),
            attack=attack,
            secret=secret,
            releases=releases,
            metric=metric,
            value=None,
            low=None,
            high=None,
            level=None,
            n=None,
            canaries=None,
            chance=None,
            baseline=None,
            controls={"positive": None, "negative": None},
            role="descriptive",
            bound=None,
            verdict=Verdict.FAILED,
            reason="",
            strength=None,
            seed=self.seed,
            defense=self.defense,
            eps=self.eps,
        )


@dataclass(frozen=True)
class Evidence:
    """All that findings about coins are made of. `run_flags`: those that the run itself raised."""

    header: Header
    attacked: Attacked
    mechanisms: tuple[Mechanism, ...]
    claims: tuple[Claim, ...]
    moved: tuple[str, ...]
    run_flags: frozenset[str]


def evidence_of(header: Header, attacked: Attacked, run: TargetRun, run_flags: frozenset[str]) -> Evidence:
    """The evidence of a run that was just attacked."""
    moved = run.secrets.moved(attacked.secret)
    return Evidence(header, attacked, run.mechanisms, run.claims, moved, run_flags)


@dataclass(frozen=True)
class Judged:
    findings: tuple[Finding, ...]
    planned: tuple[str, ...]
    flags: tuple[str, ...]
    series: Mapping[str, Series]
    scores: Mapping[str, npt.NDArray[Any]]

    def __add__(self, other: Judged) -> Judged:
        """Both parts of one run, this one first."""
        return Judged(
            self.findings + other.findings,
            self.planned + other.planned,
            tuple(sorted({*self.flags, *other.flags})),
            {**self.series, **other.series},
            {**self.scores, **other.scores},
        )


@dataclass(frozen=True)
class _Cell:
    """A planned (attack, releases, bound); `question` is None for a claim-free cell without bounds; `counts`: in the
    confirmatory set."""

    attack: str
    card: AttackCard
    threat: ThreatModel
    secret: str
    releases: int
    bound_id: str
    bound: Bound | None
    question: Question | None
    counts: bool = False

    @property
    def id(self) -> str:
        return f"{self.attack}/{self.secret}/{self.releases}/{METRIC}/{self.bound_id}"


def assemble(evidence: Evidence, registry: Registry) -> Judged:
    """One finding per planned cell, whatever happened to its attack."""
    cells = tuple(sorted(_plan(evidence, registry), key=_reading_order))
    attacked = evidence.attacked
    values = {cell.id: _evaluate(cell, evidence) for cell in cells}
    flags = frozenset(raised(attacked, evidence.claims)) | evidence.run_flags
    tests = {
        cell.id: _test(cell, attacked.outcomes[cell.attack], value, flags & VOIDING)
        for cell in cells
        if cell.counts and cell.attack in attacked.outcomes and isinstance(value := values[cell.id], BoundValue)
    }
    spent = RHO_SHARE if attacked.rho is not None else 0.0
    planned = sum(cell.counts and isinstance(values[cell.id], BoundValue) for cell in cells)
    judgements = dict(zip(tests, judge(list(tests.values()), ALPHA - spent, planned), strict=True))
    findings = []
    for cell in cells:
        finding = _blank(cell, evidence.header)
        outcome = attacked.outcomes.get(cell.attack)
        value = values[cell.id]
        if outcome is None:
            finding = refused(finding, attacked.refused[cell.attack][2])
        else:
            finding = _measured(finding, cell, outcome, attacked)
            if isinstance(value, Unsupported):
                reason = f"no bound: the mechanism's {value.part} is not covered ({value.reason})"
                finding = replace(finding, verdict=Verdict.UNCOVERED, reason=reason, role="descriptive")
            else:
                finding = _held(finding, value, _scored(cell, outcome).leakage(), judgements.get(cell.id))
        findings.append(finding)
    return Judged(
        tuple(findings),
        tuple(cell.id for cell in cells),
        tuple(sorted(flags)),
        series(attacked, values.values()),
        score_vectors(attacked),
    )


def _plan(evidence: Evidence, registry: Registry) -> Iterator[_Cell]:
    """Every attack against every bound that may say something about this mechanism; without one, against nothing."""
    attacked = evidence.attacked
    # Where the oracle could not be run, what the others read is all there is to hold against the mechanism's bounds.
    instead = () if ORACLE in attacked.outcomes else registry.get("attacks", ORACLE).card.confirmatory
    upper = attacked.rho.upper if attacked.rho is not None else None
    attacks = {name: (item.card, item.threat) for name, item in attacked.outcomes.items()}
    attacks |= {name: (card, threat) for name, (card, threat, _) in attacked.refused.items()}
    bounds = _relevant(evidence, registry)
    for attack, (card, threat) in attacks.items():
        uncovered = {1, attacked.releases}
        for name, bound in bounds.items():
            claims = evidence.claims if bound.card.about == "claim" else (None,)
            for number, claim in enumerate(claims):
                if name == "nominal-curve" and claim is not None and claim.audience != "nominal":
                    continue
                bound_id = name if number == 0 else f"{name}-{number + 1}"
                for over in bound.card.releases:
                    releases = 1 if over == "one" else attacked.releases
                    if over == "all" and releases == 1 and name == "g-composed":
                        continue  # with one release it is g itself
                    question = Question(evidence.moved, releases, rho=upper, claim=claim)
                    uncovered.discard(releases)
                    counts = bound.card.name in (*card.confirmatory, *instead)
                    yield _Cell(attack, card, threat, attacked.secret, releases, bound_id, bound, question, counts)
        for releases in sorted(uncovered):
            yield _Cell(attack, card, threat, attacked.secret, releases, NOTHING, None, None)


def _relevant(evidence: Evidence, registry: Registry) -> dict[str, Bound]:
    mechanism = evidence.attacked.mechanism
    bounds = registry.made("bounds", Bound)  # type: ignore[type-abstract]
    kind = mechanism.kind if mechanism is not None else None
    return {name: bound for name, bound in bounds.items() if kind in bound.card.kinds}


def _reading_order(cell: _Cell) -> tuple[str, bool, int, str]:
    """By attack; the mechanism's own bounds before claims, one release before all."""
    return cell.attack, cell.bound is not None and cell.bound.card.about == "claim", cell.releases, cell.bound_id


def _evaluate(cell: _Cell, evidence: Evidence) -> BoundValue | Unsupported:
    mechanism = evidence.attacked.mechanism
    if mechanism is None:
        return Unsupported("description", "nobody described the mechanism on this channel")
    if cell.bound is None or cell.question is None:
        return Unsupported("kind", f"no bound here speaks about the kind '{mechanism.kind}'")
    value = cell.bound.evaluate(mechanism, cell.question)
    if isinstance(value, BoundValue) and value.unit != METRIC:
        raise InputError(
            f"bound '{cell.bound_id}' answers in {value.unit} where {METRIC} was asked; a number is never held against "
            "another unit's bound. Mend the bound."
        )
    return value


def _scored(cell: _Cell, outcome: Outcome) -> ScoredGuess:
    return outcome.one if cell.releases == 1 else outcome.all


def _test(cell: _Cell, outcome: Outcome, value: BoundValue, refuted: frozenset[str]) -> ConfirmatoryTest:
    scored = _scored(cell, outcome)
    leakage, positive, negative = scored.leakage(), scored.positive(), scored.negative()
    failed, void = controls_say(positive, negative, refuted)
    return ConfirmatoryTest(
        leakage.right, leakage.n, leakage.canaries, value, failed, void, optimal=outcome.card.exact_per_release
    )


def _blank(cell: _Cell, header: Header) -> Finding:
    blank = header.finding(cell.id, cell.attack, cell.card, cell.threat, f"canary/{cell.secret}", cell.releases, METRIC)
    return replace(blank, role="confirmatory") if cell.counts else blank


def refused(finding: Finding, why: NotApplicable | Failure) -> Finding:
    """A cell whose attack could not be run, or broke."""
    verdict = Verdict.FAILED if isinstance(why, Failure) else Verdict.NOT_APPLICABLE
    return replace(finding, verdict=verdict, reason=why.reason, role="descriptive")


def _measured(finding: Finding, cell: _Cell, outcome: Outcome, attacked: Attacked) -> Finding:
    scored = _scored(cell, outcome)
    leakage: Leakage = scored.leakage()
    oracle = attacked.outcomes.get(ORACLE)
    return replace(
        finding,
        value=leakage.value,
        low=leakage.low,
        high=leakage.high,
        level=leakage.level,
        n=leakage.n,
        canaries=leakage.canaries,
        chance=leakage.chance,
        controls={"positive": _control(scored.positive()), "negative": _control(scored.negative())},
        strength=None if oracle is None else _strength(leakage, _scored(cell, oracle).leakage()),
    )


def _held(finding: Finding, value: BoundValue, leakage: Leakage, judgement: Judgement | None) -> Finding:
    """Attach the bound; a descriptive cell shows its p-value and is not judged."""
    needed = None
    if judgement is not None and math.isfinite(value.signal):
        guesses_each = leakage.n // leakage.canaries
        needed = canaries_needed(value, guesses_each, PLANNED_MARGIN, PLANNED_POWER, judgement.smallest)
    bound = {
        "name": value.name,
        "unit": value.unit,
        "value": value.value,
        "p_value": binomial.p_value(leakage.right, leakage.n, value.value),
        "alpha": judgement.share if judgement is not None else None,
        "needed": needed,
        "inputs": dict(value.inputs),
        "assumptions": list(value.assumptions),
    }
    if judgement is None:
        return replace(finding, bound=bound, verdict=Verdict.REPORTED, reason="descriptive: shown, not judged")
    return replace(finding, bound=bound, verdict=judgement.verdict, reason=judgement.reason)


def _control(control: Control | None) -> dict[str, Any] | None:
    return None if control is None else dict(vars(control))


def _strength(leakage: Leakage, oracle: Leakage) -> float | None:
    """Share of the oracle's d' = 2 Phi^-1(accuracy); None at accuracy 0 or 1, and for an oracle at chance."""
    if not (0 < leakage.value < 1 and 0 < oracle.value < 1) or oracle.low <= 0.5:
        return None
    normal = NormalDist()
    return normal.inv_cdf(leakage.value) / normal.inv_cdf(oracle.value)

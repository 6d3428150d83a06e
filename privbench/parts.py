"""The parts of an audit: coins that are guessed, inputs that are reconstructed, records that were trained on or not.

Which run holds which secret is the target's: a part looks for it among the runs of an audit, in the order of `RUNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from privbench.attack import Attack, AttackBase, AttackCard, Inversion
from privbench.estimated import METRICS as FIT_METRICS
from privbench.estimates import Estimation
from privbench.estimating import Estimates, Example, estimate_all
from privbench.findings import METRIC, Evidence, Header, Judged, assemble
from privbench.findings_estimates import assemble_estimates
from privbench.findings_inputs import assemble_inputs, without_secret
from privbench.findings_members import METRICS as MEMBER_METRICS
from privbench.findings_members import assemble_members
from privbench.invert import Inversions, invert_all
from privbench.measure import Attacked, at_one_place, attack_all, lacking_least
from privbench.membership import Membership, MembershipAttack, ask_all, asking
from privbench.recording import MEMBER, Secrets
from privbench.recovery import METRICS as READ_METRICS
from privbench.registry import Registry
from privbench.target import MEMBERS, Progress, Role, TargetRun
from privbench.threat import ThreatModel

NO_COINS = "no record of this run carries a label coin"
NO_INPUTS = "no party's token inputs were recorded in this run"
NO_NUMBERS = "no party's inputs were recorded as numbers in this run"
NO_MEMBERS = "no run of this audit put records into the training by coins"
RUNS: tuple[Role, ...] = ("audited", MEMBERS, "clean")
NOTHING_MOVED: Mapping[str, Any] = dict.fromkeys(("rho", "excess", "at_clip", "above_clip", "predicted"))


@dataclass(frozen=True)
class Parts:
    """What was measured, each None where no run holds such a secret."""

    coins: Attacked | None
    inputs: Inversions | None
    members: Membership | None
    estimates: Estimates | None


Kinds = Mapping[type[AttackBase], tuple[str, ...]]
"""Names of attacks by the base class that says what they return."""


def attack(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    runs: Mapping[Role, TargetRun],
    seed: int,
    association: float | None,
    invented: bool,
    progress: Progress,
) -> Parts:
    """Every attack on the secrets that it is about. invented: no record is a person's."""
    kinds = by_kind(names, registry)
    coins = inputs = members = estimates = None
    run = holder(runs, lambda secrets: bool(secrets.coined))
    if run is not None and kinds[Attack]:
        coins = attack_all(kinds[Attack], registry, threats, run, seed, association=association, progress=progress)
    run = holder(runs, lambda secrets: bool(secrets.given))
    if run is not None:
        inputs = invert_all(kinds[Inversion], registry, threats, run, seed, invented, progress)
    run = holder(runs, lambda secrets: secrets.asks_membership)
    if run is not None and kinds[MembershipAttack]:
        members = ask_all(kinds[MembershipAttack], registry, threats, run, seed, progress)
    run = holder(runs, lambda secrets: bool(secrets.measured))
    if run is not None and kinds[Estimation]:
        estimates = estimate_all(kinds[Estimation], registry, threats, run, runs, seed, invented, progress)
    return Parts(coins, inputs, members, estimates)


def holder(runs: Mapping[Role, TargetRun], holds: Callable[[Secrets], bool]) -> TargetRun | None:
    """The first run with such a secret, or None."""
    return next((runs[role] for role in RUNS if role in runs and holds(runs[role].secrets)), None)


def by_kind(names: Sequence[str], registry: Registry) -> Kinds:
    """Attacks that guess coins, inversions of tokens and of numbers, membership attacks."""
    kinds: dict[type[AttackBase], list[str]] = {Attack: [], Inversion: [], Estimation: [], MembershipAttack: []}
    for name in names:
        made = registry.get("attacks", name)
        kinds[next(kind for kind in kinds if issubclass(made, kind))].append(name)
    return {kind: tuple(found) for kind, found in kinds.items()}


def adversary(attack: type[AttackBase], threats: Sequence[ThreatModel]) -> ThreatModel:
    """The first adversary that lacks least of what an attack needs, of those who are after what it guesses."""
    if issubclass(attack, Attack):
        threats = at_one_place(threats)
    elif issubclass(attack, MembershipAttack):
        threats = asking(threats)
    return lacking_least(attack.card, threats)


def judge_parts(
    parts: Parts,
    evidence: Evidence | None,
    header: Header,
    names: Sequence[str],
    registry: Registry,
    threat: ThreatModel,
    run_flags: frozenset[str],
) -> Judged:
    """One finding per planned cell, the parts that were measured first; an attack without a secret says so.

    evidence: of the coins, where there are any; threat: the adversary that the audit assumes.
    """
    kinds = by_kind(names, registry)
    cards: dict[str, AttackCard] = {name: registry.get("attacks", name).card for name in names}
    absent = [
        without_secret(header, {name: cards[name] for name in kinds[kind]}, threat, metric, reason)
        for kind, metric, reason, there in (
            (Attack, METRIC, NO_COINS, parts.coins),
            (Inversion, READ_METRICS[0], NO_INPUTS, parts.inputs),
            (Estimation, FIT_METRICS[0], NO_NUMBERS, parts.estimates),
            (MembershipAttack, MEMBER_METRICS[0], NO_MEMBERS, parts.members),
        )
        if there is None
    ]
    measured = [assemble(evidence, registry)] if evidence is not None else []
    measured += [assemble_inputs(header, parts.inputs)] if parts.inputs is not None else []
    measured += [assemble_estimates(header, parts.estimates, registry)] if parts.estimates is not None else []
    measured += [assemble_members(header, parts.members, registry)] if parts.members is not None else []
    first, *rest = (*measured, *absent)
    joined = sum(rest, first)
    return replace(joined, flags=tuple(sorted({*joined.flags, *run_flags})))


def describe_coins(coins: Attacked | None, secrets: Secrets) -> dict[str, Any] | None:
    """The record's "secret"."""
    if coins is None:
        return None
    canaries = secrets.array(f"canary/{coins.secret}")
    return {
        "name": f"canary/{coins.secret}",
        "moved": list(secrets.moved(coins.secret)),
        "canaries": int(canaries.sum()),
        "scored": len(coins.scored),
        "records": len(canaries),
    }


def describe_moves(coins: Attacked | None) -> dict[str, Any]:
    """The record's "moves": all None where there are no coins."""
    if coins is None:
        return dict(NOTHING_MOVED)
    return {
        "rho": coins.rho.to_json() if coins.rho else None,
        "excess": coins.excess,
        "at_clip": coins.at_clip,
        "above_clip": coins.above_clip,
        "predicted": coins.prediction.one if coins.prediction else None,
    }


def describe_inputs(inputs: Inversions | None, secrets: Secrets) -> dict[str, Any] | None:
    """The record's "inputs": whose, how many records, over how many questions, and some invented persons' own."""
    if inputs is None:
        return None
    answers = secrets.array(f"inputs/{inputs.victim}/answers")
    return {
        "name": f"input/{inputs.victim}",
        "records": len(answers),
        "questions": int(answers.max()) + 1,
        "releases": inputs.releases,
        "drift": list(inputs.drift),
        "prior": bool(inputs.prior),
        "without_cut": {
            metric: {"one_reply": found.baseline, "language_model": found.value}
            for metric, found in inputs.prior.items()
        },
        "strongest": inputs.strongest,
        "by_question": _by_question(inputs),
        "shown": inputs.strongest if inputs.examples else None,
        "examples": [[asdict(item) for item in person] for person in inputs.examples],
    }


def _by_question(inputs: Inversions) -> list[dict[str, Any]]:
    """Of each question its number, how many different answers it got, and what the strongest attack read of them."""
    said = {item.question: item.read for item in inputs.by_model}
    texts = dict(enumerate(inputs.questions))
    return [
        asdict(item)
        | ({"language_model": said[item.question]} if said else {})
        | ({"text": texts[item.question]} if item.question in texts else {})
        for item in inputs.by_question
    ]


def describe_members(members: Membership | None) -> dict[str, Any] | None:
    """The record's "members": how many records a coin put in or left out, and how many models were trained beside."""
    if members is None:
        return None
    return {
        "name": MEMBER,
        "candidates": members.candidates,
        "scored": len(members.scored),
        "references": members.references,
        "blind": members.blind is not None,
        **({} if members.claim is None else {"claim": members.claim.to_json()}),
    }


def describe_estimates(estimates: Estimates | None) -> dict[str, Any] | None:
    """The record's "estimates": whose numbers, R2 and error of each feature by attack, what an attack that acted did to
    the tasks, and some invented persons' own.
    """
    if estimates is None:
        return None
    return {
        "name": f"input/{estimates.victim}",
        "records": len(estimates.scored),
        "known": estimates.known,
        "hours": estimates.hours,
        "others": estimates.others,
        "features": [dict(item) for item in estimates.features],
        "r2": {name: outcome.fit.r2.tolist() for name, outcome in estimates.outcomes.items()},
        "off": {name: outcome.fit.off.tolist() for name, outcome in estimates.outcomes.items()},
        "harms": {
            name: [item.to_json() for item in outcome.harms]
            for name, outcome in estimates.outcomes.items()
            if outcome.harms
        },
        "cut": None if estimates.cut is None else estimates.cut.to_json(),
        "shown": estimates.shown,
        "examples": [_drawn(item) for item in estimates.examples],
    }


def _drawn(example: Example) -> dict[str, Any]:
    """Four digits, null where nothing was measured; [F][H]."""
    measured = [
        [float(f"{value:.4g}") if seen else None for value, seen in zip(row, mask, strict=True)]
        for row, mask in zip(example.inputs.T, example.observed.T, strict=True)
    ]
    return {"measured": measured, "estimated": [[float(f"{v:.4g}") for v in row] for row in example.estimate.T]}

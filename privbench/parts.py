"""The two halves of an audit: coins that are guessed, inputs that are reconstructed. A run may hold either or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privbench.attack import AttackCard, Inversion
from privbench.findings import METRIC, Evidence, Header, Judged, assemble
from privbench.findings_inputs import assemble_inputs, without_secret
from privbench.invert import Inversions, invert_all
from privbench.measure import Attacked, attack_all
from privbench.recording import Secrets
from privbench.recovery import METRICS
from privbench.registry import Registry
from privbench.target import Progress, TargetRun
from privbench.threat import ThreatModel

NO_COINS = "no record of this run carries a label coin"
NO_INPUTS = "no party's token inputs were recorded in this run"
NOTHING_MOVED: Mapping[str, Any] = dict.fromkeys(("rho", "excess", "at_clip", "above_clip", "predicted"))


@dataclass(frozen=True)
class Parts:
    """What was measured, each None where the run holds no such secret."""

    coins: Attacked | None
    inputs: Inversions | None


def attack(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    seed: int,
    association: float | None,
    progress: Progress,
) -> Parts:
    """Every attack on the secrets that it is about."""
    on_inputs, on_coins = by_kind(names, registry)
    coins = inputs = None
    if run.secrets.coined:
        coins = attack_all(on_coins, registry, threats, run, seed, association=association, progress=progress)
    if run.secrets.given:
        inputs = invert_all(on_inputs, registry, threats, run, seed, progress)
    return Parts(coins, inputs)


def by_kind(names: Sequence[str], registry: Registry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inversions, and attacks that guess coins."""
    inversions = tuple(name for name in names if issubclass(registry.get("attacks", name), Inversion))
    return inversions, tuple(name for name in names if name not in inversions)


def judge_parts(
    parts: Parts,
    evidence: Evidence | None,
    header: Header,
    names: Sequence[str],
    registry: Registry,
    threat: ThreatModel,
    run_flags: frozenset[str],
) -> Judged:
    """One finding per planned cell, the half that was measured first; an attack without a secret says so.

    evidence: of the coins, where there are any; threat: the adversary that the audit assumes.
    """
    on_inputs, on_coins = by_kind(names, registry)
    cards: dict[str, AttackCard] = {name: registry.get("attacks", name).card for name in names}
    absent = [
        without_secret(header, {name: cards[name] for name in group}, threat, metric, reason)
        for group, metric, reason, there in (
            (on_coins, METRIC, NO_COINS, parts.coins),
            (on_inputs, METRICS[0], NO_INPUTS, parts.inputs),
        )
        if there is None
    ]
    measured = [assemble(evidence, registry)] if evidence is not None else []
    measured += [assemble_inputs(header, parts.inputs)] if parts.inputs is not None else []
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
    """The record's "inputs": whose, how many records, and over how many questions."""
    if inputs is None:
        return None
    answers = secrets.array(f"inputs/{inputs.victim}/answers")
    return {
        "name": f"input/{inputs.victim}",
        "records": len(answers),
        "questions": int(answers.max()) + 1,
        "releases": inputs.releases,
    }

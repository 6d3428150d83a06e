"""Verify a record: recompute everything that follows from its scores, and say what differs.

Values, intervals, controls, p-values, alpha shares, bound values from their inputs, verdicts, flags, curves and
completeness are assembled again by the code that made them, from score vectors, mechanisms, claims and measured moves
alone. What cannot be recomputed without the run (utility, rho, epsilons) is covered by the record's own hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, NotApplicable, gradient_mechanism
from privbench.errors import RecordError
from privbench.findings import Evidence, Judged, assemble
from privbench.measure import Attacked, Failure, Outcome
from privbench.mechanism import Claim, Mechanism
from privbench.moves import Prediction, Rho
from privbench.noise import NoiseCheck
from privbench.record import Audit, hash_record, hash_scores, read_json, read_scores
from privbench.recording import Secrets
from privbench.registry import Registry
from privbench.scoring import ScoredGuess
from privbench.threat import ThreatModel
from privbench.verdict import Verdict

Scores = Mapping[str, npt.NDArray[Any]]

TOLERANCE = 1e-6
"""Relative: what a record made on one processor may differ by on another (seen: 3e-10 in a privacy loss distribution).
A changed digit within it still breaks the record's own hash."""

RUN_FLAGS = frozenset(
    {
        "ALIGNMENT_NOT_PRIVATE",
        "CLIP_DEPENDS_ON_BATCH",
        "CLIP_NEVER_BINDS",
        "CLIP_SET_FROM_DATA",
        "ENCODERS_LEARNED_NOTHING",
    }
)
"""Flags that the run itself raised: they do not follow from scores."""


def verify(folder: Path, registry: Registry, secrets: Secrets | None = None) -> tuple[str, ...]:
    """Every difference between a record and what its scores say, one line each; empty when all agrees."""
    data = read_json(folder)
    audit = Audit.from_json(data)
    scores = read_scores(folder)
    differences = []
    if hash_record(data) != data["record_sha256"]:
        differences.append("record_sha256: the record was changed after it was written")
    if hash_scores(scores) != audit.scores_sha256:
        differences.append("scores_sha256: the scores beside the record are not the ones it was made from")
    judged = _assemble_again(audit, scores, registry)
    differences += _compare(audit, judged)
    if secrets is not None:
        differences += _compare_coins(_secret(audit), scores, secrets)
    return tuple(differences)


def _assemble_again(audit: Audit, scores: Scores, registry: Registry) -> Judged:
    mechanisms = tuple(Mechanism.from_json(item) for item in audit.mechanisms)
    claims = tuple(Claim.from_json(item) for item in audit.claims)
    threats = {str(item["label"]): ThreatModel.from_json(item) for item in audit.threats}
    if not audit.findings or not threats:
        raise RecordError("the record holds no finding or no threat model: there is nothing to verify.")
    first, secret = audit.findings[0], _secret(audit)
    releases = max(finding.releases for finding in audit.findings)
    outcomes: dict[str, Outcome] = {}
    refused: dict[str, tuple[AttackCard, ThreatModel, NotApplicable | Failure]] = {}
    for finding in audit.findings:
        if finding.attack in outcomes or finding.attack in refused:
            continue
        card = registry.get("attacks", finding.attack).card
        threat = threats.get(finding.threat_model)
        if threat is None:
            raise RecordError(f"finding {finding.id} names a threat model that the record does not describe.")
        if f"curve/{finding.attack}/{secret}" in scores:
            outcomes[finding.attack] = _outcome(f"{finding.attack}/{secret}", card, threat, scores, releases)
        elif finding.verdict == Verdict.FAILED:
            refused[finding.attack] = (card, threat, Failure(finding.reason))
        else:
            refused[finding.attack] = (card, threat, NotApplicable(finding.reason))
    rho, predicted, accumulated = audit.moves["rho"], audit.moves["predicted"], audit.series.get("oracle, predicted")
    attacked = Attacked(
        secret,
        outcomes,
        refused,
        releases,
        np.asarray(scores.get(f"index/{secret}", np.zeros(0, np.int64))),
        gradient_mechanism(mechanisms, first.party),
        prediction=Prediction(predicted, accumulated.y) if predicted is not None and accumulated is not None else None,
        excess=audit.moves["excess"],
        at_clip=audit.moves["at_clip"],
        above_clip=audit.moves["above_clip"],
        rho=Rho(**rho) if rho is not None else None,
        noise=NoiseCheck(**audit.noise) if audit.noise is not None else None,
    )
    evidence = Evidence(
        first.target,
        first.seed,
        first.defense,
        first.eps,
        attacked,
        mechanisms,
        claims,
        tuple(audit.secret["moved"]),
        frozenset(flag["name"] for flag in audit.flags) & RUN_FLAGS,
    )
    return assemble(evidence, registry)


def _secret(audit: Audit) -> str:
    """The secret's own name: "joint" or a task."""
    return str(audit.secret["name"]).removeprefix("canary/")


def _outcome(name: str, card: AttackCard, threat: ThreatModel, scores: Scores, releases: int) -> Outcome:
    def scored(over: int) -> ScoredGuess:
        key = f"{name}/{over}"
        try:
            return ScoredGuess(
                scores[f"coins/{key}"], scores[f"scores/{key}"], scores.get(f"clean/{key}"), scores[f"shuffled/{key}"]
            )
        except KeyError as error:
            raise RecordError(f"scores.safetensors lacks {error.args[0]}.") from error

    return Outcome(card, threat, scored(1), scored(releases), scores[f"curve/{name}"])


def _compare(audit: Audit, judged: Judged) -> Iterator[str]:
    yield from _fields("planned", list(audit.planned), list(judged.planned))
    recorded = {finding.id: asdict(finding) for finding in audit.findings}
    again = {finding.id: asdict(finding) for finding in judged.findings}
    if len(recorded) != len(audit.findings):
        yield "findings: an id appears twice"
    for name in sorted(recorded.keys() | again.keys()):
        if name not in recorded:
            yield f"{name}: planned, but missing"
        elif name not in again:
            yield f"{name}: recorded, but not planned"
        else:
            for key, value in again[name].items():
                yield from _fields(f"{name}: {key}", recorded[name][key], value)
    for name in sorted(audit.series.keys() | judged.series.keys()):
        yield from _fields(f"series {name}", _plain(audit.series.get(name)), _plain(judged.series.get(name)))
    yield from _fields("flags", [flag["name"] for flag in audit.flags], list(judged.flags))


def _plain(series: Any) -> Any:
    return None if series is None else asdict(series)


def _fields(where: str, recorded: Any, recomputed: Any) -> Iterator[str]:
    """Differences between two JSON-like values, by path."""
    if isinstance(recorded, Mapping) and isinstance(recomputed, Mapping):
        for key in sorted(recorded.keys() | recomputed.keys(), key=str):
            yield from _fields(f"{where}/{key}", recorded.get(key), recomputed.get(key))
    elif isinstance(recorded, list | tuple) and isinstance(recomputed, list | tuple):
        if len(recorded) != len(recomputed) or not all(map(_same, recorded, recomputed)):
            yield f"{where}: recorded and recomputed lists differ"
    elif not _same(recorded, recomputed):
        yield f"{where}: recorded {recorded!r}, recomputed {recomputed!r}"


def _same(recorded: Any, recomputed: Any) -> bool:
    """Equal, or two floats that differ by no more than another processor's arithmetic."""
    if isinstance(recorded, float) and isinstance(recomputed, float):
        return math.isclose(recorded, recomputed, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2)
    return bool(recorded == recomputed)


def _compare_coins(secret: str, scores: Scores, secrets: Secrets) -> Iterator[str]:
    """The scored coins against the scorer's secrets, record by record."""
    index = scores.get(f"index/{secret}")
    if index is None or secret not in secrets.coined:
        yield f"secrets: they hold no coins of canary/{secret}"
        return
    canaries, coins = secrets.coins(secret)
    if not np.isin(index, canaries).all():
        yield f"secrets: {int((~np.isin(index, canaries)).sum())} of the scored records are no canaries there"
        return
    truth = coins[np.searchsorted(canaries, index)]
    for name, recorded in scores.items():
        if name.startswith("coins/") and recorded.shape != truth.shape:
            yield f"{name}: there are {len(recorded)} coins for {len(truth)} scored records"
        elif name.startswith("coins/") and (recorded != truth).any():
            yield f"{name}: the coins differ from the secrets in {int((recorded != truth).sum())} records"

"""Verify a record: recompute everything that follows from its scores, and say what differs or contradicts itself.

Values, intervals, controls, p-values, alpha shares, bound values from their inputs, verdicts, flags, curves and
completeness are assembled again by the code that made them, from score vectors, mechanisms, claims and measured moves
alone. These inputs are held against the manifest, the target's own accounting and each other; pages are rendered
again. What cannot be recomputed without the run is in `COVERED_BY_HASH`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from privbench.attack import AttackCard, NotApplicable
from privbench.bounds.base import Cut
from privbench.differences import fields
from privbench.errors import InputError, RecordError
from privbench.estimating import Estimated, Estimates
from privbench.findings import Evidence, Header, Judged
from privbench.findings_estimates import FITS, fit_of
from privbench.findings_inputs import prior_of, recovered_of
from privbench.harm import Harm
from privbench.invert import Inversions, Inverted
from privbench.measure import Attacked, Failure, Outcome, Refused
from privbench.mechanism import Claim, Mechanism, gradient_mechanism, input_mechanism
from privbench.membership import Exposed, Membership
from privbench.moves import Prediction, Rho
from privbench.noise import NoiseCheck
from privbench.parts import Parts, judge_parts
from privbench.record import AUDIT_FILE, Audit, Finding, hash_record, hash_scores, read_json, read_scores
from privbench.recording import MEMBER, Secrets
from privbench.registry import Registry
from privbench.report.pages import PAGES, render
from privbench.scoring import ScoredGuess
from privbench.threat import ThreatModel
from privbench.verdict import Verdict
from privbench.verify_estimates import contradictory_estimates
from privbench.verify_held import made_by_this_code
from privbench.verify_record import contradictions
from privbench.verify_scores import Scores, attacks_of, contradictory, malformed, releases_of, secret_of

RECOMPUTED = (
    "values, intervals, controls, bounds, p-values, verdicts, flags, curves, epsilons, claims and noise against the "
    "manifest, pages"
)
COVERED_BY_HASH = (
    "the scores themselves, which secrets the run held, clip norms, rho's mean, the predicted accuracy, the noise "
    "check, utility, the flags that the run itself raised, its notes, the numbers of questions and of guesses about "
    "inputs, what was read of each question but for its mean, how far what was sent had moved, what an acting attack "
    "did to the tasks, the examples that are drawn, data fingerprint, machine and times"
)
"""A record cannot show these by itself: a changed digit breaks its hash, a forger who renews the hash is not seen."""

OTHER_CODE = "which attacks there were when other code than this made it"
"""Covered by the hash as well where attacks were not named and the record was made by another version."""

RUN_FLAGS = frozenset(
    {
        "ALIGNMENT_NOT_PRIVATE",
        "CLIP_DEPENDS_ON_BATCH",
        "CLIP_NEVER_BINDS",
        "CLIP_SET_FROM_DATA",
        "ENCODERS_LEARNED_NOTHING",
        "MEMBERS_NOT_TRAINED_ON",
    }
)
"""Flags that the run itself raised: they do not follow from scores."""


def verify(folder: Path, registry: Registry, secrets: Secrets | None = None) -> tuple[str, ...]:
    """Every difference between a record and what its scores say, one line each; empty when all agrees.

    folder: of a record, or its audit.json. Raises RecordError for what is no record of this schema.
    """
    folder = folder.parent if folder.name == AUDIT_FILE else folder
    data = read_json(folder)
    audit = Audit.from_json(data)
    scores = read_scores(folder)
    if not audit.findings or not audit.threats:
        raise RecordError("the record holds no finding or no threat model: there is nothing to verify.")
    differences = []
    if hash_record(data) != data["record_sha256"]:
        differences.append("record_sha256: the record was changed after it was written")
    if hash_scores(scores) != audit.scores_sha256:
        differences.append("scores_sha256: the scores beside the record are not the ones it was made from")
    faults = list(malformed(audit, scores, registry))
    differences += faults
    differences += contradictions(audit, scores, registry)
    if not faults:
        differences += contradictory(audit, scores)
        differences += contradictory_estimates(audit, scores, registry)
        differences += _compare(audit, assemble_again(audit, scores, registry))
        secret = secret_of(audit)
        # One file is of one run: of two games in two runs it settles its own.
        of_members = secrets is not None and audit.members is not None and secrets.asks_membership
        if secrets is not None and secret is not None and (secrets.coined or not of_members):
            differences += _compare_coins(secret, scores, secrets)
        if secrets is not None and of_members:
            differences += _compare_members(scores, secrets)
        differences += _pages(folder, audit)
    return tuple(dict.fromkeys(differences))


def covered_by_hash(audit: Audit) -> str:
    """What nothing in this record can be held against."""
    return COVERED_BY_HASH if made_by_this_code(audit) else f"{COVERED_BY_HASH}, {OTHER_CODE}"


def assemble_again(audit: Audit, scores: Scores, registry: Registry) -> Judged:
    """Findings, plan, flags and curves, from the record's inputs and well-formed scores.

    Raises RecordError where they cannot be put together.
    """
    try:
        mechanisms = tuple(Mechanism.from_json(item) for item in audit.mechanisms)
        claims = tuple(Claim.from_json(item) for item in audit.claims)
    except InputError as error:
        raise RecordError(f"audit.json: {error}") from error
    parts = Parts(
        None if audit.secret is None else _coins_again(audit, scores, registry, mechanisms),
        None if audit.inputs is None else _inputs_again(audit, scores, registry, mechanisms),
        None if audit.members is None else _members_again(audit, scores, registry),
        None if audit.estimates is None else _estimates_again(audit, scores, registry, mechanisms),
    )
    first = audit.findings[0]
    header = Header(first.target, first.seed, first.defense, first.eps)
    flags = frozenset(flag["name"] for flag in audit.flags) & RUN_FLAGS
    evidence = None
    if parts.coins is not None and audit.secret is not None:
        evidence = Evidence(header, parts.coins, mechanisms, claims, tuple(audit.secret["moved"]), flags)
    threat = ThreatModel.from_json(audit.threats[0])
    try:
        return judge_parts(parts, evidence, header, attacks_of(audit), registry, threat, flags)
    except InputError as error:
        raise RecordError(f"audit.json cannot be assembled again: {error}") from error


def _coins_again(audit: Audit, scores: Scores, registry: Registry, mechanisms: tuple[Mechanism, ...]) -> Attacked:
    secret, releases = str(secret_of(audit)), releases_of(audit)
    outcomes: dict[str, Outcome] = {}
    refused: dict[str, Refused] = {}
    for name, card, threat, finding in _attacks(audit, registry, "canary/"):
        if f"curve/{name}/{secret}" in scores:
            outcomes[name] = _outcome(f"{name}/{secret}", card, threat, scores, releases)
        else:
            refused[name] = _refused(card, threat, finding)
    rho, predicted, accumulated = audit.moves["rho"], audit.moves["predicted"], audit.series.get("oracle, predicted")
    return Attacked(
        secret,
        outcomes,
        refused,
        releases,
        np.asarray(scores[f"index/{secret}"]),
        gradient_mechanism(mechanisms, audit.findings[0].party),
        prediction=Prediction(predicted, accumulated.y) if predicted is not None and accumulated is not None else None,
        excess=audit.moves["excess"],
        at_clip=audit.moves["at_clip"],
        above_clip=audit.moves["above_clip"],
        rho=Rho(**rho) if rho is not None else None,
        noise=NoiseCheck(**audit.noise) if audit.noise is not None else None,
    )


def _inputs_again(audit: Audit, scores: Scores, registry: Registry, mechanisms: tuple[Mechanism, ...]) -> Inversions:
    """The numbers of guesses are the record's own: the answers they count are in no record."""
    said = audit.inputs or {}
    victim = str(said["name"]).removeprefix("input/")
    outcomes: dict[str, Inverted] = {}
    refused: dict[str, Refused] = {}
    for name, card, threat, finding in _attacks(audit, registry, said["name"]):
        curve = f"curve/{name}/{said['name']}"
        if curve not in scores:
            refused[name] = _refused(card, threat, finding)
            continue
        counted = {(item.releases, item.metric): item.n or 0 for item in audit.findings if item.attack == name}
        outcomes[name] = Inverted(card, threat, recovered_of(scores, said, name, counted), scores[curve])
    index, mechanism = scores[f"index/{said['name']}"], input_mechanism(mechanisms, victim)
    prior = prior_of(scores, said)
    return Inversions(victim, outcomes, refused, said["releases"], index, prior, mechanism, (), ())


def _members_again(audit: Audit, scores: Scores, registry: Registry) -> Membership:
    said = audit.members or {}
    outcomes: dict[str, Exposed] = {}
    refused: dict[str, Refused] = {}
    for name, card, threat, finding in _attacks(audit, registry, MEMBER):
        key = f"scores/{name}/{MEMBER}/1"
        if key in scores:
            outcomes[name] = Exposed(card, threat, scores[key])
        else:
            refused[name] = _refused(card, threat, finding)
    return Membership(
        outcomes,
        refused,
        scores[f"index/{MEMBER}"],
        scores[f"coins/{MEMBER}"],
        scores.get(f"blind/{MEMBER}"),
        said["candidates"],
        said["references"],
        None if said.get("claim") is None else Claim.from_json(said["claim"]),
    )


def _estimates_again(audit: Audit, scores: Scores, registry: Registry, mechanisms: tuple[Mechanism, ...]) -> Estimates:
    """What an attack that acted did to the tasks is the record's own: the outputs it was found in are in no record."""
    said = audit.estimates or {}
    victim = str(said["name"]).removeprefix("input/")
    outcomes: dict[str, Estimated] = {}
    refused: dict[str, Refused] = {}
    for name, card, threat, finding in _attacks(audit, registry, said["name"]):
        key = f"{name}/{said['name']}"
        if f"fit/{key}" not in scores:
            refused[name] = _refused(card, threat, finding)
            continue
        fit, wrong, constant, prior = (fit_of(scores[f"fit/{part}{key}"]) for part in FITS[:-1])
        others = scores.get(f"fit/{FITS[-1]}{key}")
        done = tuple(Harm(**item) for item in said["harms"].get(name, ()))
        known = None if others is None else fit_of(others)
        outcomes[name] = Estimated(card, threat, fit, wrong, constant, prior, known, done)
    return Estimates(
        victim,
        outcomes,
        refused,
        scored=scores[f"index/{said['name']}"],
        known=said["known"],
        others=said["others"],
        hours=said["hours"],
        features=tuple(said["features"]),
        mechanism=input_mechanism(mechanisms, victim),
        cut=None if said["cut"] is None else Cut.from_json(said["cut"]),
        shown=said["shown"],
        examples=(),
    )


def _attacks(audit: Audit, registry: Registry, kind: str) -> Iterator[tuple[str, AttackCard, ThreatModel, Finding]]:
    """Each attack on secrets of this kind, with its first finding."""
    threats = {str(item["label"]): ThreatModel.from_json(item) for item in audit.threats}
    for name in attacks_of(audit, kind):
        finding = next(item for item in audit.findings if item.attack == name)
        threat = threats.get(finding.threat_model)
        if threat is None:
            raise RecordError(f"finding {finding.id} names a threat model that the record does not describe.")
        yield name, registry.get("attacks", name).card, threat, finding


def _refused(card: AttackCard, threat: ThreatModel, finding: Finding) -> Refused:
    failed = finding.verdict == Verdict.FAILED
    return card, threat, Failure(finding.reason) if failed else NotApplicable(finding.reason)


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
    yield from fields("planned", list(audit.planned), list(judged.planned))
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
                yield from fields(f"{name}: {key}", recorded[name][key], value)
    for name in sorted(audit.series.keys() | judged.series.keys()):
        yield from fields(f"series {name}", _plain(audit.series.get(name)), _plain(judged.series.get(name)))
    yield from fields("flags", [flag["name"] for flag in audit.flags], list(judged.flags))


def _plain(series: Any) -> Any:
    return None if series is None else asdict(series)


def _pages(folder: Path, audit: Audit) -> Iterator[str]:
    """Pages beside the record that say something else than the record does."""
    written: Mapping[str, str] = {
        kind: (folder / file).read_text(encoding="utf-8", errors="replace")
        for kind, (file, _) in PAGES.items()
        if (folder / file).is_file()
    }
    for (name, again), text in zip(render(audit, written).items(), written.values(), strict=True):
        if text != again:
            yield f"{name}: not what this version of privbench renders from the record; `privbench report` renders anew"


def _compare_coins(secret: str, scores: Scores, secrets: Secrets) -> Iterator[str]:
    """The scored coins against the scorer's secrets, record by record."""
    index = scores[f"index/{secret}"]
    if secret not in secrets.coined:
        yield f"secrets: they hold no coins of canary/{secret}"
        return
    canaries, coins = secrets.coins(secret)
    if not np.isin(index, canaries).all():
        yield f"secrets: {int((~np.isin(index, canaries)).sum())} of the scored records are no canaries there"
        return
    truth = coins[np.searchsorted(canaries, index)]
    for name, recorded in scores.items():
        if name.startswith("coins/") and f"/{secret}/" in name and (recorded != truth).any():
            yield f"{name}: the coins differ from the secrets in {int((recorded != truth).sum())} records"


def _compare_members(scores: Scores, secrets: Secrets) -> Iterator[str]:
    """The scored coins of membership against the scorer's secrets."""
    index, recorded = scores[f"index/{MEMBER}"], scores[f"coins/{MEMBER}"]
    candidates, coins = secrets.memberships()
    if not np.isin(index, candidates).all():
        yield f"secrets: {int((~np.isin(index, candidates)).sum())} of the scored records are no candidates there"
        return
    off = int((recorded != coins[np.searchsorted(candidates, index)]).sum())
    if off:
        yield f"coins/{MEMBER}: the coins differ from the secrets in {off} records"

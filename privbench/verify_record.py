"""Does a record contradict itself? Manifest, threats, mechanisms, claims, epsilons and moves say the same thing in
several places; whoever edits one of them and renews both hashes leaves the others behind.

A target that reads no files is asked again what it makes of the options: configuration, epsilons and threat models.
For the others the same follows, less strictly, from the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from privbench.data.catalogue import invented
from privbench.differences import TOLERANCE, same
from privbench.differences import fields as differing
from privbench.errors import InputError
from privbench.findings import NOTHING
from privbench.flags import FLAGS
from privbench.measure import CALIBRATION_SHARE, ORACLE
from privbench.options import RECORDED, AuditOptions
from privbench.parts import by_kind
from privbench.record import Audit
from privbench.registry import BUILT_IN, Registry
from privbench.stats.shares import upper_mean
from privbench.target import Target
from privbench.verdict import RHO_SHARE, Verdict
from privbench.verify_claims import claims, epsilons, mechanisms
from privbench.verify_estimates import cut_and_mechanism
from privbench.verify_held import PARTS, contradictory_parts, made_by_this_code
from privbench.verify_parts import Parts, positive
from privbench.verify_scores import Scores, attacks_of

_GIVEN = ("party", "eps", "eps_for", "delta", "noise_multiplier", "sigma")
"""Options that a target's configuration repeats under the same name."""
_BY_DATA = ("records", "candidates")
"""What a target says of its secrets that depends on how many records there are."""


def contradictions(audit: Audit, scores: Scores, registry: Registry) -> Iterator[str]:
    """One line for each pair of statements of a record that cannot both be true.

    Raises RecordError where a part is not what its name says, InputError for an attack or target that is not here.
    """
    parts = Parts.of(audit)
    yield from _manifest(parts)
    if parts.configured:
        yield from _target(parts, registry)
    yield from _examples(parts)
    yield from _drift(parts)
    yield from _planned(audit, parts.given, registry)
    yield from _attacks(parts, scores, registry)
    yield from mechanisms(parts)
    yield from cut_and_mechanism(audit, parts.mechanisms)
    yield from claims(parts)
    yield from epsilons(parts)
    yield from _moves(parts, scores)
    yield from _utility(audit)
    yield from _texts(parts)


def _manifest(parts: Parts) -> Iterator[str]:
    """Given options against the configuration, and both against the findings (the first: all agree, or differ)."""
    audit, given, resolved, settings = parts.audit, parts.given, parts.resolved, parts.settings
    for key in _GIVEN:
        if given.get(key) is not None and key in resolved and not same(parts.option(key), given[key]):
            yield f"manifest: {key} was given as {given[key]!r} and resolved to {resolved[key]!r}"
    for key, text in given.get("settings", {}).items():
        if key in settings and not _reads(str(text), settings[key]):
            yield f"manifest: {key} was set to {text} and resolved to {settings[key]!r}"
    if parts.configured and given.get("eps") is None and positive(resolved["eps"]):
        yield f"manifest: no eps was given, and it resolved to {resolved['eps']!r}"
    first = audit.findings[0]
    if parts.configured == (first.target == RECORDED):
        yield f"manifest: target {first.target} with{'out' if parts.configured else ''} a recording"
    rows = [
        ("manifest/seeds", audit.manifest["seeds"], [given.get("seed")]),
        ("manifest/data/name", audit.manifest["data"]["name"], resolved["data"]),
        ("findings: target", first.target, given.get("target")),
        ("findings: seed", first.seed, given.get("seed")),
        ("findings: eps", first.eps, resolved["eps"]),
        ("findings: defense", first.defense, resolved["defense"]),
    ]
    if audit.secret is not None:
        if audit.inputs is not None:
            rows.append(("secret/records", audit.secret["records"], audit.inputs["records"]))
        rows += [("findings: party", first.party, resolved.get("party", first.party)), *_coins(parts, audit.secret)]
    if not parts.configured:
        rows += [("manifest/data/name", resolved["data"], given["recording"].get("transcript"))]
    for where, recorded, expected in rows:
        if not same(recorded, expected):
            yield f"{where}: {recorded!r}, and by the manifest {expected!r}"


def _coins(parts: Parts, secret: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Statements about the coins, as recorded and as they follow from the others."""
    settings = parts.settings
    rows = [("secret/scored", secret["scored"], secret["canaries"] - secret["canaries"] // CALIBRATION_SHARE)]
    if not parts.configured:
        return rows
    records, canaries = settings.get("records", secret["records"]), settings.get("canaries", secret["canaries"])
    total, by_manifest = parts.releases_by_manifest, parts.moved_by_manifest
    return [
        *rows,
        ("secret/records", secret["records"], records),
        ("secret/canaries", secret["canaries"], canaries or records),
        ("findings: releases", parts.releases, parts.releases if total is None else total),
        ("secret/moved", list(parts.moved), list(parts.moved if by_manifest is None else by_manifest)),
    ]


def _target(parts: Parts, registry: Registry) -> Iterator[str]:
    """What the target itself makes of the options. Settings that are newer than the record are passed over.

    Of data in files, which are not here, it is asked only which secrets its runs hold, and not of how many records.
    """
    try:
        target: Target = registry.get("targets", str(parts.given.get("target")))()
        config = target.configure(_options(parts.given), registry)
    except (InputError, TypeError, ValueError) as error:
        yield f"manifest: the target refuses the options that are said to have been given ({error})"
        return
    held, promised = target.held(config), target.promised(config)
    if promised is not None:
        for name, said in (("mechanisms", parts.mechanisms), ("claims", parts.claims)):
            yield from differing(name, [item.to_json() for item in said], list(promised.get(name, [])))
        yield from _epsilons(parts, target, config)
    if target.describe(config)["data"] != parts.resolved["data"]:
        if held is not None:
            told = {part: {k: v for k, v in said.items() if k not in _BY_DATA} for part, said in held.items()}
            yield from contradictory_parts(parts.audit, told, registry)
        return
    for key, value in target.describe(config).items():
        recorded = parts.resolved.get(key)
        if isinstance(value, Mapping) and isinstance(recorded, Mapping):
            value = {name: item for name, item in value.items() if name in recorded}  # noqa: PLW2901
        yield from differing(f"manifest/config/resolved/{key}", recorded, value)
    if promised is None:
        yield from _epsilons(parts, target, config)
    labels = [threat.label for threat in target.threats(config)]
    yield from differing("threats", [item["label"] for item in parts.audit.threats], labels)
    if held is not None:
        yield from contradictory_parts(parts.audit, held, registry)


def _epsilons(parts: Parts, target: Target, config: Any) -> Iterator[str]:
    """Accounted for again: that takes a while, and is asked where the options decide them alone."""
    again = {item.name: item.to_json() for item in target.epsilons(config)}
    yield from differing("epsilons", {item["name"]: item for item in parts.audit.epsilons}, again)


def _examples(parts: Parts) -> Iterator[str]:
    """Only of invented persons may a record say anything by itself."""
    if parts.configured and invented(str(parts.resolved["data"])):
        return
    for part in ("inputs", "estimates"):
        if (getattr(parts.audit, part) or {}).get("examples"):
            yield f"{part}: examples of persons who are not invented"


def _drift(parts: Parts) -> Iterator[str]:
    """One number a release, or none at all, as behind layers and where no public text shows that there are none."""
    said = parts.audit.inputs or {}
    if "drift" not in said:
        return
    if said["drift"] and len(said["drift"]) != said["releases"]:
        yield f"inputs/drift: has {len(said['drift'])} numbers for {said['releases']} releases"
    layers, texts = parts.settings.get("k"), parts.settings.get("public")
    if layers is not None and texts is not None and bool(said["drift"]) != (layers == 0 and texts > 0):
        yield f"inputs/drift: {'there' if said['drift'] else 'missing'}, with {layers} layers and {texts} public texts"


def _options(given: Mapping[str, Any]) -> AuditOptions:
    """As given, but for the files: no record is verified by them."""
    known = {f.name for f in fields(AuditOptions)} - {"recording", "data"}
    values = {key: value for key, value in given.items() if key in known}
    for key in ("attacks", "defenses"):
        values[key] = tuple(values.get(key, ()))
    values["eps"] = math.inf if values.get("eps") == "inf" else values.get("eps")
    return AuditOptions(**values)


def _planned(audit: Audit, given: Mapping[str, Any], registry: Registry) -> Iterator[str]:
    """Every attack that was asked for is planned, and everything that was planned is there.

    "all" is what there was when the record was made; one that does not say so is of a version with fewer attacks.
    """
    chosen, present = registry.select("attacks", given.get("attacks") or ("all",)), attacks_of(audit)
    said = audit.manifest["config"].get("attacks")
    planned = chosen if said is None else said
    if not set(planned) <= set(chosen):
        yield f"manifest: the attacks {sorted(set(planned) - set(chosen))} are not among those that were asked for"
    # Who verifies may have other plugins; of this code's own attacks none is missing.
    own = BUILT_IN["attacks"].keys() if made_by_this_code(audit) else set()
    for name in sorted((set(chosen) & own) - set(planned)):
        yield f"manifest: {name} was asked for, and is not among the attacks that were planned"
    for name in planned if said is not None else ():
        if name not in present:
            yield f"{name}: planned by the manifest, but nothing is recorded of it"
    for name in sorted(set(present) - (set(planned) & set(chosen))):
        yield f"{name}: recorded, but the manifest did not plan it"


def _attacks(parts: Parts, scores: Scores, registry: Registry) -> Iterator[str]:
    """Every attack under the adversary that suffices for it, and none refused that could have been run."""
    audit = parts.audit
    for name in attacks_of(audit):
        findings = [finding for finding in audit.findings if finding.attack == name]
        attack = registry.get("attacks", name)
        able = parts.able(attack)
        # An attack whose secret no run held is the audit's own adversary's, whoever could have run it.
        asked = findings[0].secret != NOTHING
        threat = (parts.adversary(attack) if asked else parts.threats[0]).label
        # Older records name the audit's own adversary where an attack lacked something.
        named = {threat} if able is not None else {threat, parts.threats[0].label}
        if any(finding.threat_model not in named for finding in findings):
            yield f"{name}: judged under another threat model than '{threat}'"
        if all(finding.verdict != Verdict.NOT_APPLICABLE for finding in findings):
            continue
        if any(f"/{name}/" in key for key in scores):
            yield f"{name}: NOT_APPLICABLE, and yet it has scores"
        if not asked:
            kind = next(kind for kind, names in by_kind((name,), registry).items() if names)
            if getattr(audit, PARTS[kind]) is not None:
                yield f"{name}: NOT_APPLICABLE for want of a secret that the record holds"
            continue
        built_in = (
            parts.own
            and parts.configured
            and name in BUILT_IN["attacks"]
            and not parts.lacks(attack, findings, registry)
        )
        if able is not None and (built_in or (name == ORACLE and _oracle_was_read(audit))):
            yield f"{name}: NOT_APPLICABLE, though {threat} has all that it needs"


def _oracle_was_read(audit: Audit) -> bool:
    return any(audit.moves[key] is not None for key in ("excess", "predicted", "rho"))


def _moves(parts: Parts, scores: Scores) -> Iterator[str]:
    """What is measured together, or not at all."""
    audit, moves = parts.audit, parts.audit.moves
    read, noised = moves["excess"] is not None, parts.noised and moves["excess"] is not None
    if moves["rho"] is not None:
        yield from _rho(moves["rho"], 0 if audit.secret is None else int(audit.secret["scored"]))
    if any((moves[key] is not None) != read for key in ("at_clip", "above_clip")) or (moves["rho"] and not read):
        yield "moves: excess, at_clip, above_clip and rho are measured together, or nothing is"
    if read and parts.configured and (moves["rho"] is None) != (len(parts.moved) < 2):
        yield f"moves/rho: {'missing' if moves['rho'] is None else 'recorded'} where {len(parts.moved)} tasks are moved"
    if (moves["predicted"] is not None) != noised or ("oracle, predicted" in audit.series) != noised:
        yield "moves/predicted and its series: both are there exactly where moves and noise are"
    if not read and any(key.startswith(f"scores/{ORACLE}/") for key in scores):
        yield f"moves: none are recorded, and yet {ORACLE} was scored"
    cleaned = any(key.startswith("clean/") for key in scores)
    if audit.noise is None and parts.noised and (cleaned or (read and parts.configured)):
        yield "noise: no check is recorded, though releases with and without noise were there"
    if audit.noise is not None:
        yield from differing("noise/releases", audit.noise["releases"], parts.releases)
        if not parts.noised:
            yield "noise: a check is recorded, and the mechanism has none"


def _rho(rho: Mapping[str, Any], scored: int) -> Iterator[str]:
    """rho against its own limit, and its summaries against each other."""
    yield from differing("moves/rho/alpha", rho["alpha"], RHO_SHARE)
    yield from differing("moves/rho/records", rho["records"], scored)
    yield from differing("moves/rho/upper", rho["upper"], upper_mean(rho["mean_absolute"], scored, RHO_SHARE))
    if abs(rho["mean"]) > rho["mean_absolute"] * (1 + TOLERANCE):
        yield "moves/rho/mean: larger than the mean of the absolute values"
    low, middle, high = (rho["quantiles"].get(key, math.nan) for key in ("5%", "50%", "95%"))
    if not low <= middle <= high or len(rho["quantiles"]) != 3:
        yield "moves/rho/quantiles: they are 5%, 50% and 95%, in rising order"


def _utility(audit: Audit) -> Iterator[str]:
    """A gain is on the baseline's own records, so that the three numbers of a task fix each other."""
    for item in audit.utility:
        again = item["value"] - item["gain"]
        if not same(float(item["baseline"]), again):
            where = f"utility: {item['task']}, {item['metric']}"
            yield f"{where}: baseline is {item['baseline']!r}, and value less gain {again!r}"


def _texts(parts: Parts) -> Iterator[str]:
    """Sentences that readers quote are the package's own."""
    for flag in parts.audit.flags:
        name = flag["name"]
        if name not in FLAGS:
            yield f"flags: {name} is no flag of this version"
        elif dict(flag) != FLAGS[name].to_json():
            yield f"flags: {name} is explained in other words than privbench's"
    for recorded, threat in zip(parts.audit.threats, parts.threats, strict=True):
        if dict(recorded) != threat.to_json():
            yield f"threats: {threat.label} is described in other words than privbench's"


def _reads(text: str, value: Any) -> bool:
    """Whether a setting's text was read as this value; 0 may ask the target for a number of its own."""
    if text in (str(value), "0"):
        return True
    try:
        return not isinstance(value, str) and float(text) == float(value)
    except (TypeError, ValueError):
        return False

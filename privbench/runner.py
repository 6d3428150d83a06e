"""The straight line of an audit: run the target, attack what a curious party received, hold it against bounds.

Everything named by a string is reached through the registry. Nothing flows back: attacks see views, the scorer
holds the secrets, verdicts see counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy.typing as npt

from privbench.findings import Evidence, assemble
from privbench.flags import FLAGS
from privbench.manifest import cell_hash, manifest
from privbench.measure import SECRET, attack_all
from privbench.moves import label_association
from privbench.options import AuditOptions
from privbench.record import Audit, hash_scores
from privbench.registry import Registry
from privbench.target import Progress, Role, Target, TargetRun
from privbench.workers import Job, run_all

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class AuditResult:
    """The record and the score vectors it was computed from."""

    audit: Audit
    scores: Arrays


def run_audit(
    options: AuditOptions, registry: Registry, *, parallel: int = 2, progress: Progress | None = None
) -> AuditResult:
    """Train, attack, judge. Raises `InputError` for what a user can mend, `RunFailedError` when a run broke.

    The findings depend on the options, the data and the code alone: two calls agree byte for byte.
    """
    report = progress or (lambda stage, share: None)
    started, clock = datetime.now(UTC), time.monotonic()
    target: Target = registry.get("targets", options.target)()
    config = target.configure(options, registry)
    attacks = registry.select("attacks", options.attacks)
    jobs = {role: Job(role, target, item, options.seed) for role, item in target.roles(config).items()}
    runs = run_all(jobs, parallel, report)
    report("attacks", 0.0)
    threats = target.threats(config)
    audited = runs["audited"]
    attacked = attack_all(
        attacks,
        registry,
        threats,
        audited,
        options.seed,
        association=_association(audited, runs["clean"]),
        progress=report,
    )
    resolved = target.describe(config)
    evidence = Evidence(
        target=options.target,
        seed=options.seed,
        defense=str(resolved["defense"]),
        eps=resolved["eps"],
        attacked=attacked,
        mechanisms=audited.mechanisms,
        claims=audited.claims,
        moved=audited.secrets.joint,
        run_flags=frozenset(_run_flags(runs)),
    )
    report("bounds and verdicts", 0.9)
    judged = assemble(evidence, registry)
    fingerprint = runs["clean"].fingerprint
    audit = Audit(
        cell=cell_hash(options.target, resolved, options.seed, fingerprint),
        manifest=manifest(
            options,
            resolved,
            data_name=str(resolved["data"]),
            fingerprint=fingerprint,
            started=started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - clock,
        ),
        threats=[threat.to_json() for threat in threats],
        mechanisms=[item.to_json() for item in audited.mechanisms],
        claims=[item.to_json() for item in audited.claims],
        epsilons=[item.to_json() for item in target.epsilons(config)],
        utility=[item.to_json() for item in runs["clean"].utility],
        secret={
            "name": f"canary/{SECRET}",
            "moved": list(audited.secrets.joint),
            "canaries": int(audited.secrets.arrays[f"canary/{SECRET}"].sum()),
            "scored": len(attacked.scored),
            "records": len(audited.secrets.arrays[f"canary/{SECRET}"]),
        },
        moves={
            "rho": attacked.rho.to_json() if attacked.rho else None,
            "excess": attacked.excess,
            "at_clip": attacked.at_clip,
            "above_clip": attacked.above_clip,
            "predicted": attacked.prediction.one if attacked.prediction else None,
        },
        noise=attacked.noise.to_json() if attacked.noise else None,
        findings=judged.findings,
        planned=judged.planned,
        flags=[FLAGS[name].to_json() for name in judged.flags],
        series=judged.series,
        scores_sha256=hash_scores(judged.scores),
    )
    report("done", 1.0)
    return AuditResult(audit, judged.scores)


def _association(audited: TargetRun, clean: TargetRun) -> float | None:
    """Of the natural labels of the moved tasks: the clean run's, which no coin has touched."""
    return label_association([clean.secrets.arrays[f"labels/{task}"] for task in audited.secrets.joint])


def _run_flags(runs: Mapping[Role, TargetRun]) -> set[str]:
    clean = runs["clean"]
    flags = {name for run in runs.values() for name in run.flags}
    if clean.utility and all(item.gain_low <= abs(item.baseline_other_seed - item.baseline) for item in clean.utility):
        flags.add("ENCODERS_LEARNED_NOTHING")
    return flags

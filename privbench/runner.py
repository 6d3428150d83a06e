"""The straight line of an audit: run the target, attack what a curious party received, hold it against bounds.

Everything named by a string is reached through the registry. Nothing flows back: attacks see views, the scorer
holds the secrets, verdicts see counts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy.typing as npt

from privbench.data.catalogue import invented as is_invented
from privbench.errors import InputError
from privbench.estimates import ActiveEstimation, Estimation
from privbench.estimating import active_role
from privbench.findings import Header, evidence_of
from privbench.flags import FLAGS
from privbench.manifest import cell_hash, manifest
from privbench.membership import MembershipAttack
from privbench.moves import label_association
from privbench.options import AuditOptions
from privbench.parts import (
    attack,
    by_kind,
    describe_coins,
    describe_estimates,
    describe_inputs,
    describe_members,
    describe_moves,
    judge_parts,
)
from privbench.reach import require_measurable
from privbench.record import Audit, hash_scores
from privbench.references import cached_at, merged
from privbench.registry import Registry
from privbench.target import ACTIVE, MEMBERS, REFERENCE, Progress, Role, Target, TargetRun
from privbench.workers import Job, run_all

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class AuditResult:
    """The record and the score vectors it was computed from."""

    audit: Audit
    scores: Arrays


@dataclass(frozen=True)
class Prepared:
    """An audit that was checked and may start. `resolved`: its configuration as JSON; `cell`: its content address."""

    options: AuditOptions
    target: Target
    config: Any
    resolved: Mapping[str, Any]
    attacks: tuple[str, ...]
    cell: str
    disk_bytes: int


def prepare(options: AuditOptions, registry: Registry) -> Prepared:
    """Resolve every option without running anything; `InputError` for what a user can mend."""
    target: Target = registry.get("targets", options.target)()
    config = target.configure(options, registry)
    attacks = registry.select("attacks", options.attacks)
    resolved = target.describe(config)
    require_measurable(options.target, target, config, resolved, attacks, registry)
    cell = cell_hash(options, resolved, attacks, target.fingerprint(config), registry)
    return Prepared(options, target, config, resolved, attacks, cell, target.disk_bytes(config))


def run_audit(
    options: AuditOptions, registry: Registry, *, parallel: int = 2, progress: Progress | None = None
) -> AuditResult:
    """Prepare and run; see `run_prepared`."""
    return run_prepared(prepare(options, registry), registry, parallel=parallel, progress=progress)


def run_prepared(
    prepared: Prepared,
    registry: Registry,
    *,
    parallel: int = 2,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> AuditResult:
    """Train, attack, judge. Raises `InputError` for what a user can mend, `RunFailedError` when a run broke.

    The findings depend on the options, the data and the code alone: on one machine two calls agree byte for byte where
    BLAS has one thread. The command line sets that; who calls from Python sets OMP_NUM_THREADS, OPENBLAS_NUM_THREADS
    and MKL_NUM_THREADS to 1 before numpy is imported. With several, sums are taken in another order, and last digits
    may differ. The recordings are kept in `folder`, an empty one, or in a temporary one that is removed.
    """
    report = progress or (lambda stage, share: None)
    if folder is not None:
        _require_disk(prepared.disk_bytes, folder)
        return _run(prepared, registry, parallel, report, folder)
    with tempfile.TemporaryDirectory(prefix="privbench-") as temporary:
        _require_disk(prepared.disk_bytes, Path(temporary))
        return _run(prepared, registry, parallel, report, Path(temporary))


def _run(prepared: Prepared, registry: Registry, parallel: int, report: Progress, folder: Path) -> AuditResult:
    started, clock = datetime.now(UTC), time.monotonic()
    options, target, config = prepared.options, prepared.target, prepared.config
    runs = merged(run_all(_jobs(prepared, registry), parallel, report, folder))
    report("attacks", 0.0)
    threats = target.threats(config)
    audited, clean = runs["audited"], runs.get("clean")
    header = Header(options.target, options.seed, str(prepared.resolved["defense"]), prepared.resolved["eps"])
    association = None if clean is None else _association(audited, clean)
    # What a recording is called says nothing of whose it is.
    invented = options.recording is None and is_invented(str(prepared.resolved["data"]))
    parts = attack(prepared.attacks, registry, threats, runs, options.seed, association, invented, report)
    report("bounds and verdicts", 0.9)
    flags = frozenset(_run_flags(runs))
    evidence = None if parts.coins is None else evidence_of(header, parts.coins, audited, flags)
    judged = judge_parts(parts, evidence, header, prepared.attacks, registry, threats[0], flags)
    audit = Audit(
        cell=prepared.cell,
        manifest=manifest(
            options,
            prepared.resolved,
            prepared.attacks,
            data_name=str(prepared.resolved["data"]),
            fingerprint=(clean or audited).fingerprint,
            started=started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - clock,
        ),
        threats=[threat.to_json() for threat in threats],
        mechanisms=[item.to_json() for item in audited.mechanisms],
        claims=[item.to_json() for item in audited.claims],
        epsilons=[item.to_json() for item in target.epsilons(config)],
        utility=[item.to_json() for item in (clean or audited).utility],
        secret=describe_coins(parts.coins, audited.secrets),
        inputs=describe_inputs(parts.inputs, audited.secrets),
        members=describe_members(parts.members),
        estimates=describe_estimates(parts.estimates),
        moves=describe_moves(parts.coins),
        noise=parts.coins.noise.to_json() if parts.coins is not None and parts.coins.noise else None,
        findings=judged.findings,
        planned=judged.planned,
        flags=[FLAGS[name].to_json() for name in judged.flags],
        notes=list(dict.fromkeys((*audited.notes, *(clean.notes if clean is not None else ())))),
        series=judged.series,
        scores_sha256=hash_scores(judged.scores),
    )
    report("done", 1.0)
    return AuditResult(audit, judged.scores)


def _jobs(prepared: Prepared, registry: Registry) -> dict[Role, Job]:
    """The runs that these attacks need: who asks nothing about membership or inputs trains no models for it."""
    target, options = prepared.target, prepared.options
    kinds = by_kind(prepared.attacks, registry)
    roles = dict(target.roles(prepared.config))
    files = target.fingerprint(prepared.config)
    jobs = {}
    acting = roles.pop(ACTIVE, None)
    for role, config in roles.items():
        reference = role.startswith(REFERENCE)
        needed = kinds[MembershipAttack] or (role == MEMBERS and kinds[Estimation])
        if needed or not (reference or role == MEMBERS):
            kept = cached_at(options, prepared.resolved, role, files, registry) if reference else None
            jobs[role] = Job(role, target, config, options.seed, kept)
    for name in kinds[Estimation] if acting is not None else ():
        made = registry.get("attacks", name)
        if issubclass(made, ActiveEstimation):
            jobs[active_role(name)] = Job(active_role(name), target, acting, options.seed, active=made())
    return jobs


def _require_disk(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"the recordings need about {needed / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB free. Set "
            "TMPDIR to a larger disk, or make the run smaller."
        )


def _association(audited: TargetRun, clean: TargetRun) -> float | None:
    """Of the natural labels of the moved tasks: the clean run's, which no coin has touched."""
    return label_association([clean.secrets.array(f"labels/{task}") for task in audited.secrets.joint])


def _run_flags(runs: Mapping[Role, TargetRun]) -> set[str]:
    clean = runs.get("clean")
    flags = {name for run in runs.values() for name in run.flags}
    # Encoders are meant where the baseline is another training on random ones, and not a most frequent answer.
    gains = [item for item in clean.utility if item.baseline_other_seed is not None] if clean else []
    if gains and all(item.gained_nothing for item in gains):
        flags.add("ENCODERS_LEARNED_NOTHING")
    return flags

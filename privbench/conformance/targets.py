"""Checks of a target: the same seed gives the same run, secrets stay out of the transcript, and it is as described."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privbench.conformance.base import Check, Result, global_generators, run_checks, unsaid
from privbench.mechanism import gradient_mechanism
from privbench.moves import Moves
from privbench.noise import LIMIT, check_noise
from privbench.options import AuditOptions
from privbench.recording import Recording
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import Target, TargetRun


@dataclass(frozen=True)
class TargetSubject:
    """A target with options that run in seconds."""

    make: Callable[[], Target]
    options: AuditOptions

    def run(self, seed: int = 0, folder: Path | None = None) -> TargetRun:
        """The audited run."""
        target = self.make()
        config = target.roles(target.configure(self.options, default_registry()))["audited"]
        return target.run(config, stream(seed, "run"), folder=folder)


def check_target(subject: TargetSubject, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run TARGET_CHECKS on the target."""
    return run_checks(TARGET_CHECKS, subject, expected or {})


def _card(subject: TargetSubject) -> str | None:
    return unsaid(subject.make().card, "name", "summary", "paper", "channels", "parties", "cost")


def _resolved(subject: TargetSubject) -> str | None:
    target = subject.make()
    config = target.configure(subject.options, default_registry())
    described = target.describe(config)
    text = json.dumps(described, allow_nan=False)
    missing = [key for key in ("data", "defense", "eps") if key not in described]
    if missing:
        return f"its configuration lacks {', '.join(missing)}"
    if str(Path.cwd()) in text or str(Path.home()) in text or tempfile.gettempdir() + "/" in text:
        return "its configuration holds an absolute path"
    if "audited" not in target.roles(config) or not target.threats(config):
        return "it has no audited run, or no adversary"
    return None


def _deterministic(subject: TargetSubject) -> str | None:
    differ = _difference(subject.run(3), subject.run(3))
    return f"two runs with one seed differ in {differ}" if differ else None


def _seeded(subject: TargetSubject) -> str | None:
    if not subject.make().disk_bytes(subject.make().configure(subject.options, default_registry())):
        return None  # it records nothing of its own: there is no randomness to seed
    return None if _difference(subject.run(3), subject.run(4)) else "two seeds give the same run"


def _generators(subject: TargetSubject) -> str | None:
    before = global_generators()
    subject.run()
    return None if global_generators() == before else "a global random generator was used"


def _in_files(subject: TargetSubject) -> str | None:
    with tempfile.TemporaryDirectory(prefix="privbench-") as folder:
        differ = _difference(subject.run(5), subject.run(5, Path(folder)))
    return f"recorded to files it differs in {differ}" if differ else None


def _secrets(subject: TargetSubject) -> str | None:
    """No array of the transcript holds the coins, nor the labels that they set."""
    run = subject.run()
    for secret in run.secrets.coined:
        canaries, coins = run.secrets.coins(secret)
        for name, array in run.transcript.arrays.items():
            for axis in range(array.ndim if array.ndim <= 2 else 0):
                values = np.moveaxis(np.asarray(array), axis, 0)
                if len(values) <= canaries.max():
                    continue
                columns = values[canaries].reshape(len(canaries), -1)
                if any(len(np.unique(c)) == 2 and np.array_equal(c == c.max(), coins == 1) for c in columns.T):
                    return f"'{name}' in the transcript tells the coins of {secret}"
    return None


def _noise(subject: TargetSubject) -> str | None:
    run = subject.run()
    found = check_noise(run.transcript, run.oracle, run.mechanisms) if run.oracle is not None else None
    if found is None:
        return None
    if max(found.scale, found.correlation, found.records) > LIMIT:
        return f"its noise is not as declared: {found.to_json()}"
    return None


def _clip(subject: TargetSubject) -> str | None:
    run = subject.run()
    target = subject.make()
    site = target.threats(target.configure(subject.options, default_registry()))[0].name
    mechanism = gradient_mechanism(run.mechanisms, site)
    if run.oracle is None or mechanism is None or not mechanism.clip:
        return None
    secret = run.secrets.coined[0]
    rows, _ = run.secrets.coins(secret)
    moves = Moves.measure(run.oracle, site, secret, run.secrets.moved(secret), rows, mechanism)
    if moves is None:
        return "its oracle holds no hypotheses of the secret"
    return (
        None
        if moves.excess <= 1 + 1e-3
        else f"a label moves a release by {moves.excess:.3f} times what the clip allows"
    )


def _disk(subject: TargetSubject) -> str | None:
    target = subject.make()
    config = target.configure(subject.options, default_registry())
    said, needed = target.disk_bytes(config), 0
    with tempfile.TemporaryDirectory(prefix="privbench-") as name:
        for role, item in target.roles(config).items():
            folder = Path(name) / role
            folder.mkdir()
            target.run(item, stream(0, "run"), folder=folder)
            needed += sum(file.stat().st_size for file in folder.rglob("*"))
    return None if needed <= 1.1 * said + 1e6 else f"says its recordings need {said:,} bytes; they took {needed:,}"


def _difference(one: TargetRun, other: TargetRun) -> str | None:
    """The first array in which two runs differ."""
    pairs: tuple[tuple[Recording | None, Recording | None], ...] = (
        (one.transcript, other.transcript), (one.oracle, other.oracle), (one.secrets, other.secrets),
    )  # fmt: skip
    for first, second in pairs:
        if first is None or second is None:
            if first is not second:
                return "which recordings there are"
            continue
        for name in {**first.arrays, **second.arrays}:
            if name not in first.arrays or name not in second.arrays:
                return name
            if not np.array_equal(np.asarray(first.arrays[name]), np.asarray(second.arrays[name])):
                return name
    return None


TARGET_CHECKS: tuple[Check[TargetSubject], ...] = (
    Check("card", "the card says what it is, whose, and what it costs", _card),
    Check("configuration", "its configuration is plain JSON without absolute paths", _resolved),
    Check("deterministic", "one seed, one run", _deterministic),
    Check("seeded", "another seed, another run", _seeded),
    Check("global generators", "no global random generator is used", _generators),
    Check("files", "recorded to files it is the same as in memory", _in_files),
    Check("secrets", "the transcript does not hold the coins", _secrets),
    Check("noise", "its noise has the declared scale and is independent", _noise),
    Check("clip", "a label moves no release by more than the clip allows", _clip),
    Check("disk", "its recordings need no more disk than it says", _disk),
)

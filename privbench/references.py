"""Reference models: what the adversary of a membership attack trains itself, on random halves of the candidates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.cache import cache_folder
from privbench.manifest import cell_hash
from privbench.options import AuditOptions
from privbench.recording import MEMBER, Transcript
from privbench.registry import Registry
from privbench.target import MEMBERS, REFERENCE, Role, TargetRun


def balanced_halves(rng: np.random.Generator, references: int, candidates: int) -> npt.NDArray[np.uint8]:
    """Which reference is trained on which record, [R, N]: each record in half of them, drawn apart for each record.

    Of an odd number one more or one fewer, by chance.
    """
    spare = rng.integers(0, 2, candidates) if references % 2 else np.zeros(candidates, np.int64)
    ranks = rng.random((references, candidates)).argsort(axis=0).argsort(axis=0)
    return (ranks < references // 2 + spare).astype(np.uint8)


def inclusions(rng: np.random.Generator, references: int, candidates: int) -> npt.NDArray[np.uint8]:
    """Who is trained on in which run, [1 + R, N]: row 0 of the "members" run, by a fair coin for each record; row r of
    "reference-r" (`balanced_halves`).
    """
    coins = rng.integers(0, 2, (1, candidates)).astype(np.uint8)
    return np.concatenate([coins, balanced_halves(rng, references, candidates)])


def row_of(role: Role) -> int:
    """The row of `inclusions` that a run trains on."""
    return int(role.removeprefix(REFERENCE)) if role.startswith(REFERENCE) else 0


def merged(runs: Mapping[Role, TargetRun]) -> dict[Role, TargetRun]:
    """The references' outputs as part of what the adversary of the "members" run holds; the other runs as they are."""
    made = [run for role, run in runs.items() if role.startswith(REFERENCE)]
    kept = {role: run for role, run in runs.items() if not role.startswith(REFERENCE)}
    if made and MEMBERS in kept:
        run = kept[MEMBERS]
        names = [name for name in run.transcript.arrays if name.startswith("outputs/") and name.count("/") == 1]
        stacked = {
            f"reference/{name}": np.stack([item.transcript.array(name) for item in made])
            for name in names
            if name != "outputs/population"
        }
        member = np.stack([item.secrets.array(MEMBER) for item in made])
        arrays = {**run.transcript.arrays, **stacked, "reference/member": member}
        kept[MEMBERS] = replace(run, transcript=Transcript(arrays, run.transcript.metadata))
    return kept


def cached_at(options: AuditOptions, resolved: Mapping[str, Any], role: Role, files: str, registry: Registry) -> Path:
    """Where a reference run is kept: a folder named by all that changes it, code, plugins and libraries among it."""
    libraries = {name: metadata.version(name) for name in ("numpy", "torch")}
    key = [cell_hash(options, resolved, (), files, registry), role, libraries]
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "references" / name

"""Where a cohort comes from: `NAME` or `NAME:DIR`, resolved to splits with a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from privbench.data.catalogue import READERS
from privbench.data.cohort import Cohort, Splits
from privbench.errors import InputError, unknown


class Sizes(Protocol):
    """How many stays a generated cohort should have."""

    @property
    def train(self) -> int: ...
    @property
    def validation(self) -> int: ...
    @property
    def test(self) -> int: ...


@dataclass(frozen=True)
class Description:
    """What is known of a source before training: who holds which task, how many training records it has.

    `train_records` is None where the number is chosen (synthetic).
    """

    holders: Mapping[str, str]
    train_records: int | None


@dataclass(frozen=True)
class Source:
    """Splits with their fingerprint, and the names of flags that the source itself raises."""

    splits: Splits
    fingerprint: str
    flags: tuple[str, ...] = ()


def describe(spec: str) -> Description:
    """Look at a source without drawing the splits; `InputError` for unknown or unreadable ones."""
    name, folder = _parse(spec)
    if name == "synthetic":
        from privbench.data.synthetic import TASKS

        return Description({task.name: task.holder for task in TASKS}, None)
    from privbench.data.physionet2012 import count_train, holders

    return Description(holders(), count_train(folder))


def load(spec: str, rng: np.random.Generator, sizes: Sizes) -> Source:
    """Draw or read the splits."""
    name, folder = _parse(spec)
    if name == "synthetic":
        from privbench.data.synthetic import synthetic

        splits = synthetic(rng, sizes.train, sizes.validation, sizes.test)
        return Source(splits, fingerprint(splits))
    from privbench.data.physionet2012 import read_splits

    splits = read_splits(folder, rng)
    # The sites' stays are joined by their record ids in the clear; real set intersection is another step.
    return Source(splits, fingerprint(splits), ("ALIGNMENT_NOT_PRIVATE",))


def fingerprint(splits: Splits) -> str:
    """SHA-256 over every value, mask, label and record id of the three splits."""
    digest = hashlib.sha256()
    for cohort in (splits.train, splits.validation, splits.test):
        _update(digest, cohort)
    return digest.hexdigest()


def fingerprint_files(spec: str) -> str:
    """SHA-256 over names and contents of all files of a source; "" for a generated one."""
    name, folder = _parse(spec)
    if name == "synthetic":
        return ""
    digest = hashlib.sha256()
    for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        with file.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def _update(digest: hashlib._Hash, cohort: Cohort) -> None:
    digest.update(np.ascontiguousarray(cohort.record_ids).tobytes())
    for site in sorted(cohort.sites):
        data = cohort.sites[site]
        digest.update(np.ascontiguousarray(data.values).tobytes())
        digest.update(np.ascontiguousarray(data.observed).tobytes())
    for task in sorted(cohort.labels):
        digest.update(np.ascontiguousarray(cohort.labels[task]).tobytes())


def _parse(spec: str) -> tuple[str, str]:
    name, _, folder = spec.partition(":")
    if name not in READERS:
        raise unknown("data set", name, READERS)
    if name == "synthetic" and folder:
        raise InputError(f"the synthetic cohort takes no folder, got '{spec}'.")
    if name != "synthetic" and not folder:
        raise InputError(f"data set {name} needs its folder: --data {name}:DIR.")
    return name, folder

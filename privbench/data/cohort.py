"""A cohort: the same stays seen by several sites, each with its own features and its own task.

Every reader (synthetic, PhysioNet 2012, ...) returns a `Cohort`; every vertical target reads one.
Nothing in here knows about models or privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """One measured quantity, its unit, and the range outside which a value is a recording error."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class Task:
    """A prediction task and the site that holds its labels.

    `labels` names the columns of a multi-label task; a binary task has exactly one.
    """

    name: str
    holder: str
    labels: tuple[str, ...]

    @property
    def multilabel(self) -> bool:
        return len(self.labels) > 1


@dataclass(frozen=True)
class SiteData:
    """What one site measured: values [N, H, F] in the features' units, observed [N, H, F].

    A static site has H = 1. Where `observed` is False the value carries no meaning (it is 0).
    """

    features: tuple[Feature, ...]
    values: FloatArray
    observed: BoolArray

    def take(self, rows: IntArray) -> SiteData:
        return replace(self, values=self.values[rows], observed=self.observed[rows])


@dataclass(frozen=True)
class Cohort:
    """Aligned records of several sites. Row n is the same stay in every array."""

    record_ids: IntArray
    sites: Mapping[str, SiteData]
    tasks: tuple[Task, ...]
    labels: Mapping[str, IntArray]

    def __post_init__(self) -> None:
        count = len(self.record_ids)
        if len(np.unique(self.record_ids)) != count:
            raise InputError("a cohort holds each record once; the given record ids repeat.")
        for site, data in self.sites.items():
            if data.values.shape != data.observed.shape or len(data.values) != count:
                raise InputError(
                    f"site {site}: values {data.values.shape} and observed {data.observed.shape} "
                    f"must agree and have {count} rows."
                )
        for task in self.tasks:
            expected = (count, len(task.labels)) if task.multilabel else (count,)
            if self.labels[task.name].shape != expected:
                raise InputError(
                    f"task {task.name}: labels have shape {self.labels[task.name].shape}, expected {expected}."
                )

    def __len__(self) -> int:
        return len(self.record_ids)

    def take(self, rows: IntArray) -> Cohort:
        """The sub-cohort with these rows, in this order."""
        return replace(
            self,
            record_ids=self.record_ids[rows],
            sites={name: data.take(rows) for name, data in self.sites.items()},
            labels={name: values[rows] for name, values in self.labels.items()},
        )

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)


def join(parts: Sequence[Cohort]) -> Cohort:
    """One cohort from parts with the same sites and tasks; each record may appear once."""
    first = parts[0]
    return Cohort(
        record_ids=np.concatenate([part.record_ids for part in parts]),
        sites={
            name: SiteData(
                data.features,
                np.concatenate([part.sites[name].values for part in parts]),
                np.concatenate([part.sites[name].observed for part in parts]),
            )
            for name, data in first.sites.items()
        },
        tasks=first.tasks,
        labels={name: np.concatenate([part.labels[name] for part in parts]) for name in first.labels},
    )


@dataclass(frozen=True)
class Splits:
    """Disjoint stays for fitting, for choosing the epoch, and for measuring utility."""

    train: Cohort
    validation: Cohort
    test: Cohort

    def require_two_classes(self) -> None:
        """Refuse a task that has one class among the training records, or in all its labels among the test records:
        nothing could be learned, leaked or measured.
        """
        for task in self.test.tasks:
            labels = self.test.labels[task.name].reshape(len(self.test), -1)
            if not any(len(np.unique(column)) > 1 for column in labels.T):
                raise InputError(
                    f"task {task.name} has one class only among the {len(self.test)} test records; its AUC needs both."
                )
        for task in self.train.tasks:
            labels = self.train.labels[task.name].reshape(len(self.train), -1)
            constant = [name for name, column in zip(task.labels, labels.T, strict=True) if len(np.unique(column)) < 2]
            if constant:
                raise InputError(
                    f"task {task.name} has one class only in the training records ({', '.join(constant[:3])}); "
                    f"an audit needs both classes. Use more records or another task."
                )

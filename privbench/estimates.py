"""Estimating the numbers behind a cut: vitals, labs, whatever a site measured and did not send.

The adversary is a server that receives cut activations and has records of its own, for which it knows both the inputs
and what the encoder made of them. Records that it knows are never scored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackBase, Index, NotApplicable, View
from privbench.errors import InputError
from privbench.layout import KNOWN_INDEX
from privbench.losses import tasks_of
from privbench.recording import Secrets, Transcript
from privbench.target import ActiveAdversary
from privbench.tensors import Blocks

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

LEAST_KNOWN = 20
"""Records with known inputs below which nothing can be learned from them."""


@dataclass(frozen=True)
class Known:
    """What the adversary learns from, and what it is asked about.

    sent [A, d] and inputs [A, H, F], in the features' units, of its own records; observed [A, H, F]: where an input was
    measured; elsewhere it carries no meaning. asked [m, d]: the activations of the records to be estimated.
    labels [A, L], asked_labels [m, L]: true answers, L = 0 where none are recorded. encoder: the parameters of the
    victim's (`privbench.encoders`), kept: what the attack's own part in the run kept of it; empty for most adversaries.
    """

    sent: Floats
    inputs: Floats
    observed: Mask
    asked: Floats
    labels: Floats
    asked_labels: Floats
    encoder: Mapping[str, Values]
    kept: Mapping[str, Values]

    @property
    def filled(self) -> Floats:
        """Inputs [A, H, F] with what was not measured set to the feature's mean over hours and records."""
        return with_means(self.inputs, self.observed)


def victim_of(secrets: Secrets, transcript: Transcript) -> str:
    """The party whose inputs are estimated: the first with measured inputs that sent something, else the first.

    Raises `InputError` where no inputs are recorded as numbers.
    """
    if not secrets.measured:
        raise InputError(f"{secrets.where} holds no inputs that are numbers, inputs/SITE [N, ..., F]; record them.")
    sent = (site for site in secrets.measured if f"activations/{site}" in transcript.arrays)
    return next(sent, secrets.measured[0])


class Estimation(AttackBase):
    """Base of all attacks that estimate inputs of the party `view.secret`. Authors write `run` and a card.

    most: records that it is asked about, drawn from all; None for every one.
    """

    most: ClassVar[int | None] = None

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        refused = self.refusal(view)
        if refused is not None:
            return refused
        known = known_to(view)
        if isinstance(known, NotApplicable):
            return known
        found = np.asarray(self.run(known, rng), np.float64)
        wanted = (len(view.candidates), *known.inputs.shape[1:])
        if found.shape != wanted:
            raise ValueError(f"{self.card.name} returned {list(found.shape)}, expected [m, H, F] = {list(wanted)}.")
        if not np.isfinite(found).all():
            raise ValueError(f"{self.card.name} returned estimates that are not finite.")
        return found

    @abstractmethod
    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        """Estimate the inputs [m, H, F] of every asked record, in the features' units."""


class ActiveEstimation(Estimation):
    """An estimation that takes part in the run: its adversary replaces what its party sends, and keeps what it learned.

    Authors write `adversary` besides; `run` finds in `known.kept` what that kept. It must keep something, one number
    that says so if need be: without any, it is refused as one that took no part in the run.
    """

    @abstractmethod
    def adversary(self, rng: np.random.Generator) -> ActiveAdversary:
        """A fresh adversary for one run."""

    def lacks(self, view: View) -> str | None:
        return None if under(view, "adversary") else "needs a run in which it took part"


def known_to(view: View) -> Known | NotApplicable:
    """The adversary's share of a recording, from the last release of the victim's activations.

    Raises `InputError` where a record is both known and to be estimated.
    """
    site = view.secret
    party = view.threat.holder
    names = (f"activations/{site}", f"auxiliary/{party}/inputs/{site}", KNOWN_INDEX)
    missing = [name for name in names if name not in view.arrays]
    if missing:
        return NotApplicable(f"needs '{missing[0]}', which was not recorded")
    index: Index = np.asarray(view.arrays[KNOWN_INDEX])
    if np.intersect1d(index, view.candidates).size:
        raise InputError("auxiliary/index names records that are to be estimated; who is known is never scored.")
    if len(index) < LEAST_KNOWN:
        return NotApplicable(f"needs {LEAST_KNOWN} records with known inputs; {len(index)} are recorded")
    sent = np.asarray(view.arrays[names[0]][-1], np.float64)
    inputs, observed = told_of(view.arrays, names[1])
    labels = _labels(view, len(sent))
    return Known(
        sent[index],
        inputs,
        observed,
        sent[view.candidates],
        labels[index],
        labels[view.candidates],
        under(view, f"model/{site}"),
        under(view, "adversary"),
    )


def told_of(arrays: Mapping[str, Blocks], name: str) -> tuple[Floats, Mask]:
    """The inputs of this name, and where they were measured, [A, H, F]; everywhere, unless NAME/observed says where."""
    inputs, mask = np.asarray(arrays[name], np.float64), arrays.get(f"{name}/observed")
    observed = np.ones(inputs.shape, np.bool_) if mask is None else np.asarray(mask) == 1
    shape = (len(inputs), -1, inputs.shape[-1])
    return inputs.reshape(shape), observed.reshape(shape)


def under(view: View, prefix: str) -> dict[str, Values]:
    """Arrays by what follows the prefix."""
    found = {name: array for name, array in view.arrays.items() if name.startswith(f"{prefix}/")}
    return {name.removeprefix(f"{prefix}/"): np.asarray(array) for name, array in found.items()}


def _labels(view: View, records: int) -> Floats:
    """True answers [N, L] of every record, the columns of all tasks beside each other."""
    answers = [np.asarray(view.arrays[f"outputs/{task}/labels"], np.float64) for task in tasks_of(view.arrays)]
    return np.concatenate([np.empty((records, 0)), *(values.reshape(records, -1) for values in answers)], axis=1)


def with_means(inputs: Floats, observed: Mask) -> Floats:
    """Inputs [A, H, F] with what was not measured set to the feature's mean over hours and records."""
    return np.where(observed, inputs, mean_of(inputs, observed))


def mean_of(values: Floats, observed: Mask) -> Floats:
    """Mean [F] of what was measured of values [N, H, F]; 0 where nothing was."""
    mean: Floats = (values * observed).sum(axis=(0, 1)) / np.maximum(observed.sum(axis=(0, 1)), 1)
    return mean


def ridge(known: Floats, inputs: Floats, observed: Mask, asked: Floats) -> Floats:
    """Ridge regression of inputs [A, H, F] on features [A, d], for asked [m, d]: [m, H, F].

    The penalty is chosen by leave-one-out error on the known records, for each hour of each feature its own, so that no
    feature's unit decides for another; what was not measured is set to its mean.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    filled = with_means(inputs, observed)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 5, 17), alpha_per_target=True))
    model.fit(known, filled.reshape(len(filled), -1))
    found: Floats = model.predict(asked).reshape(len(asked), *inputs.shape[1:])
    return found

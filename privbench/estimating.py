"""Run the estimations on an audited run: how closely does a party know the numbers that went into a cut?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Hints, Index, NotApplicable, view_of
from privbench.blind import summaries
from privbench.estimated import Fit, Measured, shuffled
from privbench.estimates import Estimation, Floats, Mask, ridge
from privbench.invert import input_mechanism
from privbench.measure import Refused, try_each
from privbench.mechanism import Mechanism
from privbench.recording import Secrets
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import Progress, TargetRun
from privbench.threat import ThreatModel

AUXILIARY = "auxiliary/index"
SHOWN = 5
"""Records whose inputs and estimates are drawn, where they are of invented persons."""


@dataclass(frozen=True)
class Estimated:
    """How well one attack estimated; wrong: the same estimates, each held against another record."""

    card: AttackCard
    threat: ThreatModel
    fit: Fit
    wrong: Fit


@dataclass(frozen=True)
class Example:
    """One record's inputs [H, F], what was measured of them, and an attack's estimate."""

    inputs: Floats
    observed: Mask
    estimate: Floats


@dataclass(frozen=True)
class Estimates:
    """All estimations of one run. victim: whose inputs; scored [m]: record numbers; features: names and units.

    others: what a regression on all other recorded columns of the same records achieves, which takes no cut; None
    where there are none. examples: of the best attack, empty where the records are real.
    """

    victim: str
    outcomes: Mapping[str, Estimated]
    refused: Mapping[str, Refused]
    scored: Index
    known: int
    hours: int
    features: tuple[Mapping[str, str], ...]
    others: Fit | None
    mechanism: Mechanism | None
    examples: tuple[Example, ...]


def estimate_all(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    seed: int,
    invented: bool,
    progress: Progress,
) -> Estimates:
    """Every estimation under the weakest threat model that suffices for it, on the first party with measured inputs.

    invented: no record is a person's, so that some may be shown.
    """
    victim = run.secrets.measured[0]
    known: Index = np.asarray(run.transcript.arrays.get(AUXILIARY, np.empty(0, np.int64)))
    records = len(run.secrets.arrays[f"inputs/{victim}"])
    scored = np.setdiff1d(np.arange(records), known)
    truth = _measured(run.secrets, victim, scored)
    order = stream(seed, "estimates compared with others").permutation(len(scored))
    found: dict[str, Floats] = {}

    def tried(name: str, attack: Estimation, threat: ThreatModel) -> Estimated | NotApplicable:
        view = view_of(threat, run.transcript, secret=victim, moved=(), candidates=scored, hints=Hints.none())
        estimate = attack(view, stream(seed, name))
        if isinstance(estimate, NotApplicable):
            return estimate
        if not len(truth.scored):
            return NotApplicable(f"no input of {victim} varies among the records to be estimated")
        found[name] = estimate
        return Estimated(attack.card, threat, truth.fit(estimate), truth.fit(shuffled(estimate, order)))

    outcomes, refused = try_each(names, registry, threats, progress, tried)
    best = max(outcomes, key=lambda name: outcomes[name].fit.mean, default=None)
    return Estimates(
        victim,
        outcomes,
        refused,
        scored,
        known=len(known),
        hours=truth.values.shape[1],
        features=_named(run.transcript.metadata.get("features", {}).get(victim, ()), truth),
        others=_others(run.secrets, victim, known, scored, truth),
        mechanism=input_mechanism(run.mechanisms, victim),
        examples=_examples(truth, found[best]) if invented and best is not None else (),
    )


def _measured(secrets: Secrets, victim: str, rows: Index) -> Measured:
    values = np.asarray(secrets.arrays[f"inputs/{victim}"])[rows].astype(np.float64)
    mask = secrets.arrays.get(f"inputs/{victim}/observed")
    observed = np.ones(values.shape, np.bool_) if mask is None else np.asarray(mask)[rows] == 1
    shape = (len(values), -1, values.shape[-1])
    return Measured(values.reshape(shape), observed.reshape(shape))


def _others(secrets: Secrets, victim: str, known: Index, rows: Index, truth: Measured) -> Fit | None:
    """Baseline: the labels and the other parties' inputs of the same records tell something of the victim's too."""
    columns = summaries(secrets, np.concatenate([known, rows]), but=victim)
    if columns is None or len(known) < columns.shape[1] or not len(truth.scored):
        return None
    told = _measured(secrets, victim, known)
    return truth.fit(ridge(columns[: len(known)], told.values, told.observed, columns[len(known) :]))


def _named(features: Sequence[Mapping[str, str]], truth: Measured) -> tuple[Mapping[str, str], ...]:
    """Names and units of the features that are scored; none where the recording names others than it holds."""
    return tuple(features[k] for k in truth.scored) if len(features) == truth.values.shape[2] else ()


def _examples(truth: Measured, estimate: Floats) -> tuple[Example, ...]:
    use = truth.scored
    return tuple(
        Example(truth.values[i][:, use], truth.observed[i][:, use], estimate[i][:, use])
        for i in range(min(SHOWN, len(estimate)))
    )

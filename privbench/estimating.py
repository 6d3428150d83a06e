"""Run the estimations on an audited run: how closely does a party know the numbers that went into a cut?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from privbench.attack import AttackCard, Hints, Index, NotApplicable, view_of
from privbench.blind import summaries
from privbench.bounds.base import Cut
from privbench.errors import InputError
from privbench.estimated import Fit, Measured
from privbench.estimates import ActiveEstimation, Estimation, Floats, Mask, ridge, told_of, victim_of
from privbench.harm import Harm, harms
from privbench.layout import KNOWN_INDEX
from privbench.losses import tasks_of
from privbench.measure import Refused, try_each
from privbench.mechanism import Mechanism, input_mechanism
from privbench.recording import STANDARD_NORMAL, Secrets
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import ACTIVE, Progress, Role, TargetRun
from privbench.threat import ThreatModel

_BEYOND = 6.0
"""Standard errors at which inputs are not what they are said to be."""
SHOWN = 5
"""Records whose inputs and estimates are drawn, where they are of invented persons."""


@dataclass(frozen=True)
class Estimated:
    """How well one attack estimated the records that it was asked about.

    It is asked in a random order. wrong: the same estimates, each held against the record whose place in the order of
    records it was asked in, as if the activations had been moved between records: what an attack knows of a place, and
    not from the cut, shows there. constant: what no estimate beats that says the same of every record.
    Baselines on the same records, which take no cut: prior, each hour's mean over the records that the adversary knows;
    others, a regression on all other recorded columns, None where there are none. harms: of an attack that acted in the
    run, what that did to the tasks.
    """

    card: AttackCard
    threat: ThreatModel
    fit: Fit
    wrong: Fit
    constant: Fit
    prior: Fit
    others: Fit | None
    harms: tuple[Harm, ...]


@dataclass(frozen=True)
class Example:
    """One record's inputs [H, F], what was measured of them [H, F], and an attack's estimate [H, F]."""

    inputs: Floats
    observed: Mask
    estimate: Floats


@dataclass(frozen=True)
class Estimates:
    """All estimations of one run. victim: whose inputs; scored [m]: record numbers; known: of how many records the
    adversary has inputs; others: whether other columns of the same records are recorded; features: names and units.

    cut: what bounds need to know of it, None where it is not linear or not noised. shown: the attack whose estimates
    the examples are, the best one that was asked about every record; None, and no examples, where the records are real.
    """

    victim: str
    outcomes: Mapping[str, Estimated]
    refused: Mapping[str, Refused]
    scored: Index
    known: int
    others: bool
    hours: int
    features: tuple[Mapping[str, str], ...]
    mechanism: Mechanism | None
    cut: Cut | None
    shown: str | None
    examples: tuple[Example, ...]


def active_role(name: str) -> Role:
    """The run in which the attack of this name acts."""
    return ACTIVE + name.rpartition("/")[2]


def estimate_all(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    runs: Mapping[Role, TargetRun],
    seed: int,
    invented: bool,
    progress: Progress,
) -> Estimates:
    """Every estimation under the weakest threat model that suffices for it, on the first party with measured inputs.

    runs: where an attack that acts in a run finds its own; invented: no record is a person's, so some may be shown.
    """
    bench = _Bench.of(run, seed)
    asked_about = cache(bench.asked)  # most attacks are asked about the same records
    found: dict[str, Floats] = {}

    def tried(name: str, attack: Estimation, threat: ThreatModel) -> Estimated | NotApplicable:
        own = runs.get(active_role(name), run) if isinstance(attack, ActiveEstimation) else run
        asked = asked_about(attack.most)
        candidates = bench.scored[asked.rows][asked.order]
        view = view_of(threat, own.transcript, secret=bench.victim, moved=(), candidates=candidates, hints=Hints.none())
        answer = attack(view, stream(seed, name))
        if isinstance(answer, NotApplicable):
            return answer
        bench.require_same_records(own)
        if not np.array_equal(asked.truth.scored, bench.truth.scored) or not len(bench.truth.scored):
            varies = f"do not vary among the {len(candidates)} records to be estimated"
            return NotApplicable(f"inputs of {bench.victim} {varies}")
        if attack.most is None:
            found[name] = asked.sorted(answer)
        return asked.outcome(attack.card, threat, answer, () if own is run else harms(run, own))

    outcomes, refused = try_each(names, registry, threats, progress, tried)
    best = max(found, key=lambda name: outcomes[name].fit.mean, default=None) if invented else None
    return Estimates(
        bench.victim,
        outcomes,
        refused,
        bench.scored,
        known=len(bench.known),
        others=bench.others is not None,
        hours=bench.truth.values.shape[1],
        features=_named(run.transcript.metadata.get("features", {}).get(bench.victim, ()), bench.truth),
        mechanism=input_mechanism(run.mechanisms, bench.victim),
        cut=_cut(run, bench),
        shown=best,
        examples=() if best is None else _examples(bench.truth, found[best]),
    )


@dataclass(frozen=True)
class _Bench:
    """What every estimation is held against: inputs, baselines' estimates [m, H, F], and who is asked about."""

    run: TargetRun
    victim: str
    known: Index
    scored: Index
    truth: Measured
    prior: Floats
    others: Floats | None
    order: Index
    drawn: Index

    @classmethod
    def of(cls, run: TargetRun, seed: int) -> _Bench:
        victim = victim_of(run.secrets, run.transcript)
        known: Index = np.asarray(run.transcript.arrays.get(KNOWN_INDEX, np.empty(0, np.int64)))
        scored = np.setdiff1d(np.arange(len(run.secrets.arrays[f"inputs/{victim}"])), known)
        truth, told = (_measured(run.secrets, victim, rows) for rows in (scored, known))
        hourly = told.hourly() if len(known) else np.zeros(truth.values.shape[1:])
        return cls(
            run,
            victim,
            known,
            scored,
            truth,
            np.broadcast_to(hourly, truth.values.shape),
            _from_others(run.secrets, victim, known, scored, told),
            stream(seed, "order of estimation").permutation(len(scored)),
            stream(seed, "records of costly estimations").permutation(len(scored)),
        )

    def asked(self, most: int | None) -> _Asked:
        """Some of the scored records, drawn by seed, or all of them."""
        rows = np.arange(len(self.scored)) if most is None else np.sort(self.drawn[:most])
        return _Asked(self, rows, self.truth.take(rows))

    def require_same_records(self, other: TargetRun) -> None:
        name = f"inputs/{self.victim}"
        if not np.array_equal(other.secrets.array(name), self.run.secrets.array(name)):
            raise InputError(f"the run in which an adversary acts has other records than the run beside it: '{name}'.")


@dataclass(frozen=True)
class _Asked:
    """Records that an attack is asked about: positions in the bench's scored ones, their inputs, and what is read of
    them without the cut.
    """

    bench: _Bench
    rows: Index
    truth: Measured

    @cached_property
    def order(self) -> Index:
        """Whom of the rows it is asked about in which place: all in one random circle, nobody in the own place."""
        circle = np.argsort(self.bench.order[self.rows])
        found: Index = np.empty_like(circle)
        found[circle] = np.roll(circle, 1)
        return found

    def sorted(self, answer: Floats) -> Floats:
        """Estimates [m, H, F] in the order of the rows."""
        found = np.empty_like(answer)
        found[self.order] = answer
        return found

    @cached_property
    def constant(self) -> Fit:
        return self.truth.constant()

    @cached_property
    def prior(self) -> Fit:
        return self.truth.fit(self.bench.prior[self.rows])

    @cached_property
    def others(self) -> Fit | None:
        return None if self.bench.others is None else self.truth.fit(self.bench.others[self.rows])

    def outcome(self, card: AttackCard, threat: ThreatModel, answer: Floats, done: tuple[Harm, ...]) -> Estimated:
        right, wrong = self.truth.fit(self.sorted(answer)), self.truth.fit(answer)
        return Estimated(card, threat, right, wrong, self.constant, self.prior, self.others, done)


def _cut(run: TargetRun, bench: _Bench) -> Cut | None:
    """The noised linear cut in standard units of the inputs: the drawn ones' own, or those of what was measured.

    None where the bounds would speak of something else than R2 does: series, whose hours have means of their own. Where
    answers are recorded an adversary may know more of the inputs than the cut says, and no entropy is taken as known.
    """
    mechanism, weight = input_mechanism(run.mechanisms, bench.victim), f"model/{bench.victim}/weight"
    gaussian = mechanism is not None and mechanism.kind == "gaussian" and mechanism.total_sigma > 0
    if mechanism is None or not gaussian or weight not in run.transcript.arrays or not bench.truth.observed.all():
        return None
    arrays, (_, hours, features) = run.transcript.arrays, bench.truth.values.shape
    fits = arrays[weight].shape == (arrays[f"activations/{bench.victim}"].shape[-1], features)
    inputs = bench.truth.values.reshape(-1, hours * features)
    if hours != 1 or not fits or not (inputs.std(axis=0) > 0).all():
        return None
    prior = run.secrets.metadata.get("priors", {}).get(bench.victim)
    normal = prior == STANDARD_NORMAL and not tasks_of(arrays)
    if normal:
        _require_standard(inputs, bench.victim)
    spread = np.ones(features) if normal else inputs.std(axis=0)
    covariance = np.eye(features) if normal else np.atleast_2d(np.corrcoef(inputs.T))
    releases = len(arrays[f"activations/{bench.victim}"])
    scaled = run.transcript.array(weight).astype(np.float64) * spread
    sent = np.linalg.eigvalsh(scaled @ covariance @ scaled.T)[::-1][:features].clip(0)
    return Cut(mechanism.total_sigma, releases, features, float((scaled**2).sum()), tuple(map(float, sent)), normal)


def _require_standard(inputs: Floats, victim: str) -> None:
    """`InputError` where inputs [m, F] that are said to be standard normal have another mean or spread."""
    m = len(inputs)
    off = np.abs(inputs.mean(axis=0)) > _BEYOND / m**0.5
    off |= np.abs(inputs.var(axis=0) - 1) > _BEYOND * (2 / m) ** 0.5
    if off.any():
        k = int(off.argmax())
        raise InputError(
            f"priors says that inputs/{victim} is standard normal; feature {k + 1} has mean {inputs[:, k].mean():.3g} "
            f"and standard deviation {inputs[:, k].std():.3g}. Leave the prior out, or scale the inputs."
        )


def _measured(secrets: Secrets, victim: str, rows: Index) -> Measured:
    return Measured(*told_of(secrets.arrays, f"inputs/{victim}")).take(rows)


def _from_others(secrets: Secrets, victim: str, known: Index, rows: Index, told: Measured) -> Floats | None:
    """The labels and the other parties' inputs of the same records tell something of the victim's too: [m, H, F]."""
    columns = summaries(secrets, np.concatenate([known, rows]), but=victim)
    if not 0 < columns.shape[1] <= len(known):
        return None
    return ridge(columns[: len(known)], told.values, told.observed, columns[len(known) :])


def _named(features: Sequence[Mapping[str, str]], truth: Measured) -> tuple[Mapping[str, str], ...]:
    """Names and units of the features that are scored; none where the recording names others than it holds."""
    return tuple(features[k] for k in truth.scored) if len(features) == truth.values.shape[2] else ()


def _examples(truth: Measured, estimate: Floats) -> tuple[Example, ...]:
    use = truth.scored
    return tuple(
        Example(truth.values[i][:, use], truth.observed[i][:, use], estimate[i][:, use])
        for i in range(min(SHOWN, len(estimate)))
    )

"""Run the attacks on an audited run: views, guesses, controls, and the moves that predict them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privbench.attack import (
    Attack,
    AttackCard,
    Guess,
    Hints,
    NotApplicable,
    Scores,
    View,
    stream_names,
    unmet,
    view_of,
)
from privbench.errors import InputError
from privbench.mechanism import Mechanism, gradient_mechanism
from privbench.moves import Moves, Prediction, Rho
from privbench.noise import NoiseCheck, check_noise
from privbench.registry import Registry
from privbench.scoring import ScoredGuess, one_release_each
from privbench.seeds import stream
from privbench.target import Progress, TargetRun
from privbench.threat import ThreatModel
from privbench.verdict import RHO_SHARE

T = TypeVar("T")

ORACLE = "label/oracle-lr"
"""The attack that every other one's strength is measured against."""
CALIBRATION_SHARE = 8
"""One canary in so many calibrates signs and thresholds and is never scored."""


@dataclass(frozen=True)
class Failure:
    """An attack that raised: its findings are FAILED with this reason, never missing."""

    reason: str


Refused = tuple[AttackCard, ThreatModel, NotApplicable | Failure]
"""An attack that gave no scores, the adversary it was tried for, and why."""


@dataclass(frozen=True)
class Outcome:
    """What one attack achieved on the joint coin. `one` and `all` are by number of releases, `curve` is [T, m]."""

    card: AttackCard
    threat: ThreatModel
    one: ScoredGuess
    all: ScoredGuess
    curve: Scores


@dataclass(frozen=True)
class Attacked:
    """Everything measured on one audited run. `scored`: the records whose coins were guessed, [m]; `secret`: whose
    coin, "joint" or a task.
    """

    secret: str
    outcomes: Mapping[str, Outcome]
    refused: Mapping[str, Refused]
    releases: int
    scored: npt.NDArray[np.int64]
    mechanism: Mechanism | None
    prediction: Prediction | None
    excess: float | None
    at_clip: float | None
    above_clip: float | None
    rho: Rho | None
    noise: NoiseCheck | None


def try_each(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    progress: Progress,
    tried: Callable[[str, Any, ThreatModel], T | NotApplicable],
) -> tuple[dict[str, T], dict[str, Refused]]:
    """Every attack under the weakest of the threat models that suffices for it; one that refuses, or breaks, is kept
    with its reason and the rest goes on.
    """
    outcomes: dict[str, T] = {}
    refused: dict[str, Refused] = {}
    for done, name in enumerate(names):
        progress(f"attack {name}", done / max(len(names), 1))
        attack = registry.get("attacks", name)()
        threat = lacking_least(attack.card, threats)
        result: T | NotApplicable | Failure
        try:
            result = tried(name, attack, threat)
        except InputError:
            raise
        except Exception as error:
            result = Failure(f"{type(error).__name__}: {error}")
        if isinstance(result, NotApplicable | Failure):
            refused[name] = (attack.card, threat, result)
        else:
            outcomes[name] = result
    return outcomes, refused


def attack_all(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    seed: int,
    *,
    association: float | None,
    progress: Progress,
) -> Attacked:
    """Every attack under the weakest of the threat models that suffices for it, on the first of the secrets."""
    site, secret = threats[0].holder, run.secrets.coined[0]
    moved = run.secrets.moved(secret)
    hints, scored, coins = split_coins(*run.secrets.coins(secret), stream(seed, "calibration"))
    mechanism = gradient_mechanism(run.mechanisms, site)
    moves = None
    if run.oracle is not None:
        mask = f"gradients/{site}/seen"
        seen = run.transcript.array(mask) if mask in run.transcript.arrays else None
        moves = Moves.measure(run.oracle, site, secret, moved, scored, mechanism, seen)

    def tried(name: str, attack: Attack, threat: ThreatModel) -> Outcome | NotApplicable:
        return _Bench(run, threat, secret, hints, scored, coins, stream(seed, name)).outcome(attack)

    outcomes, refused = try_each(names, registry, at_one_place(threats), progress, tried)
    streams = stream_names(run.transcript.arrays, site, secret, moved)
    releases = len(run.transcript.arrays[streams[0][0]]) if streams else 1
    return Attacked(
        secret,
        outcomes,
        refused,
        releases,
        scored,
        mechanism,
        prediction=moves.predicted() if moves is not None else None,
        excess=moves.excess if moves is not None else None,
        at_clip=moves.at_clip if moves is not None else None,
        above_clip=moves.above_clip if moves is not None else None,
        rho=moves.rho(RHO_SHARE, association) if moves is not None else None,
        noise=check_noise(run.transcript, run.oracle, run.mechanisms) if run.oracle is not None else None,
    )


@dataclass(frozen=True)
class _Bench:
    """One attack's test stand: the same attack on noised, clean and shuffled material."""

    run: TargetRun
    threat: ThreatModel
    secret: str
    hints: Hints
    scored: npt.NDArray[np.int64]
    coins: npt.NDArray[np.uint8]
    rng: np.random.Generator

    def outcome(self, attack: Attack) -> Outcome | NotApplicable:
        guess = attack(self._view(self.hints), self.rng)
        if isinstance(guess, NotApplicable):
            return guess
        clean = self._clean(attack)
        shuffled, order = self._shuffled(attack)
        exact = attack.card.exact_per_release
        one = ScoredGuess(
            self.coins,
            guess.single if exact else one_release_each(guess, self.rng),
            None if clean is None else clean.single if exact else one_release_each(clean, self.rng),
            _reorder(one_release_each(shuffled, self.rng), order),
        )
        final = ScoredGuess(
            self.coins,
            guess.accumulated[-1],
            None if clean is None else clean.accumulated[-1],
            _reorder(shuffled.accumulated[-1], order),
        )
        return Outcome(attack.card, self.threat, one, final, guess.accumulated)

    def _view(self, hints: Hints) -> View:
        return view_of(
            self.threat,
            self.run.transcript,
            secret=self.secret,
            moved=self.run.secrets.moved(self.secret),
            candidates=self.scored,
            hints=hints,
            oracle=self.run.oracle,
        )

    def _clean(self, attack: Attack) -> Guess | None:
        """Positive control: the same releases of the same run before the noise, attacked as if sigma were 0."""
        view, oracle, site = self._view(self.hints), self.run.oracle, self.threat.holder
        names = [name for name, _ in stream_names(view.arrays, site, view.secret, view.moved)]
        clean = {name: f"oracle/gradients/{site}/clean{name.removeprefix(f'gradients/{site}')}" for name in names}
        if oracle is None or not clean or not all(name in oracle.arrays for name in clean.values()):
            return None
        arrays = {**view.arrays, **{name: oracle.arrays[item] for name, item in clean.items()}}
        quiet = tuple(replace(item, sigma=dict.fromkeys(item.sigma, 0.0)) for item in view.mechanisms)
        guess = attack(replace(view, arrays=arrays, mechanisms=quiet), self.rng)
        return guess if isinstance(guess, Guess) else None

    def _shuffled(self, attack: Attack) -> tuple[Guess, npt.NDArray[np.int64]]:
        """Negative control: coins permuted among records, the hints' among the hints."""
        wrong = Hints(self.hints.index, self.rng.permutation(self.hints.secrets))
        guess = attack(self._view(wrong), self.rng)
        if isinstance(guess, NotApplicable):
            raise RuntimeError(f"the shuffled control could not be run: {guess.reason}")
        return guess, self.rng.permutation(len(self.scored))


def split_coins(
    candidates: npt.NDArray[np.int64], coins: npt.NDArray[np.uint8], rng: np.random.Generator
) -> tuple[Hints, npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Calibration records with their coins, scored records, and the scored coins."""
    order = rng.permutation(len(candidates))
    cut = len(candidates) // CALIBRATION_SHARE
    told, scored = np.sort(order[:cut]), np.sort(order[cut:])
    return Hints(candidates[told], coins[told].astype(np.int64)), candidates[scored], coins[scored]


def at_one_place(threats: Sequence[ThreatModel]) -> tuple[ThreatModel, ...]:
    """The adversaries that are where the first one is: the coins are a secret to that party."""
    return tuple(threat for threat in threats if threat.holder == threats[0].holder)


def lacking_least(card: AttackCard, threats: Sequence[ThreatModel]) -> ThreatModel:
    """The first threat model that lacks least of what the attack needs; one that lacks something is refused by it."""
    return min(threats, key=lambda threat: len(unmet(card, threat)))


def _reorder(scores: Scores, order: npt.NDArray[np.int64]) -> Scores:
    """Record i was given the coin of record order[i]: line its score up with that coin."""
    aligned = np.empty_like(scores)
    aligned[order] = scores
    return aligned

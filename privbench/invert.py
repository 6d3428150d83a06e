"""Run the inversions on an audited run: what does a party read of the answers that went through the cut?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Hints, Index, Inversion, NotApplicable, Reconstruction, view_of
from privbench.drift import drift
from privbench.errors import InputError
from privbench.measure import Refused, try_each
from privbench.mechanism import Mechanism, input_mechanism
from privbench.recovery import METRICS, Asked, Floats, Recovered, Truth
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import Progress, TargetRun
from privbench.tensors import Blocks
from privbench.threat import ThreatModel
from privbench.updates import shown_in

SHOWN = 5
"""Respondents whose answers are shown, where they are invented."""
Key = tuple[int, str]
"""Number of releases, metric."""


@dataclass(frozen=True)
class Inverted:
    """What one inversion read. `found` by number of releases and metric; curve [T]: token accuracy of each release on
    its own.
    """

    card: AttackCard
    threat: ThreatModel
    found: Mapping[Key, Recovered]
    curve: Floats


@dataclass(frozen=True)
class Spoken:
    """A question, what a respondent answered, and what an attack read, in words."""

    question: str
    answer: str
    read: str


@dataclass(frozen=True)
class Inversions:
    """All inversions of one run. `victim`: whose inputs; scored [m]: record numbers; prior: by metric what a language
    model says of the answers without the cut, empty where none was asked.

    drift: how far each release had moved from the public base's (`privbench.drift`); empty where that is not known.
    questions: what was asked, in its order, where that is recorded.
    strongest: the attack that read most answers from all releases, and by_question what it read of each; beside it, of
    the same questions, what the language model says. examples: what it read of the first records; empty where they are
    real, or what tokens mean is not recorded.
    """

    victim: str
    outcomes: Mapping[str, Inverted]
    refused: Mapping[str, Refused]
    releases: int
    scored: Index
    prior: Mapping[str, Recovered]
    mechanism: Mechanism | None
    drift: tuple[float, ...]
    examples: tuple[tuple[Spoken, ...], ...]
    questions: tuple[str, ...] = ()
    strongest: str | None = None
    by_question: tuple[Asked, ...] = ()
    by_model: tuple[Asked, ...] = ()


def invert_all(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    seed: int,
    invented: bool,
    progress: Progress,
) -> Inversions:
    """Every inversion under the weakest threat model that suffices for it, on the first party with recorded inputs.

    invented: no record is a person's, so some may be shown.
    `InputError` where a public text, from which inversions learn, holds what a scored record put in.
    """
    victim = run.secrets.given[0]
    shown = run.transcript.arrays.get(f"updates/{victim}/shown")
    rounds = None if shown is None else shown_in(shown)
    truth = Truth(run.secrets.array(f"inputs/{victim}"), run.secrets.array(f"inputs/{victim}/answers"), rounds)
    _require_disjoint(run.transcript.arrays.get("public/tokens"), truth.tokens, victim)
    scored = np.arange(len(truth.tokens))
    sent = run.transcript.arrays.get(f"activations/{victim}")
    releases = 1 if sent is None else len(sent)
    read: dict[str, Index] = {}

    def tried(name: str, attack: Inversion, threat: ThreatModel) -> Inverted | NotApplicable:
        view = view_of(threat, run.transcript, secret=victim, moved=(), candidates=scored, hints=Hints.none())
        found = attack(view, stream(seed, name))
        if isinstance(found, NotApplicable):
            return found
        _require_shape(found, (releases, *truth.tokens.shape))
        if METRICS[1] in attack.metrics:
            read[name] = found.accumulated[-1]
        return _outcome(attack, threat, found, truth, stream(seed, f"{name} scored"))

    outcomes, refused = try_each(names, registry, threats, progress, tried)
    best = max(read, key=lambda name: outcomes[name].found[releases, METRICS[1]].value, default=None)
    examples = _examples(run, truth, read[best][:SHOWN]) if invented and best is not None else ()
    mechanism = input_mechanism(run.mechanisms, victim)
    moved = drift(run.transcript.arrays, victim, truth.tokens)
    said = run.secrets.arrays.get(f"inputs/{victim}/prior")
    order = _others(len(scored), stream(seed, "prior scored"))
    prior = {} if said is None else _scored(truth, np.asarray(said), order, METRICS)
    return Inversions(
        victim, outcomes, refused, releases, scored, prior, mechanism, moved,
        examples=examples, questions=_questions(run, victim), strongest=best,
        by_question=() if best is None else truth.by_question(read[best]),
        by_model=() if said is None else truth.by_question(np.asarray(said)),
    )  # fmt: skip


def _questions(run: TargetRun, victim: str) -> tuple[str, ...]:
    return tuple(run.transcript.metadata.get("questions", {}).get(victim, ()))


def _examples(run: TargetRun, truth: Truth, read: Index) -> tuple[tuple[Spoken, ...], ...]:
    """The first respondents' answers and what was read of them, in words; empty where the recording has no words."""
    asked = _questions(run, run.secrets.given[0])
    words = run.transcript.arrays.get("public/vocabulary", ())
    first = Truth(truth.tokens[: len(read)], truth.answers[: len(read)])
    if len(asked) <= truth.answers.max() or len(words) <= max(truth.tokens.max(), read.max()):
        return ()

    def text(tokens: Sequence[int]) -> str:
        said = b"".join(bytes(np.asarray(words[token])).rstrip(b"\0") for token in tokens if token >= 0)
        return said.decode("utf-8", errors="replace").strip()

    pairs = zip(first.said(first.tokens), first.said(read), strict=True)
    return tuple(tuple(Spoken(asked[q], text(said[q]), text(found[q])) for q in said) for said, found in pairs)


def _require_disjoint(public: Blocks | None, tokens: Index, victim: str) -> None:
    """`InputError` where an inversion could learn from a scored record itself, alone or within a longer text."""
    if public is None:
        return
    texts, records = ([_spelled(row) for row in np.asarray(rows)] for rows in (public, tokens))
    told = [number for number, record in enumerate(records) if any(record in text for text in texts)]
    if told:
        raise InputError(
            f"the public texts (public/tokens) hold the tokens of {len(told)} scored records of {victim}, the first is "
            f"record {told[0]}: what is learned from them says nothing about others. Leave them out of one of the two."
        )


def _spelled(tokens: Index) -> str:
    """A row of tokens without padding, as numbers with a blank before and after each."""
    return f" {' '.join(map(str, tokens[tokens >= 0].tolist()))} "


def _require_shape(found: Reconstruction, wanted: tuple[int, ...]) -> None:
    """One row for every release, and one token for every token that was put in."""
    for what, tokens in (("single", found.single), ("accumulated", found.accumulated)):
        if tokens.shape != wanted:
            raise ValueError(f"`{what}` is {list(tokens.shape)}, it must be {list(wanted)}")


def _outcome(
    attack: Inversion, threat: ThreatModel, found: Reconstruction, truth: Truth, rng: np.random.Generator
) -> Inverted:
    """One release of each record drawn by itself, and all of them; each record compared with another's answers too."""
    total, m, _ = found.single.shape
    drawn = found.single[rng.integers(0, total, m), np.arange(m)]
    order = _others(m, rng)
    guesses = {1: drawn} if total == 1 else {1: drawn, total: found.accumulated[-1]}
    scored = {
        (releases, metric): recovered
        for releases, guess in guesses.items()
        for metric, recovered in _scored(truth, guess, order, attack.metrics).items()
    }
    curve = np.array([truth.score(guess, attack.metrics[0], order).value for guess in found.single])
    return Inverted(attack.card, threat, scored, curve)


def _scored(truth: Truth, guess: Index, order: Index, metrics: Sequence[str]) -> dict[str, Recovered]:
    """A reconstruction [m, L] in these metrics."""
    return {metric: truth.score(guess, metric, order) for metric in metrics}


def _others(m: int, rng: np.random.Generator) -> Index:
    """Whose answers each of m records is compared with when shuffled: never its own."""
    ring, order = rng.permutation(m), np.empty(m, np.int64)
    order[ring] = np.roll(ring, 1)
    return order

"""What an attack is: a small frozen configuration and `run`, which sees a `View` and returns what it makes of it.

An `Attack` guesses coins, an `Inversion` reconstructs inputs. The base classes own `__call__`: they check channels,
shapes and finiteness, and settle exact ties. An attack never decides whether it succeeded; the scorer does, and only
the scorer holds the secrets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError
from privbench.mechanism import Mechanism, gradient_mechanism
from privbench.recording import Oracle, Transcript
from privbench.tensors import Blocks
from privbench.threat import Behaviour, Channel, Knowledge, ThreatModel
from privbench.updates import Parameters, parameters_of

Scores = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.int64]

TIE = 1e-12
"""Magnitude that an exactly undecided score (0) is given, with a seeded fair sign: a fair coin, kept in the record."""

_SMALLEST, _LARGEST = 1e-30, 1e30
"""Sizes that a recorded score may have: what a 32-bit float surely holds."""


@dataclass(frozen=True)
class AttackCard:
    """What `privbench list attacks` shows.

    `confirmatory` names the bounds against which this attack's result counts by default (docs/bounds.md).
    `exact_per_release`: P(right) holds for both coins separately, so pooling a record's releases is an exact
    binomial test (true of the likelihood ratio at threshold 0 only). behaviour: what its party has to do.
    """

    name: str
    summary: str
    paper: str
    deviates: str
    channels: tuple[Channel, ...]
    knowledge: tuple[Knowledge, ...]
    cost: str
    confirmatory: tuple[str, ...] = ()
    exact_per_release: bool = False
    behaviour: Behaviour = Behaviour.CURIOUS


@dataclass(frozen=True)
class Hints:
    """Records whose secret the adversary knows by right (calibration coins). They are never scored."""

    index: Index
    secrets: Index

    @classmethod
    def none(cls) -> Hints:
        """No hints at all."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class Stream:
    """One party's releases [T, N, d]: the sum over tasks, or one task's where tasks are sent apart.

    sigma: standard deviation of its noise, 0 where none is described. zero, one: the noise-free releases under either
    coin, for who knows them.
    """

    released: Blocks
    sigma: float
    zero: Blocks | None
    one: Blocks | None


@dataclass(frozen=True)
class View:
    """What one adversary sees, read-only, and nothing else.

    arrays     the transcript's arrays that the threat model allows; the oracle's only with model and inputs. Large ones
               stay in their file: read them by blocks, `array[t][rows]`
    candidates the records whose secret it has to guess, [m]; hints are not among them
    secret     which secret: "joint" or a task; the victim of an inversion
    moved      the tasks whose labels the coin sets
    parameters  what the numbers of an update are, in their order: name and shape of each part
    """

    threat: ThreatModel
    arrays: Mapping[str, Blocks]
    mechanisms: tuple[Mechanism, ...]
    secret: str
    moved: tuple[str, ...]
    candidates: Index
    hints: Hints
    parameters: Parameters = ()

    def array(self, name: str) -> Blocks:
        if name not in self.arrays:
            raise InputError(f"the view of {self.threat.label} holds no '{name}'; it holds {sorted(self.arrays)}.")
        return self.arrays[name]

    @property
    def mechanism(self) -> Mechanism | None:
        """The mechanism on the gradients that this party receives, if it is described."""
        return gradient_mechanism(self.mechanisms, self.threat.holder)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The releases that the coin moves: their sum, or one stream per moved task where tasks are sent apart."""
        site, mechanism = self.threat.holder, self.mechanism
        found = []
        for name, secret in stream_names(self.arrays, site, self.secret, self.moved):
            sigma = 0.0 if mechanism is None else stream_sigma(mechanism, name)
            pair = [self.arrays.get(f"oracle/gradients/{site}/{secret}/{coin}") for coin in (0, 1)]
            found.append(Stream(self.arrays[name], sigma, pair[0], pair[1]))
        return tuple(found)

    def seen(self, release: int, rows: Index) -> Scores:
        """1 where these records were released at that time, [m]; all of them where the transcript does not say."""
        name = f"gradients/{self.threat.holder}/seen"
        if name not in self.arrays:
            return np.ones(len(rows))
        return np.asarray(self.arrays[name][release])[rows].astype(np.float64)


@dataclass(frozen=True)
class Guess:
    """Scores; above 0 means coin 1.

    single       [T, m]: each release on its own
    accumulated  [T, m]: row t uses the releases 0 .. t
    """

    single: Scores
    accumulated: Scores


@dataclass(frozen=True)
class Reconstruction:
    """Token ids as an inversion reads them; -1 where it says nothing.

    single       int64 [T, m, L]: each release on its own
    accumulated  int64 [T, m, L]: row t uses the releases 0 .. t
    """

    single: Index
    accumulated: Index


@dataclass(frozen=True)
class NotApplicable:
    """The attack cannot run on this view, and why."""

    reason: str


class AttackBase(ABC):
    """What attacks of every kind have: a card, and reasons not to run."""

    card: ClassVar[AttackCard]

    def refusal(self, view: View) -> NotApplicable | None:
        """Why this attack cannot run on this view, or None."""
        reason = next(iter(unmet(self.card, view.threat)), None) or self.lacks(view)
        return NotApplicable(reason) if reason else None

    def lacks(self, view: View) -> str | None:
        """Why this view has not what the attack needs, or None. Override for attacks with further needs."""
        return None


class Attack(AttackBase):
    """Base of all attacks that guess coins. Authors write `run` and a card."""

    def __call__(self, view: View, rng: np.random.Generator) -> Guess | NotApplicable:
        refused = self.refusal(view)
        if refused is not None:
            return refused
        require_untold(view)
        guess = self.run(view, rng)
        return Guess(
            _settled(guess.single, view, rng, self.card.name), _settled(guess.accumulated, view, rng, self.card.name)
        )

    @abstractmethod
    def run(self, view: View, rng: np.random.Generator) -> Guess:
        """Score every candidate. Thresholds and signs come from `view.hints` only."""


class Inversion(AttackBase):
    """Base of all attacks that reconstruct what the party `view.secret` put in. Authors write `run` and a card.

    least_texts: public texts below which it cannot learn; 0 for one that learns from none. searches_layers: whether it
    needs the public layers before the cut, of which there are none where the embedding is sent. reads_noise: whether it
    needs Gaussian noise to be described, on rows that no layer has mixed. metrics: by which it is scored.
    least_forms: questionnaires that the server fills in itself, below which there is nothing to read.
    """

    metrics: ClassVar[tuple[str, ...]] = ("token-accuracy", "answer-accuracy")
    least_texts: ClassVar[int] = 0
    least_forms: ClassVar[int] = 0
    searches_layers: ClassVar[bool] = False
    reads_noise: ClassVar[bool] = False

    def __call__(self, view: View, rng: np.random.Generator) -> Reconstruction | NotApplicable:
        refused = self.refusal(view)
        if refused is not None:
            return refused
        found = self.run(view, rng)
        for tokens in (found.single, found.accumulated):
            if tokens.ndim != 3 or tokens.shape[1] != len(view.candidates) or tokens.dtype != np.int64:
                wanted = f"int64 [T, {len(view.candidates)}, L]"
                raise ValueError(f"{self.card.name} returned {tokens.dtype} {tokens.shape}, expected {wanted}.")
        return found

    @abstractmethod
    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Reconstruct every candidate; a position that it cannot read is a wrong guess, never left out."""


def require_untold(view: View) -> None:
    """`InputError` where an attack would be scored on what it was told."""
    if np.intersect1d(view.candidates, view.hints.index).size:
        raise InputError("hints and scored records overlap; an attack may not be scored on what it was told.")


def unmet(card: AttackCard, threat: ThreatModel) -> tuple[str, ...]:
    """What the attack needs that this adversary does not do, see or know: who may act may also look on."""
    acts = card.behaviour in (Behaviour.CURIOUS, threat.behaviour)
    return (
        *(() if acts else (f"needs a party that changes what it sends; a {threat.label} does not",)),
        *(
            f"needs the channel {c}, which {threat.label} does not see"
            for c in card.channels
            if c not in threat.channels
        ),
        *(f"needs to know the {k}, which {threat.label} does not" for k in card.knowledge if k not in threat.knowledge),
    )


def view_of(
    threat: ThreatModel,
    transcript: Transcript,
    *,
    secret: str,
    moved: tuple[str, ...],
    candidates: Index,
    hints: Hints,
    oracle: Oracle | None = None,
) -> View:
    """The adversary's share of a transcript. The oracle's arrays are added only for a threat model that knows
    the model and the inputs: it could compute them itself.
    """
    allowed = {name: array for name, array in transcript.arrays.items() if _allowed(name, threat)}
    if oracle is not None and {Knowledge.MODEL, Knowledge.INPUTS} <= threat.knowledge:
        prefixes = tuple(f"oracle/gradients/{threat.holder}/{name}/" for name in (secret, *moved))
        allowed |= {name: array for name, array in oracle.arrays.items() if name.startswith(prefixes)}
    named = parameters_of(transcript.metadata) if Channel.UPDATES in threat.channels else ()
    return View(threat, MappingProxyType(allowed), transcript.mechanisms, secret, moved, candidates, hints, named)


def stream_names(arrays: Iterable[str], site: str, secret: str, moved: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(array, secret) of each stream that the coin moves: gradients/SITE, or gradients/SITE/TASK of the moved tasks."""
    names = set(arrays)
    if f"gradients/{site}" in names:
        return ((f"gradients/{site}", secret),)
    return tuple((name, task) for task in moved if (name := f"gradients/{site}/{task}") in names)


def stream_sigma(mechanism: Mechanism, name: str) -> float:
    """Standard deviation of the noise on a stream, by the name of its array: gradients/SITE or gradients/SITE/TASK."""
    _, _, task = name.partition("/")[2].partition("/")
    return mechanism.sigma.get(task, 0.0) if task else mechanism.total_sigma


def _allowed(name: str, threat: ThreatModel) -> bool:
    channel, _, rest = name.partition("/")
    if channel in ("public", "read"):  # read: of the form, at the states that a server of updates hands out
        return Knowledge.BASE in threat.knowledge and (channel == "public" or Channel.UPDATES in threat.channels)
    if channel == "asked":
        # A loss and its gradient are computed at the state that the server of updates knows, products with these.
        sees = Channel.UPDATES in threat.channels or rest.split("/")[0] not in ("losses", "squares", "products")
        return sees and {Knowledge.BASE, Knowledge.CANDIDATES} <= threat.knowledge
    if channel == "received":
        return Channel.ACTIVATIONS in threat.channels
    if channel == "model":
        return Knowledge.MODEL in threat.knowledge
    if channel == "adversary":
        return threat.behaviour is Behaviour.MALICIOUS
    if channel == "reference":
        return Channel.OUTPUTS in threat.channels
    if channel not in set(threat.channels):
        return False
    # Gradients and auxiliary knowledge are addressed to one party; it sees its own only.
    if channel in (Channel.GRADIENTS, Channel.AUXILIARY):
        return rest.split("/")[0] in (threat.holder, "index")
    return True


def _settled(scores: Scores, view: View, rng: np.random.Generator, name: str) -> Scores:
    if scores.ndim != 2 or scores.shape[1] != len(view.candidates):
        raise ValueError(f"attack {name} returned scores {scores.shape}, expected [T, {len(view.candidates)}].")
    if not np.isfinite(scores).all():
        raise ValueError(f"attack {name} returned scores that are not finite.")
    # What is kept grows with T: half of the width, release by release. No score may lose its sign on the way.
    settled: Scores = np.empty(scores.shape, np.float32)
    for row, given in zip(settled, scores, strict=True):
        fair = np.where(rng.random(len(given)) < 0.5, -TIE, TIE)
        sizes = np.clip(np.abs(given), _SMALLEST, _LARGEST)
        row[:] = np.where(given == 0, fair, np.sign(given) * sizes)
    settled.flags.writeable = False
    return settled

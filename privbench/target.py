"""What a target is: a system that is run, and what its run leaves behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privbench.mechanism import Claim, Mechanism
from privbench.options import AuditOptions
from privbench.recording import Oracle, Secrets, Transcript
from privbench.registry import Registry
from privbench.threat import Channel, ThreatModel

Progress = Callable[[str, float], None]
"""Called with a stage and the share done, in [0, 1]."""

Role = str
"""What a run of an audit is for: "audited" (coins or inputs to guess), "clean" (utility), "members" (records put in by
coins), "reference-1" and on (models that the adversary of membership inference trains), "active-NAME" (the members' run
again, with the attack of this name acting in it).
"""
REFERENCE, ACTIVE = "reference-", "active-"
MEMBERS: Role = "members"


@dataclass(frozen=True)
class TargetCard:
    """What `privbench list targets` shows."""

    name: str
    summary: str
    paper: str
    channels: tuple[Channel, ...]
    parties: tuple[str, ...]
    cost: str


@dataclass(frozen=True)
class Utility:
    """How well the trained system does one task on held-out records, beside what needs no training of its parts.

    `baseline`, and what it is, `baseline_name`: of PRISM the same server, from the same start, on frozen random
    encoders; of a survey the most frequent answer. `baseline_other_seed`: the same from another start, which shows a
    training's own chance; None where the baseline has none. `gain` over the baseline on the same records (paired),
    with an interval that covers the choice of test records only. `references`: other methods on the same records.
    """

    task: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    split: str
    baseline_name: str
    baseline: float
    baseline_other_seed: float | None
    gain: float
    gain_low: float
    gain_high: float
    references: Mapping[str, float] = field(default_factory=dict)

    @property
    def gained_nothing(self) -> bool:
        """Whether the gain is no larger than what another start of the baseline gains."""
        other = self.baseline if self.baseline_other_seed is None else self.baseline_other_seed
        return self.gain_low <= abs(other - self.baseline)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Epsilon:
    """One epsilon by name: nobody may quote a number without its neighbours, sampling and audience.

    `value` is None with a reason when there is none (no noise), never infinity.
    """

    name: str
    value: float | None
    delta: float
    neighbours: str
    sampling: str
    releases: int
    accountant: str
    speaks_for: str
    assumes: str
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TargetRun:
    """Everything that outlives a run. `diagnostics` are numbers such as clip fractions, by name and release;
    `flags` are names from privbench.flags that only the target can know of; `notes` are sentences about the data and
    the run that a reader must know (what was dropped, cut or left out).
    """

    transcript: Transcript
    oracle: Oracle | None
    secrets: Secrets
    utility: tuple[Utility, ...]
    diagnostics: Mapping[str, tuple[float, ...]]
    fingerprint: str
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return self.transcript.mechanisms

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.transcript.claims


class ActiveAdversary(ABC):
    """A malicious party inside the run: it may replace what its own party sends, and sees what that party gets.

    Handed to `Target.run`; it can touch nothing else. party: a site's name, or "server".
    """

    party: str

    def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
        """What its party holds before the run, named as in a transcript (auxiliary/PARTY/...). Called first."""
        return

    @abstractmethod
    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """The array that leaves instead of `sent` [B, d] (same shape and dtype). name: the site that it goes to or
        comes from.
        """

    @abstractmethod
    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        """Called with what came for these records: [B, d] to or from the site of this name, or the labels [B, L] of
        the task of this name, before anything else of the batch.
        """

    def kept(self) -> Mapping[str, npt.NDArray[Any]]:
        """Floats that it takes from the run, by name; its own attack finds them in the view as adversary/NAME."""
        return {}


class Target(ABC):
    """A split-learning system. Configurations are frozen dataclasses with a `to_json`."""

    card: ClassVar[TargetCard]

    @abstractmethod
    def configure(self, options: AuditOptions, registry: Registry) -> Any:
        """Resolve user options into a configuration; `InputError` for anything unknown or impossible."""

    @abstractmethod
    def describe(self, config: Any) -> dict[str, Any]:
        """The resolved configuration as JSON, with at least "data", "defense" and "eps"; no absolute paths."""

    @abstractmethod
    def roles(self, config: Any) -> Mapping[Role, Any]:
        """The configurations of the runs an audit needs, side by side, by role: "audited"; "clean" where there is a
        utility to measure; "members" and its references where membership is asked; ACTIVE, once for all attacks that
        act in a run, where one can. Runs of one seed draw the same data.
        """

    @abstractmethod
    def fingerprint(self, config: Any) -> str:
        """A content hash of every file that a run would read, found without running; "" where it reads none."""

    def disk_bytes(self, config: Any) -> int:
        """About how much disk the recordings of all runs need."""
        return 0

    def expected_seconds(self, config: Any) -> float:
        """About how long the runs take on one ordinary core; 0 where that is under a minute or not known."""
        return 0.0

    @abstractmethod
    def threats(self, config: Any) -> tuple[ThreatModel, ...]:
        """The adversaries this target has; the first is the one an audit assumes unless told otherwise."""

    @abstractmethod
    def epsilons(self, config: Any) -> tuple[Epsilon, ...]:
        """Every epsilon of this configuration, by name."""

    def promised(self, config: Any) -> Mapping[str, Any] | None:
        """What a recording will say of its defence, "mechanisms" and "claims", where options alone decide that and the
        epsilons; None where it takes the data.
        """
        return None

    def held(self, config: Any) -> Mapping[str, Mapping[str, Any]] | None:
        """What the runs hold of secrets: the parts of a record ("secret", "inputs", "members", "estimates") that there
        will be where attacks on them are run, with what is known of each beforehand; None where nothing is known.
        """
        return None

    @abstractmethod
    def run(
        self,
        config: Any,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """Train once and return what was recorded. Uses only `rng`; never a global generator.

        folder: where recordings may grow release by release (`growing.Growing`) instead of in memory.
        """

"""All choices of a run of federated averaging, in one object.

What is trained, on whom and by which step is split_llama's (`recipe.Recipe`), so that both can be held beside each
other; what is added is how clients take part. Defaults make as many batches as the split run: 4 clients, 20 rounds, 5
steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privbench.data.catalogue import without_folders
from privbench.data.surveys.splits import portions
from privbench.defenses.base import Course, UpdateDefense, build_defense
from privbench.errors import InputError, unknown
from privbench.mechanism import Claim
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.target import Epsilon
from privbench.targets.fedavg.defending import called
from privbench.targets.split_llama.recipe import (
    DEFAULT_DATA,
    DEFAULT_MODEL,
    LlamaConfig,
    Recipe,
    read_recipe,
    require_data,
)
from privbench.targets.split_llama.system import WATCHED

NAME = "fedavg"
RUNTIMES = ("own", "flower-simulation", "flower-grpc")
_PRETRAINED: Mapping[str, str] = {"rounds": "5", "local_steps": "3", "forms": "0"}


@dataclass(frozen=True)
class FedTuning(Recipe):
    """What --set may change; docs/fedavg.md. What is not named here is as in target split-llama; warm-up and decay go
    over all steps of a client.

    rounds         in each of them the server hands its state to clients, which train it and send the difference
    local_steps    steps of Adam that a client makes in a round, on average over clients where turns are sized and at
                   least one; its optimiser stays with it
    fraction       of the clients that take part in a round, drawn by seed; one client at the least
    drop           how often a client drops out half-way through a round, from 0 to below 1; or who does, and in which
                   round, counted from 1, as 2@5:3@7
    reference_rounds  of the run about membership and of each reference alike, or one pass over the respondents where
                   that is more
    runtime        what runs the clients: own, all in this process; flower-simulation, in actors of Flower's simulation;
                   flower-grpc, each in a process of its own that Flower reaches over gRPC on the loopback interface
    timeout        seconds that the server waits for a round under Flower; who has not answered then is left out of it
    forms          gradients of questionnaires that the server fills in itself, in each round in which respondents are
                   shown, or 0; attacks that match them with updates need some
    asked          rounds of that run, evenly spaced, of which a server that holds candidates sees the updates
    """

    references: int = 4
    rounds: int = 20
    local_steps: int = 5
    fraction: float = 1.0
    drop: str = "0"
    reference_rounds: int = 5
    asked: int = 4
    forms: int = 64
    runtime: str = "own"
    timeout: float = 600.0

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {**Recipe.choices, "runtime": RUNTIMES}
    from_zero: ClassVar[tuple[str, ...]] = (*Recipe.from_zero, "forms")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction > 1:
            raise InputError(f"fraction must be above 0 and at most 1, got {self.fraction!r}.")
        _ = self._leaving

    @property
    def local(self) -> tuple[int, ...]:
        """Steps of each client in a round."""
        if self.turns == "equal":
            return (self.local_steps,) * self.clients
        return tuple(max(count, 1) for count in portions(self.clients * self.local_steps, self.parts_held).tolist())

    def one_pass(self, held: Sequence[int]) -> int:
        """The fewest rounds in which every client that is always drawn trains on each of its respondents once; as many
        more as fewer are drawn. held: how many each one has.
        """
        rounds = max(-(-count // (self.batch * local)) for count, local in zip(held, self.local, strict=True))
        return math.ceil(rounds / self.fraction)

    @property
    def each(self) -> int:
        """How many clients are drawn for a round."""
        return max(round(self.fraction * self.clients), 1)

    @property
    def poisson_rate(self) -> float:
        """With which a client of equal share draws a record into a step, so that a batch comes on average: set by what
        is asked for, and by no client's records.
        """
        return min(1.0, self.batch * self.clients / self.train)

    def course(self, rounds: int) -> Course:
        """Of the client that makes the most steps."""
        return Course(rounds, rounds * max(self.local), self.poisson_rate)

    def weights(self, held: Sequence[int], defense: UpdateDefense | None) -> Sequence[int]:
        """By which the server weighs clients' updates: by their respondents; alike where a defence promises something,
        for these numbers would tell whether one more is in.
        """
        promises = defense is not None and defense.card.guarantee == "formal"
        return [1] * len(held) if promises else list(held)

    def leaves(self, rounds: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Who drops out of which round if it takes part, [rounds, clients]."""
        often, listed = self._leaving
        table: npt.NDArray[np.bool_] = rng.random((rounds, self.clients)) < often
        for client, number in listed:
            table[number - 1 : number, client - 1] = True  # a shorter run does not have every round
        return table

    def always_leaves(self, client: int) -> bool:
        """Whether this client is named as dropping out of every round."""
        return {number for one, number in self._leaving[1] if one == client + 1} == set(range(1, self.rounds + 1))

    @property
    def _leaving(self) -> tuple[float, tuple[tuple[int, int], ...]]:
        """How often, and pairs of client and round."""
        often, pairs = 0.0, tuple[tuple[int, int], ...]()
        try:
            if "@" in self.drop:
                pairs = tuple(_pair(item) for item in self.drop.split(":"))
            else:
                often = float(self.drop)
        except ValueError:
            often = math.nan
        in_range = all(1 <= client <= self.clients and 1 <= number <= self.rounds for client, number in pairs)
        if not (0 <= often < 1 and in_range):
            raise InputError(
                f"drop {self.drop}: give a number from 0 to below 1, or client@round, as 2@5:3@7, with clients from 1 "
                f"to {self.clients} and rounds from 1 to {self.rounds}."
            )
        return often, pairs


@dataclass(frozen=True, kw_only=True)
class FedConfig(LlamaConfig):
    """A resolved run."""

    tuning: FedTuning
    defense: UpdateDefense | None
    defense_spec: str
    eps: float | None
    delta: float

    @property
    def promises(self) -> bool:
        """Whether something is accounted for."""
        return self.claim(self.tuning.rounds) is not None

    def member_rounds(self, held: Sequence[int]) -> int:
        """Of a run about membership: of `reference_rounds`, or one pass over those whom clients hold, if that is more;
        where something is promised, over as many as are expected there, for these numbers would tell.
        """
        tuning = self.tuning
        if self.promises:
            held = tuning.most_held
        return max(tuning.reference_rounds, tuning.one_pass(held))

    def claim(self, rounds: int) -> Claim | None:
        """What so many rounds are accounted for."""
        return None if self.defense is None else self.defense.claim(self.tuning.course(rounds), self.delta)

    def described(self, rounds: int) -> dict[str, Any]:
        """What the recording of so many rounds says of the defence."""
        if self.defense is None:
            return {}
        claim = self.claim(rounds)
        claims = {} if claim is None else {"claims": [claim.to_json()]}
        return {"mechanisms": [self.defense.mechanism().to_json()], **claims}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the audited run must know of the defence."""
        if self.defense is None:
            return ()
        weighed = ("The server weighs clients alike: how many respondents each holds is not told.",)
        return (*self.defense.notes, *(weighed if self.promises else ()))

    @property
    def members_held(self) -> dict[str, Any]:
        claim = self.claim(self.member_rounds([]) if self.promises else 0)
        return {**super().members_held, "claim": None if claim is None else claim.to_json()}

    @property
    def epsilons(self) -> tuple[Epsilon, ...]:
        """The claim's, by name."""
        claim = self.claim(self.tuning.rounds)
        if self.defense is None or claim is None:
            return ()
        return (_epsilon(claim, self.tuning, self.defense),)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": without_folders(self.data),
            "model": self.model.partition(":")[0],
            "tuning": asdict(self.tuning),
            "defense": self.defense_spec,
            **self._promised,
        }

    @property
    def _promised(self) -> dict[str, Any]:
        """Of the record: without a defence nothing is accounted for, at no delta."""
        if self.defense is None:
            return {"eps": "inf"}
        return {"eps": self.eps, "delta": self.delta, "multiplier": getattr(self.defense, "noise", None)}


def resolve(options: AuditOptions, registry: Registry) -> FedConfig:
    """Check every option. No file is read: a record is verified where its data and its model are not."""
    if options.noise_multiplier or options.sigma:
        raise InputError(
            "fedavg's defences have noise of their own: leave --sigma and --noise-multiplier out, and give for example "
            "--defense dp-sgd:clip=1,noise=1, or --eps with a --defense."
        )
    if len(options.defenses) > 1:
        raise InputError(
            f"fedavg takes one --defense, got {len(options.defenses)}: {', '.join(options.defenses)}; what several of "
            "them promise together is not accounted for. Leave all but one out."
        )
    if options.party not in (None, "server"):
        raise unknown("party", str(options.party), ("server",))
    data, model = options.data or DEFAULT_DATA, options.model or DEFAULT_MODEL
    tuning = read_recipe(FedTuning, model, options.settings, _PRETRAINED, NAME)
    require_data(data, NAME, tuning.schema)
    spec = options.defenses[0] if options.defenses else "none"
    defense = _defense(spec, options.eps, registry, tuning, options.delta)
    _require_read(tuning, defense)
    return FedConfig(
        data=data, model=model, tuning=tuning, seed=options.seed, defense=defense, defense_spec=spec, eps=options.eps,
        delta=options.delta,
    )  # fmt: skip


def _require_read(tuning: FedTuning, defense: UpdateDefense | None) -> None:
    """`InputError` where all whose respondents are to be read are named as dropping out of every round. What chance
    drops or does not draw is known only when the run is over.
    """
    summed = defense is not None and defense.summed
    watched = range(0, tuning.clients, tuning.surveys) if summed else (WATCHED,)
    if all(tuning.always_leaves(client) for client in watched):
        who = ", ".join(map(called, watched))
        raise InputError(
            f"drop {tuning.drop}: {who}, whose respondents are to be read, would send no update in any round; leave "
            "one round out of it at least."
        )


def _defense(spec: str, eps: float | None, registry: Registry, tuning: FedTuning, delta: float) -> UpdateDefense | None:
    """The defence that is asked for, its noise by --eps where that is given."""
    if spec == "none":
        if eps not in (None, math.inf):
            raise InputError(f"--eps {eps:g} needs a defence whose noise it sets: --defense dp-sgd or update-gaussian.")
        return None
    if tuning.runtime != "own":
        raise InputError(f"{spec} is not there under Flower yet: leave runtime={tuning.runtime} out, or --defense.")
    found = build_defense(spec, registry, UpdateDefense, NAME)
    if found.summed and tuning.each < 2:
        raise InputError(
            f"{spec} needs two clients or more in a round, and {tuning.each} of {tuning.clients} is drawn: the sum "
            "over one is its update. Use more clients or a larger fraction."
        )
    if eps is None:
        return found
    if eps == math.inf:
        raise InputError("--eps inf says that nothing is promised; with a --defense leave it out.")
    if "noise=" in spec:
        raise InputError(f"--eps sets the noise of {spec.partition(':')[0]}: leave noise= out, or --eps.")
    return found.at(eps, delta, tuning.course(tuning.rounds))


def _epsilon(claim: Claim, tuning: FedTuning, defense: UpdateDefense) -> Epsilon:
    """Of one client's whole course, about one of its records."""
    sampled = claim.sample_rate is not None
    sees = {
        "server": "the server and whoever else sees the updates or the trained model",
        "outsider": "who sees the trained model only; the server sees clean updates, and is promised nothing",
    }[claim.audience]
    return Epsilon(
        name=claim.audience,
        value=claim.eps,
        delta=claim.delta,
        neighbours=claim.neighbours,
        sampling=f"Poisson, q = {claim.sample_rate:.4g}" if sampled else "none (the server knows who took part)",
        releases=tuning.course(tuning.rounds).steps if sampled else tuning.rounds,
        accountant="Opacus RDP" if sampled else "Gaussian DP",
        speaks_for=f"{sees}, about one record of a client",
        assumes="the noise is drawn afresh by who is said to draw it, and how often a client takes part is public",
    )


def _pair(text: str) -> tuple[int, int]:
    client, number = text.split("@")
    return int(client), int(number)

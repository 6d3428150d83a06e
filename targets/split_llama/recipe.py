"""What a LLaMA that is split and one that is averaged have in common: respondents, parts of the model, a step's recipe.

Targets split-llama and fedavg stand beside each other on the same respondents, from the same initial weights: what they
share is set once, here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from privbench.data.catalogue import INVENTED, SURVEYS, invented
from privbench.data.surveys import synthetic
from privbench.data.surveys.read import parse_spec
from privbench.data.surveys.splits import Share, parts
from privbench.errors import InputError, unknown
from privbench.options import parse_number, read_settings
from privbench.target import MEMBERS, REFERENCE, Progress, Role
from privbench.targets.split_llama.halves import BOTTLENECK

DEFAULT_DATA, DEFAULT_MODEL = INVENTED, "tiny"
NO_YES = ("no", "yes")
SHARES = ("even", "power", "one-large")
TURNS = ("equal", "sized")
ONE_SURVEY = "homogeneous"
SCHEMAS: Mapping[str, int] = {ONE_SURVEY: 1, "moderate": 2, "heterogeneous": len(synthetic.SURVEYS)}
"""How many surveys the clients of a run hold, one each."""
PRETRAINED: Mapping[str, str] = {
    "train": "240", "validation": "40", "test": "100", "batch": "4", "rate": "1e-3", "train_head": "no", "shots": "2",
    "members": "no", "references": "0",
}  # fmt: skip
"""What a model of a hundred million parameters and more starts from, which is slow here and knows its words already."""
_MOST_POPULATION = 500


@dataclass(frozen=True)
class Recipe:
    """Settings of both targets; `config.Tuning` says what each means. choices: of a text, what is allowed; from_zero:
    numbers that may be 0.
    """

    outcome: str = ""
    leaks: str = "drop"
    train: int = 800
    validation: int = 100
    test: int = 500
    clients: int = 4
    share: str = "even"
    schema: str = ONE_SURVEY
    turns: str = TURNS[0]
    unseen: str = ""
    bottleneck: int = BOTTLENECK
    rank: int = 16
    alpha: float = 32.0
    batch: int = 8
    rate: float = 4e-3
    client_rate: float = 0.1
    warmup: int = 20
    clip: float = 1.0
    train_head: str = "yes"
    prompting: str = "yes"
    shots: int = 4
    tabular: str = "no"
    members: str = "yes"
    references: int = 8

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "leaks": ("drop", "keep"),
        "schema": tuple(SCHEMAS),
        "turns": TURNS,
        "train_head": NO_YES,
        "prompting": NO_YES,
        "tabular": NO_YES,
        "members": NO_YES,
    }
    from_zero: ClassVar[tuple[str, ...]] = ("warmup", "shots", "references")

    def __post_init__(self) -> None:
        for name, values in self.choices.items():
            if getattr(self, name) not in values:
                raise unknown(f"value of {name}", getattr(self, name), values)
        for f in fields(self):
            value, lowest = getattr(self, f.name), 0 if f.name in self.from_zero else None
            if f.type != "str" and not (math.isfinite(value) and (value > 0 or value == lowest)):
                raise InputError(f"{f.name} must be a positive number{' or 0' if lowest == 0 else ''}, got {value!r}.")
        _ = self.shares
        if self.clients > self.train:
            raise InputError(
                f"clients = {self.clients}, train = {self.train}: each client needs a respondent; use fewer clients or "
                "more respondents."
            )
        if self.surveys > 1:
            self._require_several()

    @property
    def surveys(self) -> int:
        """How many surveys there are."""
        return SCHEMAS[self.schema]

    @property
    def asks_members(self) -> bool:
        """Whether there is a run about membership."""
        return self.members == "yes"

    @property
    def population(self) -> int:
        """Test respondents whom the adversary of membership inference holds, at most: RMIA compares with them."""
        return min(self.test, _MOST_POPULATION)

    @property
    def shares(self) -> Share:
        """As `splits.split` takes it: the numbers of 5:3:2 as parts of 1."""
        if self.share in SHARES:
            return cast("Share", self.share)
        if ":" not in self.share:
            raise unknown("value of share", self.share, (*SHARES, "numbers such as 5:3:2"))
        sizes = [float(parse_number("share", item)) for item in self.share.split(":")]
        if len(sizes) != self.clients or not all(0 < size < math.inf for size in sizes):
            raise InputError(f"share {self.share}: {self.clients} clients need {self.clients} positive numbers.")
        return tuple(size / math.fsum(sizes) for size in sizes)

    @property
    def parts_held(self) -> tuple[float, ...]:
        """What each client holds of all training respondents, as a part of 1."""
        return tuple(parts(self.shares, self.clients))

    @property
    def most_held(self) -> list[int]:
        """How many training respondents each client holds, rounded up."""
        return [math.ceil(self.train * part - 1e-9) for part in self.parts_held]

    def senders(self) -> Iterator[int]:
        """Whose turn it is, without end: one client after the other, or each as often as it holds respondents.

        Sized, the next is always who is furthest behind its part of the turns, the first of several.
        """
        if self.turns == "equal":
            yield from itertools.cycle(range(self.clients))
        weights, behind = np.array(self.parts_held), np.zeros(self.clients)
        while True:
            behind += weights
            client = int(np.argmax(behind.round(9)))  # sums of fractions that are equal but for rounding
            behind[client] -= 1
            yield client

    def _require_several(self) -> None:
        """`InputError` for what several surveys cannot be run with."""
        count, named = self.surveys, self.outcome.split(":")
        if self.clients < count:
            raise InputError(
                f"schema={self.schema} has {count} surveys, got {self.clients} clients: use {count} clients or more."
            )
        if self.outcome and len(named) != count:
            raise InputError(
                f"outcome {self.outcome}: with schema={self.schema} name {count} outcomes, one of each survey, as "
                f"{':'.join('ABCDEF'[:count])}, or leave it out for the first of each."
            )
        if self.members == "yes":
            raise InputError(
                f"members=yes asks about one survey: with schema={self.schema} leave it out, or give --set members=no."
            )


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """What both targets resolve to, at the least."""

    data: str
    model: str
    tuning: Recipe
    seed: int
    role: Role = "audited"

    @property
    def called(self) -> str:
        """What this run is called while it goes on."""
        return f"{self.role} run"

    def telling(self, progress: Progress | None) -> Progress:
        """Progress that says which run it is of, to nobody where nobody asks."""

        def report(stage: str, share: float) -> None:
            if progress is not None:
                progress(f"{self.called}: {stage}", share)

        return report

    @property
    def members_held(self) -> dict[str, Any]:
        """What the runs about membership hold, by `Target.held`."""
        tuning = self.tuning
        return {"candidates": 2 * tuning.train, "references": tuning.references, "blind": True}

    @property
    def asking(self) -> tuple[Role, ...]:
        """The runs about membership: where nobody asks there are none."""
        models = [f"{REFERENCE}{number + 1}" for number in range(self.tuning.references)]
        return (MEMBERS, *models) if self.tuning.asks_members else ()

    def as_role(self, role: Role) -> Self:
        return replace(self, role=role)


Settings = TypeVar("Settings", bound=Recipe)


def read_recipe(
    kind: type[Settings], model: str, given: Mapping[str, str], pretrained: Mapping[str, str], target: str
) -> Settings:
    """The --set values over the defaults: those of `kind` for model tiny, for any other `pretrained` before them; with
    several surveys nobody asks about members.
    """
    base = {} if model == DEFAULT_MODEL else {**PRETRAINED, **pretrained}
    unasked = {} if given.get("schema", ONE_SURVEY) == ONE_SURVEY else {"members": "no"}
    chosen = {**base, **unasked, **given}
    values: dict[str, Any] = read_settings(kind, chosen, target)
    return kind(**values)


def require_data(data: str, target: str, schema: str) -> None:
    """`InputError` for data that neither target can read; no file is opened."""
    kind, _, name = data.partition(":")
    if kind not in (DEFAULT_DATA, *SURVEYS):
        raise unknown(f"data of target {target}", kind, (DEFAULT_DATA, *SURVEYS))
    if not invented(data):
        parse_spec(data)
        if schema != ONE_SURVEY:
            raise InputError(
                f"schema={schema} takes the invented surveys, got {data}: leave --data out, or give "
                f"{DEFAULT_DATA}:NAME for the first client's; with a survey of your own leave schema out."
            )
    elif name and name not in synthetic.SURVEYS:
        raise unknown("synthetic survey", name, synthetic.SURVEYS)

"""Runs about membership: respondents whom a fair coin puts into a tuning, and the models of an adversary beside it.

The pool holds twice as many respondents as a tuning takes, so that a run trains on about as many as the audited one; a
survey that has fewer shrinks with its test side (`splits.split`). A coin is tossed for each respondent alone. Identical
pairs of input and answer were removed before, so that nobody is in and out at once; nearly identical ones may stand on
both sides of the coin: they make members harder to tell, and chance stays what it is.

All these runs take `reference_steps` steps, fewer than the audited one: references must be of the attacked model's
kind, and eight of them with as many steps would take most of an audit's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.schema import Question
from privbench.errors import InputError
from privbench.membership import require_enough
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.references import inclusions, row_of
from privbench.target import MEMBERS, Progress, TargetRun
from privbench.targets.split_llama.answering import likelihoods
from privbench.targets.split_llama.coins import OUTCOME
from privbench.targets.split_llama.config import SplitLlamaConfig, Tuning
from privbench.targets.split_llama.halves import Client, Exchange, Server
from privbench.targets.split_llama.material import Material
from privbench.targets.split_llama.public import PublicText
from privbench.targets.split_llama.recipe import LlamaConfig
from privbench.targets.split_llama.system import System
from privbench.targets.split_llama.tape import sequences
from privbench.targets.split_llama.tune import tune
from privbench.tensors import RELEASE_TYPES

if TYPE_CHECKING:
    from privbench.targets.split_llama.tokens import Encoded

Arrays = dict[str, npt.NDArray[Any]]

PARTY = "questionnaire"
"""Under which name all answers but the outcome's are recorded."""


def run_membership(config: SplitLlamaConfig, rng: np.random.Generator, report: Progress) -> TargetRun:
    """Tune on the respondents whom the coins put in ("members"), or on a half of the pool ("reference-1" and on).

    Both record what the tuned system says to the pool and to the population: the log-likelihood of each whole answer.
    The members' run also records the true answers, what the server received in the clients' first pass, and what the
    public base makes of every questionnaire; and as secrets the coins and all answers. A reference is kept on disk, and
    holds no answer of anybody.
    """
    tuning = config.tuning
    report("reading the survey", 0.0)
    game = Game.draw(config, rng)
    recipe = replace(tuning, steps=max(tuning.reference_steps, tuning.one_pass(game.held(tuning.clients))))
    system = System.build(game.pool.base.model, game.train, game.holder, recipe, game.rng, config.defense)
    received = Received(tuning.record_as)
    losses = tune(
        system.clients, system.server, system.shards, recipe, game.rng,
        taken=received.take if config.role == MEMBERS else _unheard, end_pass=received.end_pass, report=report,
    )  # fmt: skip
    arrays = game.outputs(system.clients[0], system.server, report)
    if config.role == MEMBERS:
        width = game.pool.table.shape[1]
        arrays |= game.answers
        arrays |= _padded("received", received.rows, [len(row) for row in received.rows], width, tuning.record_as)
        arrays |= _asked(game.pool, game.asked, tuning)
    secrets = game.secrets(told=config.role == MEMBERS)
    return game.run(arrays, secrets, {"loss": losses})


@dataclass(frozen=True)
class Game:
    """Who is asked about and who of them a run trains on, drawn for a role of an audit; all clients hold one survey.

    included uint8 [2 train]: 1 where a coin put one of the pool in. rng: what the run itself draws from.
    """

    pool: Material
    included: npt.NDArray[np.uint8]
    population: int
    rng: np.random.Generator

    @classmethod
    def draw(cls, config: LlamaConfig, rng: np.random.Generator) -> Game:
        """The pool is the same for every role of a seed, its coins and halves are too; `rng` is the role's own."""
        tuning = config.tuning
        data_rng, coin_rng, run_rng = rng.spawn(3)
        pool = Material.load(replace(config, tuning=replace(tuning, train=2 * tuning.train)), data_rng)
        which = row_of(config.role)
        included = inclusions(coin_rng, tuning.references, len(pool.train))[which]
        require_enough(included)
        return cls(pool, included, tuning.population, run_rng.spawn(which + 1)[which])

    @property
    def train(self) -> tuple[Encoded, ...]:
        """Who is trained on."""
        return tuple(self.pool.train[int(row)] for row in np.flatnonzero(self.included))

    @property
    def holder(self) -> npt.NDArray[np.int64]:
        """Which client holds each of `train`."""
        return self.pool.holder[np.flatnonzero(self.included)]

    def held(self, clients: int) -> list[int]:
        """How many of `train` each client holds; `InputError` where one holds nobody."""
        counts: list[int] = np.bincount(self.holder, minlength=clients).tolist()
        if not min(counts):
            raise InputError(
                f"membership: no coin put a respondent of client {int(np.argmin(counts)) + 1} of {len(counts)} into "
                "the training; use more respondents (--set train=N), fewer clients, or leave it out "
                "(--set members=no)."
            )
        return counts

    @property
    def asked(self) -> tuple[Encoded, ...]:
        """The pool and the population, in the order of the record."""
        return (*self.pool.train, *self.pool.first.test[: self.population])

    def outputs(self, client: Client, server: Server, report: Progress) -> Arrays:
        """What tuned halves say to all of them: the log-likelihood of each whole answer [N, K]."""
        prompts, options = [item.prompt for item in self.asked], self.pool.first.options
        said = likelihoods(
            client, server, prompts, options, self.pool.encoder, partial(report, "asking about the pool")
        )
        return {f"outputs/{OUTCOME}": said, "outputs/population": 1 - self._tossed}

    @property
    def answers(self) -> Arrays:
        """The outcome's true answer of each of them, by its place among the options [N]."""
        survey = self.pool.first
        told = self._told[survey.people.outcome.question.column]
        return {f"outputs/{OUTCOME}/labels": survey.numbers(told)}

    def secrets(self, *, told: bool) -> Arrays:
        """Who was trained on; with all that they said where it is told, which no reference holds."""
        members: Arrays = {MEMBER: np.concatenate([self.included, np.zeros(self._beyond, np.uint8)])}
        if not told:
            return members
        people = self.pool.first.people
        return members | {
            f"canary/{MEMBER}": self._tossed,
            f"labels/{OUTCOME}": self.answers[f"outputs/{OUTCOME}/labels"],
            f"inputs/{PARTY}/codes": codes(self._told, people.splits.train.inputs(people.outcome)),
        }

    def run(
        self, arrays: Arrays, secrets: Arrays, diagnostics: Mapping[str, tuple[float, ...]],
        metadata: Mapping[str, Any] | None = None, notes: tuple[str, ...] = (), flags: tuple[str, ...] = (),
    ) -> TargetRun:  # fmt: skip
        """What outlives the run."""
        pool = self.pool
        return TargetRun(
            Transcript(arrays, metadata or {}), None, Secrets(secrets), (), diagnostics, pool.fingerprint,
            flags, (*pool.notes, *notes),
        )  # fmt: skip

    @property
    def _beyond(self) -> int:
        """How many of those asked about are of the population."""
        return len(self.asked) - len(self.included)

    @property
    def _tossed(self) -> npt.NDArray[np.uint8]:
        """1 for the pool, 0 for the population."""
        return (np.arange(len(self.asked)) < len(self.included)).astype(np.uint8)

    @property
    def _told(self) -> pd.DataFrame:
        """Every answer of the pool and the population."""
        splits = self.pool.first.people.splits
        whole = pd.concat([splits.train.answers.iloc[self.pool.order], splits.test.answers], ignore_index=True)
        return whole.iloc[: len(self.asked)]


class Received:
    """What the server received in every client's first pass, in the order in which it came: of each respondent who is
    trained on one sequence [l, d], and no number.
    """

    def __init__(self, dtype: str) -> None:
        self.rows: list[npt.NDArray[Any]] = []
        self._type = RELEASE_TYPES[dtype]
        self._ended: set[int] = set()

    def take(self, sender: int, rows: Sequence[int], crossed: Exchange) -> None:
        if sender not in self._ended:
            self.rows += [row.astype(self._type) for row in sequences(crossed.cut)]

    def end_pass(self, sender: int, number: int) -> None:
        self._ended.add(sender)


def _unheard(sender: int, rows: Sequence[int], crossed: Exchange) -> None:
    """A reference is the adversary's own: nothing is taken down."""


def codes(told: pd.DataFrame, questions: Sequence[Question]) -> npt.NDArray[np.int64]:
    """Answers as numbers [N, Q] in the order of their scale, -1 where there is none: for who sees no model."""
    columns = []
    for question in questions:
        said = told[question.column].tolist()
        scale = question.answers or sorted({answer for answer in said if answer is not None}, key=float)
        place = {answer: number for number, answer in enumerate(scale)}
        columns.append([place.get(answer, -1) for answer in said])
    return np.array(columns, np.int64).T


def _asked(pool: Material, asked: Sequence[Encoded], tuning: Tuning) -> Arrays:
    """What the public base makes, up to the cut, of what a client would send for each questionnaire."""
    texts = tuple(item.sent(tuning.labels == "client") for item in asked)
    made = PublicText(texts, pool.base.model, tuning.k).activations()
    return _padded("asked", made, [len(text) for text in texts], pool.table.shape[1], tuning.record_as)


def _padded(name: str, rows: Iterable[npt.NDArray[Any]], lengths: Sequence[int], width: int, dtype: str) -> Arrays:
    """NAME/activations [N, L, d], 0 behind the end of a sequence, and NAME/mask [N, L]."""
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.uint8)
    activations = np.zeros((*mask.shape, width), RELEASE_TYPES[dtype])
    for whole, row, length in zip(activations, rows, lengths, strict=True):
        whole[:length] = row[:length].astype(whole.dtype)
    return {f"{name}/activations": activations, f"{name}/mask": mask}

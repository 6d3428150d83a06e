"""Runs about membership: respondents whom a fair coin puts into a tuning, and the models of an adversary beside it.

The pool holds twice as many respondents as a tuning takes, so that a run trains on about as many as the audited one; a
survey that has fewer shrinks with its test side (`splits.split`). A coin is tossed for each respondent alone. Identical
pairs of input and answer were removed before, so that nobody is in and out at once; nearly identical ones may stand on
both sides of the coin: they make members harder to tell, and chance stays what it is.

All these runs take `reference_steps` steps, fewer than the audited one: references must be of the attacked model's
kind, and eight of them with as many steps would take most of an audit's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
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
from privbench.targets.split_llama.halves import Exchange
from privbench.targets.split_llama.public import PublicText
from privbench.targets.split_llama.running import Material
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
    data_rng, coin_rng, run_rng = rng.spawn(3)
    report("reading the survey", 0.0)
    pool = Material.load(replace(config, tuning=replace(tuning, train=2 * tuning.train)), data_rng)
    which = row_of(config.role)
    included = inclusions(coin_rng, tuning.references, len(pool.train))[which]
    require_enough(included)
    own_rng = run_rng.spawn(which + 1)[which]
    rows = np.flatnonzero(included)
    recipe = _recipe(tuning, np.bincount(pool.holder[rows], minlength=tuning.clients).tolist())
    train = [pool.train[int(row)] for row in rows]
    system = System.build(pool.base.model, train, pool.holder[rows], recipe, own_rng, config.defense)
    received = Received(tuning.record_as)
    losses = tune(
        system.clients, system.server, system.shards, recipe, own_rng,
        taken=received.take if config.role == MEMBERS else _unheard, end_pass=received.end_pass, report=report,
    )  # fmt: skip
    asked = (*pool.train, *pool.test[: tuning.population])
    arrays: Arrays = {
        f"outputs/{OUTCOME}": likelihoods(
            system.clients[0], system.server, [item.prompt for item in asked], pool.options, pool.encoder,
            partial(report, "asking about the pool"),
        ),
        "outputs/population": (np.arange(len(asked)) >= len(included)).astype(np.uint8),
    }  # fmt: skip
    secrets: Arrays = {MEMBER: np.concatenate([included, np.zeros(len(asked) - len(included), np.uint8)])}
    if config.role == MEMBERS:
        arrays[f"outputs/{OUTCOME}/labels"] = _answers(pool, len(asked))
        width = pool.table.shape[1]
        arrays |= _padded("received", received.rows, [len(row) for row in received.rows], width, tuning.record_as)
        arrays |= _asked(pool, asked, tuning)
        secrets |= {
            f"canary/{MEMBER}": 1 - arrays["outputs/population"],
            f"labels/{OUTCOME}": arrays[f"outputs/{OUTCOME}/labels"],
            f"inputs/{PARTY}/codes": _codes(pool, len(asked)),
        }
    return TargetRun(
        Transcript(arrays), None, Secrets(secrets), (), {"loss": losses}, pool.people.fingerprint, notes=pool.notes
    )


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


def _recipe(tuning: Tuning, held: Sequence[int]) -> Tuning:
    """The tuning of these runs: as many steps as are asked for, and in any case everybody is sent once, or who is in
    would not have been trained on.
    """
    if not min(held):
        raise InputError(
            f"membership: no coin put a respondent of client {int(np.argmin(held)) + 1} of {len(held)} into the "
            "training; use more respondents (--set train=N), fewer clients, or leave it out (--set members=no)."
        )
    return replace(tuning, steps=max(tuning.reference_steps, tuning.one_pass(held)))


def _told(pool: Material, asked: int) -> pd.DataFrame:
    """Every answer of the pool and the population, in the order of the record."""
    splits = pool.people.splits
    return pd.concat([splits.train.answers.iloc[pool.order], splits.test.answers], ignore_index=True).iloc[:asked]


def _answers(pool: Material, asked: int) -> npt.NDArray[np.int64]:
    """The outcome's answer of each of them, by its place among the options [N]."""
    return pool.numbers(_told(pool, asked)[pool.people.outcome.question.column])


def _codes(pool: Material, asked: int) -> npt.NDArray[np.int64]:
    """The answers that a sample holds, for the blind classifier [N, Q]."""
    people = pool.people
    return codes(_told(pool, asked), people.splits.train.inputs(people.outcome))


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

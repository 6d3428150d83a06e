"""What every run starts from: the respondents of one survey or several as token ids, and the base model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privbench.data.surveys.samples import Sample, samples
from privbench.seeds import stream
from privbench.targets.split_llama import models, respondents
from privbench.targets.split_llama.coins import OUTCOME
from privbench.targets.split_llama.models import Base
from privbench.targets.split_llama.recipe import LlamaConfig
from privbench.targets.split_llama.respondents import Respondents
from privbench.targets.split_llama.tokens import Encoded, Encoder, lost

if TYPE_CHECKING:
    from torch import Tensor

UNASKED = "Whom a client trained on was not asked: that takes clients of one survey (--set schema=homogeneous)."


@dataclass(frozen=True)
class Asked:
    """One survey and its respondents. told: the training respondents' samples in the survey's order; train, test: as
    token ids, with room for the longest of the options.
    """

    people: Respondents
    told: tuple[Sample, ...]
    train: tuple[Encoded, ...]
    test: tuple[Encoded, ...]

    @classmethod
    def encode(cls, people: Respondents, encoder: Encoder) -> Asked:
        """`InputError` where the context holds not even one question."""
        outcome = people.outcome
        told, asked = (tuple(samples(side, outcome)) for side in (people.splits.train, people.splits.test))
        train, test = (encoder.encode_all(side, outcome.question.answers) for side in (told, asked))
        return cls(people, told, train, test)

    @property
    def options(self) -> Sequence[str]:
        """The answers that the outcome's question allows."""
        return self.people.outcome.question.answers

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions of a sample in their order, the outcome's last."""
        return *(question for question, _, _ in self.told[0].features), self.told[0].question

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """What the training respondents answered, as numbers of the options [n]."""
        return self.numbers(item.answer for item in self.told)

    def numbers(self, said: Iterable[str]) -> npt.NDArray[np.int64]:
        """Answers to the outcome's question as numbers of the options [n]."""
        return np.array([list(self.options).index(answer) for answer in said], np.int64)


@dataclass(frozen=True)
class Material:
    """surveys: the first client's first; order, train: a permutation of all of their training respondents, and in it
    the tokens of each; unseen: a survey that no client holds, and that is asked about.
    """

    surveys: tuple[Asked, ...]
    base: Base
    encoder: Encoder
    order: npt.NDArray[np.int64]
    train: tuple[Encoded, ...]
    unseen: Asked | None = None

    @classmethod
    def load(cls, config: LlamaConfig, rng: np.random.Generator) -> Material:
        """Read or invent the surveys, split them, turn them into tokens; `InputError` for what a user can mend."""
        people = respondents.load(config.data, config.tuning, rng)
        base = models.load(config.model)
        encoder = Encoder(base.tokenizer, base.context)
        surveys = tuple(Asked.encode(each, encoder) for each in people)
        train = [item for survey in surveys for item in survey.train]
        order = rng.permutation(len(train))  # a file may be sorted: the first respondents are recorded
        # Drawn apart, so that all else is as it is without it.
        apart = respondents.load_unseen(config.data, config.tuning, stream(config.seed, "unseen survey"))
        unseen = None if apart is None else Asked.encode(apart, encoder)
        return cls(surveys, base, encoder, order, tuple(train[int(i)] for i in order), unseen)

    @property
    def first(self) -> Asked:
        """The survey of the first client, who is recorded; the only one where all clients hold the same."""
        return self.surveys[0]

    @property
    def holder(self) -> npt.NDArray[np.int64]:
        """Which client holds each of `train`."""
        return np.concatenate([survey.people.holder for survey in self.surveys])[self.order]

    @property
    def table(self) -> Tensor:
        """The public embedding table [V, d]."""
        table: Tensor = self.base.model.model.embed_tokens.weight.detach()
        return table

    @property
    def said(self) -> tuple[str, ...]:
        """What each of `train` answered to the outcome's question."""
        told = [item.answer for survey in self.surveys for item in survey.told]
        return tuple(told[int(i)] for i in self.order)

    def train_of(self, survey: Asked) -> tuple[Encoded, ...]:
        """Those of `train` who were asked this survey's questions; of one that no client holds those for baselines."""
        if survey is self.unseen:
            return survey.train
        return tuple(self.train[int(i)] for i in np.flatnonzero(np.isin(self.holder, survey.people.clients)))

    def natural(self, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
        """The labels that these of `train` gave themselves, as numbers of their survey's options."""
        labels = np.concatenate([survey.labels for survey in self.surveys])
        return {f"labels/{OUTCOME}": labels[self.order[rows]]}

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Every survey whose test respondents are asked, one that no client holds last."""
        return (*self.surveys, *(() if self.unseen is None else (self.unseen,)))

    @property
    def fingerprint(self) -> str:
        """Of the one survey, or of those of all together."""
        found = [survey.people.fingerprint for survey in self.asked]
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the data."""
        everybody = [*self.train, *chain.from_iterable(survey.test for survey in self.asked)]
        cut_short = _cut_short(*lost(everybody), len(everybody), self.base.context)
        apart = () if self.unseen is None else _of_nobodys(self.unseen.people)
        return *_told_of([survey.people for survey in self.surveys]), *apart, *cut_short


def _told_of(surveys: Sequence[Respondents]) -> Iterator[str]:
    """Of several surveys each note says of which it speaks, once where it speaks of all."""
    if len(surveys) == 1:
        yield from surveys[0].notes
        return
    everywhere = [note for note in surveys[0].notes if all(note in people.notes for people in surveys)]
    for people in surveys:
        yield from (f"{people.held_by}: {note}" for note in people.notes if note not in everywhere)
    yield from (*everywhere, UNASKED)


def _of_nobodys(people: Respondents) -> Iterator[str]:
    yield (
        f"{people.held_by}: the trained model is asked about it as well. Those of its respondents who are for training "
        "make its baselines, and no more."
    )
    yield from (f"{people.held_by}: {note}" for note in people.notes)


def _cut_short(count: int, most: int, total: int, context: int) -> tuple[str, ...]:
    """Samples longer than the context, never silently."""
    if not count:
        return ()
    return (
        f"{count:,} of {total:,} samples were longer than the model's context of {context:,} tokens and lost their "
        f"last questions, at most {most}.",
    )

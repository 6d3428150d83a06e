"""Respondents invented from latent factors: what a survey asks, how the answers come about, who gives none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from privbench.data.surveys.schema import Outcome, Question, Schema
from privbench.data.surveys.survey import Account, Survey
from privbench.errors import InputError


@dataclass(frozen=True)
class Item:
    """A question, and how it is answered.

    The liability is loading . factors + own noise, standard normal. Answers cut it into parts of equal probability
    (also those of a choice, in the order of its options); a number is the middle of its range plus a sixth of it per
    standard deviation.

    loading   weight of each factor, squares summing to 1 at most; () for an answer that depends on none
    skew      in standard deviations: above 0, later answers are the more frequent
    missing   share of answers left out at random
    asked_of  (column, answer): asked only of those who gave this answer to an earlier question
    """

    question: Question
    loading: tuple[float, ...] = ()
    skew: float = 0.0
    missing: float = 0.0
    asked_of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Blueprint:
    """A survey that can be drawn. breakoff: share of respondents who stop at a random question (outcomes are known)."""

    name: str
    title: str
    items: tuple[Item, ...]
    outcomes: tuple[Item, ...]
    breakoff: float = 0.0

    @property
    def schema(self) -> Schema:
        return Schema(
            self.name,
            self.title,
            tuple(item.question for item in self.items),
            tuple(Outcome(item.question.ask, item.question) for item in self.outcomes),
        )


def draw(rng: np.random.Generator, blueprint: Blueprint, records: int) -> Survey:
    """That many invented respondents, each a person of their own; `InputError` for fewer than one."""
    if records < 1:
        raise InputError(f"records is {records}; a survey needs at least 1 respondent.")
    every = (*blueprint.items, *blueprint.outcomes)
    factors = rng.standard_normal((records, max(len(item.loading) for item in every)))
    answers: dict[str, npt.NDArray[np.object_]] = {}
    for item in every:
        given = _answer(rng, item, factors)
        given[rng.random(records) < item.missing] = None
        if item.asked_of is not None:
            column, answer = item.asked_of
            given[answers[column] != answer] = None
        answers[item.question.column] = given
    _break_off(rng, [answers[item.question.column] for item in blueprint.items], blueprint.breakoff)
    account = Account(records, len(every), (), ("Invented respondents: no row is a person.",))
    frame = pd.DataFrame(answers, dtype=object)
    return Survey(blueprint.schema, frame, np.arange(records), np.arange(records), account)


def _answer(rng: np.random.Generator, item: Item, factors: npt.NDArray[np.float64]) -> npt.NDArray[np.object_]:
    weights = np.array(item.loading)
    own = rng.standard_normal(len(factors)) * np.sqrt(1 - weights @ weights)
    liability = factors[:, : len(weights)] @ weights + own + item.skew
    question = item.question
    if question.kind != "number":
        levels = len(question.answers)
        cuts = stats.norm.ppf(np.arange(1, levels) / levels)
        return np.array([question.answers[level] for level in np.searchsorted(cuts, liability)], dtype=object)
    if question.low is None or question.high is None:
        raise InputError(f"question '{question.ask}' is a number without low and high; give both.")
    spread = (question.high - question.low) / 6
    values = np.clip((question.low + question.high) / 2 + spread * liability, question.low, question.high)
    return np.array([f"{value:.{question.decimals}f}" for value in values], dtype=object)


def _break_off(rng: np.random.Generator, columns: Sequence[npt.NDArray[np.object_]], share: float) -> None:
    """In place: whoever stops has answered the first question, and none from where they stopped."""
    count = len(columns[0])
    stops = np.where(rng.random(count) < share, rng.integers(1, len(columns) + 1, count), len(columns))
    for position, column in enumerate(columns):
        column[position >= stops] = None

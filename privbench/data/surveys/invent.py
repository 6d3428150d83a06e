"""Surveys nobody has asked: a random title, questions, scales, codings and gaps each time, for pretraining."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from privbench.data.surveys.latent import Blueprint, Item, draw
from privbench.data.surveys.schema import Kind, Question
from privbench.data.surveys.survey import Survey
from privbench.data.surveys.wordbank import (
    CITIES,
    COUNTRIES,
    DEGREES,
    FILLERS,
    NUMBERS,
    OPTIONS,
    PROFESSIONS,
    QUESTIONS,
    SCALES,
    TITLES,
)

T = TypeVar("T")

FEWEST, MOST = 3, 28
"""Questions of a random survey, outcomes aside."""

_NAMED = (("country", COUNTRIES), ("city", CITIES), ("profession", PROFESSIONS), ("degree", DEGREES))
_ONSETS = (
    "b",
    "d",
    "f",
    "g",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "z",
    "br",
    "dr",
    "fl",
    "pl",
    "sh",
    "st",
    "th",
)
_VOWELS = ("a", "e", "i", "o", "u")


def random_survey(rng: np.random.Generator, records: int, questions: int | None = None) -> Survey:
    """Invented respondents of a survey invented for them; its two outcomes are ordinals or choices.

    questions: how many beside the outcomes, by default a random number from `FEWEST` to `MOST`, often few.
    """
    count = FEWEST + round((MOST - FEWEST) * rng.random() ** 1.5) if questions is None else questions
    return draw(rng, _Inventor(rng).blueprint(count), records)


class _Inventor:
    """One survey: it keeps to a few scales, as real ones do."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.scales = [self._some(_pick(rng, SCALES)) for _ in range(rng.integers(2, 6))]
        self.options = [tuple(rng.permutation(_pick(rng, OPTIONS)).tolist()) for _ in range(rng.integers(1, 5))]
        # How many of the questions are ordinals, choices, numbers, long lists.
        self.mix = rng.dirichlet([4, 3, 1, 0.5])
        self.factors = int(rng.integers(1, 4))
        self.asked: set[str] = set()

    def blueprint(self, count: int) -> Blueprint:
        rng = self.rng
        title = _fill(rng, _pick(rng, TITLES)).title()
        items: list[Item] = []
        for _ in range(count):
            items.append(self._item(items, missing=0.3 * rng.random() ** 3))
        outcomes = tuple(self._item((), missing=0.0) for _ in range(2))
        return Blueprint("random", title, tuple(items), outcomes, breakoff=0.2 * rng.random() ** 2)

    def _item(self, earlier: Sequence[Item], missing: float) -> Item:
        """With nothing asked earlier it is an outcome: an ordinal or a choice, of everyone."""
        rng = self.rng
        mix = self.mix if earlier else self.mix[:2] / self.mix[:2].sum()
        kind = rng.choice(len(mix), p=mix)
        if kind == 0:
            question = self._question("ordinal", _pick(rng, self.scales))
        elif kind == 1:
            question = self._question("choice", _pick(rng, self.options))
        elif kind == 2:
            ask, low, high, decimals = _pick(rng, NUMBERS)
            name = self._name(ask)
            question = Question(name, name, "number", low=low, high=high, decimals=decimals)
        else:
            ask, answers = _pick(rng, _NAMED)
            name = self._name(ask)
            question = Question(name, name, "choice", answers)
        gates = [item.question for item in earlier if item.question.answers]
        asked_of = None
        if gates and rng.random() < 0.15:
            gate = _pick(rng, gates)
            asked_of = (gate.column, _pick(rng, gate.answers[:2]))
        weights = rng.standard_normal(self.factors)
        loading = weights / np.linalg.norm(weights) * 0.9 * rng.random()
        return Item(question, tuple(loading.tolist()), float(rng.normal(0, 0.4)), missing, asked_of)

    def _question(self, kind: Kind, answers: tuple[str, ...]) -> Question:
        name = self._name(_fill(self.rng, _pick(self.rng, QUESTIONS)))
        return Question(name, name, kind, answers)

    def _name(self, ask: str) -> str:
        """Asked once in this survey; some hold a word that exists nowhere, so that names are read by their parts."""
        rng = self.rng
        if rng.random() < 0.08:
            ask = f"{ask} {_word(rng)}" if rng.random() < 0.5 else _word(rng)
        while ask in self.asked:
            ask = f"{_pick(rng, FILLERS['thing'])} and {ask}"
        self.asked.add(ask)
        return ask

    def _some(self, scale: tuple[str, ...]) -> tuple[str, ...]:
        """A scale as it is, or now and then turned around."""
        return scale[::-1] if self.rng.random() < 0.1 else scale


def _pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]


def _fill(rng: np.random.Generator, pattern: str) -> str:
    """The pattern with each {blank} filled."""
    return re.sub(r"\{(\w+)\}", lambda blank: _pick(rng, FILLERS[blank[1]]), pattern)


def _word(rng: np.random.Generator) -> str:
    return "".join(_pick(rng, _ONSETS) + _pick(rng, _VOWELS) for _ in range(rng.integers(2, 5)))

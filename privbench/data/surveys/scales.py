"""Scales that many surveys use, and what the answers of one column say about its kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

from privbench.data.surveys.table import key, number

_SCALES = (
    "never < almost never|rarely|seldom|hardly ever < sometimes|occasionally < often|frequently|regularly "
    "< very often|usually|most of the time < almost always|nearly always < always",
    "not at all|never < several days < more than half the days < nearly every day",
    "strongly disagree|disagree strongly < disagree|disagree moderately < somewhat disagree|slightly disagree"
    "|disagree a little < neutral|neither|neither agree nor disagree|undecided < somewhat agree|slightly agree"
    "|agree a little < agree|agree moderately < strongly agree|agree strongly",
    "none|normal|no|not at all|absent < minimal < mild|slight < moderate < moderately severe < severe "
    "< very severe|extremely severe|extreme",
    "none|zero < very low < low < medium|moderate|average|middle < high < very high",
    "not at all|none < a little|slightly|a little bit < somewhat|moderately < quite a bit|a lot|very|very much|mostly "
    "< extremely|completely",
    "very poor < poor|bad < fair|average|ok|okay < good < very good < excellent",
    "very bad < bad < neutral|neither|ok|okay < good < very good",
    "very dissatisfied|very unsatisfied < dissatisfied|unsatisfied < neutral|neither < satisfied < very satisfied",
    "very difficult < difficult|somewhat difficult < neutral|neither|neither easy nor difficult "
    "< easy|somewhat easy < very easy",
    "very unlikely < unlikely|somewhat unlikely < neutral|neither < likely|somewhat likely < very likely",
    "very small < small < medium < large < very large",
    "unhealthy < moderate < healthy",
    "rural < suburban < urban",
    "daily|every day < weekly < monthly < yearly",
)
_YES_NO = (
    "no",
    "n",
    "false",
    "maybe",
    "possibly",
    "unsure",
    "not sure",
    "don't know",
    "i don't know",
    "yes",
    "y",
    "true",
)
_RANGE = re.compile(
    r"(?P<sign><|<=|>|>=|less than|under|below|up to|at most|fewer than|more than|over|above|at least)?\s*"
    r"(?P<low>\d+(?:\.\d+)?)\s*[a-z%]*\s*(?:(?:-|to)\s*\d+(?:\.\d+)?|\+)?[a-z% ]*"
)
_LABELLED = re.compile(r"(\d+)\s*[-=:.)(]\s*\D.*")
_BELOW = ("<", "<=", "less than", "under", "below", "up to", "at most", "fewer than")
_ABOVE = (">", ">=", "more than", "over", "above")
_WIDEST = 11  # whole numbers of one scale, such as 0 to 10

_RANKS = tuple(
    {word: rank for rank, step in enumerate(scale.split(" < ")) for word in step.strip().split("|")}
    for scale in _SCALES
)


def ordered(answers: Sequence[str]) -> tuple[str, ...] | None:
    """The answers from the lowest to the highest where they are of one known scale; None where they are not.

    Known are scales in words, ranges of numbers ("6-25", "more than 8 hours"), numbered labels ("1 - never") and at
    most eleven whole numbers between 0 and 10.
    """
    for ranks in (_in_words, _labelled, _ranges, _digits):
        found = ranks(answers)
        if found is not None and len(set(found)) == len(answers) > 1:
            return tuple(answer for _, answer in sorted(zip(found, answers, strict=True)))
    return None


def agreed(answers: Sequence[str]) -> tuple[str, ...] | None:
    """no, maybe, yes and their like in this order; None where there is another answer among them."""
    places = [_YES_NO.index(key(answer)) if key(answer) in _YES_NO else -1 for answer in answers]
    if min(places, default=-1) < 0 or len(answers) < 2:
        return None
    return tuple(answer for _, answer in sorted(zip(places, answers, strict=True)))


def _in_words(answers: Sequence[str]) -> list[float] | None:
    words = [key(answer) for answer in answers]
    if set(words) <= set(_YES_NO):
        return None
    for ranks in _RANKS:
        if all(word in ranks for word in words):
            return [float(ranks[word]) for word in words]
    return None


def _labelled(answers: Sequence[str]) -> list[float] | None:
    found = [_LABELLED.fullmatch(key(answer)) for answer in answers]
    return [float(match[1]) for match in found if match] if all(found) else None


def _ranges(answers: Sequence[str]) -> list[float] | None:
    found = [_RANGE.fullmatch(key(answer)) for answer in answers]
    ranks = []
    for match in found:
        if match is None:
            return None
        sign = match["sign"]
        ranks.append(float(match["low"]) + (-0.5 if sign in _BELOW else 0.5 if sign in _ABOVE else 0.0))
    plain_numbers = all(number(answer) is not None for answer in answers)
    return None if plain_numbers else ranks


def _digits(answers: Sequence[str]) -> list[float] | None:
    values = [number(answer) for answer in answers]
    whole = [value for value in values if value is not None and value.is_integer() and 0 <= value < _WIDEST]
    return whole if len(whole) == len(values) else None

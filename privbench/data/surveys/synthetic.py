"""Built-in surveys of invented respondents: other questions, scales, codings and gaps in each.

A few latent factors stand behind a respondent's answers and outcomes, so the answers tell an outcome in part. Each has
an outcome of two answers, which a logistic regression on one-hot answers predicts with an AUC about .8, and one of five
levels. The wording is ours; no row is, or resembles, a real person.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from privbench.data.surveys.latent import Blueprint, Item, draw
from privbench.data.surveys.schema import Question
from privbench.data.surveys.survey import Survey
from privbench.errors import unknown

OFTEN = ("never", "rarely", "sometimes", "often", "always")
AGREE = ("disagree strongly", "disagree", "neither", "agree", "agree strongly")
LEVEL = ("low", "medium", "high")
POINTS = ("0", "1", "2", "3")
GRADES = ("1", "2", "3", "4", "5")
MUCH = ("not at all", "a little", "somewhat", "much", "very much")
SEVERE = ("none", "mild", "moderate", "severe", "very severe")
NO_YES = ("no", "yes")


def _scale(
    ask: str,
    answers: tuple[str, ...],
    *loading: float,
    skew: float = 0.0,
    missing: float = 0.01,
    asked_of: tuple[str, str] | None = None,
) -> Item:
    return Item(Question(ask, ask, "ordinal", answers), loading, skew, missing, asked_of)


def _choice(
    ask: str,
    answers: tuple[str, ...],
    *loading: float,
    skew: float = 0.0,
    missing: float = 0.02,
    asked_of: tuple[str, str] | None = None,
) -> Item:
    return Item(Question(ask, ask, "choice", answers), loading, skew, missing, asked_of)


def _number(
    ask: str,
    low: float,
    high: float,
    *loading: float,
    decimals: int = 0,
    missing: float = 0.03,
    asked_of: tuple[str, str] | None = None,
) -> Item:
    return Item(Question(ask, ask, "number", low=low, high=high, decimals=decimals), loading, 0.0, missing, asked_of)


# Factors: strain, support.
_WELLBEING = Blueprint(
    "wellbeing",
    "Wellbeing at Work",
    (
        _number("age", 18, 66),
        _choice("gender", ("female", "male", "other"), skew=-0.3),
        _choice("occupation", ("office", "health care", "trade", "teaching", "tech")),
        _number("hours of work a week", 10, 70, 0.5),
        _scale("workload", LEVEL, 0.75),
        _scale("tired after work", OFTEN, 0.7, -0.1),
        _scale("tense at work", OFTEN, 0.7, -0.2),
        _scale("sleeps badly", OFTEN, 0.65),
        _scale("supervisor listens", AGREE, -0.2, 0.75),
        _scale("help from coworkers", AGREE, 0.0, 0.7),
        _choice("works from home", ("yes", "no"), -0.2, -0.1),
        _choice("health benefits", ("yes", "no", "not sure"), 0.0, -0.4, skew=-0.2),
        _scale("knows the care options", NO_YES, 0.0, 0.4, asked_of=("health benefits", "yes")),
        _scale("comfortable talking to employer", LEVEL, -0.2, 0.6, missing=0.08),
    ),
    (
        _scale("sought help", NO_YES, 0.75, -0.35, missing=0.0),
        _scale("exhaustion", SEVERE, 0.8, -0.3, skew=-0.2, missing=0.0),
    ),
    breakoff=0.04,
)

# Factors: pressure, belonging, money.
_CAMPUS = Blueprint(
    "campus",
    "Student Life",
    (
        _number("age", 17, 34, missing=0.01),
        _choice("field", ("arts", "science", "law", "medicine", "engineering", "business")),
        _scale("year of study", ("first", "second", "third", "fourth"), 0.1),
        _number("grade average", 4, 10, -0.5, 0.1, decimals=1),
        _scale("exam pressure", GRADES, 0.75),
        _scale("time for studies", GRADES, -0.65),
        _scale("pressure from parents", GRADES, 0.6, -0.2),
        _scale("friends on campus", ("none", "one or two", "several", "many"), 0.0, 0.75),
        _scale("takes part in groups", NO_YES, 0.0, 0.6),
        _choice("lives", ("with family", "dormitory", "shared flat", "alone"), 0.0, -0.3),
        _scale("worries about money", GRADES, 0.1, 0.0, 0.8),
        _choice("side job", ("yes", "no"), 0.0, 0.0, -0.5),
        _scale("job hours", LEVEL, 0.2, 0.0, 0.5, asked_of=("side job", "yes")),
        _scale("skips meals", NO_YES, 0.2, 0.0, 0.5, skew=-0.5, missing=0.1),
    ),
    (
        _scale("thought of leaving", NO_YES, 0.6, -0.45, 0.4, missing=0.0),
        _scale("low mood", OFTEN, 0.65, -0.45, 0.35, missing=0.0),
    ),
    breakoff=0.1,
)

# Factors: sleep debt, worry. Points instead of words, and items that are keyed in reverse.
_SLEEP = Blueprint(
    "sleep",
    "Sleep and Worry",
    (
        _number("hours of sleep", 3, 10, -0.7, decimals=1),
        _number("minutes to fall asleep", 0, 120, 0.6, 0.3, missing=0.12),
        _scale("wakes at night", POINTS, 0.7),
        _scale("rested in the morning", POINTS, -0.75),
        _scale("naps", POINTS, 0.4),
        _scale("thoughts keep going", POINTS, 0.2, 0.75),
        _scale("worries about the next day", POINTS, 0.1, 0.75),
        _scale("feels calm", POINTS, 0.0, -0.7),
        _choice("shift", ("day", "evening", "night", "rotating"), 0.4, missing=0.05),
        _choice("coffee", ("yes", "no"), -0.1),
        _number("cups a day", 1, 9, 0.3, asked_of=("coffee", "yes")),
        _choice("medication", ("yes", "no", "prefer not to say"), -0.4, -0.3, skew=0.6),
        _scale("medication helps", MUCH, -0.3, asked_of=("medication", "yes")),
    ),
    (
        _scale("insomnia", NO_YES, 0.75, 0.35, skew=-0.3, missing=0.0),
        _scale("tired by day", GRADES, 0.8, 0.25, missing=0.0),
    ),
    breakoff=0.02,
)

# Factors: company, confidence, health.
_SOCIAL = Blueprint(
    "social",
    "Living Together",
    (
        _number("age", 16, 95, 0.0, 0.0, -0.4),
        _choice("area", ("rural", "suburban", "urban")),
        _number("people in the home", 1, 8, 0.5),
        _choice("married", ("never", "currently", "previously"), -0.1),
        _scale("meets friends", ("never", "yearly", "monthly", "weekly", "daily"), 0.75, 0.1),
        _scale("has someone to talk to", ("false", "partly", "true"), 0.75),
        _scale("knows the neighbours", ("none", "some", "most"), 0.6),
        _scale("easy to meet people", ("disagree", "neutral", "agree"), 0.2, 0.75),
        _scale("afraid of being judged", ("disagree", "neutral", "agree"), 0.0, -0.75),
        _scale("general health", ("poor", "fair", "good", "very good", "excellent"), 0.0, 0.1, 0.8),
        _choice("lasting illness", ("yes", "no"), 0.0, 0.0, 0.6, skew=0.3),
        _scale("illness limits outings", ("not", "somewhat", "a lot"), -0.3, asked_of=("lasting illness", "yes")),
        _choice("pets", ("dog", "cat", "other", "none"), missing=0.3),
    ),
    (
        _scale("lonely", ("no", "yes"), -0.75, -0.35, -0.15, missing=0.0),
        _scale("satisfied with life", ("very low", "low", "average", "high", "very high"), 0.65, 0.4, 0.4, missing=0.0),
    ),
    breakoff=0.06,
)

SURVEYS: Mapping[str, Blueprint] = {made.name: made for made in (_WELLBEING, _CAMPUS, _SLEEP, _SOCIAL)}


def synthetic(rng: np.random.Generator, records: int, *, survey: str = "wellbeing") -> Survey:
    """Invented respondents of one of `SURVEYS`. `InputError` for an unknown name, or fewer than one record."""
    if survey not in SURVEYS:
        raise unknown("synthetic survey", survey, SURVEYS)
    return draw(rng, SURVEYS[survey], records)

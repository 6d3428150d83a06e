"""What `privbench data check` says of a survey: its schema, outcomes, what was left out, and two invented samples.

Nothing of it speaks of one respondent: counts of fewer than 10 people are withheld, samples are of persons who do not
exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from privbench.data.surveys.cells import FEWEST, cells
from privbench.data.surveys.groups import firsts, near_duplicates
from privbench.data.surveys.leaks import Leak, drop, search
from privbench.data.surveys.read import read_survey
from privbench.data.surveys.samples import Sample, samples
from privbench.data.surveys.schema import Outcome, Question
from privbench.data.surveys.survey import Survey

_INVENTED = 2
_SEED = 20140827  # of the invented persons; the same survey shows the same two


@dataclass(frozen=True)
class OutcomeCheck:
    """An outcome's answers with the rows of each (of fewer than 10 people: withheld), `None` for those without one.

    note: what the survey is too small to find among its leaks, "" where it is large enough
    """

    outcome: Outcome
    counts: tuple[tuple[str | None, str], ...]
    leaks: tuple[Leak, ...]
    note: str


@dataclass(frozen=True)
class Check:
    """Everything that is said of a survey.

    missing: share of the questions' cells without an answer; repeated: respondents whose answers equal an earlier
    one's; groups, largest: how many people there are (`Survey.groups`) and records of the largest; alike: what
    near-duplicates would be kept together, a sentence, "" without an outcome; samples: invented persons', for the first
    outcome, without the columns that leak it
    """

    survey: Survey
    outcomes: tuple[OutcomeCheck, ...]
    missing: float
    repeated: int
    groups: int
    largest: int
    alike: str
    samples: tuple[Sample, ...]


def check(spec: str) -> Check:
    """Read a survey and look at it; `InputError` as `read.read_survey`."""
    survey = read_survey(spec)
    answers = survey.answers[[question.column for question in survey.schema.questions]]
    sizes = np.unique(survey.groups, return_counts=True)[1]
    outcomes = tuple(_outcome(survey, outcome) for outcome in survey.schema.outcomes)
    return Check(
        survey=survey,
        outcomes=outcomes,
        missing=float(answers.isna().to_numpy().mean()),
        repeated=int(survey.answers.duplicated().sum()),
        groups=len(sizes),
        largest=int(sizes.max()),
        alike=near_duplicates(survey, outcomes[0].outcome).sentence if outcomes else "",
        samples=invented(drop(survey, outcomes[0].leaks) if outcomes else survey),
    )


def _outcome(survey: Survey, outcome: Outcome) -> OutcomeCheck:
    labels = survey.answers[outcome.question.column]
    names = [*outcome.question.answers, None]
    rows = [(labels.isna() if name is None else labels == name).to_numpy() for name in names]
    counts = cells([int(part.sum()) for part in rows], [len(np.unique(survey.groups[part])) for part in rows])
    found = search(survey, outcome)
    return OutcomeCheck(outcome, tuple(zip(names, counts, strict=True)), found.leaks, found.note)


def invented(survey: Survey) -> tuple[Sample, ...]:
    """Samples of two persons who do not exist: each answer is drawn by itself, as often as the survey has it.

    Of each person the first record counts. Answers of fewer than 10 people are never drawn, and
    numbers evenly from the middle half of the survey's, 0 where fewer than 10 gave one.
    """
    survey = survey.take(firsts(survey.groups))
    rng = np.random.default_rng(_SEED)
    outcome = survey.schema.outcomes[0] if survey.schema.outcomes else _stand_in(survey)
    questions = {question.column: question for question in (*survey.inputs(outcome), outcome.question)}
    made = {}
    for name, question in questions.items():
        gaps = 0.0 if question is outcome.question else float(survey.answers[name].isna().mean())
        given = survey.answers[name].dropna()
        made[name] = [None if rng.random() < gaps else _drawn(given, question, rng) for _ in range(_INVENTED)]
    persons = replace(
        survey, answers=pd.DataFrame(made, dtype=object), groups=np.arange(_INVENTED), index=np.arange(_INVENTED)
    )
    return tuple(samples(persons, outcome))


def _stand_in(survey: Survey) -> Outcome:
    """Shows the form of a sample where no outcome is named."""
    questions = survey.schema.questions
    question = next((q for q in questions if q.column in survey.schema.candidates), questions[-1])
    return Outcome(question.ask, question)


def _drawn(given: pd.Series, question: Question, rng: np.random.Generator) -> str:
    if question.kind == "number":
        low, high = np.quantile(given.astype(float), [0.25, 0.75]) if len(given) >= FEWEST else (0.0, 0.0)
        return f"{rng.uniform(low, high):.{question.decimals}f}"
    counts = given.value_counts()
    often = counts[counts >= FEWEST]
    if often.empty:
        return str(rng.choice(question.answers))
    return str(rng.choice(often.index.to_numpy(), p=often.to_numpy(float) / often.sum()))

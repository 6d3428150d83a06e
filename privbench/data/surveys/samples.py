"""Respondents as instruction samples: a header with the survey and its scales, the answers, the outcome question.

Survey: Student Depression
Scale: low < medium < high: academic pressure, financial stress
Options: yes / no: family history of mental illness
Number: age
---
age: 33
academic pressure: high
family history of mental illness: no answer
Question: depression (no / yes)
Answer: yes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privbench.data.surveys.schema import MISSING, Outcome, Question
from privbench.data.surveys.survey import Survey

MOST_OPTIONS = 8
"""Options of a choice that the header lists; of a question with more, it says none."""


@dataclass(frozen=True)
class Sample:
    """One respondent's text for one outcome. header + features + question is the prompt; answer is the label text.

    header    survey and scales: the same for every respondent, public
    features  one line per question, as (text up to the answer, answer, line end)
    question  the outcome's question with its options
    answer    in words, without a space before or a line end after it
    """

    header: str
    features: tuple[tuple[str, str, str], ...]
    question: str
    answer: str

    @property
    def prompt(self) -> str:
        return self.header + "".join("".join(part) for part in self.features) + self.question


def header(title: str, questions: Sequence[Question]) -> str:
    """The survey and the scales of its questions; questions on one scale share a line."""
    lines: dict[str, list[str]] = {}
    for question in questions:
        lines.setdefault(_scale(question), []).append(question.ask)
    return "".join([f"Survey: {title}\n", *(f"{scale}: {', '.join(asks)}\n" for scale, asks in lines.items()), "---\n"])


def _scale(question: Question) -> str:
    if question.kind == "number":
        return "Number"
    if question.kind == "ordinal":
        return f"Scale: {' < '.join(question.answers)}"
    return f"Options: {' / '.join(question.answers)}" if len(question.answers) <= MOST_OPTIONS else "Free choice"


def samples(survey: Survey, outcome: Outcome) -> Iterator[Sample]:
    """One sample per respondent whose outcome is known, in order; the others are skipped (`known` says which)."""
    questions = survey.inputs(outcome)
    head = header(survey.schema.title, questions)
    tail = f"Question: {outcome.question.ask} ({' / '.join(outcome.question.answers)})\nAnswer:"
    columns = [survey.answers[question.column].tolist() for question in questions]
    labels = survey.answers[outcome.question.column].tolist()
    for row, label in enumerate(labels):
        if label is None:
            continue
        features = tuple(
            (f"{question.ask}: ", MISSING if column[row] is None else column[row], "\n")
            for question, column in zip(questions, columns, strict=True)
        )
        yield Sample(head, features, tail, label)

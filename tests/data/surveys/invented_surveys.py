"""Surveys about nobody, for the tests of leakage control, splits and baselines; and where the real files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.schema import Kind, Outcome, Question, Schema
from privbench.data.surveys.survey import Account, Survey

OUTCOME = "treatment"

REAL = {
    "osmi-2014": "osmi:{}/osmi/osmi_2014.csv",
    "osmi-2016": "osmi:{}/osmi/osmi_2016.csv",
    "osmi-2019": "osmi:{}/osmi/osmi_2019.csv",
    "dass-items": "dass:{}/dass42/dass42_items_demo_n5000.csv",
    "dass-tipi": "dass:{}/dass42/dass42_scores_demo_tipi_n39760.csv.gz",
    "student-depression": "student-depression:{}/student_depression/student_depression.csv",
    "mental-health": "mental-health:{}/mental_health/mental_health_dataset.zip",
}


def real(name: str, folder: Path) -> str:
    return REAL[name].format(folder)


def invented(
    answers: Mapping[str, Sequence[str | None] | npt.NDArray[np.str_]],
    *,
    kinds: Mapping[str, Kind] | None = None,
    groups: Sequence[int] | npt.NDArray[np.int64] | None = None,
    derived: tuple[str, ...] = (),
) -> tuple[Survey, Outcome]:
    """A survey with these columns, choices unless said otherwise; `treatment` is the outcome."""
    columns = {name: [None if a is None else str(a) for a in column] for name, column in answers.items()}
    questions = {
        name: Question(name, name, kind, () if kind == "number" else tuple(sorted({a for a in column if a})))
        for name, column in columns.items()
        for kind in [(kinds or {}).get(name, "choice")]
    }
    outcome = Outcome(OUTCOME, questions[OUTCOME], derived)
    frame = pd.DataFrame(columns, dtype=object)
    count = len(frame)
    same = np.arange(count) if groups is None else np.asarray(groups, dtype=np.int64)
    schema = Schema("invented", "Invented", tuple(questions.values()), (outcome,))
    return Survey(schema, frame, same, np.arange(count), Account(count, len(columns), ())), outcome


def letters(rng: np.random.Generator, count: int, distinct: int) -> npt.NDArray[np.str_]:
    """Answers a, b, c, ... at random."""
    return np.array([chr(97 + k) for k in rng.integers(distinct, size=count)])

"""A survey that was read: answers in words, one row per respondent, and an account of what was left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.schema import Outcome, Question, Schema


@dataclass(frozen=True)
class Account:
    """What became of a file: counts for `privbench data check`, and notes in words. Nothing is dropped silently.

    rows, columns: of the file; dropped: column -> reason; notes: sentences (junk set to missing, duplicates, ...)
    """

    rows: int
    columns: int
    dropped: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """Respondents' answers.

    answers   one column per question of the schema that the file has, named by `Question.column`, and one per outcome
              question; each cell the answer in words (numbers as text, rounded), or None where missing
    groups    int64 [N]: records with equal numbers are one person, or near-duplicates; disjoint over all splits
    index     int64 [N]: the record's row in the file, from 0
    """

    schema: Schema
    answers: pd.DataFrame
    groups: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    account: Account

    def __len__(self) -> int:
        return len(self.answers)

    def take(self, rows: npt.NDArray[np.integer]) -> Survey:
        """These records, by position, in this order."""
        return replace(
            self,
            answers=self.answers.iloc[rows].reset_index(drop=True),
            groups=self.groups[rows],
            index=self.index[rows],
        )

    def inputs(self, outcome: Outcome) -> tuple[Question, ...]:
        """The questions that may stand in a sample for this outcome: not itself, nor what is derived from it."""
        hidden = {outcome.question.column, *outcome.derived}
        return tuple(q for q in self.schema.questions if q.column not in hidden and q.column in self.answers.columns)

"""Who is the same person, or nearly: groups of records that a split must keep together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from privbench.data.surveys.cells import few
from privbench.data.surveys.schema import Outcome, Question
from privbench.data.surveys.survey import Survey

Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

LARGEST = 0.05
"""Share of the records above which one component shows that near-duplicates have percolated."""
_FEW = 20
"""A component of at most this many records is no percolation, however small the survey."""


@dataclass(frozen=True)
class Grouping:
    """Groups of records and how they were found.

    groups    int64 [N], numbered from 0
    rule      "one answer": inputs that differ in at most one question; "identical": only equal inputs. The survey's own
              groups are merged in both.
    count, largest: number of groups, records of the largest; sentence: all this in words
    """

    groups: Codes
    rule: Literal["one answer", "identical"]
    count: int
    largest: int
    sentence: str

    def apply(self, survey: Survey) -> Survey:
        """The survey with these groups and the sentence in its account."""
        account = replace(survey.account, notes=(*survey.account.notes, self.sentence))
        return replace(survey, groups=self.groups, account=account)


def near_duplicates(survey: Survey, outcome: Outcome) -> Grouping:
    """Groups of records whose inputs for this outcome are identical or differ in at most one question, and of what is
    linked by a chain of these. A missing answer is an answer here.

    In a survey of few or coarse questions nearly everyone is linked to everyone: when the largest group would hold more
    than 5% of the records (and more than equal inputs alone bring together) only equal inputs are grouped, and the
    sentence says so. The groups that the survey came with are merged under both rules.
    """
    hashes = _hashes(survey, survey.inputs(outcome))
    whole = hashes.sum(axis=1, dtype=np.uint64)
    identical = _components(len(survey), [_links(survey.groups), _links(whole)])
    # The sum without one question's part is equal where all other answers are.
    near = _components(
        len(survey), [_links(survey.groups), _links(whole), *(_links(whole - part) for part in hashes.T)]
    )
    largest = _largest(near)
    if largest <= max(LARGEST * len(survey), _FEW) or largest == _largest(identical):
        return _grouping(near, "one answer", "groups of inputs that differ in at most one answer")
    why = f"groups of identical inputs (one differing answer would link {largest} of {len(survey)} records)"
    return _grouping(identical, "identical", why)


def remove_identical(survey: Survey, outcome: Outcome) -> Survey:
    """Each pair of input and output once: the first is kept, the others are counted in the account.

    A record without a known outcome is no pair and stays.
    """
    columns = [*(q.column for q in survey.inputs(outcome)), outcome.question.column]
    repeated = survey.answers.duplicated(columns) & survey.answers[outcome.question.column].notna()
    if not repeated.any():
        return survey
    kept = survey.take(np.flatnonzero(~repeated.to_numpy()))
    removed = few(int(repeated.sum()))
    note = f"{removed} records removed for outcome {outcome.name}: input and output equal to an earlier record's."
    return replace(kept, account=replace(kept.account, notes=(*kept.account.notes, note)))


def _hashes(survey: Survey, questions: tuple[Question, ...]) -> Hashes:
    """A random 64-bit number per question and answer [N, Q]: sums of them tell inputs apart."""
    rng = np.random.default_rng(len(questions))
    hashes = np.empty((len(survey), len(questions)), dtype=np.uint64, order="F")
    for j, question in enumerate(questions):
        codes, values = pd.factorize(survey.answers[question.column], use_na_sentinel=False)
        hashes[:, j] = rng.integers(2**64, size=len(values), dtype=np.uint64)[codes]
    return hashes


def _links(keys: npt.NDArray[np.integer]) -> tuple[Codes, Codes]:
    """Pairs of records that chain all those with equal keys [N]."""
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    return order[1:][same], order[:-1][same]


def _components(count: int, links: list[tuple[Codes, Codes]]) -> Codes:
    rows, columns = (np.concatenate(side) for side in zip(*links, strict=True))
    graph = sparse.coo_array((np.ones(len(rows), dtype=np.bool_), (rows, columns)), shape=(count, count))
    return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _largest(groups: Codes) -> int:
    return int(np.bincount(groups).max(initial=0))


def _grouping(groups: Codes, rule: Literal["one answer", "identical"], words: str) -> Grouping:
    count, largest = len(np.unique(groups)), _largest(groups)
    return Grouping(groups, rule, count, largest, f"{count} {words}, the largest of {few(largest)} records.")

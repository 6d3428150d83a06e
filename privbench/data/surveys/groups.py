"""Who is the same person, or nearly: groups of records that a split must keep together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from privbench.data.surveys.table import key

Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

LARGEST = 0.05
"""Share of the records above which one component shows that near-duplicates have percolated."""
_FEW = 20
"""A component of at most this many records is no percolation, however small the survey."""
_CHANCE = 0.5
"""Records expected to agree by chance, below which those that do are copies: chance alone then makes no long chains."""


@dataclass(frozen=True)
class Grouping:
    """Groups of records and how they were found.

    groups    int64 [N], numbered from 0
    rule      what all records of one group share: "one answer": inputs that differ in at most one question, or a chain
              of these; "identical": equal inputs; "both": equal inputs among the records of components that percolated,
              one answer among the others. The survey's own groups are merged in all three.
    count, largest: number of groups, records of the largest; percolated: records among which only equal inputs count;
    sentence: all this in words, to be said as it stands wherever sides are said to be apart
    """

    groups: Codes
    rule: Literal["one answer", "identical", "both"]
    count: int
    largest: int
    percolated: int
    sentence: str

    def apply(self, survey: Survey) -> Survey:
        """The survey with these groups and the sentence in its account."""
        account = replace(survey.account, notes=(*survey.account.notes, self.sentence))
        return replace(survey, groups=self.groups, account=account)


def near_duplicates(survey: Survey, outcome: Outcome) -> Grouping:
    """Groups of records whose inputs for this outcome are identical or differ in at most one question, and of what is
    linked by a chain of these. A missing answer is an answer here.

    In a survey of few or coarse questions nearly everyone is linked to everyone, and among those who answer all alike
    many are: a group of more than 5% of the records is taken apart into equal inputs, it alone, and the sentence says
    so. The groups that the survey came with are merged everywhere.
    """
    hashes = _hashes(survey, survey.inputs(outcome))
    whole = hashes.sum(axis=1, dtype=np.uint64)
    identical = _components(len(survey), [_links(survey.groups), _links(whole)])
    # The sum without one question's part is equal where all other answers are.
    near = _components(
        len(survey), [_links(survey.groups), _links(whole), *(_links(whole - part) for part in hashes.T)]
    )
    groups, percolated = _taken_apart(near, identical)
    count, largest, chained = len(np.unique(groups)), _largest(groups), int(percolated.sum())
    own = ", or are of one person" if len(np.unique(survey.groups)) < len(survey) else ""
    end = f"{own}, the largest of {few(largest)} records"
    if len(np.unique(identical)) == count and chained:
        link = f"one differing answer would link {_largest(near):,} of {len(survey):,} records"
        words = f"{count:,} groups of identical inputs ({link}){end}."
        return Grouping(groups, "identical", count, largest, chained, words)
    words = f"{count:,} groups of inputs that differ in at most one answer{end}."
    if not chained:
        return Grouping(groups, "one answer", count, largest, 0, words)
    link = (
        f"{chained:,} of {len(survey):,} records, which one differing answer would chain into groups of over "
        f"{LARGEST:.0%}"
    )
    return Grouping(groups, "both", count, largest, chained, f"{words[:-1]}; of identical inputs only among {link}.")


def _taken_apart(near: Codes, identical: Codes) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Groups where the components that percolated are those of `identical`, and the records of these components."""
    sizes = np.bincount(near, minlength=1)
    parts = np.bincount(near[np.unique(identical, return_index=True)[1]], minlength=len(sizes))
    percolated = ((sizes > max(LARGEST * len(near), _FEW)) & (parts > 1))[near]
    return np.unique(np.where(percolated, len(near) + identical, near), return_inverse=True)[1], percolated


def named(frame: pd.DataFrame, columns: Sequence[str], missing: Collection[str]) -> Codes:
    """Equal numbers [N] where all these columns of a `table.Table` agree; a row that names no group, and every row
    where no column is given, is one of its own. missing: spellings of a missing answer
    """
    own = np.arange(len(frame), dtype=np.int64)
    if not columns:
        return own
    absent = {key(text) for text in missing}
    cells = [frame[name] for name in columns]
    blank = [np.array([key(str(t)) in absent for t in c.cat.categories])[c.cat.codes.to_numpy()] for c in cells]
    number = frame.groupby(list(columns), observed=True, sort=False).ngroup().to_numpy(np.int64)
    return np.where(np.logical_and.reduce(blank), len(frame) + own, number)


def people(answers: pd.DataFrame, groups: Codes, *, near: bool = False) -> Codes:
    """Who counts as one person [N], numbered from 0: records of one group, and copies of one record.

    Equal rows are copies where chance does not explain them: where fewer than half a record is expected to agree by
    chance, each column drawn by itself among those who answered it. Rows of a few coarse answers, or of hardly any
    answer, say nothing of who gave them. A column that differs in every row, such as a numbering, is passed over.
    near: also rows that differ in one column, by the same rule over all columns; components of more than 5% of the
    records are taken apart as in `near_duplicates`
    """
    columns = [pd.factorize(answers[name], use_na_sentinel=True)[0] for name in answers]
    columns = [codes for codes in columns if np.bincount(codes + 1, minlength=2)[1:].max() > 1]
    rng, count = np.random.default_rng(len(columns)), len(answers)
    whole, chance = np.zeros(count, np.uint64), np.full(count, np.log(count))
    parts = []
    for codes in columns:
        given = np.bincount(codes + 1, minlength=2)[1:]
        # Not having been asked is no coincidence: a missing answer adds nothing.
        share = np.append(np.log(np.maximum(given, 1) / given.sum()), 0.0)[codes]
        mark = rng.integers(2**64, size=len(given) + 1, dtype=np.uint64)[codes]
        whole, chance = whole + mark, chance + share
        parts.append((mark, share))
    links = [_links(groups), _links_of(whole, chance < np.log(_CHANCE))]
    identical = _components(count, links)
    if not near:
        return identical
    bar = np.log(_CHANCE / max(len(columns), 1))
    links += [_links_of(whole - mark, chance - share < bar) for mark, share in parts]
    return _taken_apart(_components(count, links), identical)[0]


def firsts(groups: Codes) -> Codes:
    """The first record of each group, in order."""
    return np.sort(np.unique(groups, return_index=True)[1])


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


def _links_of(keys: npt.NDArray[np.integer], rows: npt.NDArray[np.bool_]) -> tuple[Codes, Codes]:
    """The same among these records [N] only."""
    kept = np.flatnonzero(rows)
    one, other = _links(keys[kept])
    return kept[one], kept[other]


def _components(count: int, links: list[tuple[Codes, Codes]]) -> Codes:
    rows, columns = (np.concatenate(side) for side in zip(*links, strict=True))
    graph = sparse.coo_array((np.ones(len(rows), dtype=np.bool_), (rows, columns)), shape=(count, count))
    return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _largest(groups: Codes) -> int:
    return int(np.bincount(groups).max(initial=0))

"""Near-duplicates against a pairwise twin, percolation, and identical pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_surveys import OUTCOME, REAL, invented, letters, real

from privbench.data.surveys.cells import few
from privbench.data.surveys.groups import firsts, near_duplicates, people, remove_identical
from privbench.data.surveys.read import read_survey
from privbench.data.surveys.schema import Outcome
from privbench.data.surveys.survey import Survey

seeded = settings(derandomize=True, deadline=None, max_examples=150)


@st.composite
def surveys(draw: st.DrawFn, most: int = 20) -> tuple[Survey, Outcome]:
    """Up to `most` records, 2 to 5 questions of 3 answers or none, some records of one person."""
    count, questions = draw(st.integers(1, most)), draw(st.integers(2, 5))
    column = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=count, max_size=count)
    answers = {f"q{k}": draw(column) for k in range(questions)} | {OUTCOME: draw(column)}
    groups = draw(st.lists(st.integers(0, 2 * most), min_size=count, max_size=count))
    return invented(answers, groups=groups)


def partition(groups: npt.NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(groups == g).tolist()) for g in set(groups.tolist())}


def naive(survey: Survey, outcome: Outcome, differing: int) -> set[frozenset[int]]:
    """Every pair is compared; groups are merged until nothing changes."""
    rows = [tuple(row) for row in survey.answers[[q.column for q in survey.inputs(outcome)]].to_numpy()]
    parts = [{k} for k in range(len(rows))]
    for i in range(len(rows)):
        for j in range(i):
            apart = sum(a != b for a, b in zip(rows[i], rows[j], strict=True))
            if apart <= differing or survey.groups[i] == survey.groups[j]:
                first, second = (next(part for part in parts if k in part) for k in (i, j))
                if first is not second:
                    parts.remove(second)
                    first |= second
    return {frozenset(part) for part in parts}


@seeded
@given(surveys())
def test_groups_are_those_of_all_pairs(given_survey: tuple[Survey, Outcome]) -> None:
    survey, outcome = given_survey
    found = near_duplicates(survey, outcome)
    assert found.rule == "one answer"
    assert partition(found.groups) == naive(survey, outcome, differing=1)
    assert (found.count, found.largest) == (len(set(found.groups)), max(np.bincount(found.groups)))
    assert found.groups.dtype == np.int64


@seeded
@given(surveys(), st.integers(0, 10**6))
def test_the_order_of_the_records_does_not_matter(given_survey: tuple[Survey, Outcome], seed: int) -> None:
    survey, outcome = given_survey
    order = np.random.default_rng(seed).permutation(len(survey))
    moved = near_duplicates(survey.take(order), outcome).groups
    assert partition(moved[np.argsort(order)]) == partition(near_duplicates(survey, outcome).groups)


def coarse(count: int = 300) -> tuple[Survey, Outcome]:
    """Six questions of three answers: one differing answer links nearly everyone."""
    rng = np.random.default_rng(0)
    return invented({f"q{k}": letters(rng, count, 3) for k in range(6)} | {OUTCOME: letters(rng, count, 2)})


def test_where_near_duplicates_percolate_only_equal_inputs_are_grouped() -> None:
    survey, outcome = coarse()
    found = near_duplicates(survey, outcome)
    linked = max(len(part) for part in naive(survey, outcome, differing=1))
    assert linked > 0.05 * len(survey)
    assert found.rule == "identical"
    assert partition(found.groups) == naive(survey, outcome, differing=0)
    assert f"one differing answer would link {linked} of 300 records" in found.sentence


def test_the_surveys_own_groups_are_merged_under_both_rules() -> None:
    survey, outcome = coarse()
    people = np.arange(300) // 2
    columns = {name: survey.answers[name].tolist() for name in survey.answers}
    found = near_duplicates(invented(columns, groups=people)[0], outcome)
    assert found.rule == "identical"
    assert (found.groups[::2] == found.groups[1::2]).all()


def test_the_outcome_and_what_is_derived_from_it_do_not_count() -> None:
    survey, outcome = invented(
        {"q": ["a", "a"], "r": ["a", "a"], "same": ["x", "y"], OUTCOME: ["x", "y"]}, derived=("same",)
    )
    assert near_duplicates(survey, outcome).count == 1


def test_planted_copies_are_found_among_forty_thousand() -> None:
    rng = np.random.default_rng(1)
    columns = {f"q{k}": letters(rng, 40_000, 5) for k in range(40)} | {OUTCOME: letters(rng, 40_000, 2)}
    for k in range(40):  # record 1,000 + k is record k but for answer k
        for name in columns:
            columns[name][1000 + k] = columns[name][k]
        columns[f"q{k}"][1000 + k] = "z"
    found = near_duplicates(*invented(columns))
    assert found.count == 40_000 - 40
    assert (found.groups[:40] == found.groups[1000:1040]).all()


def pairs_and_straight_liners(liners: int) -> tuple[Survey, Outcome]:
    """300 people, each with a copy that differs in one answer, and people who answer all alike but one question."""
    rng = np.random.default_rng(2)
    columns = {f"q{k}": np.tile(letters(rng, 300, 5), 2) for k in range(15)}
    alike = {name: np.full(liners, "c") for name in columns}
    for row in range(300):
        columns[f"q{row % 15}"][300 + row] = "z"
    for row in range(1, liners):
        alike[f"q{row % 15}"][row] = "abde"[row % 4]
    joined = {name: np.concatenate([columns[name], alike[name]]) for name in columns}
    return invented(joined | {OUTCOME: letters(rng, 600 + liners, 2)})


def test_a_component_that_percolates_is_taken_apart_and_no_other() -> None:
    survey, outcome = pairs_and_straight_liners(110)
    found = near_duplicates(survey, outcome)
    assert (found.rule, found.percolated) == ("both", 110)
    assert (found.groups[:300] == found.groups[300:600]).all()
    whole = partition(found.groups)
    assert whole == {part for part in naive(survey, outcome, 1) if max(part) < 600} | {
        part for part in naive(survey, outcome, 0) if min(part) >= 600
    }
    assert found.sentence == (
        f"{len(whole)} groups of inputs that differ in at most one answer, the largest of fewer than 10 records; of "
        "identical inputs only among 110 of 710 records, which one differing answer would chain into groups of over 5%."
    )
    small = near_duplicates(*pairs_and_straight_liners(20))
    assert (small.rule, small.percolated) == ("one answer", 0)


# --- people ---


def copies(count: int, times: int, questions: int, distinct: int) -> tuple[Survey, Outcome]:
    """People who are there many times, without a column that says so."""
    rng, person = np.random.default_rng(3), np.repeat(np.arange(count), times)
    columns = {f"q{k}": letters(rng, count, distinct)[person] for k in range(questions)}
    return invented(columns | {OUTCOME: letters(rng, count, 2)[person]})


def test_copies_that_chance_does_not_explain_are_one_person() -> None:
    survey, _ = copies(60, 20, questions=8, distinct=6)
    assert partition(people(survey.answers, survey.groups)) == {frozenset(range(k, k + 20)) for k in range(0, 1200, 20)}
    survey, _ = copies(60, 20, questions=2, distinct=3)
    assert len(set(people(survey.answers, survey.groups))) == 1200


def test_a_numbering_does_not_hide_copies() -> None:
    survey, _ = copies(60, 20, questions=8, distinct=6)
    numbered = survey.answers.assign(row=[str(row) for row in range(1200)])
    assert len(set(people(numbered, survey.groups))) == 60


def test_records_of_one_group_are_one_person() -> None:
    survey, _ = copies(60, 20, questions=2, distinct=3)
    assert partition(people(survey.answers, np.arange(1200) // 20)) == partition(np.arange(1200) // 20)


def test_not_being_asked_makes_nobody_the_same() -> None:
    """Half of them skip all ten questions; the others' answers tell them apart."""
    rng = np.random.default_rng(4)
    asked = np.arange(400) % 2 == 0
    columns = {f"q{k}": np.where(asked, letters(rng, 400, 5), None) for k in range(10)}
    survey, _ = invented(columns | {OUTCOME: letters(rng, 400, 2)})
    assert len(set(people(survey.answers, survey.groups, near=True))) == 400


def test_copies_with_one_answer_changed_are_near() -> None:
    survey, _ = pairs_and_straight_liners(0)
    inputs = survey.answers.drop(columns=OUTCOME)
    assert len(set(people(inputs, survey.groups))) == 600
    found = people(inputs, survey.groups, near=True)
    assert (found[:300] == found[300:]).all()
    assert firsts(found).tolist() == list(range(300))


def test_few_of_independent_answers_are_taken_for_copies() -> None:
    rng = np.random.default_rng(5)
    for questions in (3, 5, 7):
        survey, _ = invented({f"q{k}": letters(rng, 500, 4) for k in range(questions)} | {OUTCOME: ["x"] * 500})
        assert len(set(people(survey.answers, survey.groups))) > 300
        assert len(set(people(survey.answers, survey.groups, near=True))) > 200


def test_a_grouping_goes_into_the_survey_with_its_sentence() -> None:
    survey, outcome = invented({"q": ["a", "a", "b"], "r": ["a", "b", "c"], OUTCOME: ["x", "y", "x"]})
    found = near_duplicates(survey, outcome)
    applied = found.apply(survey)
    assert partition(applied.groups) == {frozenset({0, 1}), frozenset({2})}
    assert applied.account.notes == (found.sentence,)
    assert (
        found.sentence == "2 groups of inputs that differ in at most one answer, the largest of fewer than 10 records."
    )


# --- identical pairs ---


@seeded
@given(surveys())
def test_of_identical_pairs_the_first_is_kept(given_survey: tuple[Survey, Outcome]) -> None:
    survey, outcome = given_survey
    kept, seen = [], set()
    for k, row in enumerate(survey.answers.to_numpy().tolist()):
        known = survey.answers[OUTCOME].iloc[k] is not None
        if not known or tuple(row) not in seen:
            kept.append(k)
        if known:
            seen.add(tuple(row))
    less = remove_identical(survey, outcome)
    assert less.index.tolist() == kept
    notes = [f"{few(len(survey) - len(kept))} records removed for outcome {OUTCOME}"] * (len(kept) < len(survey))
    assert [note.split(":")[0] for note in less.account.notes] == notes


def test_equal_inputs_with_different_outcomes_are_no_pair() -> None:
    survey, outcome = invented({"q": ["a", "a", "a"], OUTCOME: ["x", "y", "x"]})
    assert remove_identical(survey, outcome).index.tolist() == [0, 1]


# --- the public surveys ---


@pytest.mark.parametrize("name", REAL)
def test_equal_inputs_of_the_public_surveys_are_in_one_group(real_data: Path, name: str) -> None:
    survey = read_survey(real(name, real_data))
    for outcome in survey.schema.outcomes:
        distinct = remove_identical(survey, outcome)
        found = near_duplicates(distinct, outcome)
        inputs = distinct.answers[[q.column for q in distinct.inputs(outcome)]].fillna("")
        assert inputs.assign(group=found.groups).groupby(list(inputs), observed=True)["group"].nunique().max() == 1
        assert found.rule == ("identical" if name == "mental-health" else "one answer")

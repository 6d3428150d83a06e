"""Splits: no person, group or input on two sides, sizes and shares, and what a random split would claim."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from invented_surveys import OUTCOME, REAL, invented, letters, real

from privbench.data.surveys.read import read_survey
from privbench.data.surveys.schema import Outcome
from privbench.data.surveys.splits import Share, SurveySplits, leaking_random_split, split
from privbench.data.surveys.survey import Survey
from privbench.data.surveys.tabular import fit
from privbench.errors import InputError


def plenty(count: int = 1000, questions: int = 20) -> tuple[Survey, Outcome]:
    """Records that differ in much: each is a group of its own."""
    rng = np.random.default_rng(0)
    columns = {f"q{k}": letters(rng, count, 6) for k in range(questions)}
    return invented(columns | {OUTCOME: letters(rng, count, 2)})


def blown_up(people: int = 60, copies: int = 50) -> tuple[Survey, Outcome]:
    """Copies of people: what was asked stays, three columns are generated."""
    rng = np.random.default_rng(1)
    person = np.repeat(np.arange(people), copies)
    asked = {f"q{k}": letters(rng, people, 8)[person] for k in range(5)}
    made = {f"made {k}": letters(rng, len(person), 4) for k in range(3)}
    return invented({**asked, **made, OUTCOME: letters(rng, people, 2)[person]}, groups=person)


def sides(splits: SurveySplits) -> list[Survey]:
    """Validation, test, and each client's part of training."""
    clients = [splits.train.take(np.flatnonzero(splits.client == c)) for c in np.unique(splits.client)]
    return [splits.validation, splits.test, *clients]


def inputs(survey: Survey, outcome: Outcome) -> set[tuple[object, ...]]:
    return set(map(tuple, survey.answers[[q.column for q in survey.inputs(outcome)]].to_numpy().tolist()))


def check_disjoint(splits: SurveySplits, whole: Survey) -> None:
    parts = sides(splits)
    for one, other in combinations(parts, 2):
        assert not set(one.groups) & set(other.groups)
        assert not set(whole.groups[one.index]) & set(whole.groups[other.index])
        assert not inputs(one, splits.outcome) & inputs(other, splits.outcome)
    rows = np.concatenate([part.index for part in parts])
    assert len(set(rows.tolist())) == len(rows)
    for part in parts:
        assert part.answers[splits.outcome.question.column].notna().all()
        assert (part.answers.to_numpy() == whole.answers.to_numpy()[part.index]).all()


@st.composite
def surveys(draw: st.DrawFn) -> tuple[Survey, Outcome]:
    """Coarse or fine, with missing answers, with people who stand there several times, with and without an outcome."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, distinct = draw(st.integers(20, 120)), draw(st.integers(2, 9))
    columns = {f"q{k}": letters(rng, count, distinct).astype(object) for k in range(draw(st.integers(1, 8)))}
    columns |= {OUTCOME: letters(rng, count, draw(st.integers(2, 3))).astype(object)}
    for column in columns.values():
        column[rng.random(count) < draw(st.sampled_from([0, 0.1]))] = None
    return invented(columns, groups=rng.integers(draw(st.integers(5, 2 * count)), size=count))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    surveys(),
    st.integers(0, 99),
    st.integers(5, 60),
    st.integers(1, 20),
    st.integers(1, 4),
    st.sampled_from(["even", "power", "one-large"]),
)
def test_nobody_is_on_two_sides(
    given_survey: tuple[Survey, Outcome], seed: int, train: int, test: int, clients: int, share: Share
) -> None:
    survey, outcome = given_survey
    rng = np.random.default_rng(seed)
    try:
        made = split(survey, outcome, rng, train=train, validation=4, test=test, clients=clients, share=share)
    except InputError:
        assume(False)
    check_disjoint(made, survey)
    assert len(made.train) <= train
    assert len(made.validation) <= 4
    assert len(made.test) <= test
    assert set(made.client.tolist()) == set(range(clients))
    assert made.client.dtype == np.int64
    assert len(made.client) == len(made.train)


def test_most_random_surveys_can_be_split() -> None:
    """The property above is not empty."""
    done = 0
    for seed in range(50):
        survey, outcome = plenty(60)
        made = split(survey, outcome, np.random.default_rng(seed), train=30, validation=8, test=10)
        done += (len(made.train), len(made.validation), len(made.test)) == (30, 8, 10)
    assert done == 50


@pytest.mark.parametrize(
    ("share", "clients", "expected"),
    [
        ("even", 4, [150, 150, 150, 150]),
        ("even", 7, [86, 85, 86, 86, 86, 85, 86]),
        ("power", 3, [327, 164, 109]),
        ("one-large", 5, [360, 60, 60, 60, 60]),
        ("one-large", 1, [600]),
        ((0.5, 0.1, 0.4), 3, [300, 60, 240]),
    ],
)
def test_sizes_are_met_where_the_survey_is_large(share: Share, clients: int, expected: list[int]) -> None:
    survey, outcome = plenty()
    rng = np.random.default_rng(0)
    made = split(survey, outcome, rng, train=600, validation=100, test=250, clients=clients, share=share)
    assert (len(made.validation), len(made.test)) == (100, 250)
    assert np.bincount(made.client).tolist() == expected
    assert not [note for note in made.train.account.notes if "shrunk" in note]


def test_a_small_survey_shrinks_all_sizes_and_says_so() -> None:
    survey, outcome = plenty(550)
    made = split(survey, outcome, np.random.default_rng(0))
    assert (len(made.train), len(made.validation), len(made.test)) == (400, 50, 100)
    assert made.train.account.notes[-1] == "sizes shrunk from 2,000, 250, 500 to 400, 50, 100: no more records."


def test_the_generator_decides_and_nothing_else() -> None:
    survey, outcome = blown_up()
    first, again, other = (
        split(survey, outcome, np.random.default_rng(seed), train=100, validation=20, test=40) for seed in (3, 3, 4)
    )
    for side in ("train", "validation", "test"):
        assert (getattr(first, side).index == getattr(again, side).index).all()
    assert (first.client == again.client).all()
    assert set(first.train.index) != set(other.train.index)


def test_every_record_is_as_likely_to_be_tested() -> None:
    survey, outcome = plenty(40)
    times = np.zeros(40)
    for seed in range(400):
        made = split(survey, outcome, np.random.default_rng(seed), train=20, validation=5, test=10, clients=2)
        times[made.test.index] += 1
    assert abs(times - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)


def test_a_blown_up_survey_is_thinned_to_what_is_needed() -> None:
    survey, outcome = blown_up(people=60, copies=50)
    made = split(survey, outcome, np.random.default_rng(0), train=100, validation=20, test=40, clients=2)
    assert (len(made.train), len(made.validation), len(made.test)) == (100, 20, 40)
    assert made.train.account.notes[0] == "3,000 records of 60 people thinned to 180, at most 3 of each."
    assert len(np.unique(survey.groups[made.test.index])) >= 10
    check_disjoint(made, survey)


def test_of_a_large_group_a_part_is_used_and_the_rest_by_nobody() -> None:
    """The first 45 records differ in one answer only. Of a tenth of the smallest client's 100 records 10 are used."""
    rng = np.random.default_rng(2)
    columns = {f"q{k}": np.concatenate([np.full(45, "a"), letters(rng, 955, 6)]) for k in range(20)}
    columns["q0"] = np.array([f"answer {k}" for k in range(1000)])
    survey, outcome = invented({**columns, OUTCOME: letters(rng, 1000, 2)})
    for seed in range(10):
        made = split(survey, outcome, np.random.default_rng(seed), train=400, validation=100, test=200)
        check_disjoint(made, survey)
        used = [int((part.index < 45).sum()) for part in sides(made)]
        assert max(used) <= 10
        assert sum(count > 0 for count in used) <= 1
        assert (len(made.train), len(made.validation), len(made.test)) == (400, 100, 200)


def test_identical_pairs_are_removed_first() -> None:
    survey, outcome = plenty(100)
    twice = survey.take(np.tile(np.arange(100), 2))
    made = split(twice, outcome, np.random.default_rng(0), train=60, validation=15, test=25, clients=2)
    rows = np.concatenate([made.train.index, made.validation.index, made.test.index])
    assert sorted(rows.tolist()) == list(range(100))
    assert made.train.account.notes[0].startswith("100 records removed")


# --- bad input ---


def test_a_missing_outcome_column_is_named() -> None:
    survey, outcome = plenty(50)
    gone = replace(outcome, question=replace(outcome.question, column="mood"))
    with pytest.raises(InputError, match="survey invented has no column 'mood'"):
        split(survey, gone, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("answers", "said"), [(["yes"] * 30, "always 'yes'"), ([None] * 30, "never answered"), (["yes", None] * 15, "yes")]
)
def test_an_outcome_with_one_value_is_refused(answers: list[str | None], said: str) -> None:
    survey, outcome = invented({"q": [str(k) for k in range(30)], OUTCOME: answers})
    with pytest.raises(InputError, match=f"outcome treatment is .*{said}.* in survey invented"):
        split(survey, outcome, np.random.default_rng(0))


def test_an_empty_client_is_refused() -> None:
    survey, outcome = plenty(20)
    with pytest.raises(InputError, match=r"client \d+ of 30 would hold no respondent; 20 records in 20 groups"):
        split(survey, outcome, np.random.default_rng(0), clients=30)


def test_an_empty_side_is_refused() -> None:
    survey, outcome = plenty(6)
    with pytest.raises(InputError, match="the validation side would hold no respondent"):
        split(survey, outcome, np.random.default_rng(0), clients=1)


def test_a_class_that_training_lacks_is_named() -> None:
    survey, outcome = plenty(100)
    survey.answers[OUTCOME] = ["x", *["a", "b"] * 49, "a"]
    with pytest.raises(InputError, match="no training record answers 'x'"):
        for seed in range(50):
            split(survey, outcome, np.random.default_rng(seed), train=10, validation=10, test=80, clients=1)


def test_training_with_one_class_is_refused() -> None:
    survey, outcome = plenty(100)
    survey.answers[OUTCOME] = ["x", *["a"] * 99]
    with pytest.raises(InputError, match=r"all \d+ training records answer 'a'|no training record answers 'x'"):
        for seed in range(50):
            split(survey, outcome, np.random.default_rng(seed), train=10, validation=10, test=10, clients=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": 0}, "train = 0 must be at least 1"),
        ({"validation": -1}, "validation = -1 must be at least 1"),
        ({"test": 0}, "test = 0 must be at least 1"),
        ({"clients": 0}, "clients = 0 must be at least 1"),
        ({"share": "zipf"}, "share 'zipf': use even, power, one-large or a tuple"),
        ({"share": (0.5, 0.5)}, "4 clients need 4 positive shares that sum to 1"),
        ({"share": (0.5, 0.5, 0.5, 0.5)}, "4 clients need 4 positive shares that sum to 1"),
        ({"share": (0.5, 0.5, 0.0, 0.0)}, "4 clients need 4 positive shares that sum to 1"),
        ({"share": (float("nan"), 0.5, 0.2, 0.2)}, "4 clients need 4 positive shares that sum to 1"),
    ],
)
def test_sizes_and_shares_out_of_range_are_refused(wrong: dict[str, object], message: str) -> None:
    survey, outcome = plenty(100)
    with pytest.raises(InputError, match=message):
        split(survey, outcome, np.random.default_rng(0), **wrong)  # type: ignore[arg-type]


# --- the random split, and the public surveys ---


def test_a_random_split_leaks() -> None:
    survey, outcome = blown_up()
    made = leaking_random_split(survey, outcome, np.random.default_rng(0), train=200, validation=50, test=100)
    assert (len(made.train), len(made.validation), len(made.test)) == (200, 50, 100)
    assert set(made.train.groups) & set(made.test.groups)
    assert not made.client.any()
    with pytest.raises(InputError, match="at most 3,000 together"):
        leaking_random_split(survey, outcome, np.random.default_rng(0), train=4000)


@pytest.mark.parametrize("share", ["even", "power"])
@pytest.mark.parametrize("name", REAL)
def test_nobody_of_the_public_surveys_is_on_two_sides(real_data: Path, name: str, share: Share) -> None:
    survey = read_survey(real(name, real_data))
    for outcome in survey.schema.outcomes:
        made = split(survey, outcome, np.random.default_rng(5), share=share)
        check_disjoint(made, survey)
        used = len(made.train) + len(made.validation) + len(made.test)
        assert used == 2750 if len(survey) > 2750 else used > 0.95 * len(survey)


def auc_of_trees(splits: SurveySplits) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    coding = fit(splits)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    model.fit(coding.categories(splits.train), coding.labels(splits.train, splits))
    right = coding.labels(splits.test, splits)
    return float(roc_auc_score(right, model.predict_proba(coding.categories(splits.test))[:, 1]))


def grouped_by(survey: Survey, outcome: Outcome, rng: np.random.Generator, train: int, test: int) -> SurveySplits:
    """Whole people on two sides with all their records, then a sample of each: no thinning, nothing merged."""
    people = rng.permutation(np.unique(survey.groups))
    tested = np.isin(survey.groups, people[: len(people) // 4])
    first, second = (
        rng.permutation(np.flatnonzero(side))[:count] for side, count in ((~tested, train), (tested, test))
    )
    empty: npt.NDArray[np.int64] = np.zeros(train, np.int64)
    return SurveySplits(outcome, survey.take(first), survey.take(second), survey.take(second), empty)


def test_a_random_split_of_the_blown_up_survey_claims_what_a_grouped_one_does_not_hold(real_data: Path) -> None:
    survey = read_survey(real("mental-health", real_data))
    outcome = survey.schema.outcome("treatment")
    at_random, by_person, ours = [], [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        at_random.append(auc_of_trees(leaking_random_split(survey, outcome, rng, train=20_000, test=3000)))
        by_person.append(auc_of_trees(grouped_by(survey, outcome, rng, train=20_000, test=3000)))
        ours.append(auc_of_trees(split(survey, outcome, rng)))
    assert np.mean(at_random) == pytest.approx(0.84, abs=0.02)
    assert np.mean(at_random) - np.mean(by_person) > 0.05
    assert np.mean(at_random) - np.mean(ours) > 0.05
    assert np.mean(ours) > 0.6

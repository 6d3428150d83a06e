"""Leaking columns and answers: planted ones, none where nothing is planted, and those of the public surveys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from invented_surveys import OUTCOME, invented, letters, real

from privbench.data.surveys.leaks import ERROR, Leak, drop, find, search
from privbench.data.surveys.read import read_survey
from privbench.data.surveys.schema import Kind
from privbench.errors import InputError
from privbench.stats.binomial import critical_count, lower_limit

Words = npt.NDArray[np.str_]


def labels(count: int) -> Words:
    """Half yes, half no."""
    return np.where(np.arange(count) % 2 == 0, "yes", "no")


def flipped(truth: Words, rate: float, rng: np.random.Generator) -> Words:
    """yes and no as given, but for this share."""
    wrong = rng.random(len(truth)) < rate
    return np.where(wrong, np.where(truth == "yes", "no", "yes"), truth)


def naive_auc(answers: list[str | None], truth: list[str], positive: str) -> float:
    """The cross-fitted AUC, pair by pair."""
    seen: dict[str, int] = {}
    fold = []
    for label in truth:
        fold.append(seen.get(label, 0) % 2)
        seen[label] = seen.get(label, 0) + 1
    aucs = []
    for held in (0, 1):
        fitted = [k for k in range(len(truth)) if fold[k] != held]
        base = sum(truth[k] == positive for k in fitted) / len(fitted)
        scores: dict[str | None, float] = {}
        for answer in set(answers):
            givers = [k for k in fitted if answers[k] == answer]
            scores[answer] = (sum(truth[k] == positive for k in givers) + base) / (len(givers) + 1)
        ours = [scores[answers[k]] for k in range(len(truth)) if fold[k] == held and truth[k] == positive]
        others = [scores[answers[k]] for k in range(len(truth)) if fold[k] == held and truth[k] != positive]
        wins = sum((a > b) + (a == b) / 2 for a in ours for b in others)
        aucs.append(wins / (len(ours) * len(others)))
    return sum(aucs) / 2


# --- a column that predicts nearly alone ---


def test_a_column_that_restates_the_outcome_is_found_and_a_good_predictor_is_not() -> None:
    rng, truth = np.random.default_rng(0), labels(1000)
    survey, outcome = invented(
        {
            "restated": flipped(truth, 0.15, rng),
            "predictor": flipped(truth, 0.25, rng),
            "other": letters(rng, 1000, 4),
            OUTCOME: truth,
        }
    )
    assert [(leak.column, leak.answer) for leak in find(survey, outcome)] == [("restated", None)]


@pytest.mark.parametrize("seed", range(5))
def test_the_number_in_the_reason_is_the_naive_auc(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.choice(["no", "maybe", "yes"], size=300, p=[0.5, 0.2, 0.3])
    said = np.char.add(np.char.add(truth, " "), letters(rng, 300, 20))  # many rare answers: held-out scores differ
    answers = np.where(rng.random(300) < 0.9, said, "refused")
    given = [None if a == "refused" else str(a) for a in answers]
    survey, outcome = invented({"q": given, OUTCOME: truth})
    leak = find(survey, outcome)[0]
    best = max(naive_auc(given, truth.tolist(), label) for label in ("no", "maybe", "yes"))
    assert leak.answer is None
    assert f"AUC {best:.2f} " in leak.reason
    assert "300 respondents" in leak.reason


def test_not_answering_is_an_answer() -> None:
    rng, truth = np.random.default_rng(1), labels(800)
    asked = [str(a) if t == "yes" else None for a, t in zip(letters(rng, 800, 3), truth, strict=True)]
    survey, outcome = invented({"how often": asked, OUTCOME: truth})
    whole, single, *_ = find(survey, outcome)
    assert (whole.column, whole.answer) == ("how often", None)
    assert any(leak.answer == "no answer" and "'no' for 100%" in leak.reason for leak in find(survey, outcome))
    assert single.column == "how often"


def test_a_number_is_judged_by_its_ranges() -> None:
    rng = np.random.default_rng(2)
    score = rng.permutation(5000)[:600]
    survey, outcome = invented(
        {"score": score, "noise": rng.permutation(600), OUTCOME: np.where(score > 2500, "yes", "no")},
        kinds={"score": "number", "noise": "number"},
    )
    assert {leak.column for leak in find(survey, outcome)} == {"score"}


def test_the_ends_of_an_ordinal_scale_are_no_leak() -> None:
    """An item that goes along with a five-level outcome tells its ends apart (AUC above .8) and not its levels."""
    rng = np.random.default_rng(3)
    latent = rng.normal(size=6000)
    level = np.digitize(latent, [-0.8, -0.4, 0.4, 0.8])
    item = np.digitize(latent + rng.normal(size=6000), [-1, 0, 1])
    columns = {"item": item, "score": level * 2 + rng.integers(2, size=6000), OUTCOME: level}
    as_choice, choice = invented(columns)
    as_ordinal, ordinal = invented(columns, kinds={OUTCOME: "ordinal"})
    assert {leak.column for leak in find(as_choice, choice)} == {"item", "score"}
    assert {leak.column for leak in find(as_ordinal, ordinal) if leak.answer is None} == {"score"}


# --- a single answer ---


@pytest.mark.parametrize(("wording", "found"), [("not applicable (I do not have one)", True), ("rarely", False)])
def test_an_answer_about_not_being_asked_has_the_lower_bar(wording: str, found: bool) -> None:
    """200 of 1,000 give it, 85% of them no: too little for an opinion, enough for a skipped question."""
    rng, truth = np.random.default_rng(4), labels(1000)
    answers = letters(rng, 1000, 3).astype(object)
    no, yes = np.flatnonzero(truth == "no"), np.flatnonzero(truth == "yes")
    answers[no[:170]] = wording
    answers[yes[:30]] = wording
    survey, outcome = invented({"share with friends": answers, OUTCOME: truth})
    assert [leak.answer for leak in find(survey, outcome)] == [wording] * found


def test_an_answer_that_decides_is_found_with_its_limit() -> None:
    rng, truth = np.random.default_rng(5), labels(1000)
    answers = letters(rng, 1000, 2).astype(object)
    answers[np.flatnonzero(truth == "yes")[:150]] = "diagnosed"
    survey, outcome = invented({"q": answers, OUTCOME: truth})
    (leak,) = find(survey, outcome)
    low = lower_limit(150, 150, ERROR / (3 * 2))
    assert leak.answer == "diagnosed"
    assert f"'yes' for 100% of 150 respondents, 50% of all (lower limit {low:.2f}" in leak.reason


def test_a_rare_answer_decides_nothing() -> None:
    truth = labels(1000)
    answers = np.full(1000, "common", dtype=object)
    answers[np.flatnonzero(truth == "yes")[:29]] = "rare"
    survey, outcome = invented({"q": answers, OUTCOME: truth})
    assert find(survey, outcome) == ()


def test_a_common_class_is_no_leak_of_every_answer() -> None:
    """Where 95% say no, 97% among those who gave an answer is little news."""
    truth = np.where(np.arange(2000) % 20 == 0, "yes", "no")
    answers = np.where((truth == "yes") & (np.arange(2000) % 40 == 0), "b", np.where(np.arange(2000) % 3, "a", "b"))
    survey, outcome = invented({"q": answers, OUTCOME: truth})
    assert find(survey, outcome) == ()


def test_copies_of_few_people_prove_nothing() -> None:
    """Twenty people, copied a hundred times: each rare answer seems to decide."""
    rng = np.random.default_rng(6)
    person = np.repeat(np.arange(20), 100)
    country, truth = letters(rng, 20, 10)[person], labels(20)[person]
    blown_up, outcome = invented({"country": country, OUTCOME: truth}, groups=person)
    unaware, _ = invented({"country": country, OUTCOME: truth})
    assert find(unaware, outcome)
    assert find(blown_up, outcome) == ()


@pytest.mark.parametrize("changed", [False, True])
def test_copies_without_a_group_column_prove_nothing(changed: bool) -> None:
    """200 people, 50 copies of each, answers at random; then with one answer of each copy changed."""
    rng, person = np.random.default_rng(9), np.repeat(np.arange(200), 50)
    columns = {f"q{k}": rng.integers(60, size=200)[person] for k in range(8)}
    if changed:
        for row in range(len(person)):
            if row % 50:  # the first is as the person gave it
                columns[f"q{row % 8}"][row] = rng.integers(60)
    survey, outcome = invented(columns | {OUTCOME: labels(200)[person]})
    assert find(survey, outcome) == ()


# --- who was asked ---

LEVELS = ["0 none", "1 mild", "2 moderate", "3 severe", "4 extreme"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((3,), "predicts '3 severe' alone"),
        ((3, 4), "predicts at least '3 severe' alone"),
        ((1, 2, 3, 4), "'no answer' means '0 none'"),
        ((1,), "predicts '1 mild' alone"),
    ],
)
@pytest.mark.parametrize("kind", ["number", "choice"])
def test_a_question_asked_of_some_levels_is_found(asked: tuple[int, ...], said: str, kind: Kind) -> None:
    """Few distinct answers are frequent enough to be tested; that there is one tells the level."""
    rng = np.random.default_rng(10)
    level = rng.integers(5, size=1500)
    dose = [str(rng.integers(10, 400)) if k in asked else None for k in level]
    columns = {"dose": dose, "other": letters(rng, 1500, 3), OUTCOME: np.array(LEVELS)[level]}
    survey, outcome = invented(columns, kinds={"dose": kind, OUTCOME: "ordinal"})
    leaks = find(survey, outcome)
    assert {leak.column for leak in leaks} == {"dose"}
    assert leaks[0].reason.startswith(said if said.startswith("'") else f"whether it was answered {said}")


def test_a_question_asked_of_a_part_of_a_level_is_found() -> None:
    """A third of the severe: the AUC is too small, but an answer means severe."""
    rng = np.random.default_rng(11)
    level = rng.integers(5, size=2000)
    asked = (level == 3) & (rng.random(2000) < 0.33)
    dose = [str(rng.integers(10, 400)) if a else None for a in asked]
    survey, outcome = invented(
        {"dose": dose, OUTCOME: np.array(LEVELS)[level]}, kinds={"dose": "number", OUTCOME: "ordinal"}
    )
    (leak,) = find(survey, outcome)
    assert "'any answer' means '3 severe' for 100%" in leak.reason


def test_answers_that_are_missing_more_often_among_the_severe_are_sound() -> None:
    rng = np.random.default_rng(12)
    level = rng.integers(5, size=3000)
    gaps = rng.random((4, 3000)) < (level + 4) / 16
    columns = {f"q{k}": np.where(gap, None, letters(rng, 3000, 3)) for k, gap in enumerate(gaps)}
    survey, outcome = invented(columns | {OUTCOME: np.array(LEVELS)[level]}, kinds={OUTCOME: "ordinal"})
    assert find(survey, outcome) == ()


def test_nobodys_own_number_is_in_a_reason() -> None:
    """Only the lowest and the highest twentieth decide."""
    rng, count = np.random.default_rng(13), 4000
    hours = np.arange(count) + 1000
    hours[0], hours[-1] = 3, 987654
    share = np.full(count, 0.5)
    share[:200], share[-200:] = 0, 1
    truth = np.where(rng.random(count) < share, "yes", "no")
    survey, outcome = invented({"hours": hours, OUTCOME: truth}, kinds={"hours": "number"})
    said = " ".join(leak.reason for leak in find(survey, outcome))
    assert "'above " in said
    assert "'up to " in said
    assert "987654" not in said
    assert "3 to" not in said


# --- small surveys ---


@pytest.mark.parametrize(("count", "yes"), [(24, 12), (60, 30), (100, 20), (300, 24)])
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_copy_in_a_small_survey_is_found(count: int, yes: int, wrong: int) -> None:
    rng = np.random.default_rng(14)
    truth = np.where(np.arange(count) < yes, "yes", "no")
    copy = np.where(np.arange(count) < yes, "true", "false")
    copy[:wrong] = "false"
    noise = {f"q{k}": letters(rng, count, 3) for k in range(20)}
    survey, outcome = invented({"copy": copy, **noise, OUTCOME: truth})
    near = wrong == 0 or yes >= 20  # 95% of the class
    assert [leak.column for leak in find(survey, outcome)] == ["copy"] * near


def test_a_good_predictor_in_a_small_survey_is_no_copy() -> None:
    truth = labels(60)
    survey, outcome = invented({"q": flipped(truth, 0.15, np.random.default_rng(15)), OUTCOME: truth})
    assert find(survey, outcome) == ()


@pytest.mark.parametrize(
    ("count", "note"),
    [
        (8, "(fewer than 10): not even a copy of it can be found."),
        (44, "(44): hardly more than a copy of the outcome can be found."),
        (1000, ""),
    ],
)
def test_what_so_few_cannot_show_is_said(count: int, note: str) -> None:
    survey, outcome = invented({"q": letters(np.random.default_rng(16), count, 3), OUTCOME: labels(count)})
    found = search(survey, outcome).note
    assert found.removeprefix("Too few respondents to look for leaks ") == note


# --- error rates ---


def test_false_alarms_on_independent_answers_are_as_rare_as_stated() -> None:
    rng, alarms, trials = np.random.default_rng(7), 0, 250
    for _ in range(trials):
        count = int(rng.integers(60, 500))
        share = rng.dirichlet([1, 1, 0.3])
        truth = np.concatenate([["a", "a", "b", "b"], rng.choice(["a", "b", "c"], size=count, p=share)])
        columns = {f"q{k}": letters(rng, len(truth), int(rng.integers(2, 40))) for k in range(8)}
        survey, outcome = invented({**columns, OUTCOME: truth})
        alarms += bool(find(survey, outcome))
    assert alarms < critical_count(trials, 2 * ERROR, 1e-3)


def test_an_answer_at_the_bar_is_rarely_found_and_a_purer_one_mostly() -> None:
    """Those who answer b say yes with probability .9 (the bar) or .98; half of the others do."""
    found = {}
    for purity in (0.9, 0.98):
        rng, found[purity] = np.random.default_rng(8), 0
        for _ in range(300):
            answers = np.where(np.arange(900) % 3 == 0, "b", letters(rng, 900, 1))
            truth = np.where(rng.random(900) < np.where(answers == "b", purity, 0.5), "yes", "no")
            survey, outcome = invented({"q": answers, OUTCOME: truth})
            found[purity] += any(leak.answer == "b" for leak in find(survey, outcome))
    assert found[0.9] < critical_count(300, ERROR, 1e-3)
    assert found[0.98] > 250


# --- scope, dropping, bad input ---


def test_only_inputs_are_looked_at() -> None:
    truth = labels(400)
    survey, outcome = invented({"same": truth, OUTCOME: truth}, derived=("same",))
    assert find(survey, outcome) == ()


def test_records_without_a_known_outcome_say_nothing() -> None:
    truth = labels(400)
    known = [str(t) if k < 200 else None for k, t in enumerate(truth)]
    survey, outcome = invented({"same": truth, OUTCOME: known})
    assert "200 respondents" in find(survey, outcome)[0].reason


def test_an_outcome_with_one_value_has_no_leak() -> None:
    survey, outcome = invented({"q": ["a", "b"] * 50, OUTCOME: ["yes"] * 100})
    assert find(survey, outcome) == ()


def test_dropping_removes_whole_columns_and_says_why() -> None:
    survey, outcome = invented({"q": ["a", "b"], "r": ["a", "b"], OUTCOME: ["yes", "no"]})
    less = drop(survey, (Leak("q", None, "says it alone"), Leak("q", "a", "says it too")))
    assert [question.column for question in less.inputs(outcome)] == ["r"]
    assert less.account.dropped == (("q", "says it alone"),)
    assert len(survey.inputs(outcome)) == 2
    assert drop(survey, ()).answers.equals(survey.answers)


def test_a_missing_outcome_column_is_named() -> None:
    survey, outcome = invented({"q": ["a", "b"], OUTCOME: ["yes", "no"]})
    with pytest.raises(InputError, match="survey invented has no column treatment"):
        find(drop(survey, (Leak(OUTCOME, None, "gone"),)), outcome)


# --- the public surveys ---

PAST = "Have you had a mental health disorder in the past?"
DISORDER = {
    "osmi-2016": {
        PAST,
        "Have you been diagnosed with a mental health condition by a medical professional?",
        "If you have a mental health issue, do you feel that it interferes with your work when being treated "
        "effectively?",
        "If you have a mental health issue, do you feel that it interferes with your work when NOT being treated "
        "effectively?",
        "How willing would you be to share with friends and family that you have a mental illness?",
    },
    "osmi-2019": {
        PAST,
        "Have you ever been diagnosed with a mental health disorder?",
        "If you have a mental health disorder, how often do you feel that it interferes with your work when being "
        "treated effectively?",
        "If you have a mental health disorder, how often do you feel that it interferes with your work when NOT being "
        "treated effectively (i.e., when you are experiencing symptoms)?",
    },
}


@pytest.mark.parametrize("name", DISORDER)
def test_osmi_asks_for_the_disorder_in_several_ways(real_data: Path, name: str) -> None:
    survey = read_survey(real(name, real_data))
    assert {leak.column for leak in find(survey, survey.schema.outcome("disorder"))} == DISORDER[name]


def test_osmi_2014_asks_for_interference_only_where_there_is_something(real_data: Path) -> None:
    survey = read_survey(real("osmi-2014", real_data))
    leaks = find(survey, survey.schema.outcome("treatment"))
    assert [(leak.column, leak.answer) for leak in leaks] == [("work_interfere", None), ("work_interfere", "no answer")]
    assert "AUC 0.86" in leaks[0].reason
    assert "98% of 262 respondents" in leaks[1].reason


@pytest.mark.parametrize("name", ["student-depression", "dass-items", "dass-tipi", "mental-health"])
def test_sound_questions_stay(real_data: Path, name: str) -> None:
    survey = read_survey(real(name, real_data))
    for outcome in survey.schema.outcomes:
        assert find(survey, outcome) == (), outcome.name

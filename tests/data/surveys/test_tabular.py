"""Baselines from answers: how they are coded, what they learn, and that nothing global moves."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from invented_surveys import OUTCOME, invented, letters, real

from privbench.data.surveys import leaks
from privbench.data.surveys.read import read_survey
from privbench.data.surveys.splits import SurveySplits, split
from privbench.data.surveys.survey import Survey
from privbench.data.surveys.tabular import fit, ft_transformer, logistic_regression, majority
from privbench.errors import InputError


def by_hand() -> SurveySplits:
    """Four training records, one of validation, three of test."""
    survey, outcome = invented(
        {
            "mood": ["low", "high", None, "low", "high", "odd", None, "low"],
            "age": ["20", "40", None, "30", "20", "40", None, "30"],
            OUTCOME: ["yes", "no", "yes", "yes", "no", "no", "no", "no"],
        },
        kinds={"age": "number"},
    )
    train, validation, test = (survey.take(np.arange(*part)) for part in ((0, 4), (4, 5), (5, 8)))
    return SurveySplits(outcome, train, validation, test, np.zeros(4, np.int64))


def learnable(count: int = 900, numbers: bool = True) -> SurveySplits:
    """yes where a and b are both x or neither: nothing in one column alone. c says the same in one column."""
    rng = np.random.default_rng(0)
    a, b, noise = letters(rng, count, 2), letters(rng, count, 2), {f"n{k}": letters(rng, count, 5) for k in range(6)}
    truth = np.where(a == b, "yes", "no")
    age = {"age": rng.integers(18, 80, size=count)} if numbers else {}
    survey, outcome = invented({"a": a, "b": b, **noise, **age, OUTCOME: truth}, kinds={"age": "number"})
    return split(survey, outcome, rng, train=600, validation=100, test=200, clients=2)


def right(splits: SurveySplits, said: list[str]) -> float:
    return float(np.mean(splits.test.answers[splits.outcome.question.column] == said))


def with_column(splits: SurveySplits, name: str, source: str) -> SurveySplits:
    def renamed(side: Survey) -> Survey:
        side.answers[name] = side.answers[source]
        return side

    return SurveySplits(
        splits.outcome, renamed(splits.train), renamed(splits.validation), renamed(splits.test), splits.client
    )


# --- coding ---


def test_categories_are_those_of_training_and_zero_is_missing_or_unseen() -> None:
    splits = by_hand()
    coding = fit(splits)
    assert coding.levels == (("mood", ("high", "low")),)
    assert coding.classes == ("no", "yes")
    assert coding.categories(splits.train).tolist() == [[2], [1], [0], [2]]
    assert coding.categories(splits.test).tolist() == [[0], [0], [2]]
    assert coding.labels(splits.test, splits).tolist() == [0, 0, 0]


def test_numbers_are_standardised_on_training_with_an_indicator() -> None:
    splits = by_hand()
    coding = fit(splits)
    spread = np.std([20, 40, 30])
    assert coding.numbers == (("age", 30.0, pytest.approx(spread)),)
    assert coding.values(splits.test) == pytest.approx(np.array([[10 / spread, 0], [0, 1], [0, 0]]), abs=1e-6)
    assert coding.one_hot(splits.test)[1].tolist() == [1, 0, 0, 0, 1]
    assert coding.one_hot(splits.train).shape == (4, 5)


@pytest.mark.parametrize("ages", [[None] * 8, ["30"] * 8])
def test_a_number_that_says_nothing_stays_finite(ages: list[str | None]) -> None:
    survey, outcome = invented({"age": ages, OUTCOME: ["yes", "no"] * 4}, kinds={"age": "number"})
    splits = SurveySplits(outcome, *(survey.take(np.arange(8)) for _ in range(3)), np.zeros(8, np.int64))
    assert np.isfinite(fit(splits).values(splits.test)).all()
    assert set(logistic_regression(splits)) <= {"yes", "no"}


def test_no_input_at_all_is_refused() -> None:
    survey, outcome = invented({"q": ["a", "b"], OUTCOME: ["yes", "no"]})
    bare = leaks.drop(survey, (leaks.Leak("q", None, "gone"),))
    with pytest.raises(InputError, match="outcome treatment: no question is left as input"):
        fit(SurveySplits(outcome, bare, bare, bare, np.zeros(2, np.int64)))


# --- what they predict ---


def test_the_majority_is_that_of_training() -> None:
    assert majority(by_hand()) == ["yes", "yes", "yes"]


def test_of_equally_common_answers_the_first_option_is_the_majority() -> None:
    survey, outcome = invented({"q": ["a", "b", "c", "d"], OUTCOME: ["yes", "no", "yes", "no"]})
    assert majority(SurveySplits(outcome, survey, survey, survey, np.zeros(4, np.int64))) == ["no"] * 4


def test_logistic_regression_learns_a_column_and_not_an_interaction() -> None:
    splits = learnable()
    assert right(splits, logistic_regression(splits)) < 0.65
    assert right(splits, logistic_regression(with_column(splits, "a", OUTCOME))) == 1


def test_the_penalty_is_chosen_on_validation() -> None:
    """Where no column says anything, the stronger penalty has the smaller loss."""
    splits = learnable()
    strong, weak = logistic_regression(splits, [0.001]), logistic_regression(splits, [1e4])
    assert strong != weak
    assert logistic_regression(splits, [0.001, 1e4]) == strong
    assert logistic_regression(splits, [1e4, 0.001]) == strong


def test_validation_answers_that_training_lacks_do_not_choose() -> None:
    splits = learnable()
    splits.validation.answers.loc[:10, OUTCOME] = "unheard of"
    assert set(logistic_regression(splits)) <= {"yes", "no"}
    assert set(ft_transformer(splits, 0, epochs=1)) <= {"yes", "no"}


@pytest.mark.parametrize("numbers", [True, False])
def test_ft_transformer_learns_an_interaction(numbers: bool) -> None:
    splits = learnable(numbers=numbers)
    assert right(splits, ft_transformer(splits, 0, epochs=40, patience=40, batch=64, width=32)) > 0.9


def test_ft_transformer_reads_numbers_alone() -> None:
    rng = np.random.default_rng(3)
    score = rng.integers(0, 1000, size=600)
    survey, outcome = invented(
        {"score": score, "other": rng.integers(0, 1000, size=600), OUTCOME: np.where(score > 500, "high", "low")},
        kinds={"score": "number", "other": "number"},
    )
    splits = split(survey, outcome, rng, train=400, validation=80, test=100, clients=1)
    assert right(splits, ft_transformer(splits, 0, width=16)) > 0.9


def test_the_seed_decides_and_the_global_generator_stays() -> None:
    splits = learnable(300)
    torch.random.manual_seed(11)
    before = torch.random.get_rng_state()
    first = ft_transformer(splits, 5, epochs=2, width=16)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert ft_transformer(splits, 5, epochs=2, width=16) == first
    assert any(ft_transformer(splits, seed, epochs=2, width=16) != first for seed in (6, 7, 8))


def test_the_best_epoch_is_kept() -> None:
    """Training on after the best epoch changes nothing: a run that stops there says the same."""
    splits = learnable(300)
    patient = ft_transformer(splits, 0, epochs=12, patience=3, width=16)
    assert patient in [ft_transformer(splits, 0, epochs=count, patience=99, width=16) for count in range(1, 13)]


def test_without_its_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rtdl_revisiting_models", None)
    with pytest.raises(InputError, match=r"rtdl-revisiting-models; run pip install -e '.\[tabular\]'"):
        ft_transformer(by_hand(), 0)


# --- the public surveys ---


@pytest.mark.parametrize(
    ("name", "least"),
    [("osmi-2014", 0.65), ("osmi-2016", 0.58), ("student-depression", 0.78), ("dass-items", 0.45), ("dass-tipi", 0.36)],
)
def test_logistic_regression_beats_the_majority(real_data: Path, name: str, least: float) -> None:
    """Without leaking columns, 2,000 training records or what there is; three draws."""
    survey = read_survey(real(name, real_data))
    outcome = survey.schema.outcomes[0]
    sound = leaks.drop(survey, leaks.find(survey, outcome))
    guessed, learned = [], []
    for seed in range(3):
        splits = split(sound, outcome, np.random.default_rng(seed))
        guessed.append(right(splits, majority(splits)))
        learned.append(right(splits, logistic_regression(splits)))
    assert np.mean(learned) > least
    assert np.mean(learned) > np.mean(guessed) + 0.05

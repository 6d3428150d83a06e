"""Metrics of answers against scikit-learn, a plain edit distance, closed forms and simulated coverage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from privbench.stats.answers import (
    Undefined,
    accuracy,
    anls,
    balanced_accuracy,
    macro_f1,
    over_seeds,
    quadratic_kappa,
)
from privbench.stats.auc import Interval
from privbench.stats.binomial import clopper_pearson

seeded = settings(derandomize=True, deadline=None, max_examples=100)

SEVERITY = ("normal", "mild", "moderate", "severe", "extremely severe")
Metric = Callable[..., Interval | Undefined]
BOOTSTRAPPED = [macro_f1, balanced_accuracy, quadratic_kappa]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@st.composite
def answers(draw: st.DrawFn, said: Sequence[str] = SEVERITY) -> tuple[list[str], list[str]]:
    """Truth and what was said, 1 to 40 respondents."""
    count = draw(st.integers(1, 40))
    return tuple(
        draw(st.lists(st.sampled_from(options), min_size=count, max_size=count)) for options in (SEVERITY, said)
    )  # type: ignore[return-value]


def edit_distance(one: str, other: str) -> int:
    """Levenshtein's, by its recursion over prefixes."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row, above = [i], row
        for j, b in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


# --- values ---


@seeded
@given(answers())
def test_values_are_those_of_scikit_learn(given_answers: tuple[list[str], list[str]]) -> None:
    truth, said = given_answers
    present = [level for level in SEVERITY if level in truth]
    assert accuracy(truth, said, SEVERITY).value == pytest.approx(metrics.accuracy_score(truth, said))
    expected = metrics.f1_score(truth, said, labels=present, average="macro", zero_division=0)
    assert macro_f1(truth, said, SEVERITY, rng()).value == pytest.approx(expected)
    expected = metrics.recall_score(truth, said, labels=present, average="macro", zero_division=0)
    assert balanced_accuracy(truth, said, SEVERITY, rng()).value == pytest.approx(expected)
    kappa = quadratic_kappa(truth, said, SEVERITY, rng())
    if len({*truth, *said}) == 1:
        assert isinstance(kappa, Undefined)
    else:
        assert isinstance(kappa, Interval)
        expected = metrics.cohen_kappa_score(truth, said, labels=list(SEVERITY), weights="quadratic")
        assert kappa.value == pytest.approx(expected)


@seeded
@given(answers(said=(*SEVERITY, "sever", "extremely sever", "mild or moderate", "", "I cannot say")))
def test_anls_is_that_of_its_formula(given_answers: tuple[list[str], list[str]]) -> None:
    truth, said = given_answers
    strict, lenient = [], []
    for t, s in zip(truth, said, strict=True):
        similarity = 1 - edit_distance(t, s) / max(len(t), len(s))
        strict.append(similarity if similarity >= 0.5 else 0)
        near = s in SEVERITY and abs(SEVERITY.index(t) - SEVERITY.index(s)) == 1
        lenient.append(max(strict[-1], 0.5) if near else strict[-1])
    found = anls(truth, said, SEVERITY, rng())
    assert found.strict.value == pytest.approx(np.mean(strict))
    assert found.lenient.value == pytest.approx(np.mean(lenient))
    assert found.strict.value <= found.lenient.value


def test_the_leniency_is_for_neighbours_on_a_scale_only() -> None:
    one_off, two_off = anls(["mild"], ["normal"], SEVERITY, rng()), anls(["mild"], ["severe"], SEVERITY, rng())
    assert (one_off.lenient.value, one_off.strict.value) == (0.5, 0)
    assert (two_off.lenient.value, two_off.strict.value) == (0, 0)
    assert anls(["mild"], ["normal"], (), rng()).lenient.value == 0
    assert anls(["disagree"], ["agree"], (), rng()).strict.value == 0.625


def test_case_and_blanks_do_not_matter() -> None:
    truth, said = ["extremely severe", "Mild"], [" Extremely  Severe\n", "mild"]
    assert accuracy(truth, said, SEVERITY).value == 1
    assert anls(truth, said, SEVERITY, rng()).strict.value == 1


# --- answers that are no option, absent classes, equal answers ---


def test_answers_that_are_no_option_are_wrong_and_stay_in_the_denominator() -> None:
    truth, said = ["yes", "yes", "no", "no"], ["yes", "banana", "no", ""]
    options = ("no", "yes")
    assert accuracy(truth, said, options) == Interval(0.5, *clopper_pearson(2, 4), 4)
    assert balanced_accuracy(truth, said, options, rng()).value == 0.5
    # Each class: recall 1/2, precision 1.
    assert macro_f1(truth, said, options, rng()).value == pytest.approx(2 / 3)


@pytest.mark.parametrize(("truth", "farthest"), [("normal", "extremely severe"), ("mild", "extremely severe")])
def test_kappa_takes_them_for_the_level_farthest_from_the_truth(truth: str, farthest: str) -> None:
    rest = ["mild", "severe", "moderate"]
    strange = quadratic_kappa([truth, *rest], ["banana", *rest], SEVERITY, rng())
    assert strange == quadratic_kappa([truth, *rest], [farthest, *rest], SEVERITY, rng())
    mirrored = quadratic_kappa(["severe", *rest], ["banana", *rest], SEVERITY, rng())
    assert mirrored == quadratic_kappa(["severe", *rest], ["normal", *rest], SEVERITY, rng())


@seeded
@given(answers(said=(*SEVERITY, "banana")))
def test_nothing_is_ever_nan_and_values_lie_in_their_intervals(given_answers: tuple[list[str], list[str]]) -> None:
    truth, said = given_answers
    found = anls(truth, said, SEVERITY, rng())
    results = [accuracy(truth, said, SEVERITY), found.lenient, found.strict]
    for result in (*results, *(metric(truth, said, SEVERITY, rng()) for metric in BOOTSTRAPPED)):
        if isinstance(result, Undefined):
            assert result.reason
            continue
        assert all(math.isfinite(number) for number in (result.value, result.low, result.high))
        assert -1 <= result.low <= result.high <= 1
        assert result.n == len(truth)


def test_kappa_without_any_difference_says_why() -> None:
    result = quadratic_kappa(["mild"] * 3, ["mild"] * 3, SEVERITY, rng())
    assert result == Undefined("all 3 truths and answers are the same: no agreement beyond chance can be seen")


def test_kappa_of_one_truth_and_other_answers_is_zero() -> None:
    result = quadratic_kappa(["mild"] * 20, ["mild"] * 10 + ["severe"] * 10, SEVERITY, rng())
    assert isinstance(result, Interval)
    assert result.value == 0


def test_resamples_without_a_difference_widen_kappas_interval_to_the_end() -> None:
    """Of two respondents half of all resamples hold one of them twice."""
    result = quadratic_kappa(["mild", "severe"], ["mild", "severe"], SEVERITY, rng())
    assert isinstance(result, Interval)
    assert (result.value, result.low, result.high) == (1, -1, 1)


# --- intervals ---


def test_accuracy_has_the_exact_interval() -> None:
    truth, said = ["yes"] * 20, ["yes"] * 17 + ["no"] * 3
    assert accuracy(truth, said, ("no", "yes"), level=0.9) == Interval(0.85, *clopper_pearson(17, 20, 0.9), 20)


@pytest.mark.parametrize("metric", [*BOOTSTRAPPED, anls])
def test_the_bootstrap_depends_on_the_generator_and_not_on_the_order(metric: Metric) -> None:
    draw = np.random.default_rng(1)
    truth, said = draw.choice(SEVERITY, size=80), draw.choice(SEVERITY, size=80)
    said = np.where(draw.random(80) < 0.6, truth, said)
    order = draw.permutation(80)
    first = metric(truth.tolist(), said.tolist(), SEVERITY, np.random.default_rng(2))
    assert metric(truth.tolist(), said.tolist(), SEVERITY, np.random.default_rng(2)) == first
    assert metric(truth[order].tolist(), said[order].tolist(), SEVERITY, np.random.default_rng(2)) == first
    assert metric(truth.tolist(), said.tolist(), SEVERITY, np.random.default_rng(3)) != first


@pytest.mark.parametrize("metric", BOOTSTRAPPED)
def test_drawing_counts_is_drawing_respondents(metric: Metric) -> None:
    """The quantiles of a plain bootstrap, which draws rows and scores them with scikit-learn."""
    draw = np.random.default_rng(4)
    truth = draw.choice(SEVERITY, size=120)
    said = np.where(draw.random(120) < 0.5, truth, draw.choice(SEVERITY, size=120))
    found = metric(truth.tolist(), said.tolist(), SEVERITY, rng())
    assert isinstance(found, Interval)

    def score(rows: np.ndarray) -> float:
        t, s = truth[rows], said[rows]
        if metric is macro_f1:
            return float(metrics.f1_score(t, s, labels=np.unique(t), average="macro", zero_division=0))
        if metric is balanced_accuracy:
            return float(metrics.recall_score(t, s, labels=np.unique(t), average="macro", zero_division=0))
        return float(metrics.cohen_kappa_score(t, s, labels=list(SEVERITY), weights="quadratic"))

    plain = [score(draw.integers(120, size=120)) for _ in range(600)]
    low, high = np.quantile(plain, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.03)
    assert found.high == pytest.approx(high, abs=0.03)


def test_intervals_hold_the_truth_about_as_often_as_stated() -> None:
    """Balanced accuracy of a source that is right at .9 and .6 in its two classes: .75."""
    draw, held, trials = np.random.default_rng(5), 0, 300
    for _ in range(trials):
        truth = draw.choice(["no", "yes"], size=300, p=[0.7, 0.3])
        right = draw.random(300) < np.where(truth == "no", 0.9, 0.6)
        said = np.where(right, truth, np.where(truth == "no", "yes", "no"))
        result = balanced_accuracy(truth.tolist(), said.tolist(), ("no", "yes"), draw)
        held += result.low <= 0.75 <= result.high
    assert 0.91 < held / trials < 0.98


def test_over_seeds_has_students_interval() -> None:
    values = [0.71, 0.68, 0.74, 0.70, 0.72]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    found = over_seeds(values)
    assert isinstance(found, Interval)
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    assert found.n == 5


@pytest.mark.parametrize("values", [[], [0.7]])
def test_fewer_than_two_seeds_have_no_interval(values: list[float]) -> None:
    result = over_seeds(values)
    assert isinstance(result, Undefined)
    assert f"{len(values)} " in result.reason


# --- bad input ---


@pytest.mark.parametrize("metric", [accuracy, *BOOTSTRAPPED, anls])
@pytest.mark.parametrize(
    ("truth", "said", "message"), [([], [], "got 0 and 0"), (["mild"], ["mild", "mild"], "got 2 and 1")]
)
def test_lengths_must_agree(metric: Metric, truth: list[str], said: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric(truth, said, SEVERITY, *([] if metric is accuracy else [rng()]))


def test_a_truth_outside_the_options_is_named() -> None:
    with pytest.raises(ValueError, match="truth 'grave' is none of the options"):
        accuracy(["grave"], ["mild"], SEVERITY)


def test_options_must_differ() -> None:
    with pytest.raises(ValueError, match="options must differ"):
        accuracy(["yes"], ["yes"], ("yes", "Yes "))


def test_values_over_seeds_must_be_finite() -> None:
    with pytest.raises(ValueError, match=r"must be finite, got \[0.5, nan\]"):
        over_seeds([0.5, float("nan")])

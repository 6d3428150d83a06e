"""Metrics of answers and their gains against scikit-learn, a plain edit distance, closed forms and their coverage."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache

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
    gain,
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
NAMED: dict[str, Metric] = {
    "accuracy": lambda truth, said, options, rng: accuracy(truth, said, options),
    "macro F1": macro_f1,
    "balanced accuracy": balanced_accuracy,
    "quadratic kappa": quadratic_kappa,
    "ANLS": lambda truth, said, options, rng: anls(truth, said, options, rng).lenient,
    "ANLS strict": lambda truth, said, options, rng: anls(truth, said, options, rng).strict,
}
DRAWN = [name for name in NAMED if name != "accuracy"]


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
    for level, other in ((truth, farthest), ("severe", "normal")):
        strange, named = (quadratic_kappa([level, *rest], [said, *rest], SEVERITY, rng()) for said in ("banana", other))
        assert isinstance(strange, Interval)
        assert isinstance(named, Interval)
        assert strange.value == named.value
        assert (strange.low, strange.high) == pytest.approx((named.low, named.high), abs=0.1)  # other draws


@seeded
@given(answers(said=(*SEVERITY, "banana")))
def test_nothing_is_ever_nan_or_without_width_and_values_lie_in_their_intervals(
    given_answers: tuple[list[str], list[str]],
) -> None:
    truth, said = given_answers
    found = anls(truth, said, SEVERITY, rng())
    results = [accuracy(truth, said, SEVERITY), found.lenient, found.strict]
    for result in (*results, *(metric(truth, said, SEVERITY, rng()) for metric in BOOTSTRAPPED)):
        if isinstance(result, Undefined):
            assert result.reason
            continue
        assert all(math.isfinite(number) for number in (result.value, result.low, result.high))
        assert -1 <= result.low <= result.value <= result.high <= 1
        assert result.low < result.high
        assert result.n == len(truth)


def test_kappa_without_any_difference_says_why() -> None:
    result = quadratic_kappa(["mild"] * 3, ["mild"] * 3, SEVERITY, rng())
    assert result == Undefined("all 3 truths and answers are the same: no agreement beyond chance can be seen")


def test_kappa_of_one_truth_and_other_answers_is_zero() -> None:
    result = quadratic_kappa(["mild"] * 20, ["mild"] * 10 + ["severe"] * 10, SEVERITY, rng())
    assert isinstance(result, Interval)
    assert result.value == 0


def test_a_scale_of_one_level_has_no_kappa() -> None:
    assert isinstance(quadratic_kappa(["mild"] * 2, ["mild", "banana"], ["mild"], rng()), Undefined)


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


Score = Callable[[np.ndarray, np.ndarray, "np.ndarray | None"], float]
PLAIN: dict[str, Score] = {
    "macro F1": lambda t, s, w: float(
        metrics.f1_score(t, s, labels=np.unique(t), average="macro", zero_division=0, sample_weight=w)
    ),
    "balanced accuracy": lambda t, s, w: float(
        metrics.recall_score(t, s, labels=np.unique(t), average="macro", zero_division=0, sample_weight=w)
    ),
    "quadratic kappa": lambda t, s, w: float(
        metrics.cohen_kappa_score(t, s, labels=list(SEVERITY), weights="quadratic", sample_weight=w)
    ),
}


def people(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth, answers right for about .6 of them, and a baseline's, right for about .4, alike for some."""
    draw = np.random.default_rng(seed)
    truth = draw.choice(SEVERITY, size=count)
    said = np.where(draw.random(count) < 0.5, truth, draw.choice(SEVERITY, size=count))
    return truth, said, np.where(draw.random(count) < 0.5, said, draw.choice(SEVERITY, size=count))


def weighed(score: Callable[..., float], name: str, columns: Sequence[np.ndarray], right: Sequence[bool]) -> np.ndarray:
    """A score under exponential weights, one by one, with the unseen respondents whose answers in each column (after
    the truth's) are right or are not: 1 / sqrt(5) of each level, for kappa 1 / 5.
    """
    draw, count = np.random.default_rng(8), len(columns[0])
    wrong = ["extremely severe"] * 3 + ["normal"] * 2 if name == "quadratic kappa" else ["banana"] * 5
    unseen = [SEVERITY, *(SEVERITY if one else wrong for one in right)]
    rows = [np.concatenate([column, more]) for column, more in zip(columns, unseen, strict=True)]
    shape = [1.0] * count + [0.2 if name == "quadratic kappa" else 0.2**0.5] * 5
    return np.array([score(*rows, draw.gamma(shape)) for _ in range(400)])


@pytest.mark.parametrize("name", PLAIN)
def test_drawing_counts_is_weighing_respondents(name: str) -> None:
    truth, said, _ = people(4, 120)
    found = NAMED[name](truth.tolist(), said.tolist(), SEVERITY, rng())
    assert isinstance(found, Interval)
    low = np.quantile(weighed(PLAIN[name], name, (truth, said), [False]), 0.025)
    high = np.quantile(weighed(PLAIN[name], name, (truth, said), [True]), 0.975)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)


@pytest.mark.parametrize("name", PLAIN)
def test_of_many_respondents_it_is_the_plain_bootstrap(name: str) -> None:
    """Which draws rows."""
    truth, said, base = people(5, 2000)
    score, draw, values, gains = PLAIN[name], np.random.default_rng(6), [], []
    for _ in range(200):
        rows = draw.integers(2000, size=2000)
        values.append(score(truth[rows], said[rows], None))
        gains.append(values[-1] - score(truth[rows], base[rows], None))
    found = NAMED[name](truth.tolist(), said.tolist(), SEVERITY, rng())
    more = gain(name, truth.tolist(), said.tolist(), base.tolist(), SEVERITY, rng())
    assert isinstance(found, Interval)
    for interval, plain in ((found, values), (more, gains)):
        assert (interval.low, interval.high) == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=0.015)


@pytest.mark.parametrize(("right", "n"), [(1, 1), (10, 10), (0, 8), (17, 20), (499, 500)])
def test_of_one_proportion_it_is_the_exact_interval(right: int, n: int) -> None:
    """As balanced accuracy of one class is, and ANLS of answers that are right or quite different."""
    truth, said = ["mild"] * n, ["mild"] * right + ["xyz"] * (n - right)
    exact = clopper_pearson(right, n)
    for found in (balanced_accuracy(truth, said, SEVERITY, rng()), anls(truth, said, SEVERITY, rng()).strict):
        assert found.value == right / n
        assert (found.low, found.high) == pytest.approx(exact, abs=0.02 if n < 100 else 0.001)


@pytest.mark.parametrize("name", NAMED)
def test_one_respondent_says_next_to_nothing(name: str) -> None:
    value = NAMED[name](["mild"], ["severe"], SEVERITY, rng())
    assert isinstance(value, Interval)
    assert value.high - value.low > 0.9
    more = gain(name, ["mild"], ["mild"], ["severe"], SEVERITY, rng())
    assert more.low < -0.9
    assert more.high > 0.9


@cache
def population(name: str) -> np.ndarray:
    """Shares of truth, answer and baseline's answer [K, K + 1, K + 1]; the last answer is none of the levels."""
    classes, right = {
        "even": ([0.2] * 5, [0.6] * 5),
        "rare classes": ([0.6, 0.25, 0.1, 0.04, 0.01], [0.8, 0.6, 0.5, 0.4, 0.4]),
        "near perfect": ([0.7, 0.2, 0.06, 0.03, 0.01], [0.99] * 5),
    }[name]
    shares = np.zeros((5, 6, 6))
    for level, (share, hit) in enumerate(zip(classes, right, strict=True)):
        said = np.full(6, (1 - hit) / 5)
        said[level] = hit
        shares[level] = share * said[:, None] * 0.1  # the baseline: a tenth each of all six, else as ours or the first
        shares[level, :, 0] += share * said * 0.2
        shares[level, range(6), range(6)] += share * said * 0.2
    return shares


def true_value(name: str, table: np.ndarray, seen: np.ndarray) -> float:
    """Of shares [K, K + 1], averaged over the classes that are seen."""
    right, true, said = np.diagonal(table), table.sum(1), table[:, :-1].sum(0)
    if name == "accuracy":
        return float(right.sum())
    if name == "macro F1":
        return float(np.mean((2 * right / (true + said))[seen]))
    if name == "balanced accuracy":
        return float(np.mean((right / true)[seen]))
    if name == "quadratic kappa":
        told = table[:, :-1].copy()
        told[:3, 4] += table[:3, 5]
        told[3:, 0] += table[3:, 5]
        weight = np.subtract.outer(np.arange(5), np.arange(5)) ** 2
        return float(1 - (weight * told).sum() / (weight * np.outer(told.sum(1), told.sum(0))).sum())
    return float((credit(name) * table).sum())


@cache
def credit(name: str) -> np.ndarray:
    """What ANLS gives for every pair of truth and answer [K, K + 1]."""
    given = [[NAMED[name]([t], [s], SEVERITY, rng()) for s in (*SEVERITY, "banana")] for t in SEVERITY]
    return np.array([[one.value for one in row if isinstance(one, Interval)] for row in given])


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 50, 500])
@pytest.mark.parametrize("kind", ["even", "rare classes", "near perfect"])
def test_values_and_gains_are_missed_no_more_often_than_stated(kind: str, n: int) -> None:
    """Within 4 standard errors of the 5% of 200 samples, for every metric and its gain."""
    draw, trials, words = np.random.default_rng(5), 200, np.array([*SEVERITY, "banana"])
    shares, missed = population(kind), dict.fromkeys(((name, what) for name in NAMED for what in ("value", "gain")), 0)
    for _ in range(trials):
        codes = np.unravel_index(draw.choice(180, size=n, p=shares.ravel()), shares.shape)
        truth, said, base = (words[code].tolist() for code in codes)
        seen = np.unique(codes[0])
        for name, metric in NAMED.items():
            ours, theirs = (true_value(name, shares.sum(axis), seen) for axis in (2, 1))
            found, more = metric(truth, said, SEVERITY, draw), gain(name, truth, said, base, SEVERITY, draw)
            if isinstance(found, Interval):
                missed[name, "value"] += not found.low <= ours <= found.high
            missed[name, "gain"] += not more.low <= ours - theirs <= more.high
    allowed = trials * 0.05 + 4 * math.sqrt(trials * 0.05 * 0.95)
    assert {key: count for key, count in missed.items() if count > allowed} == {}


# --- gains ---


@settings(seeded, max_examples=30)
@given(answers(said=(*SEVERITY, "banana")), st.randoms(use_true_random=False))
def test_a_gain_is_the_difference_of_two_values_and_turns_with_its_sides(
    given_answers: tuple[list[str], list[str]], other: random.Random
) -> None:
    truth, said = given_answers
    base = [other.choice((*SEVERITY, "banana", "")) for _ in truth]
    for name, metric in NAMED.items():
        found, turned = (gain(name, truth, *both, SEVERITY, rng()) for both in ((said, base), (base, said)))
        ours, theirs = (metric(truth, one, SEVERITY, rng()) for one in (said, base))
        values = [0 if isinstance(one, Undefined) else one.value for one in (ours, theirs)]
        assert found.value == pytest.approx(values[0] - values[1])
        assert turned.value == pytest.approx(-found.value)
        assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=0.3)  # other draws
        assert found.low <= found.value <= found.high
        assert found.low < found.high
        assert found.n == len(truth)


@pytest.mark.parametrize("name", PLAIN)
def test_drawing_pairs_is_weighing_respondents_with_both_answers(name: str) -> None:
    truth, said, base = people(7, 120)
    found = gain(name, truth.tolist(), said.tolist(), base.tolist(), SEVERITY, rng())

    def score(t: np.ndarray, ours: np.ndarray, theirs: np.ndarray, weights: np.ndarray) -> float:
        return PLAIN[name](t, ours, weights) - PLAIN[name](t, theirs, weights)

    low = np.quantile(weighed(score, name, (truth, said, base), [False, True]), 0.025)
    high = np.quantile(weighed(score, name, (truth, said, base), [True, False]), 0.975)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)


@pytest.mark.parametrize("name", NAMED)
def test_who_says_the_same_gains_nothing(name: str) -> None:
    truth, said, _ = people(1, 60)
    found = gain(name, truth.tolist(), said.tolist(), said.tolist(), SEVERITY, rng())
    assert found.value == 0
    assert -0.3 < found.low < 0 < found.high < 0.3


@pytest.mark.parametrize("name", NAMED)
def test_the_order_of_respondents_is_nothing_and_that_of_levels_is_kappas_and_anls(name: str) -> None:
    truth, said, base = people(2, 60)
    first = gain(name, truth.tolist(), said.tolist(), base.tolist(), SEVERITY, rng())
    order = np.random.default_rng(3).permutation(60)
    moved = [column[order].tolist() for column in (truth, said, base)]
    assert gain(name, *moved, SEVERITY, rng()) == first
    shuffled = gain(name, *moved, ("severe", "normal", "extremely severe", "mild", "moderate"), rng())
    assert (shuffled.value == pytest.approx(first.value)) == (name not in ("quadratic kappa", "ANLS"))


@pytest.mark.parametrize("name", NAMED)
def test_an_answer_that_is_no_option_gains_nothing(name: str) -> None:
    truth = ["mild", "severe", "moderate", "mild"] * 10
    right, half = truth, [*truth[:20], *["banana"] * 20]
    assert gain(name, truth, right, half, SEVERITY, rng()).value > 0.2
    assert gain(name, truth, half, right, SEVERITY, rng()).high < 0
    assert gain(name, truth, ["banana"] * 40, ["apple"] * 40, SEVERITY, rng()).value == 0


def of_pairs(wins: int, losses: int, n: int, level: float = 0.95) -> Interval:
    same = n - wins - losses
    said = ["yes"] * wins + ["no"] * losses + ["yes"] * same
    base = ["no"] * wins + ["yes"] * losses + ["yes"] * same
    return gain("accuracy", ["yes"] * n, said, base, ("no", "yes"), rng(), level)


@pytest.mark.parametrize("n", [1, 7, 500])
def test_the_gain_in_accuracy_of_equal_answers_and_of_wins_alone(n: int) -> None:
    rare = 1 - 0.0125 ** (1 / n)
    assert of_pairs(0, 0, n) == Interval(0, pytest.approx(-rare), pytest.approx(rare), n)
    # Every pair won: at least 1 - rare of all are pairs, and the same of these are wins.
    ahead = 1 - 2 * rare
    low = ahead * (1 - rare) if ahead > 0 else ahead
    assert of_pairs(n, 0, n) == Interval(1, pytest.approx(low), 1, n)


@seeded
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 400), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_a_gain_in_accuracy_is_sure_only_where_mcnemars_test_rejects(
    wins: int, losses: int, same: int, level: float
) -> None:
    if wins + losses == 0:
        return
    found = of_pairs(wins, losses, wins + losses + same, level)
    if stats.binomtest(wins, wins + losses).pvalue > 1 - level:
        assert found.low <= 0 <= found.high


def test_four_wins_of_five_hundred_do_not_beat_and_thirty_do() -> None:
    for name in NAMED:
        truth = [SEVERITY[k % 5] for k in range(500)]
        for wins in (4, 30):
            base = [SEVERITY[(k + 2) % 5] for k in range(wins)] + truth[wins:]
            assert (gain(name, truth, truth, base, SEVERITY, rng()).low > 0) == (wins == 30), (name, wins)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("other", ["extremely severe", "banana"])
def test_nor_do_four_wins_within_one_class(name: str, classes: int, other: str) -> None:
    truth = [SEVERITY[k % classes] for k in range(500)]
    base = [other if k < 4 * classes and k % classes == 0 else told for k, told in enumerate(truth)]
    assert gain(name, truth, truth, base, SEVERITY, rng()).low < 0


@pytest.mark.parametrize("n", [5, 30])
@pytest.mark.parametrize(("won", "lost"), [(0.5, 0.5), (0.3, 0.1), (0.02, 0.02), (0.2, 0.0), (0.05, 0.6)])
def test_the_gain_in_accuracy_misses_less_than_its_error_on_either_side(n: int, won: float, lost: float) -> None:
    """Summed over all samples."""
    below = above = 0.0
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            found = of_pairs(wins, losses, n)
            rest = max(1 - won - lost, 0.0)
            likely = float(stats.multinomial.pmf([wins, losses, n - wins - losses], n, [won, lost, rest]))
            below += likely * (found.high < won - lost - 1e-12)
            above += likely * (found.low > won - lost + 1e-12)
    assert max(below, above) <= 0.025


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


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(("said", "base"), [(["mild"], ["mild"] * 2), (["mild"] * 2, ["mild"])])
def test_both_answers_must_be_as_many_as_truths(name: str, said: list[str], base: list[str]) -> None:
    with pytest.raises(ValueError, match="as many answers as truths and at least 1, got 1 and 2"):
        gain(name, ["mild"] * 2, said, base, SEVERITY, rng())


def test_an_unknown_gain_is_named_beside_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no gain in 'recall'; there is one in accuracy, macro F1, .*, ANLS strict"):
        gain("recall", ["mild"], ["mild"], ["mild"], SEVERITY, rng())


def test_a_truth_outside_the_options_is_named() -> None:
    with pytest.raises(ValueError, match="truth 'grave' is none of the options"):
        accuracy(["grave"], ["mild"], SEVERITY)


def test_options_must_differ() -> None:
    with pytest.raises(ValueError, match="options must differ"):
        accuracy(["yes"], ["yes"], ("yes", "Yes "))


def test_values_over_seeds_must_be_finite() -> None:
    with pytest.raises(ValueError, match=r"must be finite, got \[0.5, nan\]"):
        over_seeds([0.5, float("nan")])

"""The classifier that sees no model: near chance where coins were fair, a flag where members are other records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from privbench.attack import AttackCard, Scores
from privbench.blind import blind_scores, coded
from privbench.findings import Header, Judged
from privbench.findings_members import assemble_members
from privbench.membership import Exposed, Membership
from privbench.recording import MEMBER, Secrets
from privbench.registry import default_registry
from privbench.scoring import CONTROL_LEVEL
from privbench.stats.auc import auc
from privbench.threat import Channel, curious_outsider

Coins = npt.NDArray[np.uint8]
Blind = Callable[..., Scores | None]

CARD = AttackCard("membership/any", "any", "ours", "nothing", (Channel.OUTPUTS,), (), "nothing")


def stays(seed: int, n: int, shift: float = 0.0, **more: npt.NDArray[np.generic]) -> Secrets:
    """n stays of 6 hours and 4 features, half of them members by coins; one feature of members is `shift` higher."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, n).astype(np.uint8)
    values = rng.standard_normal((n, 6, 4)).astype(np.float32)
    values[:, :, 2] += np.float32(shift) * coins[:, None]
    return Secrets({MEMBER: coins, "inputs/A": values, **more})


def questionnaires(seed: int, n: int, leaning: float = 0.0) -> Secrets:
    """n records of 6 answers on scales of 5, half of them members by coins; a share `leaning` of members gives the
    lowest answer to one question.
    """
    rng = np.random.default_rng(seed)
    coins, codes = rng.integers(0, 2, n).astype(np.uint8), rng.integers(-1, 5, (n, 6))
    codes[(coins == 1) & (rng.random(n) < leaning), 3] = 0
    return Secrets({MEMBER: coins, "inputs/questionnaire/codes": codes})


def read(secrets: Secrets, seed: int = 0, blind: Blind = blind_scores) -> tuple[Scores, Coins]:
    """What is made of every record, and the coins."""
    rows, coins = secrets.memberships()
    found = blind(secrets, rows, coins, rows, np.random.default_rng(seed))
    assert found is not None
    return found, coins


def judged(blind: Scores | None, coins: Coins) -> Judged:
    """Findings of an attack that guesses by lot, beside what the records alone say."""
    scores = np.random.default_rng(0).random(len(coins)).astype(np.float32)
    asked = Membership(
        {CARD.name: Exposed(CARD, curious_outsider(), scores)}, {}, np.arange(len(coins)), coins, blind, len(coins), 0
    )
    return assemble_members(Header("any", 0, "none", None), asked, default_registry())


def test_fair_coins_raise_no_flag_and_stay_near_chance() -> None:
    """16 cohorts of 300 stays. The control errs once in 1,000: two flags are seen one time in 8,000. The mean AUC is
    within 4 of Mann and Whitney's standard errors of 1/2.
    """
    flags, values = 0, []
    for seed in range(16):
        found, coins = read(stays(seed, 300), seed)
        flags += judged(found, coins).flags == ("SHIFT",)
        values.append(auc(found, coins).value)
    most = int(stats.binom.isf(1e-3, 16, 1 - CONTROL_LEVEL))
    assert flags <= most == 1
    assert abs(np.mean(values) - 0.5) < 4 / np.sqrt(3 * 300 * 16)


def test_answers_of_a_fair_draw_raise_no_flag() -> None:
    """16 draws of 300 questionnaires, to the same limits."""
    found = [read(questionnaires(seed, 300), seed) for seed in range(16)]
    assert sum(judged(scores, coins).flags == ("SHIFT",) for scores, coins in found) <= 1
    areas = [auc(scores, coins).value for scores, coins in found]
    assert abs(np.mean(areas) - 0.5) < 4 / np.sqrt(3 * 300 * 16)


def test_members_who_answer_otherwise_are_flagged() -> None:
    found, coins = read(questionnaires(1, 800, leaning=0.6))
    assert auc(found, coins).value > 0.65
    assert judged(found, coins).flags == ("SHIFT",)


def test_tokens_of_marked_answers_are_no_codes() -> None:
    """They are an inversion's to read; without anything else nobody is blind here."""
    secrets = questionnaires(2, 100)
    tokens = {"inputs/A": np.ones((100, 6), np.int64), "inputs/A/answers": np.zeros((100, 6), np.int64)}
    marked = Secrets({MEMBER: secrets.arrays[MEMBER], **tokens})
    assert coded(secrets) == ("inputs/questionnaire/codes",)
    assert coded(marked) == ()
    rows, coins = marked.memberships()
    assert blind_scores(marked, rows, coins, rows, np.random.default_rng(0)) is None


def test_other_records_are_told_apart_and_flagged() -> None:
    found, coins = read(stays(1, 800, shift=1.0))
    assert auc(found, coins).value > 0.8
    told = judged(found, coins)
    assert told.flags == ("SHIFT",)
    (finding,) = (item for item in told.findings if item.metric == "auc")
    control = finding.controls["negative"]
    assert control is not None
    assert not control["passed"]
    assert finding.baseline == control["value"] == auc(found, coins).value
    assert np.array_equal(told.scores[f"blind/{MEMBER}"], found)


def test_what_a_fair_control_says_is_in_the_record() -> None:
    found, coins = read(stays(2, 400))
    told = judged(found, coins)
    assert told.flags == ()
    plain = auc(found, coins, CONTROL_LEVEL)
    low, high = (plain.value + 2**0.5 * (end - plain.value) for end in (plain.low, plain.high))
    for finding in told.findings:
        control = finding.controls["negative"]
        assert control is not None
        assert (control["value"], control["n"], control["passed"]) == (plain.value, 400, True)
        assert (control["low"], control["high"]) == pytest.approx((low, high))


def crossed(n: int, rng: np.random.Generator) -> tuple[Scores, Coins]:
    """Fair coins, and out-of-fold scores that are sums over the records learned from: the nearest mean, in 5 folds."""
    coins, x = rng.integers(0, 2, n).astype(np.uint8), rng.standard_normal((n, 30))
    fold = rng.permutation(n) % 5
    sums = np.stack([(2.0 * coins[fold == k] - 1) @ x[fold == k] for k in range(5)])
    return np.asarray((x * (sums.sum(axis=0) - sums[fold])).sum(axis=1), np.float32), coins


def test_scores_out_of_folds_are_allowed_their_double_variance() -> None:
    """1,000 audits of 200 records each with fair coins. The variance of an AUC of given scores, (n + 1) / (12 a b), is
    seen about twice; an interval of given scores would cry wolf, the control's does not.
    """
    rng = np.random.default_rng(20)
    found = [crossed(200, rng) for _ in range(1_000)]
    areas = np.array([auc(*pair).value for pair in found])
    given = np.mean([201 / (12 * float(c.sum()) * float(200 - c.sum())) for _, c in found])
    assert 1.7 < areas.var() / given < 2.3
    most = stats.binom.isf(1e-3, 1_000, 1 - CONTROL_LEVEL)
    narrow = [auc(*pair, CONTROL_LEVEL) for pair in found]
    assert sum(not item.low <= 0.5 <= item.high for item in narrow) > 2 * most
    assert sum("SHIFT" in judged(*pair).flags for pair in found) <= most


def test_what_was_not_measured_is_no_feature_and_that_it_was_not_is_one() -> None:
    """Fillings differ between members and others: unseen where they are marked as not measured. Gaps that differ are
    seen.
    """
    rng = np.random.default_rng(21)
    coins, values = rng.integers(0, 2, 400).astype(np.uint8), rng.standard_normal((400, 6, 4)).astype(np.float32)
    gaps = rng.random(values.shape) < 0.3
    filled = np.where(gaps, np.float32(9) * coins[:, None, None], values)
    marked = {"inputs/A": filled, "inputs/A/observed": (~gaps).astype(np.uint8)}
    assert judged(*read(Secrets({MEMBER: coins, "inputs/A": filled}))).flags == ("SHIFT",)
    assert judged(*read(Secrets({MEMBER: coins, **marked}))).flags == ()
    more = gaps | (coins[:, None, None] == 1) & (rng.random(values.shape) < 0.3)
    telling = {"inputs/A": values, "inputs/A/observed": (~more).astype(np.uint8)}
    assert judged(*read(Secrets({MEMBER: coins, **telling}))).flags == ("SHIFT",)


def test_without_features_nothing_is_said() -> None:
    rng = np.random.default_rng(3)
    coins = rng.integers(0, 2, 200).astype(np.uint8)
    for secrets in (
        Secrets({MEMBER: coins}),
        Secrets({MEMBER: coins, "labels/ill": rng.integers(0, 2, 200)}),
        Secrets({MEMBER: coins, "inputs/A": rng.integers(0, 9, (200, 5))}),
    ):
        rows, tossed = secrets.memberships()
        assert blind_scores(secrets, rows, tossed, rows, rng) is None
    told = judged(None, coins)
    assert told.flags == ()
    assert f"blind/{MEMBER}" not in told.scores
    assert all(item.baseline is None and item.controls["negative"] is None for item in told.findings)


def test_only_the_scored_are_scored_in_their_order() -> None:
    """Records of a coin, some of them told to the attacks; others, without a coin, stand between them."""
    marked = (np.arange(450) % 3 > 0).astype(np.uint8)
    secrets = stays(4, 450, shift=1.0, **{f"canary/{MEMBER}": marked})
    rows, coins = secrets.memberships()
    assert len(rows) == 300
    every = blind_scores(secrets, rows, coins, rows, np.random.default_rng(0))
    some = blind_scores(secrets, rows, coins, rows[5::7], np.random.default_rng(0))
    assert every is not None
    assert some is not None
    assert np.array_equal(some, every[5::7])
    assert auc(every, coins).value > 0.75


def test_one_seed_one_answer() -> None:
    first, again, other = (read(stays(5, 300), seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("shape", [(300, 4), (300, 6, 4)], ids=["a table", "series"])
def test_tables_and_series_are_read(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    coins = rng.integers(0, 2, 300).astype(np.uint8)
    values = rng.standard_normal(shape).astype(np.float32)
    values[..., 1] += 2 * coins.reshape(-1, *[1] * (len(shape) - 2))
    found, _ = read(Secrets({MEMBER: coins, "inputs/A": values}))
    assert auc(found, coins).value > 0.85


@pytest.mark.parametrize(
    "at", [np.s_[:, 0], np.s_[:, -1], np.s_[::2]], ids=["the first hour", "the last hour", "the spread"]
)
def test_a_shift_of_part_of_a_series_is_seen(at: tuple[slice, int]) -> None:
    rng = np.random.default_rng(7)
    coins = rng.integers(0, 2, 300).astype(np.uint8)
    values = 0.5 * rng.standard_normal((300, 40, 2)).astype(np.float32)
    if isinstance(at, slice):  # members swing about the same mean
        values[coins == 1] *= 2
    else:
        values[(*at, 0)] += 2 * coins
    found, _ = read(Secrets({MEMBER: coins, "inputs/A": values}))
    assert auc(found, coins).value > 0.9


# Folds


def test_a_label_that_is_the_coin_is_read() -> None:
    """Labels that no coin has set are features, as they are."""
    plain = stays(8, 300)
    telling = Secrets({**plain.arrays, "labels/ill": plain.array(MEMBER).astype(np.int64)})
    found, coins = read(telling)
    assert auc(found, coins).value == 1.0
    noise = Secrets({**plain.arrays, "labels/ill": np.random.default_rng(88).integers(0, 2, 300)})
    assert judged(*read(noise)).flags == ()


def test_labels_that_a_coin_has_set_are_no_features() -> None:
    """Those of the tasks that it moves neither: they would be noise, and noise costs what a shift is seen by."""
    rng = np.random.default_rng(11)
    plain, tossed = stays(11, 60), rng.integers(0, 2, 60)
    labels = {"labels/joint": tossed, "labels/a": tossed[:, None], "labels/ill": rng.integers(0, 3, 60)}
    secrets = Secrets({**plain.arrays, **labels, "canary/joint": np.ones(60, np.uint8)}, {"joint": ["a"]})
    assert secrets.natural_labels == ("labels/ill",)


def in_sample(
    secrets: Secrets, candidates: npt.NDArray[np.int64], coins: Coins, scored: npt.NDArray[np.int64], rng: object
) -> Scores:
    """A broken blind: one classifier that is trained on what it scores."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    features = secrets.array("inputs/A")[candidates].reshape(len(candidates), -1)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0, early_stopping=False).fit(features, coins)
    return np.asarray(model.decision_function(features)[np.searchsorted(candidates, scored)], np.float32)


def moved_by_its_own_coin(blind: Blind, seed: int) -> int:
    """How many of 4 records are scored differently when their own coin is turned, and nothing else."""
    secrets = stays(seed, 240)
    rows, coins = secrets.memberships()
    plain, _ = read(secrets, 0, blind)
    moved = 0
    for row in range(0, 240, 60):
        turned = coins.copy()
        turned[row] = 1 - turned[row]
        found = blind(secrets, rows, turned, rows, np.random.default_rng(0))
        moved += found[row] != plain[row]
    return moved


def test_no_record_is_scored_by_a_model_that_saw_its_coin() -> None:
    """Exact: the folds are drawn without a look at the coins, so a record's own can reach no model that scores it."""
    assert moved_by_its_own_coin(blind_scores, 9) == 0
    assert moved_by_its_own_coin(in_sample, 9) == 4


def test_a_blind_that_is_trained_on_what_it_scores_cries_wolf() -> None:
    """What the folds are for: on fair coins it tells nearly every member, and every audit would be flagged."""
    found, coins = read(stays(10, 400), 0, in_sample)
    assert auc(found, coins).value > 0.9
    assert judged(found, coins).flags == ("SHIFT",)


def test_few_records_can_be_told_apart() -> None:
    """45 candidates, as few as an audit takes: a shift of two standard deviations in every hour is seen."""
    found, coins = read(stays(30, 45, shift=2.0))
    assert auc(found, coins).value > 0.9
    assert judged(found, coins).flags == ("SHIFT",)


@pytest.mark.parametrize("n", [46, 300])
def test_where_nothing_varies_nothing_is_read(n: int) -> None:
    """Folds differ by rounding alone, and that is no order of records."""
    coins = np.random.default_rng(31).integers(0, 2, n).astype(np.uint8)
    found, tossed = read(Secrets({MEMBER: coins, "inputs/A": np.ones((n, 6, 4), np.float32)}))
    assert auc(found, tossed).value == 0.5

"""The self-test passes as it stands, is complete, and catches what it is there for: mistakes that shipped elsewhere."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from privbench import selftest
from privbench.accounting import gdp_eps
from privbench.cli.selftest import run_selftest_command
from privbench.errors import InputError
from privbench.selftest import EXACT, Row, SelfTest, run_selftest
from privbench.selftest_cases import ESTIMATORS, GAUSSIAN, MECHANISMS, RESPONSE, Estimator, Known, Sample
from privbench.stats import binomial
from privbench.stats.epsilon import eps_at_threshold
from privbench.stats.one_run import Guesses, steinke_eps, top_guesses
from privbench.stats.roc import roc
from privbench.verdict import ALPHA, ConfirmatoryTest, Judgement, Verdict, judge

NULLS = {"no leakage", "no leakage, ties"}
REVEALED = "label revealed with 0.1, else eps 1"
PURE = {"Laplace, eps 1", "Laplace, eps 3", "randomised response, eps 1", RESPONSE}


@pytest.fixture(scope="module")
def quick() -> SelfTest:
    return run_selftest(quick=True)


# As it stands


def test_quick_passes(quick: SelfTest) -> None:
    assert [row for row in quick.rows if not row.passed] == []
    assert quick.passed


@pytest.mark.slow
def test_full_passes() -> None:
    full = run_selftest(quick=False)
    assert [row for row in full.rows if not row.passed] == []
    assert {row.limit for row in full.rows if row.what in ("false alarms", "validity", "verdict level")} == {131}
    assert {row.runs for row in full.rows if row.what == "false alarms"} == {2000}


def test_every_estimator_is_held_against_every_mechanism(quick: SelfTest) -> None:
    for estimator in ESTIMATORS:
        rows = of(quick, estimator)
        assert {row.mechanism for row in rows if row.what == "false alarms"} == NULLS
        covered = {m.name for m in MECHANISMS if estimator.assumes == "dp" or m.name != REVEALED}
        assert {row.mechanism for row in rows if row.what == "validity"} == covered - NULLS
        assert [row.mechanism for row in rows if row.what == "tightness"] == [estimator.reaches]
        assert len(rows) == len(covered) + 1


def test_the_mechanisms_and_estimators_that_were_promised_are_there() -> None:
    assert {known.name for known in MECHANISMS} == NULLS | PURE | {"Gaussian, eps 1", GAUSSIAN, REVEALED}
    assert {e.name.split(",")[0] for e in ESTIMATORS} == {"Clopper-Pearson", "exact ranks", "Gaussian DP", "one run"}
    assert len({e.name for e in ESTIMATORS}) == len(ESTIMATORS) == 8
    within = {e.name: e.within for e in ESTIMATORS if e.reaches == GAUSSIAN}
    assert within["Gaussian DP, threshold"] == within["Gaussian DP, ranks"] == 0.1


def test_verdicts_have_their_level_power_and_planning(quick: SelfTest) -> None:
    rest = [row.what for row in quick.rows if row.estimator in ("verdict", "records needed")]
    assert rest == ["verdict level"] * 3 + ["verdict power"] + ["planning"] * 5


def test_limits_are_what_an_honest_rate_shows_but_for_one_time_in_a_thousand(quick: SelfTest) -> None:
    for row in quick.rows:
        if row.what in ("false alarms", "validity", "verdict level"):
            assert stats.binom.sf(row.limit, row.runs, 0.05) <= 0.001 < stats.binom.sf(row.limit - 1, row.runs, 0.05)
        if row.what == "verdict power":
            assert stats.binom.cdf(row.limit - 1, row.runs, 0.9) <= 0.001 < stats.binom.cdf(row.limit, row.runs, 0.9)


def test_a_seed_fixes_everything_and_no_row_depends_on_another(quick: SelfTest) -> None:
    for estimator in (ESTIMATORS[1], ESTIMATORS[-1]):
        alone = rows_of(estimator)
        assert alone == of(quick, estimator)
        assert alone != rows_of(estimator, seed=1)


def test_progress_rises_to_one() -> None:
    seen: list[tuple[str, float]] = []
    rows_of(ESTIMATORS[-1], progress=lambda label, share: seen.append((label, share)))
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (shares[0], seen[-1]) == (0, ("done", 1))


def test_nothing_tested_is_not_a_pass() -> None:
    assert not SelfTest(()).passed


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(InputError, match="unknown mechanism 'nowhere'; known: no leakage; "):
        run_selftest(quick=True, exact=(), estimators=[replace(ESTIMATORS[0], reaches="nowhere")])


def test_the_self_test_needs_no_torch() -> None:
    script = "import sys, privbench.selftest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_an_exception_is_a_row_that_failed_and_the_others_are_there() -> None:
    def broken(s: Sample, rng: np.random.Generator) -> float:
        raise ZeroDivisionError("by nothing")

    rows = rows_of(replace(ESTIMATORS[0], eps=broken))
    assert len(rows) == len(MECHANISMS) + 1
    assert {(row.passed, row.detail) for row in rows} == {(False, "ZeroDivisionError: by nothing")}
    exact = (replace(EXACT[0], distance=lambda: 1 / 0), replace(EXACT[0], distance=lambda: math.nan), EXACT[0])
    found = run_selftest(quick=True, estimators=(), exact=exact, planner=lambda *asked: None).rows[:3]
    assert [row.passed for row in found] == [False, False, True]


def test_what_needs_no_simulation_is_there(quick: SelfTest) -> None:
    """Every statistic that an audit may rest on has an exact row."""
    exact = [row for row in quick.rows if row.what in ("golden", "closed form", "simulated")]
    for name in (
        *("binomial limits", "binomial p-value", "binomial power", "limit of a mean", "Holm", "verdicts"),
        *("Gaussian DP, delta", "Gaussian DP, eps and mu", "Clopper-Pearson, counts", "exact ranks, dp"),
        *("exact ranks, gaussian", "exact ranks, split", "one run, eps (Steinke)", "one run, f-DP (Mahloujifar)"),
        *("one run, guesses", "bounds g and g-composed", "bounds on claims", "AUC", "ROC", "membership, LiRA"),
        *("membership, RMIA", "nominal accounting", "site accounting"),
    ):
        assert name in {row.estimator for row in exact}


# Truths


def missed(known: Known, fpr: np.ndarray) -> np.ndarray:
    """The trade-off function of a pure mechanism, from its definition (Dong, Roth, Su 2019 for Laplace)."""
    steep, flat = 1 - math.exp(known.eps) * fpr, math.exp(-known.eps) * (1 - fpr)
    if "Laplace" not in known.name:
        return np.maximum(steep, flat)
    middle = (fpr > math.exp(-known.eps) / 2) & (fpr < 0.5)
    return np.where(middle, math.exp(-known.eps) / (4 * fpr), np.where(fpr < 0.5, steep, flat))


@pytest.mark.parametrize("known", [m for m in MECHANISMS if m.name in PURE], ids=lambda m: m.name)
def test_mu_of_a_pure_mechanism_is_the_smallest_that_covers_it(known: Known) -> None:
    fpr = np.linspace(0, 1, 400_001)[1:-1]
    gap = -special.ndtri(fpr) - special.ndtri(missed(known, fpr))
    assert known.mu == pytest.approx(gap.max(), abs=1e-4)
    assert known.mu >= gap.max() - 1e-9
    assert known.truth("gaussian") > known.truth("dp") == known.eps


def test_truths_of_the_gaussian_mechanisms() -> None:
    by_name = {known.name: known for known in MECHANISMS}
    for family in ("dp", "gaussian"):
        assert round(by_name[GAUSSIAN].truth(family), 4) == 4.3772
        assert by_name["Gaussian, eps 1"].truth(family) == pytest.approx(1)
        assert all(by_name[name].truth(family) == 0 for name in NULLS)


@pytest.mark.parametrize("known", MECHANISMS, ids=lambda m: m.name)
def test_released_scores_have_the_error_rates_that_are_claimed(known: Known) -> None:
    """200,000 records at both thresholds: no point of the true curve below either bound by 4 standard errors."""
    rng = np.random.default_rng(30)
    for family in ("dp", "gaussian"):
        sample = known.draw(200_000, family, rng)
        called = sample.scores >= sample.threshold
        fpr, tpr = called[sample.labels == 0].mean(), called[sample.labels == 1].mean()
        error = 4 * math.sqrt(0.25 / 100_000)
        assert tpr - error <= stats.norm.sf(stats.norm.isf(fpr + error) - known.mu)
        assert tpr - error <= math.exp(known.eps) * (fpr + error) + known.delta
        if known.leaks and family == "gaussian" and known.covers(family):
            assert tpr + error >= stats.norm.sf(stats.norm.isf(fpr - error) - known.mu)
        if known.leaks and family == "dp" and known.delta != 1e-5:
            assert tpr + error >= math.exp(known.eps) * (fpr - error) + known.delta


def test_records_are_stored_in_an_order_that_no_one_may_lean_on() -> None:
    rng = np.random.default_rng(31)
    first = {float(MECHANISMS[1].draw(50, "dp", rng).labels[0]) for _ in range(40)}
    assert first == {0.0, 1.0}


# Mistakes that shipped elsewhere: each must be caught, by the criterion that is there for it


def absolute_mu(s: Sample, rng: np.random.Generator) -> float:
    """100% false alarms: |mu| is positive whatever the attack."""
    miss, alarm, n1, n0 = counts(s, s.threshold)
    upper = [binomial.upper_limit(k, n, ALPHA / 2) for k, n in ((miss, n1), (alarm, n0))]
    return gdp_eps(abs(float(-special.ndtri(upper[1]) - special.ndtri(upper[0]))), s.delta)


def best_ratio(s: Sample, rng: np.random.Generator) -> float:
    """86 to 93% false alarms: the best ratio of limits over all thresholds, each as if it were the only one."""
    curve = roc(s.scores, s.labels)
    keep = (curve.tp > 0) & (curve.fp < curve.n0)
    tp, fp = curve.tp[keep], curve.fp[keep]
    low = special.betaincinv(tp, curve.n1 - tp + 1, ALPHA)
    high = special.betaincinv(fp + 1, curve.n0 - fp, 0.5)
    return max(0.0, float(np.log(np.max((low - s.delta) / high))))


def best_of_many_guess_counts(s: Sample, rng: np.random.Generator) -> float:
    """31 to 53% false alarms: the one-run limit, maximised over how many are guessed."""
    half = len(s.labels) // 2
    sides = np.unique(np.geomspace(4, half, 20).astype(int))
    tried = [top_guesses(s.scores, s.labels, rng, guess_in=int(k), guess_out=int(k)) for k in sides]
    return max(steinke_eps(guesses, delta=s.delta).eps for guesses in tried)


def best_accuracy(s: Sample, rng: np.random.Generator) -> float:
    """32 to 41% false alarms: the limit of the accuracy at the threshold that maximises it on these records."""
    curve = roc(s.scores, s.labels)
    right = int(np.max(curve.tp + curve.n0 - curve.fp))
    return max(0.0, float(special.logit(binomial.lower_limit(right, len(s.labels), ALPHA))))


def bootstrap_percentile(s: Sample, rng: np.random.Generator) -> float:
    """A headline of 8.5 where the truth is 4.4: an upper percentile of the best ratio of rates."""
    best = []
    for _ in range(15):
        drawn = rng.integers(0, len(s.labels), len(s.labels))
        curve = roc(s.scores[drawn], s.labels[drawn])
        best.append(float(np.log(np.max(curve.tpr / np.maximum(curve.fpr, 1 / curve.n0)))))
    return float(np.quantile(best, 0.975))


def ties_by_position(s: Sample, rng: np.random.Generator) -> float:
    """Equal scores in the order in which they are stored, members first or last."""
    side = len(s.labels) // 4
    coins = s.labels[np.argsort(s.scores, kind="stable")]
    right = int(coins[-side:].sum() + (1 - coins[:side]).sum())
    return steinke_eps(Guesses(len(coins), 2 * side, right), delta=s.delta).eps


def estimate_instead_of_limit(s: Sample, rng: np.random.Generator) -> float:
    """Significant as it should be, and then the plain estimate is printed as if it were a limit."""
    side = len(s.labels) // 4
    guesses = top_guesses(s.scores, s.labels, rng, guess_in=side, guess_out=side)
    significant = steinke_eps(guesses, delta=s.delta).eps > 0
    return steinke_eps(guesses, delta=0.0, alpha=0.5).eps if significant else 0.0


def gaussian_limit(s: Sample, rng: np.random.Generator) -> float:
    """Valid for Gaussian mechanisms, and told as if it were valid for all."""
    return gaussian_ranks.eps(replace(s, delta=1e-5), rng)


def without_delta(s: Sample, rng: np.random.Generator) -> float:
    """Valid for pure mechanisms, which are most of the cases."""
    return eps_at_threshold(s.scores, s.labels, s.threshold, delta=0.0).eps


def counts(s: Sample, threshold: float) -> tuple[int, int, int, int]:
    called, member = s.scores >= threshold, s.labels == 1
    return int((~called & member).sum()), int((called & ~member).sum()), int(member.sum()), int((~member).sum())


NEAR = {"within": 0.1, "reaches": RESPONSE}
gaussian_ranks = next(e for e in ESTIMATORS if e.name == "Gaussian DP, ranks")


@pytest.mark.parametrize(
    ("broken", "mechanisms"),
    [
        (Estimator("absolute mu", "gaussian", absolute_mu, GAUSSIAN, 0.1), NULLS),
        (Estimator("best ratio", "dp", best_ratio, **NEAR), {"no leakage"}),
        (Estimator("best of many guess counts", "dp", best_of_many_guess_counts, **NEAR), {"no leakage"}),
        (Estimator("best accuracy", "dp", best_accuracy, **NEAR), {"no leakage"}),
        (Estimator("bootstrap", "dp", bootstrap_percentile, **NEAR), {"no leakage", "Gaussian, eps 1"}),
        (Estimator("ties by position", "dp", ties_by_position, **NEAR), {"no leakage, ties"}),
        (Estimator("estimate", "dp", estimate_instead_of_limit, **NEAR), PURE),
        (replace(gaussian_ranks, name="assumption not named", assumes="dp", eps=gaussian_limit), PURE),
        (Estimator("not a number", "dp", lambda s, rng: math.nan, **NEAR), {m.name for m in MECHANISMS}),
        (Estimator("delta forgotten", "dp", without_delta, **NEAR), {REVEALED}),
    ],
    ids=lambda value: value.name if isinstance(value, Estimator) else "",
)
def test_a_limit_that_is_wrong_is_caught(
    broken: Estimator, mechanisms: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [known for known in MECHANISMS if known.name in mechanisms | {broken.reaches}]
    monkeypatch.setattr(selftest, "MECHANISMS", asked)
    caught = {row.mechanism for row in rows_of(broken) if row.what in ("false alarms", "validity") and not row.passed}
    assert mechanisms <= caught


def test_mistakes_are_caught_where_they_are_and_nowhere_else() -> None:
    """A stored order matters to ties alone, and a plain estimate is no false alarm."""
    for name, eps in (("ties by position", ties_by_position), ("estimate", estimate_instead_of_limit)):
        rows = {row.mechanism: row.passed for row in rows_of(Estimator(name, "dp", eps, **NEAR))}
        assert rows["no leakage"]
        assert rows["no leakage, ties"] == (eps is estimate_instead_of_limit)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)
def test_always_zero_is_valid_and_not_tight(estimator: Estimator) -> None:
    failed = [row.what for row in rows_of(replace(estimator, eps=lambda s, rng: 0.0)) if not row.passed]
    assert failed == ["tightness"]


# Verdicts that are wrong


def without_holm(tests: Sequence[ConfirmatoryTest], alpha: float) -> tuple[Judgement, ...]:
    return tuple(judge([test], alpha)[0] for test in tests)


def keeps_alpha_after_a_rejection(tests: Sequence[ConfirmatoryTest], alpha: float) -> tuple[Judgement, ...]:
    """A step-down whose first rejection hands all of alpha to each of the others."""
    shares = judge(tests, alpha)
    return without_holm(tests, alpha) if any(item.verdict is Verdict.EXCEEDED for item in shares) else shares


def too_strict(tests: Sequence[ConfirmatoryTest], alpha: float) -> tuple[Judgement, ...]:
    return tuple(
        replace(item, verdict=Verdict.INCONCLUSIVE) if item.p_value > alpha / 120 else item
        for item in judge(tests, alpha)
    )


@pytest.mark.parametrize(
    ("wrong", "failed"),
    [
        (without_holm, {"6 exact bounds", "3 exact bounds, 3 exceeded"}),
        (keeps_alpha_after_a_rejection, {"3 exact bounds, 3 exceeded"}),
        (too_strict, {"1.2 times the bound's signal"}),
    ],
)
def test_a_wrong_verdict_is_caught(wrong: Any, failed: set[str]) -> None:
    result = run_selftest(quick=True, estimators=(), exact=(), judge=wrong)
    assert {row.mechanism for row in result.rows if not row.passed} == failed


@pytest.mark.parametrize("factor", [0.6, 1.5])
def test_a_wrong_number_of_records_is_caught(factor: float) -> None:
    def planner(bound: float, truth: float, alpha: float, wanted: float) -> int:
        return int(factor * (binomial.records_needed(bound, truth, alpha, wanted) or 0))

    result = run_selftest(quick=True, estimators=(), exact=(), planner=planner)
    failed = [row.what for row in result.rows if not row.passed]
    assert failed == ["verdict power"] * (factor < 1) + ["planning"] * 5


def test_no_number_of_records_is_caught() -> None:
    result = run_selftest(quick=True, estimators=(), exact=(), planner=lambda *asked: None)
    assert [row.what for row in result.rows if not row.passed] == ["verdict power"] + ["planning"] * 5


# The command


ROWS = (
    Row("good", "no leakage", "false alarms", 3, 28.0, 300, True, "fine"),
    Row("bad", "no leakage", "tightness", math.nan, 0.1, 100, False, "mean nan of a true 3.000"),
    Row("verdict", "1.2 times", "verdict power", 270, 253.0, 300, True, "fine"),
    Row("records needed", "accuracy", "planning", 1.25, 1.3, 0, True, "fine"),
    Row("raised", "no leakage", "validity", math.nan, math.nan, 0, False, "ValueError: no"),
)


def pretend(monkeypatch: pytest.MonkeyPatch, rows: tuple[Row, ...]) -> None:
    def run(*, quick: bool, progress: selftest.Report | None) -> SelfTest:
        if progress is not None:
            progress("estimator: mechanism", 0.5)
        return SelfTest(rows)

    monkeypatch.setattr(selftest, "run_selftest", run)


def test_the_table_says_what_failed_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, ROWS)
    assert run_selftest_command(quick=True, as_json=False) == 1
    out, err = capsys.readouterr()
    assert err == ""  # no progress where stderr is no terminal
    for text in (
        "<= 28",
        ">= 253",
        "<= 1.300",
        "exact",
        "FAILED bad, no leakage, tightness: mean nan",
        "3 of 5 checks",
    ):
        assert text in out


def test_all_passed_exits_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, ROWS[:1])
    assert run_selftest_command(quick=True, as_json=False) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "1 of 1 checks passed."
    assert out.splitlines()[1].split()[-1] == "result"


def test_json_is_strict_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, ROWS)
    assert run_selftest_command(quick=True, as_json=True) == 1
    read = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (read["passed"], read["quick"], len(read["rows"])) == (False, True, 5)
    assert read["rows"][0]["observed"] == 3
    assert read["rows"][1]["observed"] is None


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    pretend(monkeypatch, ROWS[:1])
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run_selftest_command(quick=True, as_json=False) == 0
    assert "estimator: mechanism" in terminal.getvalue()
    assert "mechanism: " not in capsys.readouterr().out


# What the tests above use


def rows_of(estimator: Estimator, seed: int = 0, progress: selftest.Report | None = None) -> list[Row]:
    """Quick rows of one estimator; verdicts are not simulated."""
    result = run_selftest(
        quick=True,
        seed=seed,
        progress=progress,
        estimators=[estimator],
        exact=(),
        judge=lambda tests, alpha: judge([tests[0]], alpha) * len(tests),
        planner=lambda *asked: None,
    )
    return of(result, estimator)


def of(result: SelfTest, estimator: Estimator) -> list[Row]:
    """The simulated rows of an estimator."""
    kinds = ("false alarms", "validity", "tightness")
    return [row for row in result.rows if row.estimator == estimator.name and row.what in kinds]

"""The audit of the auditor: every estimator and verdict on mechanisms whose answer is known (statistics.md).

An error rate is a count of runs held against the count that an honest rate shows but for one time in a thousand. So
each row with a rate that truly is at its limit fails by chance with probability at most .001; most are far below it.
The seed fixes everything, and each row has its own stream: leaving an estimator out changes no other row. Rows without
chance (golden values, closed forms) stand beside them: a wrong constant need not change an error rate by much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from privbench.bounds.base import BoundValue
from privbench.errors import InputError
from privbench.seeds import stream
from privbench.selftest_cases import ESTIMATORS, MECHANISMS, Estimator, Known
from privbench.selftest_exact import PROBABILITIES, Exact
from privbench.selftest_limits import LIMITS
from privbench.selftest_systems import SYSTEMS
from privbench.stats import binomial
from privbench.verdict import ALPHA, ConfirmatoryTest, Judgement, Verdict
from privbench.verdict import judge as product_judge

What = Literal[
    "false alarms", "validity", "tightness", "verdict level", "verdict power", "planning", "golden", "closed form",
    "simulated",
]  # fmt: skip
Judge = Callable[[Sequence[ConfirmatoryTest], float], Sequence[Judgement]]
Planner = Callable[[float, float, float, float], int | None]
"""Number of guesses for (bound, truth, alpha, wanted power), as `binomial.records_needed`."""

Report = Callable[[str, float], None]

CHANCE = 0.001
"""Probability that a row whose true rate is at its limit fails."""

RECORDS_NULL, RECORDS_VALID, RECORDS_TIGHT = 200, 400, 10_000
"""Canaries a run. An error rate does not need many; tightness is promised at 10,000."""

TIGHT_RUNS = 100
"""Of which the mean is taken. One run of Gaussian DP scatters by 3% of the truth, and at a given threshold its mean
stands 1.2% within the limit: 20 runs would fail one seed in thirty."""

SIGNAL, SCORED, SET = 0.816, 700, 6
"""The default audit: s_T of its composed bound, scored canaries, confirmatory tests."""

STRONGER, WANTED = 1.2, 0.9
"""A mechanism with this many times the bound's s is caught so often, at the fewest records that it takes."""

STRONGER_NAME = f"{STRONGER} times the bound's signal"

PLANS = ((0.551, 0.78, ALPHA), (0.551, 0.64, ALPHA), (0.731, 0.78, ALPHA), (0.55, 0.58, ALPHA))
"""(bound, truth, alpha) of docs/bounds.md and one that takes thousands, beside the default audit's own."""


@dataclass(frozen=True)
class Row:
    """One check. `observed` must be at most `limit`; for "verdict power" at least.

    Counts of runs for the rates; for "tightness" the distance of the mean from the truth as a share of it; for
    "planning" the factor between the number of guesses that was named and the smallest that does; for the rows of
    `selftest_exact` the distance from the right answer. `runs` is how often the check was simulated (0: computed
    exactly). An exception is a row that failed, its text the detail.
    """

    estimator: str
    mechanism: str
    what: What
    observed: float
    limit: float
    runs: int
    passed: bool
    detail: str


@dataclass(frozen=True)
class SelfTest:
    """All rows, in a fixed order. Without rows nothing was shown, so nothing passed."""

    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.passed for row in self.rows)


@dataclass(frozen=True)
class _Size:
    null: int
    valid: int
    level: int
    power: int


_FULL = _Size(2_000, 2_000, 2_000, 2_000)
_QUICK = _Size(150, 50, 300, 100)

EXACT = (*PROBABILITIES, *LIMITS, *SYSTEMS)


def run_selftest(
    *,
    quick: bool,
    seed: int = 0,
    progress: Report | None = None,
    estimators: Sequence[Estimator] = ESTIMATORS,
    judge: Judge = product_judge,
    planner: Planner = binomial.records_needed,
    exact: Sequence[Exact] = EXACT,
) -> SelfTest:
    """What needs no simulation, every estimator on every mechanism, verdicts and the numbers of records they name.

    `quick` takes fewer runs, hence looser limits: seconds instead of minutes. progress(what comes next, share done).
    The last four arguments are what is tested; give a broken one to see that it is caught.
    Raises InputError when an estimator promises to reach a mechanism that there is not.
    """
    size = _QUICK if quick else _FULL
    checks = [_Check(item.estimator, item.case, item.what, partial(_exact, item)) for item in exact]
    checks += [item for estimator in estimators for item in _estimator_checks(estimator, size, seed)]
    checks += _verdict_checks(size, seed, judge, planner)
    rows: list[Row] = []
    for check in checks:
        if progress is not None:
            progress(f"{check.estimator}: {check.mechanism}", len(rows) / len(checks))
        rows.append(check.row())
    if progress is not None:
        progress("done", 1.0)
    return SelfTest(tuple(rows))


@dataclass(frozen=True)
class _Check:
    """One row to come."""

    estimator: str
    mechanism: str
    what: What
    run: Callable[[], Row]

    def row(self) -> Row:
        """A check that raises has failed, and does not take the others with it."""
        try:
            return self.run()
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return Row(self.estimator, self.mechanism, self.what, math.nan, math.nan, 0, False, detail)


def _exact(item: Exact) -> Row:
    distance = item.distance()
    detail = f"{distance:.3g} from the right answer, at most {item.limit:.3g} is allowed"
    return Row(item.estimator, item.case, item.what, distance, item.limit, 0, distance <= item.limit, detail)


def _estimator_checks(estimator: Estimator, size: _Size, seed: int) -> list[_Check]:
    reached = [known for known in MECHANISMS if known.name == estimator.reaches]
    if not reached:
        names = "; ".join(known.name for known in MECHANISMS)
        raise InputError(
            f"estimator '{estimator.name}' reaches unknown mechanism '{estimator.reaches}'; known: {names}."
        )
    checks = [
        _Check(estimator.name, known.name, _named(known), partial(_never_above, estimator, known, size, seed))
        for known in MECHANISMS
        if known.covers(estimator.assumes)
    ]
    tight = partial(_tight, estimator, reached[0], seed)
    return [*checks, _Check(estimator.name, estimator.reaches, "tightness", tight)]


def _named(known: Known) -> What:
    return "validity" if known.leaks else "false alarms"


def _estimates(estimator: Estimator, known: Known, records: int, runs: int, seed: int) -> npt.NDArray[np.float64]:
    """[runs] lower limits, each from a sample of its own."""
    rng = stream(seed, f"selftest/{estimator.name}/{known.name}/{records}")
    return np.array([estimator.eps(known.draw(records, estimator.assumes, rng), rng) for _ in range(runs)])


def _never_above(estimator: Estimator, known: Known, size: _Size, seed: int) -> Row:
    """How often the lower limit lies above the truth; without leakage that is any limit above 0."""
    runs, records = (size.valid, known.records or RECORDS_VALID) if known.leaks else (size.null, RECORDS_NULL)
    truth = known.truth(estimator.assumes)
    found = _estimates(estimator, known, records, runs, seed)
    above, limit = int(np.sum(~(found <= truth))), _most(runs)  # written so that NaN counts as wrong
    held = f"eps {truth:.3g}"
    if known.leaks and estimator.assumes == "gaussian":
        held += f" (mu {known.mu:.3g})"
    return Row(
        estimator.name,
        known.name,
        _named(known),
        above,
        limit,
        runs,
        above <= limit,
        f"above {held} in {above / runs:.2%} of {runs:,} runs of {records} records; median {np.median(found):.3g}",
    )


def _tight(estimator: Estimator, known: Known, seed: int) -> Row:
    truth = known.truth(estimator.assumes)
    mean = float(np.mean(_estimates(estimator, known, RECORDS_TIGHT, TIGHT_RUNS, seed)))
    distance = abs(mean / truth - 1)
    return Row(
        estimator.name,
        known.name,
        "tightness",
        distance,
        estimator.within,
        TIGHT_RUNS,
        distance <= estimator.within,
        f"mean {mean:.3f} of a true {truth:.3f}, {RECORDS_TIGHT:,} records",
    )


def _verdict_checks(size: _Size, seed: int, judge: Judge, planner: Planner) -> list[_Check]:
    """Error rate of whole sets, then power at the n that is planned, then that n itself."""
    # All tests of the default set on records of their own; on the same records; and beside bounds that are exceeded,
    # where a step-down that hands on too much of alpha would show.
    cases = (
        (f"{SET} exact bounds", SET, 0, False),
        (f"{SET} exact bounds, same records", SET, 0, True),
        ("3 exact bounds, 3 exceeded", 3, 3, False),
    )
    level = partial(_level, runs=size.level, seed=seed, judge=judge)
    checks = [
        _Check("verdict", name, "verdict level", partial(level, name, nulls=nulls, false=false, shared=shared))
        for name, nulls, false, shared in cases
    ]
    checks.append(_Check("verdict", STRONGER_NAME, "verdict power", partial(_power, size.power, seed, judge, planner)))
    own = (_phi(SIGNAL), _phi(STRONGER * SIGNAL), ALPHA / SET)
    for bound, truth, alpha in (*PLANS, own):
        name = f"accuracy {truth:.3f} above {bound:.3f}"
        checks.append(_Check("records needed", name, "planning", partial(_plan, name, bound, truth, alpha, planner)))
    return checks


def _right(rng: np.random.Generator, signals: Sequence[float], n: int, shared: bool = False) -> list[int]:
    """Right guesses of n fair coins from one Gaussian release each, per mechanism; `shared`: the same release."""
    shape = (1 if shared else len(signals), n)
    coin = 2.0 * rng.integers(0, 2, shape) - 1
    release = np.asarray(signals)[:, None] * coin + rng.standard_normal(shape)
    return [int(count) for count in ((release > 0) == (coin > 0)).sum(axis=1)]


def _case(right: int, n: int) -> ConfirmatoryTest:
    return ConfirmatoryTest(
        right, n, n, BoundValue("exact", "accuracy", _phi(SIGNAL), SIGNAL), None, None, optimal=True
    )


def _level(mechanism: str, *, nulls: int, false: int, shared: bool, runs: int, seed: int, judge: Judge) -> Row:
    """How often any bound that holds exactly is EXCEEDED; the others have twice the signal, and always are."""
    rng = stream(seed, f"selftest/{mechanism}")
    signals = [SIGNAL] * nulls + [2 * SIGNAL] * false
    wrong = 0
    for _ in range(runs):
        judged = judge([_case(right, SCORED) for right in _right(rng, signals, SCORED, shared)], ALPHA)
        wrong += any(item.verdict is Verdict.EXCEEDED for item in judged[:nulls])
    limit = _most(runs)
    detail = f"one that holds is EXCEEDED in {wrong / runs:.2%} of {runs:,} sets on {SCORED} records"
    return Row("verdict", mechanism, "verdict level", wrong, limit, runs, wrong <= limit, detail)


def _power(runs: int, seed: int, judge: Judge, planner: Planner) -> Row:
    """How often the stronger mechanism is EXCEEDED among five whose bounds hold, at the number of records planned."""
    least = float(stats.binom.ppf(CHANCE, runs, WANTED))
    n = planner(_phi(SIGNAL), _phi(STRONGER * SIGNAL), ALPHA / SET, WANTED)
    if n is None:
        return Row("verdict", STRONGER_NAME, "verdict power", 0.0, least, 0, False, "no number of records was named")
    rng = stream(seed, f"selftest/{STRONGER_NAME}")
    caught = 0
    for _ in range(runs):
        counts = _right(rng, [STRONGER * SIGNAL] + [SIGNAL] * (SET - 1), n)
        caught += judge([_case(right, n) for right in counts], ALPHA)[0].verdict is Verdict.EXCEEDED
    detail = f"EXCEEDED in {caught / runs:.2%} of {runs:,} sets on the {n:,} records that {WANTED:.0%} should take"
    return Row("verdict", STRONGER_NAME, "verdict power", caught, least, runs, caught >= least, detail)


def _plan(mechanism: str, bound: float, truth: float, alpha: float, planner: Planner) -> Row:
    """The number named against the smallest with the wanted power, by trying every n."""
    named, exact = planner(bound, truth, alpha, WANTED), _smallest(bound, truth, alpha)
    factor = max(named / exact, exact / named) if named else math.inf
    detail = f"{named or 0:,} guesses named, {exact:,} are the fewest with power {WANTED:.0%} at alpha {alpha:.2g}"
    return Row("records needed", mechanism, "planning", factor, 1.0, 0, factor <= 1, detail)


def _smallest(bound: float, truth: float, alpha: float) -> int:
    """Straight from the definition, tails of all counts at each n, and none of the product's own code."""
    n = 0
    while True:
        n += 1
        counts = np.arange(n + 2)
        tails = np.where(counts == 0, 1.0, special.bdtrc(counts - 1.0, n, bound))
        critical = int(np.argmax(tails <= alpha))  # n + 1, whose tail is 0, at the latest
        if critical <= n and special.bdtrc(critical - 1.0, n, truth) >= WANTED:
            return n


def _most(runs: int) -> float:
    """Most events of rate alpha in so many runs, but for one time in a thousand."""
    return float(stats.binom.isf(CHANCE, runs, ALPHA))


def _phi(signal: float) -> float:
    return float(special.ndtr(signal))

"""From counts and bounds to verdicts: Holm over the confirmatory set, controls, power (docs/bounds.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from privbench.bounds.base import BoundValue
from privbench.scoring import Control
from privbench.stats import binomial
from privbench.stats.holm import HolmDecision, holm
from privbench.stats.one_run import Guesses, steinke_p_value

ALPHA = 0.05
RHO_SHARE = 0.005
"""Part of alpha spent on the upper confidence limit of a measured rho; the tests share the rest."""

MARGIN = 1.25
"""A WITHIN without a tight interval needs power against a mechanism with this many times the bound's signal."""

POWER = 0.8

SCORING = "the shuffled control"
"""How a reason begins that voids even an EXCEEDED: scoring that finds structure where there is none."""


class Verdict(StrEnum):
    """How a finding reads. "WITHIN" means that these attacks did not exceed the bound, never that it is safe."""

    EXCEEDED = "EXCEEDED"
    WITHIN = "WITHIN"
    INCONCLUSIVE = "INCONCLUSIVE"
    VACUOUS = "VACUOUS"
    UNCOVERED = "UNCOVERED"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    FAILED = "FAILED"
    REPORTED = "REPORTED"


@dataclass(frozen=True)
class ConfirmatoryTest:
    """One (attack, bound) of the confirmatory set: right of n guesses about `canaries` records.

    controls_failed   which control failed or could not be run, or None
    void              why nothing may be concluded (a mechanism that is not as declared, a broken instrument), or None
    optimal           whether the attack would read all of a stronger signal; only then does the test's power speak
    """

    right: int
    n: int
    canaries: int
    bound: BoundValue
    controls_failed: str | None
    void: str | None
    optimal: bool = False

    @property
    def p_value(self) -> float:
        return binomial.p_value(self.right, self.n, self.bound.value)


@dataclass(frozen=True)
class OneRunTest:
    """Guesses about coins that share one training, against (eps, delta). void: why nothing may be concluded."""

    guesses: Guesses
    eps: float
    delta: float
    void: str | None

    @property
    def p_value(self) -> float:
        return steinke_p_value(self.guesses, self.eps, self.delta)

    @property
    def best(self) -> float:
        """The p-value of nothing but right guesses."""
        return steinke_p_value(replace(self.guesses, right=self.guesses.guessed), self.eps, self.delta)


@dataclass(frozen=True)
class Judgement:
    """share: the part of alpha that this p-value had to meet (Holm); smallest: the part that the first has to meet."""

    verdict: Verdict
    p_value: float
    share: float
    smallest: float
    reason: str


def judge(
    tests: Sequence[ConfirmatoryTest | OneRunTest], alpha: float, planned: int | None = None, *, advise: bool = True
) -> tuple[Judgement, ...]:
    """One judgement per test, in order. `alpha` is what the whole set may spend.

    planned: how many tests the set was to have; those that could not be run keep their share. advise: whether the
    reasons name how many canaries would do, which takes a search each.
    """
    absent = max(0, (planned or 0) - len(tests))
    p_values = [test.p_value for test in tests]
    decisions = holm([*p_values, *[1.0] * absent], alpha)[: len(tests)]
    smallest = alpha / max(len(tests) + absent, 1)
    return tuple(
        _of_one_run(test, p, decision, smallest)
        if isinstance(test, OneRunTest)
        else _one(test, p, decision, smallest, advise)
        for test, p, decision in zip(tests, p_values, decisions, strict=True)
    )


def _one(test: ConfirmatoryTest, p: float, decision: HolmDecision, smallest: float, advise: bool) -> Judgement:
    def say(verdict: Verdict, reason: str) -> Judgement:
        return Judgement(verdict, p, decision.share, smallest, reason)

    value = test.bound.value
    if decision.rejected and not (test.void or "").startswith(SCORING):
        return say(
            Verdict.EXCEEDED,
            f"{test.right} of {test.n} right is more than the bound allows (p = {p:.2g}, Holm share "
            f"{decision.share:.2g})",
        )
    if test.void:
        return say(Verdict.FAILED, test.void)
    if binomial.p_value(test.n, test.n, value) > smallest:
        return say(Verdict.VACUOUS, f"even {test.n} of {test.n} right would not exceed a bound of {value:.3f}")
    if p <= ALPHA:
        return say(Verdict.INCONCLUSIVE, _ALONE.format(p=p, share=decision.share))
    if test.controls_failed:
        return say(Verdict.INCONCLUSIVE, f"not exceeded, but {test.controls_failed}: a weak attack proves nothing")
    if binomial.upper_limit(test.right, test.n, smallest) <= value:
        return say(Verdict.WITHIN, "these attacks did not exceed the bound, and the upper limit is below it")
    power = binomial.power(test.n, value, _at(test.bound, MARGIN), smallest)
    if power >= POWER and test.optimal:
        return say(
            Verdict.WITHIN,
            f"these attacks did not exceed the bound; {MARGIN} times its signal would have been caught with "
            f"probability {power:.2f}",
        )
    if power >= POWER:
        return say(Verdict.INCONCLUSIVE, "not exceeded, but a stronger leak might not have shown in this attack either")
    weak = (
        f"not exceeded, but {MARGIN} times the bound's signal would have been caught with probability {power:.2f} only"
    )
    if not advise:
        return say(Verdict.INCONCLUSIVE, weak)
    needed = canaries_needed(test.bound, test.n // test.canaries, MARGIN, POWER, smallest)
    wanted = f"about {needed:,} scored canaries would do" if needed else "no feasible number of canaries would do"
    return say(Verdict.INCONCLUSIVE, f"{weak}; {wanted}, {test.canaries:,} were scored")


def _of_one_run(test: OneRunTest, p: float, decision: HolmDecision, smallest: float) -> Judgement:
    """Never WITHIN: nothing without noise stands beside that would show an attack able to read it."""

    def say(verdict: Verdict, reason: str) -> Judgement:
        return Judgement(verdict, p, decision.share, smallest, reason)

    right, guessed = test.guesses.right, test.guesses.guessed
    if test.void:
        return say(Verdict.FAILED, test.void)
    if decision.rejected:
        said = f"{right} of {guessed} guesses right is more than the claim allows"
        return say(Verdict.EXCEEDED, f"{said} (p = {p:.2g}, Holm share {decision.share:.2g})")
    if test.best > smallest:
        return say(Verdict.VACUOUS, f"even {guessed} of {guessed} guesses right would not exceed eps {test.eps:.3g}")
    if p <= ALPHA:
        return say(Verdict.INCONCLUSIVE, _ALONE.format(p=p, share=decision.share))
    return say(
        Verdict.INCONCLUSIVE,
        "not exceeded, but nothing without noise was recorded that would show this attack to be able: a weak attack "
        "proves nothing",
    )


_ALONE = (
    "alone this count would exceed the bound (p = {p:.2g}); it does not once the error rate is shared (Holm share "
    "{share:.2g})"
)


def controls_say(
    positive: Control | None, negative: Control, refuted: Collection[str]
) -> tuple[str | None, str | None]:
    """`controls_failed` and `void` of a test, from its controls and the flags that refute its mechanism."""
    failed = None
    if positive is None:
        failed = "the positive control could not be run (no noise-free releases were recorded)"
    elif not positive.passed:
        failed = f"the positive control read {positive.value:.2f} of the coins from noise-free releases"
    void = None
    if not negative.passed:
        void = f"{SCORING} reads {negative.value:.3f}, not chance: the scoring is broken"
    elif refuted:
        void = f"nothing may be concluded: {' and '.join(sorted(refuted))}"
    return failed, void


def canaries_needed(bound: BoundValue, guesses_each: int, margin: float, power: float, share: float) -> int | None:
    """Scored canaries, of `guesses_each` guesses, with which `margin` times the bound's signal is EXCEEDED at this
    share of alpha with probability `power`; None where no feasible number does.
    """
    guesses = binomial.records_needed(bound.value, _at(bound, margin), share, power)
    return math.ceil(guesses / guesses_each) if guesses else None


def _at(bound: BoundValue, margin: float) -> float:
    """The accuracy of `margin` times the bound's signal."""
    return NormalDist().cdf(margin * bound.signal) if math.isfinite(bound.signal) else 1.0

"""A claim about records against guesses about members: the theorem simulated, its conditions, and every verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privbench.accounting import gdp_eps
from privbench.attack import AttackCard, NotApplicable, Scores
from privbench.bounds.base import BoundValue, Unsupported
from privbench.bounds.members import DPMembers
from privbench.findings import Header, Judged
from privbench.findings_members import HELD, NO_BOUND, assemble_members, one_run_guesses
from privbench.measure import Failure, Refused
from privbench.mechanism import Claim
from privbench.membership import Exposed, Membership
from privbench.record import Finding
from privbench.registry import default_registry
from privbench.stats.one_run import Guesses, steinke_p_value
from privbench.threat import Channel, ThreatModel, curious_outsider, server_with_updates_and_candidates
from privbench.verdict import OneRunTest, Verdict

REGISTRY = default_registry()
CARD = AttackCard("membership/x", "s", "p", "d", (Channel.UPDATES,), (), "c")
SERVER, OUTSIDER = server_with_updates_and_candidates(), curious_outsider()
DELTA = 1e-5


def claim(eps: float, delta: float = DELTA, audience: Any = "server", neighbours: Any = "add-remove") -> Claim:
    return Claim(eps, delta, audience, neighbours, "gdp")


def judged(
    scores: Mapping[str, Scores],
    coins: Any,
    promised: Claim | None,
    threat: ThreatModel = SERVER,
    refused: Mapping[str, Refused] | None = None,
) -> Judged:
    outcomes = {name: Exposed(CARD, threat, item) for name, item in scores.items()}
    asked = Membership(outcomes, refused or {}, np.arange(len(coins)), coins, None, len(coins), 0, promised)
    return assemble_members(Header("x", 0, "none", None), asked, REGISTRY)


def guesses(found: Judged) -> list[Finding]:
    return [item for item in found.findings if item.metric == "guesses"]


def game(mu: float, m: int, seed: int) -> tuple[Scores, Any]:
    """One training: a record with its coin moves a release by mu standard deviations, so that it is mu-GDP in each
    record. Half of the noise of every release is the training's own, the same for all records: guesses are not
    independent.
    """
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, m).astype(np.uint8)
    scores = mu * coins + math.sqrt(0.5) * (rng.standard_normal(m) + rng.standard_normal())
    return scores, coins


# The theorem


def test_an_honest_claim_is_not_exceeded() -> None:
    """250 trainings whose noise is shared between records, at 5%: more than 24 false alarms come once in 1,000 where
    the rate is 5%.

    Half of the noise is shared, so that one record is in fact told better than by mu: its own noise is sqrt(.5) of a
    standard deviation, and the claim is of mu / sqrt(.5).
    """
    eps = gdp_eps(0.3 / math.sqrt(0.5), DELTA)
    alarms = 0
    for seed in range(250):
        scores, coins = game(0.3, 200, seed)
        (found,) = guesses(judged({"a": scores}, coins, claim(eps)))
        alarms += found.verdict == Verdict.EXCEEDED
    assert alarms <= 24


def test_randomised_response_is_on_the_bound() -> None:
    """Pure eps, the tightest case: each coin is told right with e^eps / (1 + e^eps), and guessed as it is told. 81 of
    100 exceed at 5%, which has a chance of 4.4%: of 250 games between 2 and 24 but once in 1,000.
    """
    eps, alarms = 1.0, 0
    for seed in range(250):
        rng = np.random.default_rng(seed)
        coins = rng.integers(0, 2, 500).astype(np.uint8)
        told = np.where(rng.random(500) < 1 / (1 + math.exp(-eps)), coins, 1 - coins)
        (found,) = guesses(judged({"a": told + 0.1 * rng.random(500)}, coins, claim(eps, delta=0.0)))
        alarms += found.verdict == Verdict.EXCEEDED
    assert 2 <= alarms <= 24


@pytest.mark.parametrize("broken", [3.0, 5.0])
def test_less_noise_than_is_claimed_is_caught(broken: float) -> None:
    """A third, or a fifth, of the noise that is claimed for mu = 1: in each of 20 trainings of 2,000 records."""
    eps = gdp_eps(1.0, DELTA)
    for seed in range(20):
        scores, coins = game(broken * 1.5, 2_000, seed)
        (found,) = guesses(judged({"a": scores}, coins, claim(eps)))
        assert found.verdict == Verdict.EXCEEDED, seed


def test_what_is_shown_is_what_was_tested() -> None:
    scores, coins = game(1.0, 1_000, 1)
    (found,) = guesses(judged({"membership/a": scores}, coins, claim(1.0)))
    made = one_run_guesses(scores, coins)
    assert found.id == "membership/a/member/1/guesses/dp-members"
    assert (found.n, found.canaries, found.value) == (200, 1_000, made.right / 200)
    assert found.bound is not None
    assert found.bound["p_value"] == steinke_p_value(made, 1.0, DELTA)
    assert found.bound["value"] == pytest.approx((math.e + DELTA) / (1 + math.e))
    assert (found.bound["unit"], found.role, found.chance) == ("accuracy", "confirmatory", 0.5)
    assert found.bound["inputs"]["claim"]["eps"] == 1.0
    assert found.low is not None
    assert 0.5 <= found.low <= found.value


# Verdicts


def test_every_verdict() -> None:
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, 1_000).astype(np.uint8)
    nothing, everything = rng.random(1_000), coins + 0.1 * rng.random(1_000)
    few = coins[:40]
    cases = [
        (everything, coins, 1.0, Verdict.EXCEEDED, "200 of 200 guesses right is more than the claim allows"),
        (nothing, coins, 1.0, Verdict.INCONCLUSIVE, "a weak attack proves nothing"),
        (everything[:40], few, 8.0, Verdict.VACUOUS, "even 8 of 8 guesses right would not exceed eps 8"),
        (everything, np.ones(1_000, np.uint8) * (np.arange(1_000) > 50), 1.0, Verdict.FAILED, "COINS_NOT_FAIR"),
    ]
    for scores, tossed, eps, verdict, said in cases:
        (found,) = guesses(judged({"a": scores}, tossed.astype(np.uint8), claim(eps)))
        assert found.verdict == verdict
        assert said in found.reason


def test_how_large_an_eps_the_default_game_can_refute() -> None:
    """docs/bounds.md: 1,400 scored, 280 guesses, eight attacks."""
    smallest = {eps: OneRunTest(Guesses(1_400, 280, 0), eps, DELTA, None).best for eps in (3.8, 3.9)}
    assert smallest[3.8] < 0.05 / 8 < smallest[3.9]


def test_tests_share_one_error_rate() -> None:
    """Of attacks that the claim speaks about, also those that broke; who lacks a channel takes no share."""
    scores, coins = game(0.0, 400, 3)
    refused: dict[str, Refused] = {
        "broken": (CARD, SERVER, Failure("it broke")), "lacking": (CARD, SERVER, NotApplicable("no channel")),
    }  # fmt: skip
    found = guesses(judged({"a": scores, "b": scores}, coins, claim(1.0), refused=refused))
    assert sorted(item.bound["alpha"] for item in found if item.bound) == pytest.approx([0.05 / 3, 0.05 / 2])
    (alone,) = guesses(judged({"a": scores}, coins, claim(1.0)))
    assert alone.bound is not None
    assert alone.bound["alpha"] == 0.05


# Where it says nothing


def test_without_a_claim_nothing_is_judged() -> None:
    scores, coins = game(1.0, 200, 0)
    found = judged({"a": scores}, coins, None)
    assert guesses(found) == []
    assert {item.verdict for item in found.findings} == {Verdict.UNCOVERED}
    assert {item.reason for item in found.findings} == {NO_BOUND}
    held = judged({"a": scores}, coins, claim(1.0))
    assert {(item.verdict, item.reason) for item in held.findings if item.metric == "auc"} == {(Verdict.REPORTED, HELD)}


def test_a_claim_for_outsiders_says_nothing_about_who_sees_updates() -> None:
    scores, coins = game(5.0, 1_000, 0)
    promised = claim(0.5, audience="outsider")
    found = judged({"a": scores}, coins, promised, SERVER)
    assert guesses(found) == []
    assert {item.verdict for item in found.findings} == {Verdict.UNCOVERED}
    assert "this adversary sees updates" in found.findings[0].reason
    (outside,) = guesses(judged({"a": scores}, coins, promised, OUTSIDER))
    assert outside.verdict == Verdict.EXCEEDED
    (server,) = guesses(judged({"a": scores}, coins, replace(promised, audience="server"), OUTSIDER))
    assert server.verdict == Verdict.EXCEEDED


@pytest.mark.parametrize(
    ("promised", "channels", "part"),
    [
        (claim(1.0, audience="nominal"), ("updates",), "claim"),
        (claim(1.0, audience="site"), ("outputs",), "claim"),
        (claim(1.0, neighbours="replace"), ("updates",), "neighbours"),
        (claim(1.0), ("updates", "activations"), "claim"),
        (claim(1.0, audience="outsider"), ("outputs", "updates"), "claim"),
    ],
)
def test_conditions(promised: Claim, channels: tuple[str, ...], part: str) -> None:
    refused = DPMembers().evaluate(promised, channels)
    assert isinstance(refused, Unsupported)
    assert refused.part == part


@pytest.mark.parametrize(("audience", "channels"), [("server", ("updates", "outputs")), ("outsider", ("outputs",))])
def test_it_speaks(audience: str, channels: tuple[str, ...]) -> None:
    found = DPMembers().evaluate(claim(math.log(3), 0.01, audience), channels)
    assert isinstance(found, BoundValue)
    assert found.value == pytest.approx((3 + 0.01) / 4)

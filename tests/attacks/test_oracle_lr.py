from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from bench import AUDITOR, bench

from privbench.attack import Guess, NotApplicable
from privbench.attacks.label.oracle_lr import OracleLikelihoodRatio
from privbench.bounds.gaussian_sum import signal
from privbench.threat import Knowledge


@pytest.mark.parametrize(("sigma", "releases"), [(4.0, 1), (4.0, 10), (8.0, 20), (2.0, 3)])
def test_reaches_the_closed_form(sigma: float, releases: int) -> None:
    """Within 4 standard errors of Phi(s): a false alarm in one test of 16,000."""
    stand = bench(seed=1, records=20_050, releases=releases, sigma=sigma)
    guess = OracleLikelihoodRatio()(stand.view(), np.random.default_rng(0))
    assert isinstance(guess, Guess)
    expected = NormalDist().cdf(signal(1.0, sigma * math.sqrt(2), 2, 1.0, releases))
    error = math.sqrt(expected * (1 - expected) / 20_000)
    assert abs(stand.accuracy(guess.accumulated[-1]) - expected) < 4 * error


def test_equals_the_naive_likelihood_ratio() -> None:
    stand = bench(seed=2, records=80, releases=3)
    guess = OracleLikelihoodRatio()(stand.view(), np.random.default_rng(0))
    assert isinstance(guess, Guess)
    released = stand.transcript.arrays["gradients/A"].astype(float)
    zero, one = (stand.oracle.arrays[f"oracle/gradients/A/joint/{label}"] for label in (0, 1))
    for row, record in enumerate(range(50, 80)):
        total = 0.0
        for t in range(3):
            to_zero = sum((released[t, record] - zero[t, record]) ** 2)
            to_one = sum((released[t, record] - one[t, record]) ** 2)
            total += (to_zero - to_one) / (2 * 2.0)
            assert guess.accumulated[t, row] == pytest.approx(total, rel=1e-4, abs=1e-4)


def test_reads_every_coin_without_noise() -> None:
    stand = bench(seed=3, sigma=0.0)
    guess = OracleLikelihoodRatio()(stand.view(), np.random.default_rng(0))
    assert isinstance(guess, Guess)
    assert stand.accuracy(guess.single) == 1.0


def test_a_record_without_a_move_is_a_fair_coin_per_release() -> None:
    """Always guessing 1 would repeat one error T times. 20,000 fair guesses: 4 standard errors are .0142."""
    stand = bench(seed=4, records=4_050, releases=5)
    still = {name: np.zeros_like(array) for name, array in stand.oracle.arrays.items()}
    view = replace(stand.view(), arrays={**stand.view().arrays, **still})
    guess = OracleLikelihoodRatio()(view, np.random.default_rng(0))
    assert isinstance(guess, Guess)
    assert abs((guess.single > 0).mean() - 0.5) < 0.0142
    assert not (guess.single[0] == guess.single[1]).all()


def test_releases_that_never_happened_do_not_count() -> None:
    stand = bench(seed=5, records=150, releases=2)
    arrays = dict(stand.transcript.arrays)
    arrays["gradients/A/seen"] = np.stack([np.ones(150, np.uint8), np.zeros(150, np.uint8)])
    view = replace(stand.view(), arrays={**stand.view().arrays, **arrays})
    guess = OracleLikelihoodRatio()(view, np.random.default_rng(0))
    assert isinstance(guess, Guess)
    assert np.array_equal(guess.accumulated[0], guess.accumulated[1])


def test_refuses_an_adversary_without_the_model() -> None:
    weak = replace(AUDITOR, knowledge=AUDITOR.knowledge - {Knowledge.MODEL})
    result = OracleLikelihoodRatio()(bench(seed=6, records=80).view(threat=weak), np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    assert "model" in result.reason


def test_says_when_no_hypotheses_were_recorded() -> None:
    view = bench(seed=7, records=80).view()
    bare = replace(view, arrays={name: a for name, a in view.arrays.items() if not name.startswith("oracle")})
    result = OracleLikelihoodRatio()(bare, np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    assert "were not recorded" in result.reason

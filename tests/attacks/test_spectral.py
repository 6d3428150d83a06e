from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from bench import bench

from privbench.attack import Guess, Hints
from privbench.attacks.label.spectral import Spectral
from privbench.bounds.gaussian_sum import signal


def run(stand: object, **changes: object) -> Guess:
    view = replace(stand.view(), **changes) if changes else stand.view()  # type: ignore[attr-defined]
    guess = Spectral()(view, np.random.default_rng(0))
    assert isinstance(guess, Guess)
    return guess


def test_reaches_the_bayes_rate_with_many_records() -> None:
    """The design's anchor: within 2 points of Phi(s) at n = 20,000, d = 64, sigma = C, one release."""
    stand = bench(seed=1, records=20_050, releases=1, width=64, sigma=1.0, tasks=1)
    expected = NormalDist().cdf(signal(1.0, 1.0, 1, 0.0))
    assert stand.accuracy(run(stand).accumulated[-1]) == pytest.approx(expected, abs=0.02)


def test_accumulates_over_releases() -> None:
    stand = bench(seed=2, records=2_050, releases=16, width=16, sigma=4.0)
    guess = run(stand)
    expected = NormalDist().cdf(signal(1.0, 4.0 * math.sqrt(2), 2, 1.0, 16))
    assert stand.accuracy(guess.accumulated[-1]) == pytest.approx(expected, abs=0.04)
    assert stand.accuracy(guess.accumulated[-1]) > stand.accuracy(guess.accumulated[0]) + 0.1


def test_reads_every_coin_without_noise() -> None:
    assert bench(seed=3, sigma=0.0).accuracy(run(bench(seed=3, sigma=0.0)).accumulated[-1]) == 1.0


def test_the_sign_comes_from_the_hints_alone() -> None:
    stand = bench(seed=4, records=1_050, sigma=0.5)
    hints = stand.view().hints
    right = stand.accuracy(run(stand).accumulated[-1])
    wrong = stand.accuracy(run(stand, hints=Hints(hints.index, 1 - hints.secrets)).accumulated[-1])
    assert right > 0.9
    assert wrong == pytest.approx(1 - right)


def test_is_at_chance_where_nothing_leaks() -> None:
    """20 seeds of 1,000 fair guesses whose signs are random: the mean is .5 +- 4 standard errors (.0142)."""
    accuracies = []
    for seed in range(20):
        stand = bench(seed=seed, records=1_050, releases=2, clip=1.0)
        silent = {"gradients/A": np.random.default_rng(seed).normal(size=(2, 1_050, 16)).astype(np.float32)}
        accuracies.append(stand.accuracy(run(stand, arrays={**stand.view().arrays, **silent}).accumulated[-1]))
    assert abs(np.mean(accuracies) - 0.5) < 0.0142


def test_removes_what_the_sites_own_labels_explain() -> None:
    """The own task's gradient is a nuisance of known sign: with own labels in the view it does not hurt."""
    stand = bench(seed=5, records=1_050, releases=4, sigma=0.5)
    own = np.random.default_rng(5).integers(0, 2, 1_050)
    nuisance = np.zeros(16, np.float32)
    nuisance[0] = 8.0
    shifted = stand.transcript.arrays["gradients/A"] + (own[:, None] * nuisance).astype(np.float32)
    arrays = {**stand.view().arrays, "gradients/A": shifted}
    blind = stand.accuracy(run(stand, arrays=arrays).accumulated[-1])
    told = stand.accuracy(run(stand, arrays={**arrays, "auxiliary/A/labels/own": own}).accumulated[-1])
    assert told > 0.95
    assert blind < told - 0.2


def test_a_constant_release_is_a_fair_coin() -> None:
    stand = bench(seed=6, records=1_050, releases=1)
    guess = run(stand, arrays={**stand.view().arrays, "gradients/A": np.ones((1, 1_050, 16), np.float32)})
    # 1,000 fair coins: .437 to .563 is 4 standard errors.
    assert 0.437 < (guess.accumulated > 0).mean() < 0.563

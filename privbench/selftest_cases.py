"""What the self-test holds estimators against: mechanisms whose epsilon is known in closed form, and the estimators.

Two truths a mechanism, one for each assumption that an estimator may make. "dp": its eps at the delta used (0 where
the mechanism is pure, the hardest test). "gaussian": its trade-off function lies nowhere below that of some mu, and
the smallest such mu is what an estimator of Gaussian DP may claim at most. On a pure mechanism that mu reads a larger
eps than the mechanism has, so there the claim is about mu, not about eps: the price of the assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.accounting import gdp_eps, gdp_mu
from privbench.stats.epsilon import Family, eps_at_threshold, eps_on_ranks, eps_on_split
from privbench.stats.one_run import fdp_eps, steinke_eps, top_guesses

Array = npt.NDArray[np.float64]
Release = Callable[[Array, np.random.Generator], npt.NDArray[Any]]

DELTA = 1e-5
"""Of every claim but those about pure mechanisms."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Scores [n] of records whose labels [n] are independent fair coins, and what was fixed before they were drawn."""

    scores: Array
    labels: Array
    threshold: float
    delta: float


@dataclass(frozen=True)
class Known:
    """A mechanism with its true `eps` at `delta` and the smallest `mu` whose trade-off function is nowhere above its.

    thresholds: per assumption, a good decision that knows the mechanism and not the scores. mu is infinite where no
    Gaussian mechanism is as leaky. records: canaries a run, where it takes more than usual to see a mistake.
    """

    name: str
    eps: float
    mu: float
    delta: float
    thresholds: Mapping[Family, float]
    release: Release
    records: int | None = None

    @property
    def leaks(self) -> bool:
        return self.mu > 0

    def covers(self, assumes: Family) -> bool:
        """Whether this assumption can be true of the mechanism."""
        return assumes == "dp" or math.isfinite(self.mu)

    def truth(self, assumes: Family) -> float:
        """The largest eps that a lower limit under this assumption may claim."""
        return self.eps if assumes == "dp" else gdp_eps(self.mu, DELTA)

    def draw(self, records: int, assumes: Family, rng: np.random.Generator) -> Sample:
        """A fair coin a record, then its score. Stored members first or members last, so that no order is safe."""
        labels = np.sort(rng.integers(0, 2, records)).astype(np.float64)
        if rng.random() < 0.5:
            labels = labels[::-1]
        scores = np.asarray(self.release(labels, rng), dtype=np.float64)
        return Sample(scores, labels, self.thresholds[assumes], self.delta if assumes == "dp" else DELTA)


@dataclass(frozen=True)
class Estimator:
    """A lower limit of eps that claims to be above the truth with probability at most .05, if it `assumes` rightly.

    On 10,000 records of the mechanism `reaches` its mean is within a share `within` of the truth.
    """

    name: str
    assumes: Family
    eps: Callable[[Sample, np.random.Generator], float]
    reaches: str
    within: float


def _gaussian(name: str, mu: float) -> Known:
    """Where the ratio of the densities is large is beyond the middle: the family "dp" looks there."""
    return Known(
        name,
        gdp_eps(mu, DELTA),
        mu,
        DELTA,
        {"dp": mu / 2 + 1, "gaussian": mu / 2},
        lambda labels, rng: rng.standard_normal(len(labels)) + mu * labels,
    )


def _laplace(eps: float) -> Known:
    """Pure. Its ratio is e^eps on all of score > eps; its trade-off function meets the Gaussian one in the middle."""
    return Known(
        f"Laplace, eps {eps:g}",
        eps,
        2 * float(special.ndtri(1 - math.exp(-eps / 2) / 2)),
        0.0,
        {"dp": eps, "gaussian": eps / 2},
        lambda labels, rng: rng.laplace(size=len(labels)) + eps * labels,
    )


def _randomised_response(eps: float) -> Known:
    """Pure, and the least private mechanism of its eps everywhere; two values only, so that nearly all is tied."""
    truthful = float(special.expit(eps))

    def release(labels: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.random(len(labels)) < truthful, labels, 1 - labels)

    return Known(
        f"randomised response, eps {eps:g}",
        eps,
        2 * float(special.ndtri(truthful)),
        0.0,
        {"dp": 0.5, "gaussian": 0.5},
        release,
    )


def _revealing(eps: float, delta: float) -> Known:
    """(eps, delta) and nothing less, in both directions: with probability delta the label itself, else randomised
    response. Whoever forgets delta takes the revealed records for a far larger eps.
    """
    truthful = float(special.expit(eps))

    def release(labels: Array, rng: np.random.Generator) -> Array:
        answer = np.where(rng.random(len(labels)) < truthful, labels, 1 - labels)
        return np.where(rng.random(len(labels)) < delta, 3 * labels - 1, answer)

    thresholds: Mapping[Family, float] = {"dp": 0.5, "gaussian": 0.5}
    name = f"label revealed with {delta:g}, else eps {eps:g}"
    return Known(name, eps, math.inf, delta, thresholds, release, records=10_000)


def _no_leakage(name: str, threshold: float, release: Release) -> Known:
    return Known(name, 0.0, 0.0, 0.0, {"dp": threshold, "gaussian": threshold}, release)


GAUSSIAN, RESPONSE = "Gaussian, mu 1", "randomised response, eps 3"

MECHANISMS: tuple[Known, ...] = (
    _no_leakage("no leakage", 0.0, lambda labels, rng: rng.standard_normal(len(labels))),
    _no_leakage("no leakage, ties", 2.0, lambda labels, rng: rng.integers(0, 4, len(labels))),
    _gaussian("Gaussian, eps 1", gdp_mu(1.0, DELTA)),
    _gaussian(GAUSSIAN, 1.0),
    _laplace(1.0),
    _laplace(3.0),
    _randomised_response(1.0),
    _randomised_response(3.0),
    _revealing(1.0, 0.1),
)


def _at_threshold(family: Family) -> Callable[[Sample, np.random.Generator], float]:
    return lambda s, rng: eps_at_threshold(s.scores, s.labels, s.threshold, delta=s.delta, family=family).eps


def _on_split(family: Family) -> Callable[[Sample, np.random.Generator], float]:
    return lambda s, rng: eps_on_split(s.scores, s.labels, rng, delta=s.delta, family=family).eps


def _on_ranks(family: Family) -> Callable[[Sample, np.random.Generator], float]:
    return lambda s, rng: eps_on_ranks(s.scores, s.labels, delta=s.delta, family=family).eps


def _steinke(s: Sample, rng: np.random.Generator) -> float:
    """Half of the records is guessed: on a pure mechanism each guess is then right with the most that eps allows."""
    side = len(s.labels) // 4
    return steinke_eps(top_guesses(s.scores, s.labels, rng, guess_in=side, guess_out=side), delta=s.delta).eps


def _f_dp(s: Sample, rng: np.random.Generator) -> float:
    """An eighth of the records is guessed: a few sure guesses show more than many weak ones."""
    side = len(s.labels) // 16
    return fdp_eps(top_guesses(s.scores, s.labels, rng, guess_in=side, guess_out=side), delta=s.delta).eps


# One-run f-DP has a ceiling however many records there are; within 10% is asked of the others.
ESTIMATORS: tuple[Estimator, ...] = (
    Estimator("Clopper-Pearson, threshold", "dp", _at_threshold("dp"), RESPONSE, 0.1),
    Estimator("exact ranks, split", "dp", _on_split("dp"), RESPONSE, 0.1),
    Estimator("exact ranks, grid", "dp", _on_ranks("dp"), RESPONSE, 0.1),
    Estimator("Gaussian DP, threshold", "gaussian", _at_threshold("gaussian"), GAUSSIAN, 0.1),
    Estimator("Gaussian DP, split", "gaussian", _on_split("gaussian"), GAUSSIAN, 0.1),
    Estimator("Gaussian DP, ranks", "gaussian", _on_ranks("gaussian"), GAUSSIAN, 0.1),
    Estimator("one run, eps (Steinke)", "dp", _steinke, RESPONSE, 0.1),
    Estimator("one run, f-DP (Mahloujifar)", "gaussian", _f_dp, GAUSSIAN, 0.5),
)

"""Audits with a single training: m records, each with its own fair coin, guessed without seeing the coins.

These tests allow what Clopper-Pearson intervals do not: all records share one training. Fixed before the coins are
looked at: how many records are guessed, which, and how. The best of several numbers of guesses proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from privbench.accounting import gdp_eps
from privbench.stats.binomial import lower_limit
from privbench.stats.roc import check_open, split_by_label

MU_TOLERANCE = 1e-7
SQRT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class Guesses:
    """m records with a coin each, of which `guessed` were guessed and `right` guessed right."""

    m: int
    guessed: int
    right: int


@dataclass(frozen=True)
class OneRunBound:
    """eps exceeds the truth with probability at most `alpha`. mu: the Gaussian DP parameter behind it, if one is."""

    eps: float
    mu: float | None
    delta: float
    alpha: float
    guesses: Guesses


def top_guesses(
    scores: npt.ArrayLike, labels: npt.ArrayLike, rng: np.random.Generator, *, guess_in: int, guess_out: int
) -> Guesses:
    """Guess 1 for the guess_in highest of scores [m], 0 for the guess_out lowest; labels [m] are the coins.

    Both numbers must be fixed beforehand. `rng` orders equal scores: their stored order may know the labels.
    Raises ValueError when more is guessed than there is, and as `roc.split_by_label` does.
    """
    positive, negative = split_by_label(scores, labels)
    values = np.concatenate([positive, negative])
    m = len(values)
    if min(guess_in, guess_out) < 0 or guess_in + guess_out > m:
        raise ValueError(f"need guess_in, guess_out >= 0 with a sum of at most {m}, got {guess_in} and {guess_out}.")
    member = np.lexsort((rng.random(m), values)) < len(positive)
    right = int(member[m - guess_in :].sum()) + int((~member[:guess_out]).sum())
    return Guesses(m, guess_in + guess_out, right)


def steinke_p_value(guesses: Guesses, eps: float, delta: float) -> float:
    """How surprising so many right guesses are under (eps, delta)-DP (Steinke, Nasr, Jagielski 2023).

    P[B >= v] + 2 m delta max over 1 <= i <= v of P[v - i <= B < v] / i, with B ~ Binomial(r, e^eps / (1 + e^eps)),
    r guesses and v right ones; at most 1.
    Raises ValueError for impossible counts, eps < 0 or delta outside [0, 1).
    """
    _check(guesses, delta)
    if not eps >= 0:
        raise ValueError(f"eps must be at least 0, got {eps}.")
    r, v = guesses.guessed, guesses.right
    if v == 0:
        return 1.0
    tail = float(special.betainc(v, r - v + 1, special.expit(eps)))
    if delta == 0:
        return tail
    below = np.arange(v - 1, -1, -1)
    choose = special.gammaln(r + 1) - special.gammaln(below + 1) - special.gammaln(r - below + 1)
    mass = np.exp(choose + below * special.log_expit(eps) + (r - below) * special.log_expit(-eps))
    worst = float(np.max(np.cumsum(mass) / np.arange(1, v + 1)))
    return min(1.0, tail + 2 * guesses.m * delta * worst)


def steinke_eps(guesses: Guesses, *, delta: float, alpha: float = 0.05) -> OneRunBound:
    """Largest eps whose p-value is at most alpha, 0 when there is none (Steinke, Nasr, Jagielski 2023).

    Raises ValueError as `steinke_p_value` does, and for alpha outside (0, 1).
    """
    _check(guesses, delta)
    check_open("alpha", alpha)
    # At delta = 0 the answer is the exact lower limit of the share of right guesses; delta only takes away from it.
    eps = float(special.logit(lower_limit(guesses.right, guesses.guessed, alpha)))
    if eps <= 0 or steinke_p_value(guesses, 0.0, delta) > alpha:
        eps = 0.0
    elif delta > 0:
        eps = float(optimize.brentq(lambda x: steinke_p_value(guesses, x, delta) - alpha, 0.0, eps + 1e-9, xtol=1e-9))
    return OneRunBound(eps, None, delta, alpha, guesses)


def fdp_eps(guesses: Guesses, *, delta: float, alpha: float = 0.05, choices: int = 2) -> OneRunBound:
    """Largest mu whose Gaussian trade-off function the guesses reject, and its eps at delta.

    Mahloujifar, Melis, Chaudhuri 2024; `choices` is the number of values of each secret (2 for membership, K for
    labels), all equally likely. Assumes that the mechanism is Gaussian DP. However many records there are, mu is at
    most Phi^-1(alpha right / m) - Phi^-1(alpha wrong / m) for two choices: a few sure guesses beat many weak ones.
    Raises ValueError for impossible counts, alpha outside (0, 1), delta outside (0, 1) or choices < 2.
    """
    _check(guesses, delta)
    check_open("alpha", alpha)
    if delta == 0:
        raise ValueError("delta must be in (0, 1): at delta 0 every Gaussian mechanism has an infinite eps.")
    if choices < 2:
        raise ValueError(f"a secret has at least 2 values, got choices = {choices}.")
    mu = _largest_rejected_mu(guesses, alpha, choices)
    return OneRunBound(gdp_eps(mu, delta), mu, delta, alpha, guesses)


def _largest_rejected_mu(guesses: Guesses, alpha: float, choices: int) -> float:
    if not _rejects(guesses, 0.0, alpha, choices):
        return 0.0
    low, high = 0.0, 1.0
    while _rejects(guesses, high, alpha, choices):
        low, high = high, 2 * high
    while high - low > MU_TOLERANCE * high:
        middle = (low + high) / 2
        if _rejects(guesses, middle, alpha, choices):
            low = middle
        else:
            high = middle
    return low


def _rejects(guesses: Guesses, mu: float, alpha: float, choices: int) -> bool:
    """Whether so many right guesses have probability below alpha under the Gaussian trade-off function of mu.

    r and h bound the probabilities, per record, of having right guesses and of having wrong ones, and only grow: past
    the limit the function is rejected; and once h stands still so does r, hence everything after it.
    """
    m, guessed, right = guesses.m, guesses.guessed, guesses.right
    quantile = NormalDist().inv_cdf
    limit = guessed / m
    r, h = alpha * right / m, alpha * (guessed - right) / m
    for i in range(right - 1, -1, -1):
        grown = (choices - 1) * 0.5 * math.erfc((mu - quantile(r)) * SQRT_HALF)  # fbar^-1(r) = Phi(Phi^-1(r) - mu)
        if grown <= h:
            return False
        r += i / (guessed - i) * (grown - h)
        h = grown
        if r + h > limit:
            return True
    return False


def _check(guesses: Guesses, delta: float) -> None:
    m, guessed, right = guesses.m, guesses.guessed, guesses.right
    if not (0 <= right <= guessed <= m and guessed >= 1):
        raise ValueError(f"need 0 <= right <= guessed <= m and guessed >= 1, got {right}, {guessed} and {m}.")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta}.")

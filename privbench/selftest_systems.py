"""Exact rows of the self-test about what audits rest on: bounds, curves, membership scores, nominal accounting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from privbench import accounting
from privbench.bounds.base import Bound, BoundValue, Question
from privbench.grid import MECHANISMS, Point, bounds_at
from privbench.mechanism import Claim
from privbench.registry import default_registry
from privbench.selftest_exact import DELTA, EXACT, ROUNDED, Exact, worst
from privbench.stats.auc import auc, macro_auc
from privbench.stats.membership import Population, lira_offline, lira_online, logit_margin, rmia_offline
from privbench.stats.roc import advantage, roc, tpr_at_fpr

Array = npt.NDArray[np.float64]

DRAWS = 100_000
_FOUR_ERRORS = 4 * math.sqrt(0.25 / DRAWS)
_MEMBERSHIP = 0.015
"""Over seeds (statistics.md)."""


# Bounds


def _bayes_accuracy(name: str, tasks: int, moved: int, rho: float, releases: int) -> float:
    """A guesser who knows the moves, on draws of the mechanism itself: K sigma = 2, C = 1, task by task."""
    rng = np.random.default_rng(0)
    gram = np.full((moved, moved), rho) + (1 - rho) * np.eye(moved)
    values, vectors = np.linalg.eigh(gram)
    directions = vectors * np.sqrt(np.maximum(values, 0.0))  # [J, J], unit rows with cosine rho
    coin = np.repeat([1.0, -1.0], DRAWS // 2)
    if name == "separate":
        moves = directions[None, :, :]
        noise = rng.standard_normal((releases, DRAWS, moved, moved)) * 2.0
        shown = coin[:, None, None] * moves + noise
        ratio = (shown * moves).sum(axis=(0, 2, 3))
    else:
        move = directions.sum(axis=0)
        if name == "clipped-sum":
            move = move / max(1.0, float(np.linalg.norm(move)))
        draws = 1 if name in ("once", "clipped-sum") else tasks
        noise = 2.0 * rng.standard_normal((releases, draws, DRAWS, moved)).sum(axis=1)
        ratio = ((coin[:, None] * move + noise) @ move).sum(axis=0)
    return float(np.mean((ratio > 0) == (coin > 0)))


def _mechanism(name: str) -> float:
    """g and g-composed against draws, for one and two moved tasks of three, three angles, one release and four."""
    gaps = []
    registry = default_registry()
    for moved, rho, releases in ((1, 0.0, 1), (2, 0.0, 4), (2, 0.6, 1), (2, -0.5, 4), (2, 1.0, 4)):
        at = Point(2.0, 1.0, rho, 3, moved, releases, name)
        found = bounds_at(at, registry)["g" if releases == 1 else "g-composed"]
        value = found.value if isinstance(found, BoundValue) else math.nan
        reached = _bayes_accuracy(name, 3, moved, rho, releases)
        gaps.append(abs(reached - value))
    return max(gaps)


def _claimed() -> float:
    """Randomised response is as accurate as its claim allows; add/remove claims twice over; the nominal curve."""
    registry = default_registry()
    mechanism, question = Point(6.25, 1.0, 0.0, 3, 2, 20).describe()

    def value(name: str, claim: Claim) -> float:
        bound: Bound = registry.get("bounds", name)()
        found = bound.evaluate(mechanism, Question(question.moved, 20, claim=claim))
        return found.value if isinstance(found, BoundValue) else math.nan

    nominal = Claim(0.5, DELTA, "nominal", "add-remove", "rdp", 0.032, 20)
    found = [value("dp-cap", Claim(1.0, 0.1, "site", "replace", "gdp")), value("dp-cap", nominal)]
    found.append(value("nominal-curve", nominal))
    # With probability delta the label itself, else randomised response: right in delta + (1 - delta) e / (1 + e), and
    # the cap's (e + delta) / (1 + e) is that.
    revealed = 0.1 + 0.9 * float(special.expit(1.0))
    return worst(found, [revealed, float(special.expit(1.0)) + (1 + math.exp(0.5)) * DELTA / (1 + math.e), 0.5509])


# Curves

_TIED = (
    np.array([3, 3, 1, 2, 2, 0, 3, 2, 1, 0, 0, 2, 2, 1], float),
    np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
)


def _auc() -> float:
    """Pair by pair, ties half; a column and its mirror image are 1/2 on average."""
    scores, labels = _TIED
    pairs = np.sign(scores[labels == 1][:, None] - scores[labels == 0]) / 2 + 0.5
    columns = macro_auc(np.stack([scores, -scores], axis=1), np.stack([labels, labels], axis=1))
    return worst([auc(scores, labels).value, columns.value], [float(pairs.mean()), 0.5])


def _auc_interval() -> float:
    """Misses of a 95% interval in 300 samples of a known area beyond what is plausible, and width beyond half more than
    DeLong's, as a share of it.
    """
    rng, runs, side, labels = np.random.default_rng(0), 300, 80, np.repeat([1.0, 0.0], 80)
    truth, misses, width, plain = float(special.ndtr(1 / math.sqrt(2))), 0, 0.0, 0.0
    for _ in range(runs):
        positive, negative = rng.standard_normal(side) + 1, rng.standard_normal(side)
        found = auc(np.concatenate([positive, negative]), labels)
        misses += not found.low <= truth <= found.high
        width += found.high - found.low
        wins = positive[:, None] > negative
        plain += 2 * 1.96 * math.sqrt((wins.mean(axis=0).var() + wins.mean(axis=1).var()) / side)
    return max(0.0, misses - float(stats.binom.isf(0.001, runs, 0.05)), width / plain - 1.5)


def _roc() -> float:
    """Vertices at the ends of tie blocks only, every count by a threshold of its own."""
    scores, labels = _TIED
    curve = roc(scores, labels)
    right = [(int((scores[labels == 1] >= t).sum()), int((scores[labels == 0] >= t).sum())) for t in (9, 3, 2, 1, 0)]
    found = [*curve.tp, *curve.fp, tpr_at_fpr(scores, labels, 0.2).point.tp, advantage(scores, labels).value]
    return worst(
        found, [*(tp for tp, _ in right), *(fp for _, fp in right), 2, max(tp / 6 - fp / 8 for tp, fp in right)]
    )


# Membership


@cache
def _models() -> tuple[Array, Array, npt.NDArray[np.bool_], Population, Array]:
    """statistics.md: target [N] and references [R, N] of logits, member [R, N], population, the truth [N]."""
    rng = np.random.default_rng(1)
    records, references = 10_000, 64
    hard, gain = rng.normal(1.5, 1.5, records), np.abs(rng.normal(0.6, 0.5, records))
    member = rng.random((references + 1, records)) < 0.5
    logits = hard + gain * member + 0.7 * rng.standard_normal(member.shape)
    others = rng.normal(1.5, 1.5, records) + 0.7 * rng.standard_normal(member.shape)
    population = Population(special.expit(others[0]), special.expit(others[1:]))
    truth: Array = member[0].astype(np.float64)
    return logits[0], logits[1:], member[1:], population, truth


def _area(scores: Sequence[Array]) -> list[float]:
    return [auc(item, _models()[4]).value for item in scores]


def _lira() -> float:
    target, references, member, _, _ = _models()
    pooled = lira_online(target, references, member, variance="pooled")
    found = _area([pooled, lira_offline(target, references, member, variance="pooled")])
    three = logit_margin([[2.0, 1.0, -1.0]], [0])[0]
    return worst([*found, three], [0.745, 0.718, 2 - math.log(math.e + math.exp(-1))])


def _rmia() -> float:
    target, references, member, population, _ = _models()
    p, others = special.expit(target), special.expit(references)
    return worst(_area([rmia_offline(p, others, member, population, offset=a) for a in (0.3, 0.6)]), [0.685, 0.689])


# Accounting


def _nominal() -> float:
    """q = .01, sigma = 1, 10,000 steps: RDP, and the privacy loss distribution for either neighbours."""
    run = (1.0, 0.01, 10_000, DELTA)
    found = [accounting.nominal_eps(*run)]
    found += [accounting.nominal_eps_pld(*run, replace=both) for both in (False, True)]
    return worst(found, [6.7127, 6.1877, 10.8808])


def _site() -> float:
    """mu = 2 J C sqrt(T) / (sigma sqrt(K)), for the sum, and for tasks that are sent apart 2 C sqrt(J T) / sigma."""
    summed, _ = Point(2.0, 1.0, 0.0, 3, 2, 9).describe()
    apart, _ = Point(2.0, 1.0, 0.0, 3, 2, 9, "separate").describe()
    found = [
        accounting.mechanism_mu(summed, 2, 9),
        accounting.mechanism_mu(apart, 2, 9),
        accounting.site_mu(2, 3, 2, 9),
    ]
    return worst([item or 0.0 for item in found], [6 / math.sqrt(3), 3 * math.sqrt(2), 6 / math.sqrt(3)])


SYSTEMS: tuple[Exact, ...] = (
    *(
        Exact(
            "bounds g and g-composed",
            f"draws of the mechanism: {name}",
            "simulated",
            _FOUR_ERRORS,
            partial(_mechanism, name),
        )
        for name in MECHANISMS
    ),
    Exact("bounds on claims", "dp-cap at a mechanism that reaches it, nominal-curve .551", "golden", ROUNDED, _claimed),
    Exact("AUC", "pair by pair, with ties", "closed form", EXACT, _auc),
    Exact("AUC", "intervals of 80 and 80 records", "simulated", 0.0, _auc_interval),
    Exact("ROC", "threshold by threshold, with ties", "closed form", EXACT, _roc),
    Exact("membership, LiRA", "10,000 records, 64 references", "golden", _MEMBERSHIP, _lira),
    Exact("membership, RMIA", "10,000 records, 64 references", "golden", _MEMBERSHIP, _rmia),
    Exact("nominal accounting", "6.7127, 6.1877 and 10.8808", "golden", ROUNDED, _nominal),
    Exact("site accounting", "three tasks, two moved, nine releases", "closed form", EXACT, _site),
)

"""Every row of the table of neighbouring mechanisms, against a simulation of that mechanism."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from privbench.bounds.base import Bound, BoundValue, Question, Unsupported
from privbench.bounds.gaussian_sum import AsPublished, Composed, OneRelease, mechanism_signal
from privbench.bounds.units import in_unit
from privbench.errors import InputError
from privbench.mechanism import Mechanism

Array = npt.NDArray[np.float64]
DRAWS = 40_000
WIDTH = 6


def moves(tasks: int, rho: float) -> Array:
    """`tasks` unit directions with pairwise cosine rho, [K, d]."""
    gram = np.full((tasks, tasks), rho) + (1 - rho) * np.eye(tasks)
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return np.hstack([root, np.zeros((tasks, WIDTH - tasks))])


def mechanism(
    clip: float = 1.0, sigma: float | tuple[float, ...] = 2.0, tasks: int = 2, **changes: object
) -> Mechanism:
    values = sigma if isinstance(sigma, tuple) else (sigma,) * tasks
    return Mechanism(
        "gradients",
        "A",
        "gaussian",
        1.0,
        sigma={f"t{k}": value for k, value in enumerate(values)},
        **changes,  # type: ignore[arg-type]
    )


def simulate(description: Mechanism, moved: int, rho: float, seed: int, releases: int = 1) -> float:
    """Accuracy of the likelihood ratio on releases drawn step by step from what the description says."""
    rng = np.random.default_rng(seed)
    tasks = len(description.sigma)
    sigma = np.array(list(description.sigma.values()))
    clip = description.clip or 0.0
    unit = moves(tasks, rho)
    parties = description.colluding_sites if description.clip_unit != "sites" else 1
    coins = rng.integers(0, 2, DRAWS)
    ratio = np.zeros(DRAWS)
    for _ in range(releases * parties):
        # Saturated gradients: +C or -C along the task's direction; tasks that the coin leaves alone are known.
        signs = np.where(np.arange(tasks) < moved, 1.0, 0.0)
        means = {coin: (2 * coin - 1) * clip * signs[:, None] * unit for coin in (0, 1)}
        if description.noise == "separate":
            for k in range(moved):
                noise = rng.normal(size=(DRAWS, WIDTH)) * sigma[k]
                released = np.where(coins[:, None] == 1, means[1][k], means[0][k]) + noise
                ratio += released @ (means[1][k] - means[0][k]) / sigma[k] ** 2
            continue
        sums = {coin: value.sum(axis=0) for coin, value in means.items()}
        if description.clip_unit == "sum":
            sums = {coin: value * min(1.0, clip / np.linalg.norm(value)) for coin, value in sums.items()}
        if description.noise == "once":
            noise, variance = rng.normal(size=(DRAWS, WIDTH)) * sigma[0], sigma[0] ** 2
        else:
            noise = sum(rng.normal(size=(DRAWS, WIDTH)) * value for value in sigma)
            variance = (sigma**2).sum()
        released = np.where(coins[:, None] == 1, sums[1], sums[0]) + noise
        ratio += released @ (sums[1] - sums[0]) / variance
    return float(((ratio > 0) == (coins == 1)).mean())


@pytest.mark.parametrize(
    ("description", "moved", "rho"),
    [
        (mechanism(), 2, 0.5),
        (mechanism(tasks=3, sigma=(1.0, 2.0, 3.0)), 2, 0.9),
        (mechanism(noise="once"), 2, 0.5),
        (mechanism(noise="once", tasks=3), 2, -0.3),
        (mechanism(clip_unit="sum", noise="once"), 2, 0.5),
        (mechanism(clip_unit="sum"), 2, 0.5),
        (mechanism(noise="separate"), 2, 0.0),
        (mechanism(noise="separate", sigma=(1.0, 4.0)), 2, 0.7),
        (mechanism(tasks=3), 1, 0.4),
        (mechanism(colluding_sites=2, tasks=3), 1, 0.4),
        (mechanism(colluding_sites=2, clip_unit="sites"), 2, 0.5),
        (mechanism(sigma=4.0, tasks=3), 3, 0.2),
    ],
    ids=str,
)
@pytest.mark.parametrize("releases", [1, 4])
def test_agrees_with_a_simulation(description: Mechanism, moved: int, rho: float, releases: int) -> None:
    """Within 4 standard errors: a false alarm in one of 16,000 cases."""
    names = tuple(f"t{k}" for k in range(moved))
    value = Composed().evaluate(description, Question(names, releases, rho=rho))
    assert isinstance(value, BoundValue)
    found = simulate(description, moved, rho, seed=17, releases=releases)
    assert abs(found - value.value) < 4 * math.sqrt(value.value * (1 - value.value) / DRAWS)


def test_golden_row_of_one_draw_on_the_sum() -> None:
    """C = 1, sigma = 2, rho = .5: .807 against g .730."""
    asked = Question(("t0", "t1"), 1, rho=0.5)
    once = OneRelease().evaluate(mechanism(noise="once"), asked)
    published = OneRelease().evaluate(mechanism(), asked)
    assert isinstance(once, BoundValue)
    assert isinstance(published, BoundValue)
    assert (round(once.value, 3), round(published.value, 3)) == (0.807, 0.730)


def test_separate_releases_exceed_g_below_rho_one() -> None:
    for rho in (0.0, 0.5, 0.99):
        apart, summed = (
            mechanism_signal(mechanism(noise=noise), ("t0", "t1"), rho) for noise in ("separate", "per-task")
        )
        assert apart > summed
    assert mechanism_signal(mechanism(noise="separate"), ("t0",), 0.0) > 0


def test_a_summed_release_protects_no_task_differently() -> None:
    """Stratified noise of equal total budget (sum m_k^2 = K): the same s whichever task moves."""
    budget = (0.5, math.sqrt(2 - 0.25))
    one = mechanism_signal(mechanism(sigma=budget), ("t0",), 0.0)
    other = mechanism_signal(mechanism(sigma=budget), ("t1",), 0.0)
    uniform = mechanism_signal(mechanism(sigma=1.0), ("t0",), 0.0)
    assert one == other == pytest.approx(uniform)


@pytest.mark.parametrize("unit", ["tpr@0.001", "mu"])
def test_an_averaged_rho_is_not_used_where_it_is_not_safe(unit: str) -> None:
    averaged = OneRelease().evaluate(mechanism(), Question(("t0", "t1"), 1, unit=unit, rho=0.0))
    largest = OneRelease().evaluate(mechanism(), Question(("t0", "t1"), 1, unit=unit, rho=0.0, largest=0.6))
    assert isinstance(averaged, BoundValue)
    assert isinstance(largest, BoundValue)
    assert averaged.inputs["rho"] == 1.0
    assert largest.value == pytest.approx(in_unit(mechanism_signal(mechanism(), ("t0", "t1"), 0.6), unit))


@pytest.mark.parametrize("unit", ["tpr@0.001", "mu"])
@pytest.mark.parametrize("bound", [OneRelease(), Composed(), AsPublished()], ids=lambda bound: bound.card.name)
def test_every_bound_of_a_unit_reads_the_same_rho(bound: Bound, unit: str) -> None:
    for largest, rho in ((None, 1.0), (0.6, 0.6), (-0.9, -0.9)):
        answer = bound.evaluate(mechanism(), Question(("t0", "t1"), 1, unit=unit, rho=0.0, largest=largest))
        assert isinstance(answer, BoundValue)
        assert answer.inputs["rho"] == rho
        assert answer.value == pytest.approx(in_unit(mechanism_signal(mechanism(), ("t0", "t1"), rho), unit))


def test_an_impossible_largest_cosine_is_refused_as_an_impossible_mean_is() -> None:
    asked = Question(("t0", "t1", "t2"), 1, unit="mu", rho=0.0, largest=-0.9)
    refused = OneRelease().evaluate(mechanism(tasks=3), asked)
    assert isinstance(refused, Unsupported)
    assert refused.part == "rho"


@pytest.mark.parametrize("sigma", [1e-200, 1e-320])
def test_noise_that_a_square_cannot_hold_is_next_to_none(sigma: float) -> None:
    for noise in ("separate", "once"):
        answer = OneRelease().evaluate(mechanism(sigma=sigma, noise=noise), Question(("t0", "t1"), 1, rho=0.0))
        assert isinstance(answer, BoundValue)
        assert answer.value == 1


def test_published_form_of_a_noise_that_a_square_cannot_hold() -> None:
    answer = AsPublished().evaluate(mechanism(sigma=1e200), Question(("t0", "t1"), 1, rho=0.0))
    assert isinstance(answer, BoundValue)
    assert answer.signal == pytest.approx(1e-200)


@pytest.mark.parametrize("rate", ["0.5", "1e-5", "1e-15", "1e-100", "1e-300"])
@pytest.mark.parametrize("s", [0.0, 0.3, 5.0])
def test_tpr_at_a_tiny_fpr_has_all_its_digits(rate: str, s: float) -> None:
    """Against the logarithm of the upper tail; at s = 0 TPR is FPR."""
    value, threshold = in_unit(s, f"tpr@{rate}"), float(stats.norm.isf(float(rate))) - 2 * s
    assert value == pytest.approx(math.exp(stats.norm.logsf(threshold)), rel=1e-9)
    assert value >= float(rate) * (1 - 1e-9)


def test_tpr_at_an_fpr_that_floats_do_not_hold_is_bad_input() -> None:
    for unit in ("tpr@1e-320", "tpr@0", "tpr@nan", "tpr@"):
        with pytest.raises(InputError, match="at least 1e-300"):
            in_unit(1.0, unit)


def test_a_tiny_advantage_has_its_digits() -> None:
    """2 Phi(s) - 1 is s sqrt(2 / pi) to first order; the difference itself is 0 below 1e-16."""
    assert in_unit(1e-20, "advantage") == pytest.approx(1e-20 * math.sqrt(2 / math.pi), rel=1e-12)


def test_pooled_tpr_exceeds_an_averaged_bound() -> None:
    """The design's example, simulated: rho_i = +-.6, C = sigma, FPR .001: pooled TPR .181, averaged bound .138."""
    strong, weak = (mechanism_signal(mechanism(sigma=1.0), ("t0", "t1"), rho) for rho in (0.6, -0.6))
    averaged = in_unit(mechanism_signal(mechanism(sigma=1.0), ("t0", "t1"), 0.0), "tpr@0.001")
    rng = np.random.default_rng(3)
    s = np.where(rng.random(400_000) < 0.5, strong, weak)
    null = rng.normal(size=s.size) * 2 * s - 2 * s**2
    alternative = rng.normal(size=s.size) * 2 * s + 2 * s**2
    pooled = float((alternative > np.quantile(null, 0.999)).mean())
    assert averaged == pytest.approx(0.138, abs=1e-3)
    assert pooled == pytest.approx(0.181, abs=0.006)


@pytest.mark.parametrize(
    ("unit", "value"), [("accuracy", 0.8413), ("auc", 0.9214), ("advantage", 0.6827), ("mu", 2.0), ("tpr@0.01", 0.3721)]
)
def test_units_of_one_adversary(unit: str, value: float) -> None:
    """s = 1, by the normal table."""
    assert in_unit(1.0, unit) == pytest.approx(value, abs=1e-4)


def test_units_agree_with_a_simulation_of_two_normals() -> None:
    """mu = 2 s apart, 200,000 each: 4 standard errors are below .005."""
    rng, s = np.random.default_rng(5), 0.7
    low, high = rng.normal(size=200_000), rng.normal(size=200_000) + 2 * s
    assert np.mean(high > rng.permutation(low)) == pytest.approx(in_unit(s, "auc"), abs=0.005)
    grid = np.linspace(-3, 5, 801)
    spread = max(float((high > t).mean() - (low > t).mean()) for t in grid)
    assert spread == pytest.approx(in_unit(s, "advantage"), abs=0.006)
    cut = np.quantile(low, 0.95)
    assert float((high > cut).mean()) == pytest.approx(in_unit(s, "tpr@0.05"), abs=0.006)


def test_membership_moves_all_tasks_half_as_far() -> None:
    described = mechanism(tasks=3, neighbours="add-remove")
    asked = Question(("t0",), 1, rho=0.5, secret="member")
    value = OneRelease().evaluate(described, asked)
    assert isinstance(value, BoundValue)
    assert value.inputs["J"] == 3
    whole = mechanism_signal(described, ("t0", "t1", "t2"), 0.5)
    assert value.signal == pytest.approx(whole / 2)
    refused = OneRelease().evaluate(mechanism(tasks=3), asked)
    assert isinstance(refused, Unsupported)
    assert refused.part == "neighbours"


def test_one_draw_on_the_sum_has_one_sigma() -> None:
    with pytest.raises(Exception, match="one sigma for all tasks"):
        mechanism(sigma=(1.0, 2.0), noise="once")

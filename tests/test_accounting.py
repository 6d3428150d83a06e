"""Each epsilon against the design's table, another library, or numerical integration."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from scipy import integrate, special, stats

from privbench.accounting import (
    gdp_delta,
    gdp_eps,
    gdp_mu,
    mechanism_mu,
    nominal_eps,
    nominal_multiplier,
    site_mu,
    site_multiplier,
)
from privbench.errors import InputError
from privbench.mechanism import Mechanism

seeded = settings(derandomize=True, deadline=None, max_examples=100)
epsilons = st.floats(0.01, 50)
deltas = st.floats(1e-12, 0.2)
mus = st.floats(0.01, 30)

DELTA = 1e-5
PAPER = (64 / 2048, 960)
"""Sample rate and steps of 30 epochs."""

PRISM = (64 / 2000, 625)
"""Sample rate and steps of the prototype's 20 epochs."""


class TestGoldenValues:
    """bounds.md, sections 3 and 4."""

    @pytest.mark.parametrize(("eps", "z"), [(0.5, 7.52), (1, 4.04), (2, 2.25), (4, 1.36), (8, 0.93)])
    def test_nominal_multiplier_of_the_paper(self, eps: float, z: float) -> None:
        """For eps 1 and 2 bounds.md prints 4.06 and 2.26: Opacus's search at its default tolerance, not the least z."""
        assert nominal_multiplier(eps, *PAPER, DELTA) == pytest.approx(z, abs=0.005)

    @pytest.mark.parametrize(("eps", "z"), [(0.5, 6.25), (1, 3.39), (2, 1.93)])
    def test_nominal_multiplier_of_prism(self, eps: float, z: float) -> None:
        assert nominal_multiplier(eps, *PRISM, DELTA) == pytest.approx(z, abs=0.005)

    @pytest.mark.parametrize(("eps", "z", "unit"), [(0.5, 77, 1), (1, 41, 1), (2, 22, 1), (4, 12, 1), (8, 6.6, 0.1)])
    def test_site_multiplier_of_one_task(self, eps: float, z: float, unit: float) -> None:
        assert site_multiplier(eps, DELTA, tasks=1, moved=1, releases=30) == pytest.approx(z, abs=unit / 2)

    @pytest.mark.parametrize(("moved", "z"), [(1, 36), (2, 73), (3, 109)])
    def test_site_multiplier_of_prism(self, moved: int, z: float) -> None:
        assert site_multiplier(0.5, DELTA, tasks=3, moved=moved, releases=20) == pytest.approx(z, abs=0.5)


class TestGaussianDP:
    @seeded
    @given(mus, st.floats(0, 50))
    def test_delta_is_that_of_dp_accounting(self, mu: float, eps: float) -> None:
        expected = GaussianPrivacyLoss(standard_deviation=1 / mu).get_delta_for_epsilon(eps)
        assert gdp_delta(mu, eps) == pytest.approx(expected, rel=1e-6, abs=1e-15)

    @pytest.mark.parametrize(("mu", "eps"), [(0.1, 0.0), (0.5, 1.0), (1.0, 0.5), (3.0, 6.0)])
    def test_delta_is_the_integral_of_its_definition(self, mu: float, eps: float) -> None:
        def excess(x: float) -> float:
            return max(stats.norm.pdf(x, mu) - math.exp(eps) * stats.norm.pdf(x), 0.0)

        integral, _ = integrate.quad(excess, -10, mu + 10, points=[eps / mu + mu / 2], limit=200)
        assert gdp_delta(mu, eps) == pytest.approx(integral, rel=1e-6)

    @seeded
    @given(mus)
    def test_delta_at_eps_0_is_the_total_variation(self, mu: float) -> None:
        assert gdp_delta(mu, 0.0) == pytest.approx(2 * special.ndtr(mu / 2) - 1, rel=1e-9)

    @seeded
    @given(mus, epsilons)
    def test_delta_falls_with_eps_and_grows_with_mu(self, mu: float, eps: float) -> None:
        delta = gdp_delta(mu, eps)
        assert 0 <= delta <= 1
        assert gdp_delta(mu, eps * 1.1) <= delta <= gdp_delta(mu * 1.1, eps)

    @pytest.mark.parametrize(
        ("mu", "eps", "delta"),
        [(0.0, 0.0, 0.0), (1.0, 1e6, 0.0), (1e6, 1.0, 1.0), (1e-200, 1.0, 0.0), (1e-9, 1e9, 0.0)],
    )
    def test_delta_at_the_ends(self, mu: float, eps: float, delta: float) -> None:
        assert gdp_delta(mu, eps) == delta

    @pytest.mark.parametrize("mu", [1e-12, 1e-6, 1e-3, 0.05, 0.499, 0.501])
    @pytest.mark.parametrize("k", [0.0, 0.3, 3.0, 20.0, 37.0])
    def test_delta_of_close_hypotheses_has_all_its_digits(self, mu: float, k: float) -> None:
        """eps = k mu: delta is the integral of phi(eps / m - m / 2) over m in 0 .. mu, which has nothing to cancel."""
        eps = k * mu
        nodes, weights = special.roots_legendre(400)
        # All of it comes from where eps / m is within 40 of 0: m from eps / 40 on.
        low = eps / 40
        m = low + (mu - low) * (1 + nodes) / 2
        expected = float((weights * np.exp(-((eps / m - m / 2) ** 2) / 2)).sum()) * (mu - low) / 2
        assert gdp_delta(mu, eps) == pytest.approx(expected / math.sqrt(2 * math.pi), rel=1e-11)

    @pytest.mark.parametrize(
        ("eps", "delta"),
        [(1e-12, 1e-300), (1e-8, 1e-11), (1e-5, 0.3), (5e-324, 1e-5), (1e-290, 1e-300), (1e3, 1e-200), (1.0, 0.9999)],
    )
    def test_mu_never_spends_more_than_delta_and_almost_all_of_it(self, eps: float, delta: float) -> None:
        mu = gdp_mu(eps, delta)
        assert gdp_delta(mu, eps) <= delta < gdp_delta(mu * (1 + 1e-12), eps)

    @pytest.mark.parametrize(("eps", "delta"), [(1e300, 0.5), (1e308, 1e-5), (1e100, 1e-300)])
    def test_mu_of_an_eps_that_hides_nothing(self, eps: float, delta: float) -> None:
        """mu = sqrt(2 eps) to first order."""
        mu = gdp_mu(eps, delta)
        assert mu == pytest.approx(math.sqrt(2) * math.sqrt(eps), rel=1e-12)
        assert gdp_delta(mu, eps) <= delta

    @pytest.mark.parametrize(
        ("mu", "expected"), [(1e200, math.inf), (math.inf, math.inf), (1e100, 5e199), (1e153, 5e305), (1e-9, 0.0)]
    )
    def test_eps_at_the_ends(self, mu: float, expected: float) -> None:
        assert gdp_eps(mu, DELTA) == pytest.approx(expected, rel=1e-9)

    def test_a_tiny_mu_costs_a_tiny_eps(self) -> None:
        """delta(k mu) / mu tends to phi(k) - k Phi(-k): at k = 3 that is 3.8215e-4."""
        assert gdp_eps(1e-9, 3.821543e-13) == pytest.approx(3e-9, rel=1e-6)

    @seeded
    @given(mus, deltas)
    def test_eps_spends_delta_exactly_or_is_zero(self, mu: float, delta: float) -> None:
        eps = gdp_eps(mu, delta)
        if eps == 0:
            assert gdp_delta(mu, 0.0) <= delta
        else:
            assert gdp_delta(mu, eps) == pytest.approx(delta, rel=1e-5)

    @seeded
    @given(epsilons, deltas)
    def test_eps_of_the_largest_mu_is_eps(self, eps: float, delta: float) -> None:
        assert gdp_eps(gdp_mu(eps, delta), delta) == pytest.approx(eps, rel=1e-6)

    @seeded
    @given(epsilons, deltas)
    def test_mu_is_the_largest_that_keeps_delta(self, eps: float, delta: float) -> None:
        mu = gdp_mu(eps, delta)
        assert gdp_delta(mu * (1 - 1e-6), eps) <= delta <= gdp_delta(mu * (1 + 1e-6), eps)

    @pytest.mark.parametrize("eps", [1e3, 1e5, 1e8])
    def test_a_huge_eps_overflows_nothing(self, eps: float) -> None:
        assert gdp_eps(gdp_mu(eps, DELTA), DELTA) == pytest.approx(eps, rel=1e-6)

    def test_gaussian_noise_is_never_pure(self) -> None:
        """At delta 0 no finite eps is enough, and no noise: not a number where delta(eps) happens to underflow."""
        assert finite_or_none(gdp_eps, 1.0, 0.0) is None
        assert finite_or_none(site_multiplier, 1.0, 0.0, 3, 2, 20) is None


def finite_or_none(function: object, *arguments: float) -> float | None:
    """None where the function refuses the input or answers infinity."""
    try:
        value = function(*arguments)  # type: ignore[operator]
    except InputError:
        return None
    return value if math.isfinite(value) else None


class TestSite:
    @seeded
    @given(st.floats(0.1, 100), st.integers(1, 6), st.integers(1, 100))
    def test_all_tasks_cost_twice_the_signal_of_parallel_moves(self, z: float, tasks: int, releases: int) -> None:
        """mu = 2 s_T at rho = 1, s = C J / (sigma sqrt K)."""
        for moved in range(1, tasks + 1):
            assert site_mu(z, tasks, moved, releases) == pytest.approx(
                2 * moved * math.sqrt(releases / tasks) / z, rel=1e-12
            )

    @seeded
    @given(epsilons, deltas, st.integers(1, 4), st.integers(1, 50))
    def test_multiplier_costs_the_eps_it_was_asked_for(
        self, eps: float, delta: float, moved: int, releases: int
    ) -> None:
        z = site_multiplier(eps, delta, 4, moved, releases)
        assert gdp_eps(site_mu(z, 4, moved, releases), delta) == pytest.approx(eps, rel=1e-6)

    def test_the_best_coin_guesser_reads_what_mu_allows(self) -> None:
        """200,000 coins, rho = 1, J = 2 of K = 3, T = 5, within 4 standard errors: fails by chance once in 16,000."""
        rng, z, n = np.random.default_rng(24), 6.0, 200_000
        coins = rng.choice([-1, 1], n)
        released = sum(2 * coins + z * math.sqrt(3) * rng.standard_normal(n) for _ in range(5))
        expected = special.ndtr(site_mu(z, 3, 2, 5) / 2)
        assert abs((np.sign(released) == coins).mean() - expected) <= 4 * math.sqrt(expected * (1 - expected) / n)


class TestNominal:
    @pytest.mark.parametrize(
        ("z", "rate", "steps", "delta"), [(7.52, *PAPER, 1e-5), (0.93, *PAPER, 1e-5), (1.0, 0.01, 10_000, 1e-6)]
    )
    def test_eps_is_the_one_that_opacus_reports(self, z: float, rate: float, steps: int, delta: float) -> None:
        accountant = RDPAccountant()
        accountant.history = [(z, rate, steps)]
        assert nominal_eps(z, rate, steps, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-12)

    @pytest.mark.parametrize("delta", [0.3, 0.9999999])
    def test_eps_is_never_negative(self, delta: float) -> None:
        """Opacus's conversion ends at -.093 for delta .3."""
        assert nominal_eps(2.0, *PRISM, delta) == 0

    def test_noise_that_a_square_cannot_hold_costs_infinity(self) -> None:
        described = Mechanism("gradients", "A", "gaussian", 1.0, noise="separate", sigma={"a": 1e-200, "b": 1.0})
        assert mechanism_mu(described, 2, 1) == pytest.approx(2e200)

    def test_golden_eps_of_the_long_run(self) -> None:
        """statistics.md: q = .01, sigma = 1, T = 10,000."""
        assert nominal_eps(1.0, 0.01, 10_000, 1e-5) == pytest.approx(6.7127, abs=5e-5)

    @pytest.mark.parametrize("eps", [0.5, 2.0])
    def test_multiplier_is_the_one_that_opacus_finds_at_a_fine_tolerance(self, eps: float) -> None:
        q, steps = PAPER
        found = get_noise_multiplier(
            target_epsilon=eps, target_delta=DELTA, sample_rate=q, steps=steps, epsilon_tolerance=1e-5
        )
        assert nominal_multiplier(eps, q, steps, DELTA) == pytest.approx(found, rel=1e-4)

    @settings(derandomize=True, deadline=None, max_examples=4)
    @given(st.floats(0.5, 20), st.floats(0.005, 0.1), st.integers(20, 2000))
    def test_multiplier_is_the_least_that_keeps_eps(self, eps: float, rate: float, steps: int) -> None:
        z = nominal_multiplier(eps, rate, steps, DELTA)
        assert nominal_eps(z, rate, steps, DELTA) <= eps < nominal_eps(z * (1 - 1e-5), rate, steps, DELTA)

    def test_eps_falls_with_noise_and_grows_with_steps_and_rate(self) -> None:
        eps = nominal_eps(2.0, 0.03, 600, DELTA)
        assert nominal_eps(2.1, 0.03, 600, DELTA) < eps
        assert nominal_eps(2.0, 0.03, 700, DELTA) > eps
        assert nominal_eps(2.0, 0.04, 600, DELTA) > eps

    @pytest.mark.parametrize(
        ("eps", "delta", "reason"), [(0.01, DELTA, "out of reach"), (1e6, DELTA, "almost no noise")]
    )
    def test_an_eps_out_of_reach_is_bad_input(self, eps: float, delta: float, reason: str) -> None:
        with pytest.raises(InputError, match=reason):
            nominal_multiplier(eps, *PRISM, delta)

    def test_opacus_warnings_do_not_reach_the_user(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert nominal_eps(50.0, *PRISM, DELTA) > 0

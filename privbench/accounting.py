"""Which epsilon: nominal (the published habit), the site's, the outsider's. Never one number called "epsilon".

Gaussian DP (Dong, Roth, Su 2019) is closed form; the nominal accounting is Opacus's RDP accountant with its
default orders, the published habit (its truncated orders make it somewhat conservative at small eps).
"""

from __future__ import annotations

import math
import warnings

from scipy import optimize, special

from privbench.errors import InputError
from privbench.mechanism import Mechanism

SMALLEST_PLD_MULTIPLIER = 0.3
"""Below it the discretised privacy loss outgrows memory (measured: 61 s and 10.7 GB at .05)."""


def gdp_delta(mu: float, eps: float) -> float:
    """delta(eps) of mu-GDP: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), evaluated in log space."""
    if mu <= 0:
        return 0.0
    first = special.log_ndtr(-eps / mu + mu / 2)
    if first == -math.inf:
        return 0.0  # beyond the smallest probability that a float can hold
    second = eps + special.log_ndtr(-eps / mu - mu / 2)
    return float(math.exp(first) * -math.expm1(min(second - first, 0.0)))


def gdp_eps(mu: float, delta: float) -> float:
    """Smallest eps >= 0 with delta(eps) <= delta; infinite at delta 0, since Gaussian noise is never pure."""
    if delta <= 0 < mu:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + 10 * mu + 1
    while gdp_delta(mu, high) > delta:
        high *= 2
    return float(optimize.brentq(lambda eps: gdp_delta(mu, eps) - delta, 0.0, high, xtol=1e-10))


def gdp_mu(eps: float, delta: float) -> float:
    """Largest mu whose delta(eps) is at most delta."""
    if not (0 < eps < math.inf and 0 < delta < 1):
        raise InputError(f"Gaussian noise needs a finite eps above 0 and a delta in (0, 1), got {eps} and {delta}.")
    return float(optimize.brentq(lambda mu: gdp_delta(mu, eps) - delta, 1e-9, 2 * eps + 60.0, xtol=1e-12))


def site_mu(noise_multiplier: float, tasks: int, moved: int, releases: int) -> float:
    """mu of a record's own releases as a guarantee (rho = 1): 2 J sqrt(T) / (z sqrt(K)).

    A curious site sees its records' gradients one by one and knows the batch: no amplification by subsampling.
    """
    return 2 * moved * math.sqrt(releases) / (noise_multiplier * math.sqrt(tasks))


def mechanism_mu(mechanism: Mechanism, moved: int, releases: int) -> float | None:
    """mu of a record's own releases as a guarantee (rho = 1), when `moved` labels are replaced; None without noise.

    Summed: 2 J C sqrt(T) / sqrt(sum sigma_k^2), J = 1 where the sum itself is clipped. Sent apart: 2 C sqrt(T sum of
    1 / sigma_k^2), over the J least noised tasks.
    """
    sigmas = sorted(mechanism.sigma.values())
    if mechanism.kind != "gaussian" or mechanism.clip is None or not sigmas or sigmas[0] == 0:
        return None
    reach = 2 * mechanism.clip * math.sqrt(releases)
    if mechanism.noise == "separate":
        return reach * math.sqrt(sum(sigma**-2 for sigma in sigmas[:moved]))
    return reach * (1 if mechanism.clip_unit == "sum" else moved) / mechanism.total_sigma


def site_multiplier(eps: float, delta: float, tasks: int, moved: int, releases: int) -> float:
    """Noise multiplier at which the site's releases of one record are (eps, delta)-DP for its J labels."""
    return site_mu(1.0, tasks, moved, releases) / gdp_mu(eps, delta)


def nominal_eps(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """eps of Poisson-sampled Gaussian steps by Opacus RDP: add/remove, noise once per batch sum."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    orders = list(RDPAccountant.DEFAULT_ALPHAS)
    spent = rdp.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=steps, orders=orders)
    with warnings.catch_warnings():
        # Opacus says when its largest order is optimal; the module docstring says what that means.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        eps, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(eps)


def nominal_eps_pld(noise_multiplier: float, sample_rate: float, steps: int, delta: float, *, replace: bool) -> float:
    """The same run by the privacy loss distribution (Doroshenko et al. 2022, dp-accounting): tighter than RDP.

    For `replace` one record is exchanged for another, which costs far more than adding or removing it. The multiplier
    is the add/remove one in both: dp-accounting doubles the sensitivity itself.
    """
    import dp_accounting
    from dp_accounting import pld

    relation = dp_accounting.NeighboringRelation
    accountant = pld.PLDAccountant(relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE)
    step = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    return float(accountant.get_epsilon(delta))


def nominal_multiplier(eps: float, sample_rate: float, steps: int, delta: float) -> float:
    """Noise multiplier with this nominal eps, to a relative precision of 1e-6."""
    low, high = 0.05, 1e4
    if nominal_eps(high, sample_rate, steps, delta) > eps:
        raise InputError(
            f"nominal eps {eps:g} at delta {delta:g} is out of reach of Opacus RDP for q = {sample_rate:.3g} and "
            f"{steps} steps, whatever the noise. Use a larger eps or delta, or --noise-multiplier."
        )
    if nominal_eps(low, sample_rate, steps, delta) < eps:
        raise InputError(
            f"nominal eps {eps:g} asks for almost no noise (z < {low}). Use --eps inf or --noise-multiplier."
        )
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        if nominal_eps(middle, sample_rate, steps, delta) > eps:
            low = middle
        else:
            high = middle
    return high

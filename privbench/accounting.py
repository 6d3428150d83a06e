"""Which epsilon: nominal (the published habit), the site's, the outsider's. Never one number called "epsilon".

Gaussian DP (Dong, Roth, Su 2019) is closed form; the nominal accounting is Opacus's RDP accountant with its
default orders, the published habit (its truncated orders make it somewhat conservative at small eps).
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

from scipy import optimize, special

from privbench import pld
from privbench.errors import InputError
from privbench.mechanism import Mechanism

_NODES, _WEIGHTS = special.roots_legendre(12)
_TERMS_APART = 0.5
"""mu below which the two terms of delta(eps) nearly cancel."""
_FAR = 40.0
"""Standard deviations beyond which no float holds a normal tail (38.6)."""
_NOTHING = 1e6
"""So far out that Mills' ratio loses its digits; its tail is nothing anyway."""


def gdp_delta(mu: float, eps: float) -> float:
    """delta(eps) of mu-GDP: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)."""
    return math.exp(_log_delta(mu, eps))


def gdp_eps(mu: float, delta: float) -> float:
    """Smallest eps >= 0 with delta(eps) <= delta; infinite at delta 0, since Gaussian noise is never pure, and where
    no float holds it.
    """
    if delta <= 0 < mu:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    # The margin is more than 40 standard deviations where a float no longer holds those.
    high = mu * (mu / 2 + _FAR) * (1 + 1e-9)
    if high == math.inf:
        return math.inf
    wanted = math.log(delta)
    return float(optimize.brentq(lambda eps: _log_delta(mu, eps) - wanted, 0.0, high, xtol=1e-15 * high, maxiter=1000))


def gdp_mu(eps: float, delta: float) -> float:
    """Largest mu whose delta(eps) is at most delta, to a relative precision of 1e-13."""
    if not (0 < eps < math.inf and 0 < delta < 1):
        raise InputError(f"Gaussian noise needs a finite eps above 0 and a delta in (0, 1), got {eps} and {delta}.")
    # At eps / r the hypotheses are 40 standard deviations too close for any delta, at 2 r as many too far apart.
    r = _FAR / 2 + math.sqrt(_FAR**2 / 4 + eps / 2)
    # The margin is that of the logarithms' rounding.
    low, high = math.log(max(eps / r, math.ulp(0.0))) - 1e-9, math.log(2 * r) + 1e-9
    wanted = math.log(delta)
    mu = math.exp(optimize.brentq(lambda x: _log_delta(math.exp(x), eps) - wanted, low, high, xtol=1e-14))
    step = 1e-15
    while gdp_delta(mu, eps) > delta:  # never on the wrong side by the rounding of the search
        mu, step = mu * (1 - step), 2 * step
    return mu


def _log_delta(mu: float, eps: float) -> float:
    """log delta(eps) of mu-GDP, -inf where there is none.

    With x = eps/mu - mu/2 and Mills' ratio M, delta = Phi(-x) - phi(x) M(x + mu): no power of e outgrows a float.
    """
    if mu == math.inf:
        return 0.0
    x = eps / mu - mu / 2 if mu > 0 else math.inf
    if x > _NOTHING:
        return -math.inf
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    if mu > _TERMS_APART:
        first = float(special.log_ndtr(-x))
        if first == -math.inf:
            return first
        kept = -math.expm1(min(log_density + math.log(_mills(x + mu)) - first, 0.0))
        return first + math.log(kept) if kept > 0 else -math.inf
    # Phi(-x) = phi(x) M(x), and M' = t M - 1 (Feller 1968, VII.1): the difference, integrated.
    t = x + mu / 2 * (1 + _NODES)
    integral = mu / 2 * float(_WEIGHTS @ (1 - t * _mills(t)))
    return math.log(integral) + log_density if integral > 0 else -math.inf


def _mills(x: Any) -> Any:
    """(1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))


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
        return reach * math.hypot(*(1 / sigma for sigma in sigmas[:moved]))
    return reach * (1 if mechanism.clip_unit == "sum" else moved) / mechanism.total_sigma


def site_multiplier(eps: float, delta: float, tasks: int, moved: int, releases: int) -> float:
    """Noise multiplier at which the site's releases of one record are (eps, delta)-DP for its J labels."""
    return site_mu(1.0, tasks, moved, releases) / gdp_mu(eps, delta)


@functools.lru_cache(maxsize=4096)
def nominal_eps(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """eps of Poisson-sampled Gaussian steps by Opacus RDP: add/remove, noise once per batch sum; at least 0.

    Opacus's conversion may end below 0 at a large delta: (0, delta) then holds.
    """
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    orders = list(RDPAccountant.DEFAULT_ALPHAS)
    spent = rdp.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=steps, orders=orders)
    with warnings.catch_warnings():
        # Opacus says when its largest order is optimal; the module docstring says what that means.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        eps, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return max(0.0, float(eps))


def nominal_eps_pld(noise_multiplier: float, sample_rate: float, steps: int, delta: float, *, replace: bool) -> float:
    """The same run by the privacy loss distribution (Doroshenko et al. 2022, dp-accounting): tighter than RDP.

    For `replace` one record is exchanged for another, which costs far more than adding or removing it. The multiplier
    is the add/remove one in both: dp-accounting doubles the sensitivity itself.
    """
    return pld.epsilon(noise_multiplier, sample_rate, steps, delta, replace=replace)


def nominal_multiplier(eps: float, sample_rate: float, steps: int, delta: float) -> float:
    """Noise multiplier with this nominal eps, to a relative precision of 1e-6."""
    low, high = 0.05, 1e4
    if nominal_eps(high, sample_rate, steps, delta) > eps:
        raise InputError(
            f"nominal eps {eps:g} at delta {delta:g} is out of reach of Opacus RDP for q = {sample_rate:.3g} and "
            f"{steps} steps, whatever the noise. Use a larger eps or delta, or give the noise itself instead of eps."
        )
    if nominal_eps(low, sample_rate, steps, delta) < eps:
        raise InputError(
            f"nominal eps {eps:g} asks for almost no noise (z < {low}). Use a smaller eps, or give the noise itself."
        )
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        if nominal_eps(middle, sample_rate, steps, delta) > eps:
            low = middle
        else:
            high = middle
    return high

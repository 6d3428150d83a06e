"""Epsilons by name, for targets whose mechanism is all that is known of them."""

from __future__ import annotations

from privbench.accounting import gdp_eps
from privbench.mechanism import Claim
from privbench.target import Epsilon


def sampling_of(claim: Claim) -> str:
    """How a claim says that records are drawn."""
    return "as the recording says" if claim.sample_rate is None else f"Poisson, q = {claim.sample_rate:.4g}"


def own_releases(site: str, mu: float | None, delta: float, moved: int, releases: int) -> Epsilon:
    """The site's epsilon about one record's labels, by name, from mu of the record's own releases."""
    reason = None
    if mu is None or delta == 0:
        reason = "no noise, no epsilon" if mu is None else "Gaussian noise has no finite epsilon at delta 0"
    return Epsilon(
        "site",
        None if mu is None or reason else gdp_eps(mu, delta),
        delta,
        "replace",
        "none (the site knows its batches)",
        releases,
        "Gaussian DP, rho = 1",
        f"site {site}, about the {moved} label{'s' if moved > 1 else ''} of one record that the coin moves",
        "labels reach the site through its own noised releases only",
        reason,
    )

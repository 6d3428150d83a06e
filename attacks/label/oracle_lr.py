"""Oracle likelihood ratio: the auditor who can evaluate both hypotheses exactly.

It shows what the mechanism gives away at most; it must reach the predicted mean Phi(s_i), or it is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import Attack, AttackCard, Guess, View
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class OracleLikelihoodRatio(Attack):
    """LLR_i = sum_t (||r - r(0)||^2 - ||r - r(1)||^2) / (2 tau^2), tau^2 the variance of the released noise.

    r(0) and r(1) are the noise-free releases under either coin, both through the defence's own clip. Only the two
    coin hypotheses are evaluated. Without noise tau^2 is taken as 1: the sign is all that matters.
    """

    card = AttackCard(
        name="label/oracle-lr",
        summary="likelihood ratio between the two releases that the coin would have caused",
        paper="Neyman, Pearson 1933; auditing by counterfactual releases",
        deviates="nothing: the optimal test for this mechanism",
        channels=(Channel.GRADIENTS,),
        knowledge=(Knowledge.MECHANISM, Knowledge.MODEL, Knowledge.INPUTS),
        cost="O(T N d)",
        confirmatory=("g", "g-composed", "dp-cap", "nominal-curve"),
        exact_per_release=True,
    )

    def lacks(self, view: View) -> str | None:
        name = f"oracle/gradients/{view.threat.name}/{view.secret}/0"
        return None if name in view.arrays else f"needs the counterfactual releases '{name}', which were not recorded"

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        site, rows = view.threat.name, view.candidates
        released = view.array(f"gradients/{site}")[:, rows].astype(np.float64)
        zero = view.array(f"oracle/gradients/{site}/{view.secret}/0")[:, rows].astype(np.float64)
        one = view.array(f"oracle/gradients/{site}/{view.secret}/1")[:, rows].astype(np.float64)
        mechanism = view.mechanism
        variance = mechanism.total_sigma**2 if mechanism is not None and mechanism.total_sigma > 0 else 1.0
        # ||r - r0||^2 - ||r - r1||^2 = 2 (r - (r0 + r1)/2) . (r1 - r0), without the cancellation of large squares.
        ratio = np.einsum("tnd,tnd->tn", released - (zero + one) / 2, one - zero) / variance
        ratio *= view.array(f"gradients/{site}/seen")[:, rows]
        return Guess(single=ratio, accumulated=np.cumsum(ratio, axis=0))

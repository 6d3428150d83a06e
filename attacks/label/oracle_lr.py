"""Oracle likelihood ratio: the auditor who can evaluate both hypotheses exactly.

It shows what the mechanism gives away at most; it must reach the predicted mean Phi(s_i), or it is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import Attack, AttackCard, Guess, Index, Scores, Stream, View
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class OracleLikelihoodRatio(Attack):
    """LLR_i = sum_t (||r - r(0)||^2 - ||r - r(1)||^2) / (2 tau^2), tau^2 the variance of the released noise.

    r(0) and r(1) are the noise-free releases under either coin, both through the defence's own clip. Tasks that are
    sent apart add their ratios, each with its own variance. Only the two coin hypotheses are evaluated. Without noise
    tau^2 is taken as 1: the sign is all that matters.
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
        streams = view.streams
        if not streams:
            return f"needs releases of gradients to {view.threat.holder}, which were not recorded"
        if any(stream.zero is None or stream.one is None for stream in streams):
            return (
                f"needs the counterfactual releases 'oracle/gradients/{view.threat.holder}/{view.secret}/0' and '/1', "
                "which were not recorded"
            )
        return None

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        rows, streams = view.candidates, view.streams
        ratio = np.zeros((len(streams[0].released), len(rows)))
        for release in range(len(ratio)):
            for stream in streams:
                ratio[release] += _ratio(stream, release, rows)
            ratio[release] *= view.seen(release, rows)
        return Guess(single=ratio, accumulated=np.cumsum(ratio, axis=0))


def _ratio(stream: Stream, release: int, rows: Index) -> Scores:
    """Log likelihood ratio of one release of one stream, [m]."""
    if stream.zero is None or stream.one is None:
        raise ValueError("a likelihood ratio needs both hypotheses.")
    released, zero, one = (
        np.asarray(array[release])[rows].astype(np.float64) for array in (stream.released, stream.zero, stream.one)
    )
    variance = stream.sigma**2 if stream.sigma > 0 else 1.0
    # ||r - r0||^2 - ||r - r1||^2 = 2 (r - (r0 + r1)/2) . (r1 - r0), without the cancellation of large squares.
    return np.asarray(np.einsum("nd,nd->n", released - (zero + one) / 2, one - zero) / variance)

"""What a differential-privacy claim about records allows who guesses which of them were trained on.

Each record is put in by its own fair coin: with the coin and without it are neighbours under add/remove. So one guess
is right with probability (e^eps + delta) / (1 + e^eps) at most, as for labels under replace (Kairouz, Oh, Viswanath
2015). Many guesses about one training are not independent of each other: their number has the tail of Steinke, Nasr,
Jagielski 2023, `privbench.stats.one_run`, under the same (eps, delta).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import ClassVar

from privbench.bounds.base import BoundCard, BoundValue, MemberBound, Unsupported
from privbench.bounds.claims import dp_cap
from privbench.mechanism import Claim

FAIR = "the coins are fair and independent, and nothing but the coin decides whether a record is trained on"
ACCOUNTED = "the noise is drawn as the mechanism says, afresh for every release, and the accounting counts every one"
PUBLIC = "how often a client takes part, its rates and its weight do not depend on its records"

_SEEN = {"server": frozenset({"updates", "outputs"}), "outsider": frozenset({"outputs"})}
"""Channels of whom a claim speaks for, by its audience: who sees less is protected by post-processing."""


class DPMembers(MemberBound):
    card: ClassVar[BoundCard] = BoundCard(
        "dp-members",
        "share of right guesses about members of one training that an (eps, delta) claim about records allows",
        "Steinke, Nasr, Jagielski 2023",
        ("all",),
        "claim",
        secret="member",
    )

    def evaluate(self, claim: Claim, channels: Collection[str]) -> BoundValue | Unsupported:
        """Of one guess about one coin; the tail of many has the claim's eps and delta."""
        seen = _SEEN.get(claim.audience)
        if seen is None:
            return Unsupported("claim", f"it is for '{claim.audience}', which says nothing about whole records")
        if claim.neighbours != "add-remove":
            return Unsupported("neighbours", "a membership coin adds or removes a record, and the claim replaces it")
        beyond = sorted(set(channels) - seen)
        if beyond:
            return Unsupported(
                "claim", f"it speaks for who sees {' and '.join(sorted(seen))} only, and this adversary sees "
                f"{' and '.join(beyond)}",
            )  # fmt: skip
        value = dp_cap(claim.eps, claim.delta, "replace")
        return BoundValue(
            "dp-members", "accuracy", value, math.inf, {"claim": claim.to_json()}, (FAIR, ACCOUNTED, PUBLIC)
        )

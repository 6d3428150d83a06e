"""FedMIA: the updates of all other clients show what an update looks like that was not trained on the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.membership.update_cosine import cosine, lacks_updates, rounds_of
from privbench.membership import MembershipAttack
from privbench.threat import Channel, Knowledge

_LEAST = 2
"""Clients in a round: one's update is held against the others'."""


@dataclass(frozen=True)
class FedMia(MembershipAttack):
    """Score: log Phi((s - m) / d) of the cosine s of one client's update and the record's gradient, m the mean of the
    same of all other clients, summed over rounds; of all clients the largest sum, since a member is at one of them.

    One-sided: who fits worse than with others is no member. d: one for all records of a round, for a few clients tell
    no spread of a record's own.
    """

    card = AttackCard(
        name="membership/fedmia",
        summary="how far a client's update fits the record's gradient better than all other clients' do, over rounds",
        paper="Zhu, Li, Gu, Yao, Fan, Han 2025",
        deviates="the client is not known: of all the largest; several local steps of Adam in place of a gradient; one "
        "spread for all records; logarithms are summed over rounds",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE, Knowledge.CANDIDATES),
        cost="a gradient for each record and round; O(R C N) of what is recorded",
    )

    least_senders: ClassVar[int] = _LEAST

    def lacks(self, view: View) -> str | None:
        if missing := lacks_updates(view):
            return missing
        several = any(len(sent) >= _LEAST for sent in rounds_of(view))
        return None if several else "needs a round in which two clients sent an update, and none was recorded"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        totals: dict[str, Scores] = {}
        for sent in rounds_of(view):
            if len(sent) < _LEAST:
                continue
            found = one_sided(np.stack([cosine(item) for item in sent]))
            for item, row in zip(sent, found, strict=True):
                totals[item.client] = totals.get(item.client, 0.0) + row
        best: Scores = np.max(list(totals.values()), axis=0)
        return best


def one_sided(fits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1 + log Phi of how far each client's value lies above the mean of the others', in standard deviations, [C, m].

    fits: [C, m] with C >= 2. Values are taken from their mean over records first: a client whose updates fit everybody
    tells nothing of anybody. 0 is what chance expects, and what a client that sent nothing in a round gets: the
    logarithm of a uniform number is -1 on average.
    """
    clients = len(fits)
    centred = fits - fits.mean(axis=1, keepdims=True)
    # s - (mean of the others) = (s - mean of all) C / (C - 1)
    above = (centred - centred.mean(axis=0)) * clients / (clients - 1)
    spread = np.sqrt((above**2).mean())
    scaled: npt.NDArray[np.float64] = np.divide(above, spread, out=np.zeros_like(above), where=spread > 0)
    return 1 + log_ndtr(scaled)

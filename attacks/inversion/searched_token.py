"""Searched token: run the public layers before the cut on what was read so far, and keep what they make most alike.

Candidates are tried in their places, and the one whose activation comes nearest to the one received is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from privbench.attack import AttackCard, Index
from privbench.attacks.inversion.behind_layers import BehindLayers, Goal
from privbench.attacks.inversion.lookup import Floats, Sent
from privbench.threat import Channel, Knowledge

if TYPE_CHECKING:
    from privbench.attacks.inversion.bottoms import Bottom


@dataclass(frozen=True)
class Search:
    """One reading of all that was sent. doubted, rounds, stiffness: see `SearchedToken`."""

    sent: Sent
    bottom: Bottom
    doubted: float
    rounds: int
    stiffness: float

    def read(self, now: Floats, before: Goal, start: Index, likely: Index, scores: Floats) -> tuple[Index, Goal]:
        """See `Reader.read`; the most doubted places of each record are tried."""
        sent, tokens, goal = self.sent, start, before
        places = self._doubted(scores[:, 1] - scores[:, 0])
        rows = sent.numbered[np.arange(len(places))[:, None], places]
        candidates = np.where(rows[:, :, None] < 0, 0, likely[rows])
        for _ in range(self.rounds):
            made, tried = self.bottom.tried(sent.tokens(tokens), places, candidates)
            goal = before.plus(now, made[sent.there], tokens, self.stiffness)
            asked = rows >= 0
            best = _far(goal, tried[asked], rows[asked]).argmin(axis=1)
            tokens = tokens.copy()
            tokens[rows[asked]] = candidates[asked][np.arange(len(best)), best]
        return tokens, goal

    def _doubted(self, doubt: Floats) -> Index:
        """The places [m, U] of most doubt in each record."""
        padded = np.full(self.sent.there.shape, -np.inf)
        padded[self.sent.there] = doubt
        count = max(round(self.doubted * self.sent.there.shape[1]), 1)
        return np.argsort(-padded, axis=1, kind="stable")[:, :count]


def _far(goal: Goal, made: Floats, rows: Index) -> Floats:
    """Of candidates [u, C, d] at the places `rows` [u], but for what is the same for all candidates."""
    squares = np.einsum("ucd,ucd->uc", made @ goal.gram.astype(np.float32), made)
    left: Floats = squares - 2 * np.einsum("ucd,ud->uc", made, goal.toward[rows])
    return left


@dataclass(frozen=True)
class SearchedToken(BehindLayers):
    """doubted: share of the longest record that is tried, where the first two candidates are closest. rounds: more than
    one, since what is read at one place changes the activations of later ones.
    """

    doubted: float = 0.25

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/searched-token",
        summary="tokens whose activations, made by the public layers before the cut, come nearest to those received",
        paper="white-box inversion, Song and Raghunathan 2020",
        deviates="tries a perceptron's likeliest tokens in their places instead of relaxing over softmax(Z / temp) E, "
        "which `relaxation` does; behind an affine map that is fitted to what was read, with errors of the covariance "
        "left behind it",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="the public layers on twice as many places as were sent, four times per release",
    )

    def reader(self, sent: Sent, bottom: Bottom) -> Search:
        return Search(sent, bottom, self.doubted, self.rounds, self.stiffness)

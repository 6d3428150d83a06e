"""Searched token: run the public layers before the cut on what was read so far, and keep what they make most alike.

Behind trunk layers an activation is a function of its token and those before it. The public base is that function but
for what tuning changed: candidates are tried in their places, and the one whose activation comes nearest to the one
received is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from privbench.attack import AttackCard, Index, Reconstruction, View
from privbench.attacks.inversion.affine_token import Affine, Floats64
from privbench.attacks.inversion.lookup import (
    Floats,
    Sent,
    TokenInversion,
    floor,
    lacks_texts,
    table_of,
)
from privbench.errors import InputError
from privbench.threat import Channel, Knowledge

if TYPE_CHECKING:
    from privbench.attacks.inversion.bottoms import Bottom


@dataclass(frozen=True)
class Goal:
    """How far activations y [., d] are from what was received at n places, summed over releases: y @ gram @ y - 2
    toward @ y, with gram [d, d] and toward [n, d].
    """

    gram: Floats64
    toward: Floats

    def plus(self, now: Floats, made: Floats, tokens: Index, found: Affine) -> Goal:
        """With a release now [n, d], sent as an affine map of the activations made [n, d] of these tokens [n], and
        normal errors of the covariance that is left behind it. A token weighs as the root of its places.
        """
        counts = np.bincount(tokens)[tokens]
        left, shares = now - found.of(made), counts**-0.5 / (counts**-0.5).sum()
        scatter = (left * shares[:, None]).T @ left
        turned = found.matrix @ np.linalg.inv(scatter + floor(made) * np.eye(len(scatter)))
        toward = ((now - found.shift) @ turned.T).astype(np.float32)
        return Goal(self.gram + turned @ found.matrix.T, self.toward + toward)

    def far(self, made: Floats, rows: Index) -> Floats:
        """Of candidates [u, C, d] at the places `rows` [u], but for what is the same for all candidates."""
        squares = np.einsum("ucd,ucd->uc", made @ self.gram.astype(np.float32), made)
        left: Floats = squares - 2 * np.einsum("ucd,ud->uc", made, self.toward[rows])
        return left


@dataclass(frozen=True)
class Search:
    """One reading of all that was sent. tries, doubted, rounds, stiffness: see `SearchedToken`."""

    sent: Sent
    bottom: Bottom
    tries: int
    doubted: float
    rounds: int
    stiffness: float

    def read(self, now: Floats, before: Goal, start: Index, likely: Index, doubt: Floats) -> tuple[Index, Goal]:
        """Tokens [n] from a release [n, d] and what `before` holds of others, and the goal of all of them.

        start [n]: as read so far, which says what stands before each place; likely [n, C]: candidates; doubt [n]: the
        most doubted places of each record are tried.
        """
        sent, tokens, goal = self.sent, start, before
        places = self._doubted(doubt)
        rows = sent.numbered[np.arange(len(places))[:, None], places]
        candidates = np.where(rows[:, :, None] < 0, 0, likely[rows])
        for _ in range(self.rounds):
            made, tried = self.bottom.tried(sent.tokens(tokens), places, candidates)
            found = self._fitted(now, tokens, made[sent.there])
            goal = before.plus(now, made[sent.there], tokens, found)
            asked = rows >= 0
            best = goal.far(tried[asked], rows[asked]).argmin(axis=1)
            tokens = tokens.copy()
            tokens[rows[asked]] = candidates[asked][np.arange(len(best)), best]
        return tokens, goal

    def _doubted(self, doubt: Floats) -> Index:
        """The places [m, U] of most doubt in each record."""
        padded = np.full(self.sent.there.shape, -np.inf)
        padded[self.sent.there] = doubt
        count = max(round(self.doubted * self.sent.there.shape[1]), 1)
        return np.argsort(-padded, axis=1, kind="stable")[:, :count]

    def _fitted(self, now: Floats, tokens: Index, made: Floats) -> Affine:
        """The map from activations made [n, d] to those received, by each token's mean."""
        seen, place, counts = np.unique(tokens, return_inverse=True, return_counts=True)
        means = np.zeros((len(seen), made.shape[1]))
        np.add.at(means, place, made)
        means /= counts[:, None]
        return Affine.identity(made.shape[1]).fitted(now, place, means.astype(np.float32), self.stiffness)


@dataclass(frozen=True)
class SearchedToken(TokenInversion):
    """tries: candidates for each place, the likeliest ones of `proposals.Proposer`. doubted: share of the longest
    record that is tried, where the first two candidates are closest. rounds: how often, since what is read at one place
    changes the activations of later ones. stiffness: see `Affine.fitted`.
    """

    tries: int = 8
    doubted: float = 0.25
    rounds: int = 2
    stiffness: float = 0.1
    least_texts: ClassVar[int] = 1
    searches_layers: ClassVar[bool] = True

    card: ClassVar[AttackCard] = AttackCard(
        name="inversion/searched-token",
        summary="tokens whose activations, made by the public layers before the cut, come nearest to those received",
        paper="white-box inversion, Song and Raghunathan 2020",
        deviates="tries a perceptron's likeliest tokens in their places instead of relaxing over softmax(Z / temp) E; "
        "behind an affine map that is fitted to what was read, with errors of the covariance left behind it",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE,),
        cost="the public layers on twice as many places as were sent, four times per release",
    )

    def lacks(self, view: View) -> str | None:
        """The public layers before the cut, and public texts to learn the candidates from."""
        if (reason := super().lacks(view)) is not None:
            return reason
        from privbench.trunks import PREFIX, trunk_of

        if not any(name.startswith(PREFIX) for name in view.arrays):
            return (
                f"the transcript holds no public layers before the cut ({PREFIX}...): rows are looked up, not searched"
            )
        if (reason := lacks_texts(view, self.least_texts)) is not None:
            return reason
        try:
            trunk_of(view.arrays, table_of(view).shape[1])
        except InputError as error:
            return str(error)
        return None

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and all so far."""
        from privbench.attacks.inversion.bottoms import Bottom
        from privbench.attacks.inversion.inverters import Pairs, standard
        from privbench.attacks.inversion.proposals import Proposer

        sent, table = Sent.of(view), table_of(view)
        n, width = int(sent.there.sum()), table.shape[1]
        bottom = Bottom.of(view, table)
        search = Search(sent, bottom, self.tries, self.doubted, self.rounds, self.stiffness)
        proposer = Proposer(Pairs.of_view(view, table), rng)
        summed = np.zeros((n, width), np.float32)
        nothing = Goal(np.zeros((width, width)), np.zeros((n, width), np.float32))
        goal, single, accumulated = nothing, [], []
        for t, now in enumerate(sent):
            own = proposer.vectors(standard(now))
            summed = summed + own
            likely, doubt = proposer.likeliest(own, self.tries)
            found, alone = search.read(now, nothing, likely[:, 0], likely, doubt)
            single.append(sent.tokens(found))
            if t == 0:
                said, goal = found, alone
            else:
                likely, doubt = proposer.likeliest(summed, self.tries)
                said, goal = search.read(now, goal, said, likely, doubt)
            accumulated.append(sent.tokens(said))
        return Reconstruction(np.stack(single), np.stack(accumulated))

"""What attacks behind public layers share: how far candidates are from what was received, release after release.

Behind trunk layers an activation is a function of its token and those before it. The public base is that function but
for what tuning changed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from privbench.attack import Index, Reconstruction, View
from privbench.attacks.inversion.affine_token import Affine, Floats64
from privbench.attacks.inversion.lookup import EMBEDDING, Floats, Sent, TokenInversion, floor, lacks_texts, table_of
from privbench.errors import InputError

if TYPE_CHECKING:
    from privbench.attacks.inversion.bottoms import Bottom


@dataclass(frozen=True)
class Goal:
    """How far activations y [., d] are from what was received at n places, summed over releases: y @ gram @ y - 2
    toward @ y, with gram [d, d] and toward [n, d].
    """

    gram: Floats64
    toward: Floats

    @classmethod
    def nothing(cls, count: int, width: int) -> Goal:
        """Of no release yet."""
        return cls(np.zeros((width, width)), np.zeros((count, width), np.float32))

    def plus(self, now: Floats, made: Floats, tokens: Index, stiffness: float) -> Goal:
        """With a release now [n, d], sent as an affine map of the activations made [n, d] of these tokens [n], and
        normal errors of the covariance that is left behind it. A token weighs as the root of its places.
        """
        found = _fitted(now, made, tokens, stiffness)
        counts = np.bincount(tokens)[tokens]
        left, shares = now - found.of(made), counts**-0.5 / (counts**-0.5).sum()
        scatter = (left * shares[:, None]).T @ left
        turned = found.matrix @ np.linalg.inv(scatter + floor(made) * np.eye(len(scatter)))
        toward = ((now - found.shift) @ turned.T).astype(np.float32)
        return Goal(self.gram + turned @ found.matrix.T, self.toward + toward)


def _fitted(now: Floats, made: Floats, tokens: Index, stiffness: float) -> Affine:
    """The map from activations made [n, d] to those received, by each token's mean."""
    seen, place, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    means = np.zeros((len(seen), made.shape[1]))
    np.add.at(means, place, made)
    means /= counts[:, None]
    return Affine.identity(made.shape[1]).fitted(now, place, means.astype(np.float32), stiffness)


class Reader(Protocol):
    """What reads one release at a time."""

    def read(self, now: Floats, before: Goal, start: Index, likely: Index, scores: Floats) -> tuple[Index, Goal]:
        """Tokens [n] from a release [n, d] and what `before` holds of others, and the goal of all of them.

        start [n]: as read so far, which says what stands before each place; likely [n, C]: candidates, the likeliest
        first; scores [n, C]: theirs, in units of log-likelihood.
        """


@dataclass(frozen=True)
class BehindLayers(TokenInversion):
    """tries: candidates for each place, the likeliest ones of `proposals.Proposer`. rounds: how often the map is fitted
    to what was read, and the reading goes on. stiffness: see `Affine.fitted`.
    """

    tries: int = 8
    rounds: int = 2
    stiffness: float = 0.1
    least_texts: ClassVar[int] = 1
    searches_layers: ClassVar[bool] = True

    @abstractmethod
    def reader(self, sent: Sent, bottom: Bottom) -> Reader:
        """Of all that was sent, behind the public layers."""

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
        if len(view.array(EMBEDDING)) < 2:
            return f"the public table ({EMBEDDING}) has one row: there is nothing to choose from"
        return None if Sent.of(view).there.any() else f"{view.secret} sent no token of a record that is asked about"

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """Each release on its own, and all so far."""
        from privbench.attacks.inversion.bottoms import Bottom
        from privbench.attacks.inversion.inverters import Pairs, standard
        from privbench.attacks.inversion.proposals import Proposer

        sent, table = Sent.of(view), table_of(view)
        n, width = int(sent.there.sum()), table.shape[1]
        reader = self.reader(sent, Bottom.of(view, table))
        proposer = Proposer(Pairs.of_view(view, table), rng)
        summed = np.zeros((n, width), np.float32)
        nothing = Goal.nothing(n, width)
        goal, single, accumulated = nothing, [], []
        for t, now in enumerate(sent):
            own = proposer.vectors(standard(now))
            summed = summed + own
            likely, scores = proposer.likeliest(own, self.tries)
            found, alone = reader.read(now, nothing, likely[:, 0], likely, scores)
            single.append(sent.tokens(found))
            if t == 0:
                said, goal = found, alone
            else:
                likely, scores = proposer.likeliest(summed / np.float32(t + 1), self.tries)
                said, goal = reader.read(now, goal, said, likely, scores)
            accumulated.append(sent.tokens(said))
        return Reconstruction(np.stack(single), np.stack(accumulated))

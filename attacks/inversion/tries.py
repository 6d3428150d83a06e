"""Questionnaires that the server filled in itself, and how well they agree with each round's update."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privbench.attack import Index, Reconstruction, Scores, View
from privbench.attacks.inversion.forms import OPTIONS, UpdateInversion
from privbench.updates import FEW, shown_in

DRAWN, HELD, PRACTICE = "read/drawn", "read/practice/held", "read/practice/matches"


def matches(victim: str) -> str:
    """The array of how well tries agree with the updates of this client."""
    return f"read/matches/{victim}"


@dataclass(frozen=True)
class Tries:
    """options int64 [Q, K, A]: tokens of what may be answered; drawn int64 [R, D, S, Q]: the options of each try's S
    questionnaires, -1 where none is; matches [R, D]: from -1 to 1.
    """

    options: Index
    drawn: Index
    matches: Scores

    @classmethod
    def of(cls, view: View) -> Self:
        return cls(*(np.asarray(view.array(name)) for name in (OPTIONS, DRAWN, matches(view.secret))))

    def searched(self, shown: int) -> bool:
        """Whether a try has a questionnaire for each of so many respondents."""
        return shown <= int(self.drawn.shape[2])

    def best(self, number: int, shown: int) -> Index:
        """Options [shown, Q] of the try that agrees best with a round's update, -1 where nothing was tried: one for
        each respondent, in no order, or where more are shown than a try has, the same one for all.
        """
        there = (self.drawn[number] >= 0).all(axis=2).sum(axis=1)
        complete = there >= (shown if self.searched(shown) else 1)
        best = int(np.where(complete, self.matches[number], -np.inf).argmax())
        found = self.drawn[number, best] if complete.any() else np.full(self.drawn.shape[2:], -1)
        return found[:shown] if self.searched(shown) else np.repeat(found[:1], shown, axis=0)

    def tokens(self, chosen: Index) -> Index:
        """Options [n, Q] as tokens in their slots [n, Q A], -1 where none is chosen."""
        said = self.options[np.arange(chosen.shape[1]), chosen]
        said = np.where(chosen[:, :, None] >= 0, said, -1)
        tokens: Index = said.reshape(len(chosen), -1)
        return tokens


@dataclass(frozen=True)
class TryInversion(UpdateInversion):
    """Base of inversions by the server's questionnaires. Authors write `chosen`. needs: arrays besides the tries."""

    least_forms: ClassVar[int] = FEW
    needs: ClassVar[tuple[str, ...]] = ()

    def lacks(self, view: View) -> str | None:
        missing = [name for name in (DRAWN, matches(view.secret), *self.needs) if name not in view.arrays]
        why = super().lacks(view)
        if why is None and missing:
            why = f"needs '{missing[0]}', of questionnaires that the server fills in itself (--set forms=100)"
        return why

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """One release [1, m, Q A]."""
        shown, tries = np.asarray(view.array(f"updates/{view.secret}/shown")), Tries.of(view)
        read = [tries.tokens(self.chosen(tries, view, r, int(shown[r]))) for r in np.unique(shown_in(shown)).tolist()]
        found = np.concatenate(read)[view.candidates][None]
        return Reconstruction(found, found)

    @abstractmethod
    def chosen(self, tries: Tries, view: View, number: int, shown: int) -> Index:
        """The options of a round's respondents [shown, Q], -1 where nothing is said."""

"""From the tokens that a client trained on in a round to its respondents' answers, by the public questionnaire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, Inversion, Reconstruction, Scores, View
from privbench.updates import part_of, shown_in

Tokens = npt.NDArray[np.bool_]
TEMPLATE, OPTIONS = "public/form/template", "public/form/options"
_MISSING, _ROUNDING = 0.05, 1e-9
"""Prior of the last option of a question about a respondent, which says that there is no answer."""


@dataclass(frozen=True)
class Form:
    """options int64 [Q, K, A]: tokens of what may be answered, -1 behind; told [Q, K, V]: which tokens each brings that
    are not in the template; prior [Q, K]: how likely each is, 0 where there is none.
    """

    options: Index
    told: npt.NDArray[np.bool_]
    prior: Scores

    @classmethod
    def of(cls, view: View, vocabulary: int) -> Form:
        """All options equally likely, but that there is no answer."""
        options, template = np.asarray(view.array(OPTIONS)), np.asarray(view.array(TEMPLATE))
        questions, most, _ = options.shape
        told = np.zeros((questions, most, vocabulary), np.bool_)
        question, option, place = np.nonzero(options >= 0)
        told[question, option, options[question, option, place]] = True
        told[:, :, template[template >= 0]] = False
        there = options[:, :, 0] >= 0
        prior = np.zeros((questions, most))
        for row, count in zip(prior, there.sum(axis=1), strict=True):
            row[:count] = 1 / max(count, 1)
        for row, count in zip(prior[:-1], there[:-1].sum(axis=1), strict=True):
            if count > 1:
                row[: count - 1], row[count - 1] = (1 - _MISSING) / (count - 1), _MISSING
        return cls(options, told, prior)

    def answered(self, found: Tokens, weight: Scores) -> Index:
        """The likeliest answers [Q A] of one respondent of a round in which these tokens [V] were trained on.

        By Bayes' rule as if tokens were independent: an option's prior, times one over the probability of each of its
        own tokens. One of which a token is missing was not chosen; where no option is left, the first is said. Of equal
        ones the one whose least `weight` [V] is largest: of several respondents the most frequent.
        """
        chance = 1 - np.prod(1 - self.prior[:, :, None] * self.told, axis=(0, 1))
        score = self.prior / np.where(self.told, np.maximum(chance, 1e-12), 1.0).prod(axis=2)
        score[(self.told & ~found).any(axis=2)] = 0
        least = np.where(self.told, weight, np.inf).min(axis=2)
        likeliest = score >= score.max(axis=1, keepdims=True) * (1 - _ROUNDING)
        best = np.where(likeliest & (score > 0), least, -1.0).argmax(axis=1)
        said: Index = self.options[np.arange(len(best)), best].reshape(-1)
        return said


@dataclass(frozen=True)
class UpdateInversion(Inversion):
    """Base of inversions of updates that trained on questionnaires."""

    def lacks(self, view: View) -> str | None:
        """An update with named parts, its records, and the questionnaire."""
        needed = (f"updates/{view.secret}", f"updates/{view.secret}/shown", TEMPLATE, OPTIONS)
        missing = [name for name in needed if name not in view.arrays]
        if missing:
            return f"needs '{missing[0]}', which was not recorded"
        return None if view.parameters else "needs to know what the numbers of an update are ('parameters')"


@dataclass(frozen=True)
class FormInversion(UpdateInversion):
    """Base of inversions that read answers from the tokens of an update. Authors write `tokens`."""

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        """One release [1, m, Q A]: each respondent's round, whose answers are those of all its respondents."""
        rounds = shown_in(view.array(f"updates/{view.secret}/shown"))[view.candidates]
        read, form = dict[int, Index](), Form.of(view, self.vocabulary(view))
        for number in np.unique(rounds).tolist():
            read[number] = form.answered(*self.tokens(view, number))
        found = np.stack([read[number] for number in rounds.tolist()])[None]
        return Reconstruction(found, found)

    def vocabulary(self, view: View) -> int:
        """How many tokens there are."""
        raise NotImplementedError

    def tokens(self, view: View, number: int) -> tuple[Tokens, Scores]:
        """Which tokens [V] this round's update shows, and how strongly [V]."""
        raise NotImplementedError


def part(view: View, number: int, name: str, shape: tuple[int, ...]) -> Scores:
    """A part of a round's update, float64."""
    update = np.asarray(view.array(f"updates/{view.secret}")[number])
    values: Scores = update[part_of(view.parameters, name)].reshape(shape).astype(np.float64)
    return values


def sent_before(view: View, number: int) -> Iterator[int]:
    """The rounds before this one of which there is an update of the same client, the last one first."""
    name = f"updates/{view.secret}/mask"
    mask = np.asarray(view.arrays[name]) if name in view.arrays else np.ones(number, np.uint8)
    yield from np.flatnonzero(mask[:number])[::-1].tolist()

"""Label counts: how many respondents of a round gave each answer to the outcome's question.

An outcome turns the gradient of a whole questionnaire. So the server fills in questionnaires with each outcome,
and sees how well their gradients' signs agree with a round's update. How well they would if so many respondents gave
this answer and so many that, it sees in rounds that it draws itself of the same questionnaires, each outcome as likely
as each other: a ridge regression of their counts on these agreements reads the counts. Where little is told it
says that all answers are as frequent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privbench.attack import AttackCard, Index, Scores, View
from privbench.attacks.inversion.tries import HELD, PRACTICE, Tries, TryInversion
from privbench.counts import COUNTS, apportioned
from privbench.threat import Channel, Knowledge

_RIDGE = 1e-2
"""Of the mean variance of what is regressed on."""


@dataclass(frozen=True)
class UpdateCounts(TryInversion):
    """Where questionnaires were searched for together, the outcomes of those that agree best."""

    metrics: ClassVar[tuple[str, ...]] = (COUNTS,)
    needs: ClassVar[tuple[str, ...]] = (HELD, PRACTICE)

    card = AttackCard(
        name="label/update-counts",
        summary="how many of a round gave each outcome, by agreement with gradients of the server's questionnaires",
        paper="Wainakh et al. 2022 (LLG); Geng et al. 2021",
        deviates="signs behind Adam instead of gradients of the last layer; rounds drawn for calibration; counts sum "
        "to the known number of respondents",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE,),
        cost="`forms` gradients for each round, computed in the run; here a regression of 64 drawn rounds",
    )

    def chosen(self, tries: Tries, view: View, number: int, shown: int) -> Index:
        """Outcomes alone, as often as they are counted."""
        said = np.full((shown, tries.drawn.shape[3]), -1)
        said[:, -1] = outcomes_of(tries, view, number, shown)
        return said


def outcomes_of(tries: Tries, view: View, number: int, shown: int) -> Index:
    """The outcomes of a round's respondents, in order of their numbers, [shown]."""
    if tries.searched(shown):
        return np.sort(tries.best(number, shown)[:, -1])
    held, practice = (np.asarray(view.array(name)[number], np.float64) for name in (HELD, PRACTICE))
    outcome, count = tries.drawn[number, :, 0, -1], int((tries.options[-1, :, 0] >= 0).sum())
    belongs = (outcome[:, None] == np.arange(count)).astype(np.float64)
    each = belongs / np.maximum(belongs.sum(axis=0), 1)
    shares = counted(practice @ each, held @ belongs, tries.matches[number] @ each)
    return np.repeat(np.arange(count), apportioned(shares, shown))


def counted(seen: Scores, counts: Scores, here: Scores) -> Scores:
    """Shares [K] of a round with agreements `here` [K], by ridge regression of counts [M, K] on agreements [M, K]: on
    how far each lies from the mean of all, for how well anything agrees differs between what is drawn and what is sent.
    """
    seen, here = seen - seen.mean(axis=1, keepdims=True), here - here.mean()
    centre, mean = seen.mean(axis=0), counts.mean(axis=0)
    x = seen - centre
    penalty = _RIDGE * max(float((x**2).sum()) / x.shape[1], np.finfo(float).tiny) * np.eye(x.shape[1])
    found = mean + (here - centre) @ np.linalg.solve(x.T @ x + penalty, x.T @ (counts - mean))
    shares: Scores = np.maximum(found, 0.0)
    return shares / shares.sum() if shares.sum() > 0 else np.full(len(shares), 1 / len(shares))

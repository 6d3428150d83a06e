"""Questionnaires that the server fills in itself, held against an update: whose gradients does it look like?

The server knows the state that a round started from, so that it can compute the gradient of any filled-in
questionnaire there. An update is no gradient but Adam's, of which the signs can be told (`searching.News`). Where a
round is of few respondents, as many questionnaires are searched for whose summed gradient has those signs. Of more,
single questionnaires are drawn, and rounds of them, for who wants to know how such sums look.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.target import Progress
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.form import Form
from privbench.targets.fedavg.gradients import Gradients, blocks_of
from privbench.targets.fedavg.rounds import Round, Whole
from privbench.targets.fedavg.searching import Choices, Index, News, Search, agreement
from privbench.targets.fedavg.tape import Watched
from privbench.targets.split_llama.adapters import state
from privbench.updates import FEW

PRACTICE = 64
"""Rounds that are drawn where a round is of more."""
_HEAD = "readout"
"""The block that is left out: it is much of all numbers, and tells little but the outcome."""


class Matched:
    """What came of it, in rounds in which respondents are shown. `tuning.forms` gradients are computed in a round."""

    def __init__(self, model: Whole, form: Form, watched: Watched, tuning: FedTuning, rng: np.random.Generator) -> None:
        locally = [tuning.local[client] for client in watched.starts]
        self._gradients, self._form, self._sender = Gradients(model), form, watched.sender
        self._news, self._rng = News(tuning, max(locally)), rng
        self._kept = [part for name, part in blocks_of(state(model)).items() if name != _HEAD]
        expected, rounds, count = sum(locally) * tuning.batch, tuning.rounds, tuning.forms
        self._most = expected if expected <= FEW else 1
        self._drawn = np.full((rounds, count, self._most, len(form.options)), -1, np.int64)
        self._matches = np.zeros((rounds, count))
        self._held = np.zeros((rounds, PRACTICE, count), np.int64)
        self._practice = np.zeros((rounds, PRACTICE, count))

    def add(self, done: Round, shown: int, report: Progress) -> None:
        """A round, of which so many respondents are shown. Every update counts, for the next one's signs."""
        update = done.seen.get(self._sender)
        if update is None or not self._drawn.size:
            return
        signs, columns = self._news.of(update, done.number)
        if not shown:
            return
        self._gradients.at(done.start)
        report(f"questionnaires at round {done.number + 1}", (done.number + 1) / len(self._drawn))
        search = Search(self._may(columns), self._of, self._near(signs), self._rng)
        if shown <= self._most:
            for number, tried in enumerate(search.sets(shown, self._drawn.shape[1])):
                self._drawn[done.number, number, :shown], self._matches[done.number, number] = tried.drawn, tried.match
        else:
            self._compare(done.number, shown, search)

    def _compare(self, number: int, shown: int, search: Search) -> None:
        """Single questionnaires with the update, and with rounds of so many of them, each outcome as likely."""
        drawn, outcomes = search.draw(self._drawn.shape[1]), len(self._form.options[-1])
        drawn[:, -1] = np.arange(len(drawn)) % outcomes
        made = torch.stack([self._of(row).float() for row in drawn])
        for row in self._held[number]:
            for outcome in self._rng.integers(0, min(outcomes, len(drawn)), shown):
                row[self._rng.choice(np.flatnonzero(drawn[:, -1] == outcome))] += 1
        mixed = torch.from_numpy(self._held[number]).float() @ made
        self._drawn[number, :, 0], signs = drawn, made.sign()
        self._matches[number] = agreement(search.signs[None], signs)[0]
        self._practice[number] = agreement(mixed.sign(), signs)

    def _of(self, drawn: Index) -> Tensor:
        """The gradient of a questionnaire, without the head's."""
        return self._near(self._gradients.of(self._form.record(drawn))[1])

    def _near(self, values: Tensor) -> Tensor:
        return torch.cat([values[part] for part in self._kept])

    def _may(self, columns: npt.NDArray[np.bool_]) -> Choices:
        """Options all of whose tokens were trained on; every one of a question where that leaves none, and of the
        outcome's, which no column shows.
        """
        there = {*np.flatnonzero(columns).tolist(), *self._form.template, self._form.end}
        every = [range(len(options)) for options in self._form.options]
        left = [
            [k for k in numbers if there.issuperset(options[k])]
            for numbers, options in zip(every, self._form.options, strict=True)
        ]
        return [*(some or numbers for some, numbers in zip(left[:-1], every[:-1], strict=True)), every[-1]]

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """read/drawn [R, D, S, Q]: the options filled in at each try, -1 where none was; read/matches/CLIENT [R, D]:
        how well they agree with the update, from -1 to 1; read/practice/held [R, M, D]: how often each try's
        questionnaire is in a round of practice; read/practice/matches [R, M, D]: how well it agrees with that. Empty
        where there are to be none.
        """
        if not self._drawn.size:
            return {}
        return {
            "read/drawn": self._drawn,
            f"read/matches/{self._sender}": self._matches,
            "read/practice/held": self._held,
            "read/practice/matches": self._practice,
        }


def disk_bytes(tuning: FedTuning) -> int:
    """Of the rounds of practice, beside which all else is little."""
    return 2 * np.dtype(np.float64).itemsize * tuning.rounds * PRACTICE * tuning.forms

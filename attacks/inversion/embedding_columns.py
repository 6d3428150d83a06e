"""Embedding columns: an update moves those columns of the embedding's adapter whose tokens were trained on.

LoRA of an embedding is B A with A [r, V]: the gradient of column v sums over the places that hold token v, so that it
is zero elsewhere, for any batch. A starts at zero. The columns that a client's first update moves are therefore the
tokens of its batches, exactly, after several steps of Adam too. From then on Adam's momentum moves every column that
was touched before. But it takes all of a column's numbers in one step, on and on, so that its move is parallel to that
of the round before: with one step a round the tokens are exact again. With several steps a column is parallel only
where it was touched in neither of the two rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.inversion.forms import FormInversion, Tokens, part, sent_before
from privbench.columns import ADAPTER, touched
from privbench.threat import Channel, Knowledge


@dataclass(frozen=True)
class EmbeddingColumns(FormInversion):
    """Without noise: the columns that moved. Behind noise: those longer than the longest of V columns of noise would be
    expected to be, its size told by the median column (most tokens are in no batch).
    """

    card = AttackCard(
        name="inversion/embedding-columns",
        summary="tokens by the columns of the embedding's adapter that an update moved, answers by the questionnaire",
        paper="Melis, Song, De Cristofaro, Shmatikov 2019; Gupta, Huang, Zhong, Gao, Li, Chen 2022",
        deviates="columns of a LoRA adapter; momentum told by its direction; no search for a text: slots of a form",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE,),
        cost="a pass over one part of an update for each round",
    )

    def lacks(self, view: View) -> str | None:
        why = super().lacks(view)
        if why is not None:
            return why
        found = [name for name, shape in view.parameters if ADAPTER.search(name) and len(shape) == 2]
        return None if found else "no adapter of an embedding is among what the client trains (lora_embedding_A)"

    def vocabulary(self, view: View) -> int:
        return _adapter(view)[1][1]

    def tokens(self, view: View, number: int) -> tuple[Tokens, Scores]:
        """The columns touched in this round [V], and how far each moved [V]."""
        name, shape = _adapter(view)
        now = part(view, number, name, shape)
        last = next(sent_before(view, number), None)
        there = touched(now, None if last is None else part(view, last, name, shape))
        return there, np.linalg.norm(now, axis=0)


def _adapter(view: View) -> tuple[str, tuple[int, int]]:
    """Name and shape [r, V] of A of the embedding's adapter."""
    name, (rank, count) = next(item for item in view.parameters if ADAPTER.search(item[0]) and len(item[1]) == 2)
    return name, (rank, count)

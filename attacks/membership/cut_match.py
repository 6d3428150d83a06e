"""Cut match: look for a record among all that the server received, activation by activation.

Who holds a questionnaire can make of it what a client's half does, or nearly: the public base is where training began.
No loss is needed, and no coin. Clients send nothing but what they train on, so that a match is membership itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackCard, Scores, View
from privbench.membership import MembershipAttack
from privbench.tensors import Blocks
from privbench.threat import Channel, Knowledge

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_NEEDED = ("received/activations", "received/mask", "asked/activations", "asked/mask")
_POSITIONS = 16
"""Tokens of every sequence that are read at once: whole recordings would take gigabytes."""
_OTHER_LENGTH = -1.0
"""Likeness of sequences of different lengths, which no defence here hides: that of opposites."""


@dataclass(frozen=True)
class CutMatch(MembershipAttack):
    """Score: by how much some received sequence is more like the record than like every other record asked about.

    Alike: the correlation of activations, each centred by what is usual at its position, apart for what was received
    and for what the base makes; a shift and a scale of the release, and noise that all sequences share, cancel. The
    margin over the other records allows for what is left of drift and noise in that sequence, without any label.
    """

    card = AttackCard(
        name="membership/cut-match",
        summary="how much better than all other records it fits one of the activation sequences that were received",
        paper="after Narayanan, Shmatikov 2008",
        deviates="correlation of activations in place of shared attributes; their margin over the runner-up is the "
        "score, with no threshold",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE, Knowledge.CANDIDATES),
        cost="O(N M L d): a second for thousands of questionnaires of a tiny model",
    )

    def lacks(self, view: View) -> str | None:
        missing = [name for name in _NEEDED if name not in view.arrays]
        if missing:
            return f"needs '{missing[0]}', which was not recorded"
        asked = len(view.arrays["asked/mask"])
        return None if asked > 1 else f"needs two records to compare, and {asked} is recorded"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        alike = _likeness(*(view.array(name) for name in _NEEDED))
        second, first = np.partition(alike, -2, axis=0)[-2:]
        others = np.where(alike == first, second, first)
        found: Scores = (alike - others).max(axis=1)[view.candidates]
        return found


def _likeness(received: Blocks, received_mask: Blocks, asked: Blocks, asked_mask: Blocks) -> Floats:
    """Of each asked record with each received sequence [N, M], between -1 and 1."""
    sides = ((asked, np.asarray(asked_mask) == 1), (received, np.asarray(received_mask) == 1))
    product = np.zeros((len(asked), len(received)), np.float32)
    square = [np.zeros(len(mask), np.float32) for _, mask in sides]
    shared = min(asked.shape[1], received.shape[1])
    for start in range(0, shared, _POSITIONS):
        part = slice(start, min(start + _POSITIONS, shared))
        ours, theirs = (_centred(np.asarray(array[:, part], np.float32), mask[:, part]) for array, mask in sides)
        product += ours @ theirs.T
        square[0] += (ours**2).sum(axis=1)
        square[1] += (theirs**2).sum(axis=1)
    norms = np.sqrt(square[0])[:, None] * np.sqrt(square[1])
    lengths = [mask.sum(axis=1) for _, mask in sides]
    alike = product / np.maximum(norms, np.finfo(np.float32).tiny)
    found: Floats = np.where(lengths[0][:, None] == lengths[1], alike, _OTHER_LENGTH).astype(np.float32)
    return found


def _centred(rows: Floats, there: Mask) -> Floats:
    """Activations [N, l, d] less the mean of their position, 0 behind the end of a sequence, as [N, l * d]."""
    count = np.maximum(there.sum(axis=0), 1)[:, None]
    usual = (rows * there[..., None]).sum(axis=0) / count
    found: Floats = ((rows - usual) * there[..., None]).reshape(len(rows), -1).astype(np.float32)
    return found

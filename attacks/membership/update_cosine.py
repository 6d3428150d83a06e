"""Update cosine: an update points against the gradients of the records that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.membership import MembershipAttack
from privbench.threat import Channel, Knowledge
from privbench.updates import senders


@dataclass(frozen=True)
class Against:
    """One client's update U of one round against the gradients g_i of the candidates there, all float64.

    along [m]: <-U, g_i>, for training goes down the gradient; squares [m]: |g_i|^2; size: |U|^2.
    """

    client: str
    along: Scores
    squares: Scores
    size: float


def rounds_of(view: View, block: str = "") -> Iterator[list[Against]]:
    """Round by round what each client sent that sent something; rounds in which nobody did are left out. block: of
    which part of all that is trained; of the whole without one.
    """
    part = _part(block)
    squares, clients = np.asarray(view.array(f"asked/squares{part}")), senders(view.arrays)
    products = {client: np.asarray(view.array(f"asked/products/{client}{part}")) for client in clients}
    sizes = {client: np.asarray(view.array(f"updates/{client}/squares{part}")) for client in clients}
    sent = {client: np.asarray(view.array(f"updates/{client}/mask")) for client in clients}
    rows = view.candidates
    for number, row in enumerate(squares):
        found = [
            Against(client, -products[client][number, rows], row[rows], float(sizes[client][number]))
            for client in clients
            if sent[client][number]
        ]
        if found:
            yield found


def fitting(view: View, score: Callable[[Against], Scores]) -> Scores:
    """Of all clients the largest score, since a member is at one of them, and the mean over rounds [m]."""
    best = [np.max([score(item) for item in sent], axis=0) for sent in rounds_of(view)]
    found: Scores = np.mean(best, axis=0)
    return found


def lacks_updates(view: View, block: str = "") -> str | None:
    """Why gradients cannot be held against updates, or None. block: as in `rounds_of`."""
    part, clients = _part(block), senders(view.arrays)
    needed = [f"asked/squares{part}"]
    for client in clients:
        needed += [f"asked/products/{client}{part}", f"updates/{client}/squares{part}", f"updates/{client}/mask"]
    missing = [name for name in needed if name not in view.arrays]
    if missing:
        return f"needs '{missing[0]}', which was not recorded"
    sent = any(np.asarray(view.arrays[f"updates/{client}/mask"]).any() for client in clients)
    return None if sent else "needs an update, and no client sent one in the rounds that were recorded"


def _part(block: str) -> str:
    """What names of arrays end with that are about one block."""
    return f"/{block}" if block else ""


@dataclass(frozen=True)
class UpdateCosine(MembershipAttack):
    """Score: the cosine of -U and the record's gradient at the state that the round started from; of all clients the
    largest, since a member is at one of them, and the mean over rounds.
    """

    card = AttackCard(
        name="membership/update-cosine",
        summary="the cosine of the record's own gradient with the update that fits it best, over rounds",
        paper="Li, Li, Ribeiro 2023",
        deviates="several local steps of Adam in place of a gradient; of several clients the largest, and no threshold",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE, Knowledge.CANDIDATES),
        cost="a gradient for each record and round; O(R C N) of what is recorded",
    )

    def lacks(self, view: View) -> str | None:
        return lacks_updates(view)

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        return fitting(view, cosine)


def cosine(item: Against) -> Scores:
    """Of -U and every g_i, [m]; 0 where one of the two is 0."""
    norms = np.sqrt(item.squares * item.size)
    found: Scores = np.divide(item.along, norms, out=np.zeros_like(norms), where=norms > 0)
    return found

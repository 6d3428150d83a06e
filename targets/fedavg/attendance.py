"""Whose updates the server took in each round, and who is missing: kept, told in sentences, never silent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from privbench.targets.fedavg.defending import called
from privbench.targets.fedavg.rounds import Round, Why

_SAID: Mapping[Why, str] = {
    "dropped out": "Dropped out half-way, without an update",
    "refused": "Refused, for NaN or infinity in the update",
    "alone": "Not summed, for a sum over one client is its update",
    "timed out": "Timed out, without an answer",
    "lost": "Lost, since what ran the client failed or ended",
}


@dataclass
class Attendance:
    """missed: rounds, counted from 1, by client and reason; taken: updates of each round; losses: of the rounds with
    any; trained_on: of each client, whom an update that was taken was trained on.
    """

    missed: dict[str, dict[Why, list[int]]] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    trained_on: dict[int, set[int]] = field(default_factory=dict)

    def add(self, done: Round) -> Round:
        """Note a round down, and hand it on."""
        self.taken.append(len(done.taken))
        self.losses += [done.loss] if math.isfinite(done.loss) else []
        for client, trained in done.taken.items():
            self.trained_on.setdefault(client, set()).update(trained.rows)
        for client, why in done.missed.items():
            self.missed.setdefault(called(client), {}).setdefault(why, []).append(done.number + 1)
        return done

    @property
    def diagnostics(self) -> dict[str, tuple[float, ...]]:
        return {"loss": tuple(self.losses), "taken": tuple(map(float, self.taken))}

    @property
    def notes(self) -> tuple[str, ...]:
        """Who is missing where, in words."""
        found = []
        for why, said in _SAID.items():
            who = [f"{client} in {_rounds(reasons[why])}" for client, reasons in self.missed.items() if why in reasons]
            found += [f"{said}: {'; '.join(who)}. The rounds went on with the others."] if who else []
        empty = [number + 1 for number, count in enumerate(self.taken) if not count]
        if empty:
            found.append(f"In {_rounds(empty)} no update was left to take: the server's state stayed as it was.")
        return tuple(found)


def _rounds(numbers: list[int]) -> str:
    return f"round{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"

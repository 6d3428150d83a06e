"""What is recorded of federated averaging: the state that everybody starts from, and every update that the server took.

A round is written when it is over. Who sent nothing in it, was not drawn, or was refused has a row of zeros. Of the
first client it is said of how many respondents each update is to tell, and kept for the scorer who they are: all of the
round, where no earlier update that the server took was trained on one of them. So nobody is asked about twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from privbench.growing import Growing
from privbench.recording import Transcript
from privbench.targets.fedavg.defending import SUM, called
from privbench.targets.fedavg.rounds import Round
from privbench.targets.split_llama.adapters import State
from privbench.tensors import DTYPES, Spec

_KIND = DTYPES["F32"]


def flat(values: State) -> npt.NDArray[np.float32]:
    """All numbers of a state in the order of its names, [P]."""
    found: npt.NDArray[np.float32] = torch.cat([item.flatten() for item in values.values()]).float().numpy()
    return found


def parameters(values: State) -> list[list[Any]]:
    """The metadata's "parameters": of each part of `flat` its name and shape."""
    return [[name, list(item.shape)] for name, item in values.items()]


@dataclass(frozen=True)
class Watched:
    """Whose respondents an update is asked about. sender: whose update; starts: the clients whose respondents they are,
    each with the number of its first one among all of them.
    """

    sender: str
    starts: Mapping[int, int]

    @property
    def shown(self) -> str:
        """The array of how many are shown in each round."""
        return f"updates/{self.sender}/shown"

    def rows(self, done: Round) -> set[int]:
        """Numbers of those whom the round's update was trained on."""
        taken = {client: done.taken[client].rows for client in self.starts if client in done.taken}
        return {self.starts[client] + row for client, rows in taken.items() for row in rows}


class UpdateTape:
    """public/global [P], and updates/CLIENT [R, P] with its mask [R] for each client, or of all together where a sum is
    all that the server sees; samples: how many each client holds, by which the server weighs it, or 1 each; public:
    what everybody knows besides; filling: arrays that others fill meanwhile. Of the sender who is watched also how many
    respondents are shown in each round [R].

    shown: who they are, as numbers among those who are watched, round by round.
    """

    def __init__(
        self,
        start: State,
        samples: Sequence[int],
        rounds: int,
        folder: Path | None,
        public: Mapping[str, npt.NDArray[Any]],
        watched: Watched,
        filling: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        held = {called(client): count for client, count in enumerate(samples)}
        self._samples = {SUM: sum(samples)} if watched.sender == SUM else held
        self._start, self._public, self._watched = start, {**public, **(filling or {})}, watched
        self._masks = {sender: np.zeros(rounds, np.uint8) for sender in self._samples}
        self._counts = np.zeros(rounds, np.int64)
        self.shown: list[int] = []
        self._seen: set[int] = set()
        size = len(flat(start))
        layout: dict[str, Spec] = {"public/global": (_KIND, (size,)), watched.shown: (self._counts.dtype, (rounds,))}
        layout |= {name: (values.dtype, values.shape) for name, values in self._public.items()}
        for sender, mask in self._masks.items():
            layout[f"updates/{sender}"] = (_KIND, (rounds, size))
            layout[f"updates/{sender}/mask"] = (mask.dtype, (rounds,))
        self._transcript = Growing(Transcript, layout, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transcript.__exit__(kind, error, trace)

    def put(self, done: Round) -> int:
        """The updates of a round. Of how many respondents it is asked."""
        for sender, update in done.seen.items():
            self._transcript.put(f"updates/{sender}", flat(update), done.number)
            self._masks[sender][done.number] = 1
        rows = self._watched.rows(done)
        if self._seen.isdisjoint(rows):
            self.shown += sorted(rows)
            self._counts[done.number] = len(rows)
        self._seen |= rows
        return int(self._counts[done.number])

    def finish(self, metadata: Mapping[str, Any]) -> Transcript:
        """The recording, once every round is over."""
        self._transcript.put("public/global", flat(self._start))
        for sender, mask in self._masks.items():
            self._transcript.put(f"updates/{sender}/mask", mask)
        self._transcript.put(self._watched.shown, self._counts)
        for name, values in self._public.items():
            self._transcript.put(name, values)
        return self._transcript.finish({"parameters": parameters(self._start), "samples": self._samples, **metadata})


def disk_bytes(size: int, clients: int, rounds: int, table: int) -> int:
    """Of a recording of P = size numbers; table: those of the public embedding."""
    return _KIND.itemsize * (size * (clients * rounds + 1) + table)

"""What is recorded of federated averaging: the state that everybody starts from, and every update that the server took.

A round is written when it is over. Who sent nothing in it, was not drawn, or was refused has a row of zeros. Of the
first client it is said of how many respondents each update is to tell, and kept for the scorer who they are: all of the
round, where no earlier update that the server took was trained on one of them. So nobody is asked about twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from privbench.growing import Growing
from privbench.recording import Transcript
from privbench.targets.fedavg.rounds import Round, called
from privbench.targets.split_llama.adapters import State
from privbench.targets.split_llama.system import WATCHED
from privbench.tensors import DTYPES, Spec

_KIND = DTYPES["F32"]
_SHOWN = f"updates/{called(WATCHED)}/shown"


def flat(values: State) -> npt.NDArray[np.float32]:
    """All numbers of a state in the order of its names, [P]."""
    found: npt.NDArray[np.float32] = torch.cat([item.flatten() for item in values.values()]).float().numpy()
    return found


def parameters(values: State) -> list[list[Any]]:
    """The metadata's "parameters": of each part of `flat` its name and shape."""
    return [[name, list(item.shape)] for name, item in values.items()]


class UpdateTape:
    """public/global [P], and updates/CLIENT [R, P] with its mask [R] for each client; samples: how many each holds;
    public: what everybody knows besides. Of the first client also how many respondents are shown in each round [R].

    shown: who they are, as numbers among that client's respondents, round by round.
    """

    def __init__(
        self,
        start: State,
        samples: Sequence[int],
        rounds: int,
        folder: Path | None,
        public: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self._start, self._samples, self._public = start, samples, public or {}
        self._masks = np.zeros((len(samples), rounds), np.uint8)
        self._counts = np.zeros(rounds, np.int64)
        self.shown: list[int] = []
        self._seen: set[int] = set()
        size = len(flat(start))
        layout: dict[str, Spec] = {"public/global": (_KIND, (size,)), _SHOWN: (self._counts.dtype, (rounds,))}
        layout |= {name: (values.dtype, values.shape) for name, values in self._public.items()}
        for client in range(len(samples)):
            layout[f"updates/{called(client)}"] = (_KIND, (rounds, size))
            layout[f"updates/{called(client)}/mask"] = (self._masks.dtype, (rounds,))
        self._transcript = Growing(Transcript, layout, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transcript.__exit__(kind, error, trace)

    def put(self, done: Round) -> None:
        """The updates of a round."""
        for client, trained in done.taken.items():
            self._transcript.put(f"updates/{called(client)}", flat(trained.update), done.number)
            self._masks[client, done.number] = 1
        rows = done.taken[WATCHED].rows if WATCHED in done.taken else frozenset()
        if self._seen.isdisjoint(rows):
            self.shown += sorted(rows)
            self._counts[done.number] = len(rows)
        self._seen |= rows

    def finish(self, metadata: Mapping[str, Any]) -> Transcript:
        """The recording, once every round is over."""
        self._transcript.put("public/global", flat(self._start))
        for client, mask in enumerate(self._masks):
            self._transcript.put(f"updates/{called(client)}/mask", mask)
        self._transcript.put(_SHOWN, self._counts)
        for name, values in self._public.items():
            self._transcript.put(name, values)
        samples = {called(client): count for client, count in enumerate(self._samples)}
        return self._transcript.finish({"parameters": parameters(self._start), "samples": samples, **metadata})


def disk_bytes(size: int, clients: int, rounds: int, table: int) -> int:
    """Of a recording of P = size numbers; table: those of the public embedding."""
    return _KIND.itemsize * (size * (clients * rounds + 1) + table)

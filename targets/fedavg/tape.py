"""What is recorded of federated averaging: the state that everybody starts from, and every update that the server took.

A round is written when it is over. Who sent nothing in it, was not drawn, or was refused has a row of zeros.
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


class UpdateTape:
    """public/global [P], and updates/CLIENT [R, P] with its mask [R] for each client; samples: how many each holds, by
    which the server weighs it, or 1 each; summed: the server sees one update, of all together.
    """

    def __init__(
        self, start: State, samples: Sequence[int], rounds: int, folder: Path | None, summed: bool = False
    ) -> None:
        held = {SUM: sum(samples)} if summed else {called(client): count for client, count in enumerate(samples)}
        self._start, self._samples = start, held
        self._masks = {sender: np.zeros(rounds, np.uint8) for sender in held}
        size = len(flat(start))
        layout: dict[str, Spec] = {"public/global": (_KIND, (size,))}
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

    def put(self, done: Round) -> None:
        """The updates of a round."""
        for sender, update in done.seen.items():
            self._transcript.put(f"updates/{sender}", flat(update), done.number)
            self._masks[sender][done.number] = 1

    def finish(self, metadata: Mapping[str, Any]) -> Transcript:
        """The recording, once every round is over."""
        self._transcript.put("public/global", flat(self._start))
        for sender, mask in self._masks.items():
            self._transcript.put(f"updates/{sender}/mask", mask)
        return self._transcript.finish({"parameters": parameters(self._start), "samples": self._samples, **metadata})


def disk_bytes(size: int, clients: int, rounds: int) -> int:
    """Of a recording of P = size numbers."""
    return size * _KIND.itemsize * (clients * rounds + 1)

"""What a hijacking server runs beside the protocol: codes of its own, and a judge of what the site sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privbench.attacks.inversion.codes import Codes, Judge, label_tensors
from privbench.attacks.inversion.networks import tensor_of
from privbench.errors import InputError
from privbench.estimates import Floats, Known, Mask, told_of
from privbench.target import ActiveAdversary
from privbench.threads import one_torch_thread
from privbench.threat import Channel, Party

_STEPS = 5
"""Steps of the judge for each of the site's."""
SERVER = str(Party.SERVER)


@dataclass(frozen=True)
class _Own:
    """The server's own patients: inputs and where they were measured [A, H, F], labels [A] or [A, L] by task."""

    inputs: Floats
    observed: Mask
    labels: Mapping[str, Floats]


class Hijacker(ActiveAdversary):
    """Steers one site's encoder towards its own codes; what goes to the others is left as it is."""

    party = SERVER

    def __init__(self, site: str | None, rng: np.random.Generator) -> None:
        self._site, self._rng = site, rng
        self._own: _Own | None = None
        self._judge: Judge | None = None
        self._labels: dict[str, Floats] = {}
        self._pull: npt.NDArray[Any] | None = None

    def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
        prefix = f"auxiliary/{SERVER}/"
        names = [name.removeprefix(prefix).split("/") for name in own if name.startswith(prefix)]
        known = sorted({parts[1] for parts in names if parts[0] == "inputs"})
        if not known or self._site not in (None, *known):
            raise InputError(
                f"a hijacking server needs inputs of its own, auxiliary/{SERVER}/inputs/{self._site or 'SITE'}; it "
                f"holds those of {', '.join(known) or 'no site'}."
            )
        self._site = self._site or known[0]
        tasks = sorted(parts[1] for parts in names if parts[0] == "labels")
        labels = {task: _columns(own[f"{prefix}labels/{task}"]) for task in tasks}
        self._own = _Own(*told_of(own, f"{prefix}inputs/{self._site}"), labels)

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        if channel is Channel.LABELS:
            self._labels[name] = _columns(received)
        if name != self._site or channel is not Channel.ACTIVATIONS or self._own is None:
            return
        with one_torch_thread():
            sent = tensor_of(received).requires_grad_()
            theirs = self._beside(self._own, len(sent))
            judge = self._judge or self._make_judge(self._own, sent.shape[1])
            judge.learn(sent, theirs, _STEPS)
            (slope,) = torch.autograd.grad(judge.unlike(sent, theirs).sum(), sent)
        self._judge, self._pull = judge, slope.numpy()

    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        if name != self._site or channel is not Channel.GRADIENTS or self._pull is None:
            return sent
        return self._pull.astype(sent.dtype)

    def kept(self) -> Mapping[str, npt.NDArray[Any]]:
        """That the site was steered: its codes follow from the server's own inputs."""
        return {"steered": np.array([self._pull is not None], np.float32)}

    def _make_judge(self, own: _Own, width: int) -> Judge:
        codes = Codes.of(own.inputs, own.observed, width).encode(own.inputs, own.observed)
        padded = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        labels = self._joined(own.labels, len(codes))
        return Judge(tensor_of(padded), label_tensors(labels)[0], self._rng)

    def _beside(self, own: _Own, records: int) -> Tensor:
        """The labels of the records that were just received, in the scale of one's own."""
        return label_tensors(self._joined(own.labels, len(own.inputs)), self._joined(self._labels, records))[1]

    def _joined(self, labels: Mapping[str, Floats], records: int) -> Floats:
        """Label columns [records, L] of the tasks whose labels are known of one's own records and of the others."""
        shared = [labels[task] for task in (self._own.labels if self._own else ()) if task in self._labels]
        return np.concatenate([np.empty((records, 0)), *shared], axis=1)


def read(known: Known) -> Floats:
    """Inputs [m, H, F] that the codes which the steered site sends stand for."""
    codes = Codes.of(known.inputs, known.observed, known.asked.shape[1])
    own = codes.encode(known.inputs, known.observed)
    return codes.decode(known.asked[:, : own.shape[1]], own, known)


def _columns(labels: npt.NDArray[Any]) -> Floats:
    return np.asarray(labels, np.float64).reshape(len(labels), -1)

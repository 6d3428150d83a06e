"""What the server sees of the answers in the U-shape: its outputs where a token of the answer is predicted, and their
gradients, which come up from the client. At all other places the gradient is zero, and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor

from privbench.growing import Growing
from privbench.recording import JOINT, Transcript
from privbench.targets.split_llama.batches import PADDING, PROMPT
from privbench.targets.split_llama.halves import Exchange
from privbench.tensors import Spec

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

SERVER = "server"


class Upward:
    """gradients/server [T, N, A d], activations/server [T, N, A, d] with its mask [N, A], zero where an answer is
    shorter; and what is public: the base's norm [d], its LM head [V, d] unless it is the embedding table, and the
    tokens of the two answers that a coin chooses between, [2, A].

    labels: the answer of each of the N respondents, coins and all; answers: those of coin 0 and 1.
    """

    def __init__(
        self, labels: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], model: LlamaForCausalLM, passes: int,
        kind: np.dtype[np.generic],
    ) -> None:  # fmt: skip
        longest = max(len(answer) for answer in (*labels, *answers))
        self._mask = np.array([[place < len(label) for place in range(longest)] for label in labels], np.uint8)
        self._kind = kind
        shape = (len(labels), longest, model.config.hidden_size)
        self._outputs, self._gradients = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        head, table = model.lm_head.weight.detach(), model.model.embed_tokens.weight.detach()
        self._public: dict[str, npt.NDArray[np.generic]] = {
            "public/norm": _numbers(model.model.norm.weight.detach(), kind),
            f"public/labels/{JOINT}": np.array(
                [[*answer, *[-1] * (longest - len(answer))] for answer in answers], np.int64
            ),
        }
        if head.data_ptr() != table.data_ptr():
            self._public["public/head"] = _numbers(head, kind)
        self.layout: dict[str, Spec] = {
            f"gradients/{SERVER}": (kind, (passes, shape[0], shape[1] * shape[2])),
            f"activations/{SERVER}": (kind, (passes, *shape)),
            f"activations/{SERVER}/mask": (self._mask.dtype, self._mask.shape),
            **{name: (array.dtype, array.shape) for name, array in self._public.items()},
        }

    def release(self, rows: Sequence[int], crossed: Exchange) -> None:
        """One step's messages about these of the client's respondents; those beyond the first N are not recorded."""
        if crossed.outputs is None or crossed.outputs_gradient is None:
            raise RuntimeError("outputs and their gradients cross in the U-shape only.")
        for place, row in enumerate(rows):
            if row < len(self._mask):
                segment = crossed.cut.layout.segment[place]
                there = (segment != PADDING).nonzero()[:, 0]
                said = int((segment > PROMPT).sum())
                # Each token of the answer is predicted one place before it.
                at = there[-said - 1 : -1]
                self._outputs[row, :said] = crossed.outputs[place, at].float().numpy()
                self._gradients[row, :said] = crossed.outputs_gradient[place, at].float().numpy()

    def end_pass(self, number: int, transcript: Growing[Transcript]) -> None:
        """Hand a whole pass over to the recording."""
        flat = self._gradients.reshape(len(self._gradients), -1)
        transcript.put(f"gradients/{SERVER}", flat.astype(self._kind), number)
        transcript.put(f"activations/{SERVER}", self._outputs.astype(self._kind), number)

    def finish(self, transcript: Growing[Transcript]) -> None:
        """What does not change from pass to pass."""
        transcript.put(f"activations/{SERVER}/mask", self._mask)
        for name, array in self._public.items():
            transcript.put(name, array)


def _numbers(weights: Tensor, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    return weights.float().numpy().astype(kind)

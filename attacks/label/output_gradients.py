"""What label attacks on the U-shape share: the gradients of a server's outputs, and those that an answer would cause.

Cross-entropy of token y behind an output o has the gradient J^T W^T (softmax(W n(o)) - onehot(y)) / (tokens B): n is
the final norm, J its Jacobian at o, W the LM head. The server computed o, and the base's norm and head are public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, View
from privbench.attacks.inversion.lookup import EMBEDDING
from privbench.tensors import Blocks

Array = npt.NDArray[np.float64]

HEAD, NORM = "public/head", "public/norm"
"""The base's LM head [V, d], left out where it is the embedding table, and its final norm [d]."""


@dataclass(frozen=True)
class Readout:
    """The base's RMS norm (weights [d]; its epsilon, a hundred-thousandth, is left out) and LM head [V, d]."""

    norm: Array
    head: Array

    @classmethod
    def of(cls, view: View) -> Self:
        head = view.array(HEAD if HEAD in view.arrays else EMBEDDING)
        return cls(np.asarray(view.array(NORM)).astype(np.float64), np.asarray(head).astype(np.float64))

    def gradients(self, outputs: Array, tokens: Index) -> Array:
        """Of outputs [n, d], had each of tokens [n, K] followed it, but for a positive factor a row: [n, K, d]."""
        unit, mean = self._read(outputs)
        behind = (mean[:, None] - self.head[tokens]) * self.norm
        # The norm does not see how long an output is: nothing comes back along it.
        along = np.einsum("nkd,nd->nk", behind, unit)
        return np.asarray(behind - along[..., None] * unit[:, None])

    def nearness(self, found: Array, outputs: Array) -> Array:
        """`cosines` of gradients [n, d] with those of every token, [n, V], by products of n and V alone."""
        unit, mean = self._read(outputs)
        rows, middle = self.head * self.norm, mean * self.norm
        across = found - np.einsum("nd,nd->n", found, unit)[:, None] * unit
        along = np.einsum("nd,nd->n", middle, unit)[:, None] - unit @ rows.T
        lengths = np.einsum("vd,vd->v", rows, rows)
        squares = np.einsum("nd,nd->n", middle, middle)[:, None] - 2 * middle @ rows.T + lengths - along**2
        # Of a token that is sure to follow nothing is left but rounding.
        squares = np.maximum(squares, np.finfo(float).eps * lengths)
        sizes = np.linalg.norm(found, axis=1)[:, None] * np.sqrt(squares)
        products = np.einsum("nd,nd->n", across, middle)[:, None] - across @ rows.T
        return np.asarray(np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0))

    def _read(self, outputs: Array) -> tuple[Array, Array]:
        """Outputs at length 1, and the rows of the head that the base expects behind them, on average: both [n, d]."""
        sizes = np.linalg.norm(outputs, axis=1, keepdims=True)
        unit = np.divide(outputs, sizes, out=np.zeros_like(outputs), where=sizes > 0)
        logits = (unit * np.sqrt(outputs.shape[1]) * self.norm) @ self.head.T
        likely = np.exp(logits - logits.max(axis=1, keepdims=True))
        return unit, likely / likely.sum(axis=1, keepdims=True) @ self.head


def cosines(found: Array, expected: Array) -> Array:
    """Of gradients [n, d] with the K that are expected of each, [n, K]; 0 where one of the two is zero."""
    sizes = np.linalg.norm(found, axis=1)[:, None] * np.linalg.norm(expected, axis=2)
    products = np.einsum("nd,nkd->nk", found, expected)
    return np.asarray(np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0))


@dataclass(frozen=True)
class Answered:
    """The outputs [T, N, A, d] that a server sent down, where a token of the answer is predicted, and their gradients
    [T, N, A d], of the m candidates; there [m, A]: where an answer has a token.
    """

    outputs: Blocks
    gradients: Blocks
    candidates: Index
    there: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, view: View) -> Self:
        server = view.threat.holder
        mask = np.asarray(view.array(f"activations/{server}/mask"))[view.candidates] == 1
        return cls(view.array(f"activations/{server}"), view.array(f"gradients/{server}"), view.candidates, mask)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Of each release outputs and gradients where there are tokens, both [n, d]."""
        for t in range(len(self.gradients)):
            sent = np.asarray(self.outputs[t])[self.candidates].astype(np.float64)
            up = np.asarray(self.gradients[t])[self.candidates].astype(np.float64).reshape(sent.shape)
            yield sent[self.there], up[self.there]


def missing(view: View) -> str | None:
    """Why gradients of outputs cannot be matched with answers, or None."""
    server = view.threat.holder
    head = HEAD if HEAD in view.arrays else EMBEDDING
    names = (f"gradients/{server}", f"activations/{server}", f"activations/{server}/mask", NORM, head)
    for name in names:
        if name not in view.arrays:
            return f"needs '{name}', which was not recorded"
    gradients, outputs, mask, norm, table = (view.arrays[name] for name in names)
    if outputs.ndim != 4 or gradients.shape != (*outputs.shape[:2], outputs.shape[2] * outputs.shape[3]):
        return f"gradients {list(gradients.shape)} are not of outputs {list(outputs.shape)} [T, N, A, d]"
    if mask.shape != outputs.shape[1:3]:
        return f"the mask of outputs is {list(mask.shape)}, it must be {list(outputs.shape[1:3])}"
    if norm.shape != outputs.shape[3:] or table.shape[1:] != norm.shape:
        return (
            f"outputs are {outputs.shape[3]} wide; the base's norm is {list(norm.shape)}, its head {list(table.shape)}"
        )
    return None

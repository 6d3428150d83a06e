"""Checks of what everybody knows: the answers of a coin and the base's layers are of the base that is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError
from privbench.recording import Transcript
from privbench.tensors import Blocks
from privbench.threat import Party

if TYPE_CHECKING:
    from privbench.trunks import PublicTrunk

TABLE = "public/embedding"
_HEAD, _LABELS = "public/head", "public/labels/"
_TOKENS, _MADE = "public/tokens", "public/activations"
_TRIED = 64
"""Public texts that are run through the public layers, beside the longest."""
_ROUNDINGS, _COMPUTING = 12, 1e-3
"""By what activations may be off, as a share of their norm: so many times the rounding of the coarsest type of what is
recorded (layers carry on what rounding did to their weights), and what another order of sums does in any case."""
_STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""From 1 to the next number."""


def require_public(transcript: Transcript) -> None:
    """`InputError` where an attack would read nothing since what is public does not fit, and not since it is hidden."""
    for name in transcript.arrays:
        if name.startswith(_LABELS):
            _require_answers(transcript, name)
            _require_vocabulary(transcript, name)
            _require_places(transcript, name)
    _require_trunk(transcript)


def _require_answers(transcript: Transcript, name: str) -> None:
    """Labels are answers of one token or more, no two alike, with nothing but -1 behind them."""
    answers = transcript.array(name)
    there = answers >= 0
    broken = np.flatnonzero(~there[:, 0] | (there[:, 1:] & ~there[:, :-1]).any(axis=1))
    if len(broken):
        raise InputError(
            f"{transcript.where}: '{name}' holds {answers[broken[0]].tolist()} as the tokens of label {broken[0]}; an "
            "answer has one token or more, and -1 only behind its last."
        )
    _, first = np.unique(answers, axis=0, return_index=True)
    if len(first) < len(answers):
        again = min({*range(len(answers))} - {*first.tolist()})
        raise InputError(
            f"{transcript.where}: '{name}' holds the tokens of label {again} twice; answers that are alike cannot be "
            "told apart. Give each label its own."
        )


def _require_vocabulary(transcript: Transcript, name: str) -> None:
    """Tokens of answers are rows of the LM head."""
    head = _HEAD if _HEAD in transcript.arrays else TABLE
    table, most = matrix(transcript, head), int(transcript.array(name).max())
    if table is not None and most >= len(table):
        raise InputError(
            f"{transcript.where}: '{name}' holds token {most}; '{head}' has {len(table)} rows, and they count from 0."
        )


def _require_places(transcript: Transcript, name: str) -> None:
    """Answers have as many places as the server has outputs that predict them."""
    sent = f"activations/{Party.SERVER}"
    outputs, places = transcript.arrays.get(sent), transcript.arrays[name].shape[1]
    if outputs is not None and outputs.ndim == 4 and outputs.shape[2] != places:
        raise InputError(
            f"{transcript.where}: '{name}' has answers of {places} places, '{sent}' outputs at {outputs.shape[2]}, [T, "
            "N, A, d]; A must be the same, with -1 where an answer has no more tokens."
        )


def _require_trunk(transcript: Transcript) -> None:
    """public/trunk/PARAM are layers of a LLaMA over rows of the public table, and make of a public text what is
    recorded of it; without a table they are not used.
    """
    table = matrix(transcript, TABLE)
    if table is None:
        return
    from privbench.trunks import PREFIX, trunk_of  # imports torch

    if not any(name.startswith(PREFIX) for name in transcript.arrays):
        return
    try:
        trunk = trunk_of(transcript.arrays, table.shape[1])
    except InputError as error:
        raise InputError(f"{transcript.where}: {error}") from error
    if {_TOKENS, _MADE} <= transcript.arrays.keys():
        _require_made(transcript, trunk, np.asarray(table).astype(np.float32))


def _require_made(transcript: Transcript, trunk: PublicTrunk, table: npt.NDArray[np.float32]) -> None:
    """What the layers make of public texts: shapes alone do not tell a wrong width of heads, nor another order of
    texts. The longest of the texts is among those that are run: one token alone does not turn.
    """
    import torch

    tokens, made = np.asarray(transcript.array(_TOKENS)), transcript.array(_MADE)
    if tokens.max() >= len(table) or made.shape[2] != table.shape[1]:
        raise InputError(
            f"{transcript.where}: '{_MADE}' and '{_TOKENS}' are not of rows of '{TABLE}' {list(table.shape)}, over "
            "which the public layers stand; record those of the same base."
        )
    allowed = _rounding(transcript)
    lengths = (tokens >= 0).sum(axis=1)
    spread = np.linspace(0, len(tokens) - 1, min(_TRIED, len(tokens))).astype(int)
    for row in dict.fromkeys([int(lengths.argmax()), *spread.tolist()]):
        there, length = tokens[row] >= 0, int(lengths[row])
        if not length:
            continue
        visible = torch.ones(1, length, length, dtype=torch.bool).tril()
        with torch.inference_mode():
            entering = torch.from_numpy(table[tokens[row, there]])[None]
            found = trunk(entering, torch.arange(length)[None], visible)[0].numpy()
        recorded = np.asarray(made[row]).astype(np.float32)[there]
        off = float(np.linalg.norm(found - recorded) / np.linalg.norm(recorded))
        if not off < allowed:
            raise InputError(
                f"{transcript.where}: the public layers make of text {row} of '{_TOKENS}' what is {off:.2g} of its "
                f"norm away from '{_MADE}', and {allowed:.2g} is allowed for rounding; record both of one base, in one "
                "order of texts, and 'public/trunk/rotary' of one head."
            )


def _rounding(transcript: Transcript) -> float:
    """What rounding may move what is public by: of bfloat16 0.1, of float16 0.012, of float32 0.001."""
    kinds = {array.dtype.name for name, array in transcript.arrays.items() if name.startswith("public/")}
    return max(_COMPUTING, _ROUNDINGS * max(_STEPS.get(kind, 0.0) for kind in kinds))


def matrix(transcript: Transcript, name: str) -> Blocks | None:
    """The public rows [V, d] of that name, where they are recorded as such."""
    table = transcript.arrays.get(name)
    return table if table is not None and table.ndim == 2 else None

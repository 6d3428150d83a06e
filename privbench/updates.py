"""What a recording says of federated averaging: who sent which update, and what its numbers are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError
from privbench.tensors import Blocks

Parameters = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each part of an update, in their order."""
FEW = 4
"""Respondents of a round up to whom their questionnaires are searched for together."""
UPDATE_KEYS = ("parameters", "samples", "missed")
"""What the metadata may say of updates."""


def senders(names: Iterable[str]) -> tuple[str, ...]:
    """The clients whose updates are recorded, or what was computed of them."""
    return tuple(sorted({name.split("/")[1] for name in names if name.startswith("updates/")}))


def require_updates(arrays: Mapping[str, Blocks], metadata: Mapping[str, Any], where: str) -> None:
    """`InputError` where updates and the metadata do not fit together, or a round without an update holds one.

    "parameters", a list of [name, shape], says what the P numbers of an update are, in their order; "samples" how many
    records each client holds, by which the server weighs its updates; "missed" who took part without an update.
    """
    sent = {client: arrays[f"updates/{client}"] for client in senders(arrays) if f"updates/{client}" in arrays}
    size = next((array.shape[1] for array in sent.values()), None)
    named = parameters_of(metadata, where)
    counted = sum(math.prod(shape) for _, shape in named)
    if named and size is not None and counted != size:
        raise InputError(
            f"{where}: 'parameters' in the metadata counts {counted} numbers, an update has {size}; they must agree."
        )
    for client in senders(arrays):
        _require_shown(arrays, client, where)
    _require_read(arrays, where)
    strange = sorted(set(metadata.get("samples", {})) - set(sent)) if sent else []
    if strange:
        raise InputError(f"{where}: 'samples' in the metadata names '{strange[0][:60]}', of whom there are no updates.")
    for client, array in sent.items():
        mask = arrays.get(f"updates/{client}/mask")
        for number in np.flatnonzero(np.asarray(mask) == 0) if mask is not None else ():
            if np.any(array[int(number)]):
                raise InputError(
                    f"{where}: 'updates/{client}' holds an update in round {int(number)}, and its mask says that none "
                    "was sent; mend the one or the other."
                )


def shown_in(shown: Blocks) -> npt.NDArray[np.int64]:
    """In which round each of the records was trained on that are asked about [N]: they stand round by round, so many of
    each as `shown` [R] says.
    """
    counts = np.asarray(shown)
    return np.repeat(np.arange(len(counts)), counts)


def _require_shown(arrays: Mapping[str, Blocks], client: str, where: str) -> None:
    """Records are looked for where an update was sent, by an attack that has it."""
    name, update = f"updates/{client}/shown", f"updates/{client}"
    if name not in arrays:
        return
    shown, mask = np.asarray(arrays[name]), arrays.get(f"{update}/mask")
    if update not in arrays or shown.min() < 0:
        raise InputError(
            f"{where}: '{name}' says of how many records of each round '{update}' is to tell; it needs that array and "
            "counts of 0 and above."
        )
    unsent = np.flatnonzero((shown > 0) & (np.asarray(mask) == 0)) if mask is not None else shown[:0]
    if len(unsent):
        raise InputError(
            f"{where}: '{name}' asks about {int(shown[unsent[0]])} records of round {int(unsent[0])}, in which by "
            f"'{update}/mask' nothing was sent; mend the one or the other."
        )


def _require_read(arrays: Mapping[str, Blocks], where: str) -> None:
    """What a server fills in itself are options of the form, and they are held against an update that is there."""
    matches = [name for name in arrays if name.startswith("read/matches/")]
    practice = [name for name in arrays if name.startswith("read/practice/")]
    needed = [(name, "read/drawn") for name in (*matches, *practice)]
    needed += [(name, f"updates/{name.rpartition('/')[2]}/shown") for name in matches]
    needed += [("read/drawn", "public/form/options")] if "read/drawn" in arrays else []
    for name, other in needed:
        if other not in arrays:
            raise InputError(f"{where}: '{name}' needs '{other}', which is not there.")
    if "read/drawn" not in arrays:
        return
    drawn, options = np.asarray(arrays["read/drawn"]), np.asarray(arrays["public/form/options"])
    strange = (drawn < -1) | (drawn >= (options[:, :, 0] >= 0).sum(axis=1))
    if strange.any():
        option, question = int(drawn[strange][0]), int(np.nonzero(strange)[3][0])
        raise InputError(
            f"{where}: 'read/drawn' fills in option {option} of question {question}, "
            "which 'public/form/options' does not have; they count from 0, and -1 says that nothing was tried."
        )
    wrong = next((name for name in matches if np.abs(np.asarray(arrays[name])).max() > 1 + 1e-6), None)
    if wrong is not None:
        raise InputError(f"{where}: '{wrong}' is an agreement of signs, from -1 to 1.")


def parameters_of(metadata: Mapping[str, Any], where: str = "the recording") -> Parameters:
    """The metadata's "parameters"; empty where it names none. `InputError` for what is no list of [name, shape]."""
    try:
        named = metadata.get("parameters") or ()
        return tuple((str(name), tuple(int(length) for length in shape)) for name, shape in named)
    except (TypeError, ValueError):
        raise InputError(f"{where}: 'parameters' in the metadata must be a list of [name, shape].") from None


def part_of(parameters: Parameters, name: str) -> slice:
    """Where the numbers of a part lie."""
    at = 0
    for called, shape in parameters:
        if called == name:
            return slice(at, at + math.prod(shape))
        at += math.prod(shape)
    raise KeyError(name)

"""What a recording says of federated averaging: who sent which update, and what its numbers are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from privbench.errors import InputError
from privbench.tensors import Blocks

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
    named = metadata.get("parameters")
    counted = None if named is None else _counted(named, where)
    if counted is not None and size is not None and counted != size:
        raise InputError(
            f"{where}: 'parameters' in the metadata counts {counted} numbers, an update has {size}; they must agree."
        )
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


def _counted(named: Any, where: str) -> int:
    try:
        return sum(math.prod(int(length) for length in shape) for _, shape in named)
    except (TypeError, ValueError):
        raise InputError(f"{where}: 'parameters' in the metadata must be a list of [name, shape].") from None

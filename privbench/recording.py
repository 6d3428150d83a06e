"""Recordings: what parties exchanged, what only the auditor may see, and what only the scorer may see.

Three files because each has another reader: `Transcript` may be handed to an
auditor, `Oracle` reveals labels beside the releases, `Secrets` holds what an attack has to guess.
All are safetensors with one JSON object in the metadata; nothing is ever pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism

Array = npt.NDArray[Any]

TRANSCRIPT_SCHEMA = "privbench/transcript/1"
ORACLE_SCHEMA = "privbench/oracle/1"
SECRETS_SCHEMA = "privbench/secrets/1"


@dataclass(frozen=True)
class Recording:
    """Named read-only arrays with metadata. Subclasses fix the schema and read the metadata."""

    arrays: Mapping[str, Array]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    schema: ClassVar[str] = ""

    def __post_init__(self) -> None:
        frozen = {name: _read_only(name, array) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", MappingProxyType(frozen))
        object.__setattr__(self, "metadata", MappingProxyType({**self.metadata, "schema": self.schema}))

    def save(self, path: Path) -> None:
        """Write the file; `InputError` when the disk does not take it."""
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        text = json.dumps(dict(self.metadata), allow_nan=False)
        try:
            save_file(arrays, path, metadata={"privbench": text})
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot store {path.name} in {path.parent}: {error}. Free space there.") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of this schema; raises `InputError` for anything else."""
        try:
            with safe_open(path, framework="np") as file:
                metadata = json.loads((file.metadata() or {}).get("privbench", "{}"))
                found = metadata.get("schema")
                if found != cls.schema:
                    raise InputError(f"{path.name}: schema is {found!r}, expected {cls.schema!r}.")
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, json.JSONDecodeError) as error:
            raise InputError(f"{path.name} is not a readable safetensors recording: {error}") from error
        return cls(arrays, metadata)


@dataclass(frozen=True)
class Transcript(Recording):
    """What parties exchanged. gradients/SITE [T, N, d] releases, gradients/SITE/seen uint8 [T, N].

    Metadata: "mechanisms" and "claims", lists of JSON objects; both optional.
    """

    schema: ClassVar[str] = TRANSCRIPT_SCHEMA

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return tuple(Mechanism.from_json(item) for item in self.metadata.get("mechanisms", ()))

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(Claim.from_json(item) for item in self.metadata.get("claims", ()))


@dataclass(frozen=True)
class Oracle(Recording):
    """For the auditor only: oracle/gradients/SITE/TASK/0 and /1 [T, N, d], the noise-free release under either label.

    TASK "joint" sets every task that the joint coin moves. oracle/gradients/SITE/clean is the release that
    happened, before noise: the positive control.
    """

    schema: ClassVar[str] = ORACLE_SCHEMA


@dataclass(frozen=True)
class Secrets(Recording):
    """For the scorer only: labels/TASK int64 [N] or [N, L], labels/joint int64 [N], canary/joint uint8 [N].

    Metadata: "joint", the tasks that the joint coin moves.
    """

    schema: ClassVar[str] = SECRETS_SCHEMA

    @property
    def joint(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("joint", ()))


def _read_only(name: str, array: Array) -> Array:
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise InputError(f"array '{name}' holds values that are not finite; a recording must be finite.")
    view = array.view()
    view.flags.writeable = False
    return view

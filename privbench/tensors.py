"""safetensors files that need not fit into memory: read block by block, written release by release.

The format (header length, JSON header, raw little-endian values) is safetensors' own, and its library checks every
header that is read here. What it does not offer is a file that grows while a training runs, and arrays of which only
the asked-for part ever becomes resident.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from privbench.errors import InputError

Array = npt.NDArray[Any]
Spec = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of an array."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
RELEASE_TYPES: Mapping[str, np.dtype[Any]] = {
    "float32": DTYPES["F32"],
    "float16": DTYPES["F16"],
    "bfloat16": DTYPES["BF16"],
}
"""In which types a release may be recorded, by the name that --set takes; half of the disk for large cuts."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_MOST_AXES = 8
METADATA = "privbench"
"""The metadata key that holds one JSON object."""
BLOCK_BYTES = 2 << 20
"""About how much of a stored array is read at once where its parts do not matter."""
_RESERVED = 1 << 16
"""Bytes kept free in the header of a growing file for metadata that is known only at its end."""


class Blocks(Protocol):
    """An array by its blocks: in memory or in a file, the same to whoever reads it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...


@dataclass(frozen=True)
class Stored:
    """A read-only array in a file. Indexing maps the file, copies what was asked for and lets go of the map.

    So `stored[t]` costs one release of memory, however many the file holds.
    """

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        if self.nbytes == 0:
            return np.array(np.empty(self.shape, self.dtype)[index])
        mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        return np.array(mapped[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[...] if dtype is None else self[...].astype(dtype)


def read_file(path: Path) -> tuple[dict[str, Stored], dict[str, Any]]:
    """The arrays of a file, unread, and the JSON object in its metadata (empty without one).

    Raises `InputError` for a file that is no safetensors file: cut short, a header that does not fit, unknown types.
    """
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(METADATA)
        with path.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            header: dict[str, Any] = json.loads(raw.read(length))
        metadata = {} if text is None else _parsed(text)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path.name} is not a readable safetensors recording: {reason}") from error
    if not isinstance(metadata, dict):
        raise InputError(f"{path.name}: the metadata '{METADATA}' must be a JSON object, got {str(metadata)[:40]!r}.")
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if 0 in entry["shape"] or len(entry["shape"]) > _MOST_AXES:
            shape = str(entry["shape"])[:60]
            raise InputError(f"{path.name}: array '{name}' has shape {shape}: nothing is in it, or too many axes.")
        if entry["dtype"] not in DTYPES:
            raise InputError(f"{path.name}: array '{name}' has type {entry['dtype']}; allowed: {', '.join(DTYPES)}.")
        start = 8 + length + int(entry["data_offsets"][0])
        arrays[name] = Stored(path, start, DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])))
    return arrays, metadata


class TensorWriter:
    """A file whose arrays are filled block by block along their first axis; `close` adds the metadata.

    Nothing is kept in memory. The file is complete, and readable, only after `close`; leaving the context without it
    (an error) removes the file. Raises `InputError` when the disk does not take it.
    """

    def __init__(self, path: Path, layout: Mapping[str, Spec]) -> None:
        # Wide types first, so that every array starts at a multiple of its own item size.
        names = sorted(layout, key=lambda name: (-layout[name][0].itemsize, name))
        self._header: dict[str, Any] = {}
        self._offsets: dict[str, int] = {}
        self._layout, self._path = dict(layout), path
        end = 0
        for name in names:
            dtype, shape = layout[name]
            start, end = end, end + math.prod(shape) * dtype.itemsize
            self._header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
            self._offsets[name] = start
        self._length = _multiple_of_8(len(json.dumps(self._header)) + _RESERVED)
        self._closed = False
        try:
            self._file = path.open("wb")
            self._file.truncate(8 + self._length + end)
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if not self._closed:
            self._path.unlink(missing_ok=True)

    def put(self, name: str, block: Array, at: int | None = None) -> None:
        """Write the whole array, or the `at`-th block along its first axis; the block is cast to the array's type."""
        dtype, shape = self._layout[name]
        wanted = shape if at is None else shape[1:]
        if block.shape != wanted or (at is not None and not 0 <= at < shape[0]):
            raise ValueError(f"block of {name} is {block.shape} at {at}, expected {wanted} below {shape[:1]}.")
        position = self._offsets[name] + (at or 0) * math.prod(wanted) * dtype.itemsize
        try:
            self._file.seek(8 + self._length + position)
            self._file.write(np.ascontiguousarray(block, dtype).tobytes())
        except OSError as error:
            raise self._refused(error) from error

    def close(self, metadata: Mapping[str, Any]) -> None:
        """Write the header with this metadata object; no NaN in it."""
        text = json.dumps(dict(metadata), allow_nan=False)
        header = json.dumps({"__metadata__": {METADATA: text}, **self._header}).encode()
        if len(header) > self._length:
            raise ValueError(f"the metadata of {self._path.name} is {len(text)} bytes; at most {_RESERVED // 2} fit.")
        try:
            self._file.seek(0)
            self._file.write(self._length.to_bytes(8, "little") + header.ljust(self._length))
            self._file.flush()
        except OSError as error:
            raise self._refused(error) from error
        self._closed = True

    def _refused(self, error: OSError) -> InputError:
        return InputError(
            f"cannot store {self._path.name} in {self._path.parent}: {error.strerror or error}. Free space there."
        )


def blocks_of(array: Blocks) -> list[slice]:
    """Slices of the first axis that hold about BLOCK_BYTES each."""
    if array.ndim == 0 or array.nbytes == 0:
        return []
    step = max(1, BLOCK_BYTES * len(array) // array.nbytes)
    return [slice(start, min(start + step, len(array))) for start in range(0, len(array), step)]


def is_float(dtype: Any) -> bool:
    """Whether values of this type can be NaN (numpy does not count bfloat16 among its floating types)."""
    return bool(np.issubdtype(dtype, np.floating)) or dtype == DTYPES["BF16"]


def step_of(dtype: Any) -> float:
    """The relative step between neighbouring numbers of a float type."""
    return 2.0**-7 if dtype == DTYPES["BF16"] else float(np.finfo(dtype).eps)


def _multiple_of_8(length: int) -> int:
    return -(-length // 8) * 8


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key stands twice: readers would disagree about what it says."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{next(key for key in keys if keys.count(key) > 1)[:60]}' stands twice in the metadata")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")

"""A recording that is filled while a run goes on: release by release, in a file or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np

from privbench.recording import Recording
from privbench.tensors import Array, Spec, TensorWriter

R = TypeVar("R", bound=Recording)


class Growing(Generic[R]):
    """A recording that is filled while a run goes on, in a file of `folder`, or in memory where there is none.

    Leaving the context without `finish` removes the file.
    """

    def __init__(self, kind: type[R], layout: Mapping[str, Spec], folder: Path | None) -> None:
        self._kind = kind
        self._path = None if folder is None else folder / kind.file_name()
        self._file = None if self._path is None else TensorWriter(self._path, layout)
        self._arrays = {} if folder else {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._file is not None:
            self._file.__exit__(*error)

    def put(self, name: str, block: Array, at: int | None = None) -> None:
        """The whole array, or its `at`-th block along the first axis."""
        if self._file is not None:
            self._file.put(name, block, at)
        else:
            self._arrays[name][... if at is None else at] = block

    def finish(self, metadata: Mapping[str, Any]) -> R:
        """The checked recording; from its file, where it went to one."""
        if self._file is None or self._path is None:
            return self._kind(self._arrays, metadata)
        self._file.close({**metadata, "schema": self._kind.schema()})
        return self._kind.load(self._path)

"""Keep the memory that a training step frees for the next step, in this process and in those it starts."""

from __future__ import annotations

import ctypes
import os

_GLIBC = {"MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20), "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 30)}
"""Environment variable of a new process; parameter of mallopt(3) for a running one; bytes."""


def keep_freed_memory() -> None:
    """glibc hands large blocks back to the kernel at every free, and each training step has them mapped and zeroed
    anew: a sixth of a PRISM cell's time. Who sets the variables keeps what was set; another libc keeps its own way.
    """
    libc = ctypes.CDLL(None)
    for name, (parameter, size) in _GLIBC.items():
        if name not in os.environ and hasattr(libc, "mallopt"):
            os.environ[name] = str(size)
            libc.mallopt(parameter, size)

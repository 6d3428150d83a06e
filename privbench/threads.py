"""How a training uses its process: one intra-op thread, and memory that is kept from step to step.

With two threads and a busy machine, an LSTM step is up to 150 times slower.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_GLIBC = {"MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20), "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 30)}
"""What sets it for a new process; parameter of mallopt(3) for a running one; bytes."""


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Set torch to one thread and back. Targets that train with torch run inside it; others never import torch."""
    import torch

    _keep_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _keep_freed_memory() -> None:
    """glibc hands large blocks back to the kernel at every free, and each training step has them mapped and zeroed
    anew: a sixth of a PRISM training's time. Who sets the variables keeps what was set; another libc keeps its own way.
    """
    libc = ctypes.CDLL(None)
    for name, (parameter, size) in _GLIBC.items():
        if name not in os.environ and hasattr(libc, "mallopt"):
            libc.mallopt(parameter, size)

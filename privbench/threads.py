"""One intra-op thread per run: with two and a busy machine, an LSTM step is up to 150 times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Set torch to one thread and back. Targets that train with torch run inside it; others never import torch."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

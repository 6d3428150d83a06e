"""Where things are kept that take long to make and may be made again: converted models, reference runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$PRIVBENCH_CACHE, or privbench in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get("PRIVBENCH_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "privbench"

"""Bounds: one file per family of theorems."""

if not __name__.startswith("privbench."):
    raise ImportError("import privbench.bounds, not bounds: the top-level name is not ours to take.")

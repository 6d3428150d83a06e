"""Targets: the systems that are audited."""

if not __name__.startswith("privbench."):
    raise ImportError("import privbench.targets, not targets: the top-level name is not ours to take.")

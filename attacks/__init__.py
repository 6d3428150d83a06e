"""Attacks: one file per attack, by what they infer."""

if not __name__.startswith("privbench."):
    raise ImportError("import privbench.attacks, not attacks: the top-level name is not ours to take.")

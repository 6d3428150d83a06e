"""privbench: audits what split-learning systems really leak."""

__version__ = "0.1.0"

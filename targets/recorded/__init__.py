"""A recording from anywhere: no model, no training."""

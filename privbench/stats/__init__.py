"""Statistics from score vectors: numpy and scipy only, no torch, no global RNG."""

"""Activation inversion: what a party reads of the inputs behind the tensors it receives."""

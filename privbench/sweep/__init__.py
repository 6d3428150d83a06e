"""Sweeps: many audits in one folder, each an independent cell that is run at most once."""

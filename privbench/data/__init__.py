"""Readers of data and the built-in cohort."""

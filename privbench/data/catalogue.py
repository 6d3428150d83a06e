"""The names of data sets, without importing what reads them."""

from __future__ import annotations

from collections.abc import Mapping

READERS: Mapping[str, str] = {
    "synthetic": "built-in cohort, seeded; any number of stays",
    "physionet2012": "PhysioNet/CinC Challenge 2012, per-patient files or one packed file",
}

SURVEYS: Mapping[str, str] = {
    "osmi": "OSMI Mental Health in Tech 2014, 2016 or 2019, one CSV file",
    "dass": "DASS-42 by item, or its scores with personality and demographics, one CSV file",
    "student-depression": "Student Depression, one CSV file",
    "mental-health": "Mental Health: respondents of OSMI 2014 copied many times, one CSV file",
    "survey": "any CSV file; schema inferred, or given: survey:FILE.csv,schema=S.toml,outcome=NAME",
}
"""Surveys about people, as NAME:FILE."""

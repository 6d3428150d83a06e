"""The names of data sets, without importing what reads them."""

from __future__ import annotations

from collections.abc import Mapping

READERS: Mapping[str, str] = {
    "synthetic": "built-in cohort, seeded; any number of stays",
    "physionet2012": "PhysioNet/CinC Challenge 2012, per-patient files or one packed file",
}

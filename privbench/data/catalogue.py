"""The names of data sets and how they are given, without importing what reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

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

INVENTED = "synthetic"
"""Data that are drawn: no record is a person's."""
_OPTION = re.compile(r",(?=(?:schema|outcome)=)")


def invented(data: str) -> bool:
    """Whether these data, a name or NAME:WHICH, are drawn and read from no file."""
    return data.partition(":")[0] == INVENTED


def split_options(text: str) -> tuple[str, list[str]]:
    """FILE and the options after it, of FILE[,schema=S.toml][,outcome=NAME]."""
    path, *options = _OPTION.split(text)
    return path, options


def without_folders(given: str) -> str:
    """A data set or a model as it was given, KIND:PATH, NAME or a path alone, with the last name of each path.

    File names tell surveys and years apart; folders tell whose machine it was.
    """
    kind, colon, path = given.partition(":")
    if not colon or "/" in kind:
        return _last(given)
    if kind not in SURVEYS:
        return f"{kind}:{_last(path)}"
    file, options = split_options(path)
    schema = "schema="
    named = [schema + _last(item.removeprefix(schema)) if item.startswith(schema) else item for item in options]
    return f"{kind}:{','.join([_last(file), *named])}"


def _last(path: str) -> str:
    return Path(path).name or path

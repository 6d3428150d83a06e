"""PhysioNet/CinC Challenge 2012: adult ICU stays, their first 48 hours, three sites and three outcomes.

Set a only (4,000 stays); files of sets b and c beside it are ignored. The folder has one of two forms,
which give the same cohort:

    packed     set-a.csv.gz (RecordID,Time,Parameter,Value) and Outcomes-a.txt
    original   one NNNNNN.txt (Time,Parameter,Value) per stay, in the folder or in its subfolder set-a/,
               and Outcomes-a.txt beside them or one folder up

What becomes of the raw values:

- A value outside its feature's range is a recording error, and -1 means missing: neither counts as observed.
- Of several values within an hour the last one stands. 48:00 belongs to the last hour.
- A plausible invasive pressure wins over the cuff pressure of the same hour.
- Age, height, weight and sex are a stay's first valid value: the descriptor at 00:00, or, where that weight is
  missing, the first weight that was charted.
- Every stay of Outcomes-a.txt is kept, also the few that have descriptors but no measurement, so the number of
  training records is known from that file alone.

SAPS-I, SOFA, Length_of_stay and Survival describe the outcome and are never features; nor is ICUType, a label.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from privbench.data.cohort import Cohort, Feature, IntArray, SiteData, Splits, Task
from privbench.errors import InputError

HOURS = 48

TASKS = (
    Task("ihm", "A", ("in-hospital death",)),
    Task("early-death", "B", ("death within 7 days of admission",)),
    # In the order of the codes: ICUType 1 is CCU, 4 is SICU.
    Task("care-unit", "C", ("CCU", "CSRU", "MICU", "SICU")),
)


@dataclass(frozen=True)
class _Channel:
    """A feature and the parameters it is charted under; a later parameter wins over an earlier one."""

    feature: Feature
    parameters: tuple[str, ...]


VITALS = (
    _Channel(Feature("heart rate", "1/min", 20, 250), ("HR",)),
    _Channel(Feature("systolic pressure", "mmHg", 40, 280), ("NISysABP", "SysABP")),
    _Channel(Feature("diastolic pressure", "mmHg", 10, 180), ("NIDiasABP", "DiasABP")),
    _Channel(Feature("mean pressure", "mmHg", 20, 220), ("NIMAP", "MAP")),
    _Channel(Feature("respiratory rate", "1/min", 4, 70), ("RespRate",)),
    _Channel(Feature("temperature", "°C", 30, 43), ("Temp",)),
    # Arterial, from blood gases, hence rare: the challenge has no pulse oximetry.
    _Channel(Feature("SaO2", "%", 50, 100), ("SaO2",)),
)
LABS = (
    _Channel(Feature("blood urea nitrogen", "mg/dL", 1, 250), ("BUN",)),
    _Channel(Feature("creatinine", "mg/dL", 0.1, 25), ("Creatinine",)),
    _Channel(Feature("glucose", "mg/dL", 20, 1500), ("Glucose",)),
    _Channel(Feature("Glasgow coma scale", "points", 3, 15), ("GCS",)),
)
ADMISSION = (
    _Channel(Feature("age", "years", 15, 110), ("Age",)),
    _Channel(Feature("height", "cm", 120, 220), ("Height",)),
    _Channel(Feature("weight", "kg", 30, 300), ("Weight",)),
    _Channel(Feature("sex", "0/1", 0, 1), ("Gender",)),
)
_CARE_UNIT = _Channel(Feature("care unit", "code", 1, 4), ("ICUType",))

_PACKED, _UNPACKED, _OUTCOMES = "set-a.csv.gz", "set-a", "Outcomes-a.txt"
_COLUMNS = {"RecordID": "int64", "Time": "category", "Parameter": "category", "Value": "float64"}
# A time's place in this list is its minute after admission.
_CLOCK = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(HOURS * 60 + 1)]
_FEWEST = 10  # stays; with fewer, a split would be empty
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError)


def holders() -> Mapping[str, str]:
    """The site that holds each task's labels."""
    return {task.name: task.holder for task in TASKS}


def count_train(folder: str) -> int:
    """How many training records `read_splits` will return; reads the outcomes only."""
    return _sizes(len(_read_outcomes(_locate(folder).outcomes)))[0]


def read_splits(folder: str, rng: np.random.Generator) -> Splits:
    """Disjoint random stays: 70% for training, 10% for validation, 20% for testing.

    Site A has 7 vitals and B 4 laboratory and coma values, [N, 48, F] by hour; C has age, height, weight and sex,
    [N, 1, 4]. Units and ranges are in the sites' features. `InputError` for missing or damaged files.
    """
    cohort = _read_cohort(_locate(folder))
    train, validation = _sizes(len(cohort))
    parts = np.split(rng.permutation(len(cohort)), [train, train + validation])
    return Splits(*(cohort.take(rows) for rows in parts))


def _sizes(count: int) -> tuple[int, int]:
    """The number of training and of validation records; the others are for testing."""
    return count * 7 // 10, count // 10


@dataclass(frozen=True)
class _Files:
    """The outcomes, and either the packed file alone or the stays' own files."""

    outcomes: Path
    series: tuple[Path, ...]

    @property
    def packed(self) -> bool:
        return self.series[0].name == _PACKED


def _locate(folder: str) -> _Files:
    """Find set a in either form; the packed form is taken where both are there."""
    home = Path(folder)
    if not home.is_dir():
        raise InputError(f"there is no folder '{folder}'; give the one that holds {_PACKED} or the files of set a.")
    if not (home / _PACKED).is_file() and (home / _UNPACKED).is_dir():
        home = home / _UNPACKED
    stays = sorted(path for path in home.glob("*.txt") if re.fullmatch("[0-9]+", path.stem))
    series = (home / _PACKED,) if (home / _PACKED).is_file() else tuple(stays)
    if not series:
        raise InputError(
            f"'{folder}' holds no set a of the Challenge 2012: looked for {_PACKED}, and for files like 132539.txt "
            f"there and in {_UNPACKED}/. Give the folder that has them."
        )
    places = (home / _OUTCOMES, home / ".." / _OUTCOMES)
    outcomes = next((path for path in places if path.is_file()), None)
    if outcomes is None:
        raise InputError(f"no {_OUTCOMES} for '{folder}': looked for {' and '.join(map(str, places))}. Put it there.")
    return _Files(outcomes, series)


def _read_outcomes(path: Path) -> pd.DataFrame:
    """Survival (days, -1: unknown or alive) and In-hospital_death (0/1) by RecordID, in ascending order."""
    wanted = ["RecordID", "Survival", "In-hospital_death"]
    try:
        given = pd.read_csv(path, nrows=0).columns
        absent = [name for name in wanted if name not in given]
        if absent:
            raise InputError(f"{path} has no column {', '.join(absent)}; expected {', '.join(wanted)}.")
        outcomes = pd.read_csv(path, usecols=wanted, dtype=dict.fromkeys(wanted, np.int64))
    except _UNREADABLE as error:
        raise _damaged(path, error) from error
    repeated = outcomes["RecordID"].duplicated()
    if repeated.any():
        raise InputError(f"{path} lists record {outcomes['RecordID'][repeated].iloc[0]} twice; keep one row of it.")
    unknown = ~outcomes["In-hospital_death"].isin((0, 1))
    if unknown.any():
        record = outcomes["RecordID"][unknown].iloc[0]
        raise InputError(f"{path}: In-hospital_death of record {record} is not 0 or 1; use the outcomes of set a.")
    if len(outcomes) < _FEWEST:
        raise InputError(f"{path} lists {len(outcomes)} stays; three splits need at least {_FEWEST}.")
    return outcomes.set_index("RecordID").sort_index()


def _read_cohort(files: _Files) -> Cohort:
    outcomes = _read_outcomes(files.outcomes)
    records = outcomes.index.to_numpy(np.int64)
    rows = _read_rows(files, records)
    # Every stay lasts 48 hours, so a death on day 0 or 1 (29 stays of set a) is a recording error and is not called
    # early. A death on days 2 to 7 that followed a discharge is.
    labels = {
        "ihm": outcomes["In-hospital_death"].to_numpy(np.int64),
        "early-death": outcomes["Survival"].between(2, 7).to_numpy(np.int64),
        "care-unit": _care_units(rows, records),
    }
    sites = {
        "A": _site(rows, len(records), VITALS, HOURS, "last"),
        "B": _site(rows, len(records), LABS, HOURS, "last"),
        "C": _site(rows, len(records), ADMISSION, 1, "first"),
    }
    return Cohort(records, sites, TASKS, labels)


def _read_rows(files: _Files, records: IntArray) -> pd.DataFrame:
    """All charted rows in order of time: the stay's place in `records`, minute, Parameter and Value."""
    source = files.series[0] if files.packed else files.series[0].parent
    try:
        text = files.series[0] if files.packed else _pack(files.series)
        rows = pd.read_csv(text, usecols=list(_COLUMNS), dtype=_COLUMNS)
    except _UNREADABLE as error:
        raise _damaged(source, error) from error
    minute = rows["Time"].cat.set_categories(_CLOCK).cat.codes.to_numpy(np.int64)
    if (minute < 0).any():
        bad = rows[minute < 0].iloc[0]
        raise InputError(f"{source}: record {bad.RecordID} has the time '{bad.Time}'; expected 00:00 to {HOURS}:00.")
    # Each stay repeats its own number in its first row.
    strays = rows[(rows["Parameter"] == "RecordID") & (rows["Value"] != rows["RecordID"])]
    if len(strays):
        raise InputError(f"{source}: record {strays['RecordID'].iloc[0]} holds rows of another; copy it again.")
    stay = pd.Index(records).get_indexer(pd.Index(rows["RecordID"]))
    if (stay < 0).any():
        raise InputError(
            f"{source} holds record {rows['RecordID'][stay < 0].iloc[0]}, which {files.outcomes} does not list; "
            f"use the outcomes of the same set."
        )
    in_time = np.argsort(stay * len(_CLOCK) + minute, kind="stable")
    return rows[["Parameter", "Value"]].assign(stay=stay, minute=minute).iloc[in_time]


def _pack(stays: tuple[Path, ...]) -> io.BytesIO:
    """The stays' files in the packed form: one parse of one text is many times faster than thousands of parses."""
    packed_header, own_header = ",".join(_COLUMNS), ",".join(list(_COLUMNS)[1:])
    text = [packed_header.encode()]
    for path in stays:
        header, *lines = path.read_bytes().splitlines() or [b""]
        if header != own_header.encode():
            raise InputError(f"{path} does not begin with {own_header}; copy it again or take it away.")
        text += [path.stem.encode() + b"," + line for line in lines]
    return io.BytesIO(b"\n".join(text))


def _site(
    rows: pd.DataFrame, count: int, channels: tuple[_Channel, ...], hours: int, keep: Literal["first", "last"]
) -> SiteData:
    """Values and masks [count, hours, F]: of each hour the first or the last plausible value.

    With one hour the whole stay falls into it.
    """
    values = np.zeros((count, hours, len(channels)), dtype=np.float32)
    observed = np.zeros(values.shape, dtype=np.bool_)
    for column, channel in enumerate(channels):
        for parameter in channel.parameters:
            charted = rows[rows["Parameter"] == parameter]
            plausible = charted[charted["Value"].between(channel.feature.low, channel.feature.high)]
            binned = plausible.assign(hour=np.minimum(plausible["minute"] // 60, hours - 1))
            chosen = binned.drop_duplicates(["stay", "hour"], keep=keep)
            values[chosen["stay"], chosen["hour"], column] = chosen["Value"]
            observed[chosen["stay"], chosen["hour"], column] = True
    return SiteData(tuple(channel.feature for channel in channels), values, observed)


def _care_units(rows: pd.DataFrame, records: IntArray) -> IntArray:
    """One-hot ICUType [N, 4]; a stay without it is refused, since it is a label."""
    code = _site(rows, len(records), (_CARE_UNIT,), 1, "first").values[:, 0]
    units: IntArray = (code == np.arange(1, 5)).astype(np.int64)
    unlabelled = records[units.sum(axis=1) != 1]
    if len(unlabelled):
        raise InputError(
            f"record {unlabelled[0]} has no ICUType row with 1, 2, 3 or 4, or no rows at all ({len(unlabelled)} such "
            f"records); the care-unit task needs it. Use unaltered and complete files of set a."
        )
    return units


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"cannot read {path} ({error}); it is damaged or of another format: copy it again.")

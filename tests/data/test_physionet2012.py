"""The PhysioNet 2012 reader: each trap of the format on small files, then the real set a where it is present."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from privbench.data.cohort import Cohort, Feature, Splits, join
from privbench.data.physionet2012 import TASKS, count_train, holders, read_splits
from privbench.data.sources import fingerprint
from privbench.errors import InputError

Row = tuple[str, str, float]
Stays = Mapping[int, Sequence[Row]]
Writer = Callable[[Path, Stays], None]

FIRST = 501
COUNT = 20


def descriptors(record: int, **changed: float) -> list[Row]:
    """The rows at 00:00 with which each file of the challenge begins."""
    values = {"Age": 60, "Gender": 1, "Height": 170, "ICUType": 3, "Weight": 80} | changed
    return [("00:00", name, value) for name, value in {"RecordID": record, **values}.items()]


def stays(rows: Sequence[Row] = (), count: int = COUNT, **changed: float) -> dict[int, list[Row]]:
    """Stays 501, 502, ...; the first one has these rows and descriptors, the others descriptors only."""
    made = {record: descriptors(record) for record in range(FIRST, FIRST + count)}
    made[FIRST] = [*descriptors(FIRST, **changed), *rows]
    return made


def write_packed(folder: Path, content: Stays) -> None:
    lines = [f"{record},{time},{name},{value}" for record, rows in content.items() for time, name, value in rows]
    with gzip.open(folder / "set-a.csv.gz", "wt") as file:
        file.write("\n".join(["RecordID,Time,Parameter,Value", *lines]) + "\n")


def write_original(folder: Path, content: Stays) -> None:
    for record, rows in content.items():
        lines = [f"{time},{name},{value}" for time, name, value in rows]
        (folder / f"{record}.txt").write_text("\n".join(["Time,Parameter,Value", *lines]) + "\n")


def write_outcomes(folder: Path, records: Sequence[int], survival: int = -1, death: int = 0) -> None:
    """All survive, but for the first record as given."""
    lines = [f"{record},6,1,5,-1,0" for record in records[1:]]
    header = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"
    text = "\n".join([header, f"{records[0]},6,1,5,{survival},{death}", *lines])
    (folder / "Outcomes-a.txt").write_text(text + "\n")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture(params=[write_packed, write_original], ids=["packed", "original"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Stays], str]:
    """Writes stays in one of the two forms, with outcomes, and returns the folder."""

    def write_both(content: Stays) -> str:
        request.param(tmp_path, content)
        write_outcomes(tmp_path, list(content))
        return str(tmp_path)

    return write_both


def read(folder: str | Path, seed: int = 0) -> Splits:
    return read_splits(str(folder), np.random.default_rng(seed))


def everyone(folder: str | Path) -> Cohort:
    """All stays in the order of their ids."""
    splits = read(folder)
    whole = join([splits.train, splits.validation, splits.test])
    return whole.take(np.argsort(whole.record_ids))


def course(cohort: Cohort, site: str, feature: str) -> dict[int, float]:
    """What was observed of the first stay's feature, by hour."""
    data = cohort.sites[site]
    column = [known.name for known in data.features].index(feature)
    return {int(hour): float(data.values[0, hour, column]) for hour in np.flatnonzero(data.observed[0, :, column])}


# --- the cohort ---


def test_tasks_and_shapes(write: Callable[[Stays], str]) -> None:
    cohort = everyone(write(stays()))
    assert holders() == {"ihm": "A", "early-death": "B", "care-unit": "C"}
    assert {site: data.values.shape for site, data in cohort.sites.items()} == {
        "A": (COUNT, 48, 7),
        "B": (COUNT, 48, 4),
        "C": (COUNT, 1, 4),
    }
    assert cohort.tasks == TASKS
    assert cohort.record_ids.dtype == np.int64
    assert cohort.record_ids.tolist() == list(range(FIRST, FIRST + COUNT))
    assert all(data.values.dtype == np.float32 for data in cohort.sites.values())
    assert all(labels.dtype == np.int64 for labels in cohort.labels.values())


def test_features_come_from_their_parameters(write: Callable[[Stays], str]) -> None:
    charted = {"HR": 81, "NISysABP": 120, "NIDiasABP": 61, "NIMAP": 82, "RespRate": 17, "Temp": 36.6, "SaO2": 97}
    charted |= {"BUN": 21, "Creatinine": 1.2, "Glucose": 140, "GCS": 14}
    cohort = everyone(write(stays([("05:30", name, value) for name, value in charted.items()])))
    both = np.concatenate([cohort.sites[site].values[0, 5] for site in "AB"])
    assert both == pytest.approx(list(charted.values()))
    assert cohort.sites["A"].observed[0].sum() == 7
    assert cohort.sites["B"].observed[0].sum() == 4


def test_outcome_descriptors_and_other_parameters_are_no_features(write: Callable[[Stays], str]) -> None:
    names = ("Urine", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "ICUType")
    plain, more = stays(), stays([("01:00", name, 3) for name in names])
    assert fingerprint(read(write(plain))) == fingerprint(read(write(more)))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("02:00", 80), ("02:10", 81), ("02:59", 82)], {2: 82}),
        ([("02:59", 82), ("02:10", 81)], {2: 82}),  # the clock decides, not the order of the rows
        ([("02:10", 81), ("02:10", 82)], {2: 82}),  # within a minute the order decides
        ([("02:10", 81), ("02:50", -1), ("02:55", 999)], {2: 81}),
        ([("47:59", 80), ("48:00", 90)], {47: 90}),
        ([("48:00", 90)], {47: 90}),
        ([("00:00", 70)], {0: 70}),
        ([("02:10", 20), ("03:10", 250)], {2: 20, 3: 250}),  # the bounds are plausible
        ([("02:10", 0), ("03:10", 300), ("04:10", -1), ("05:10", float("nan"))], {}),
    ],
)
def test_hours(write: Callable[[Stays], str], rows: list[tuple[str, float]], expected: dict[int, float]) -> None:
    cohort = everyone(write(stays([(time, "HR", value) for time, value in rows])))
    assert course(cohort, "A", "heart rate") == expected
    hidden = cohort.sites["A"].values[~cohort.sites["A"].observed]
    assert not hidden.any()


def test_last_of_an_hour_of_labs(write: Callable[[Stays], str]) -> None:
    cohort = everyone(write(stays([("02:00", "Glucose", 120), ("02:30", "Glucose", 140), ("09:00", "Glucose", 9)])))
    assert course(cohort, "B", "glucose") == {2: 140}


def test_last_of_a_crowded_minute(write: Callable[[Stays], str]) -> None:
    crowd: list[Row] = [(f"02:{number * 7 % 11:02d}", "HR", 50 + number % 50) for number in range(2_000)]
    assert course(everyone(write(stays([*crowd, ("02:10", "HR", 120)]))), "A", "heart rate") == {2: 120}


@pytest.mark.parametrize(
    ("cuff", "invasive", "feature"),
    [
        ("NISysABP", "SysABP", "systolic pressure"),
        ("NIDiasABP", "DiasABP", "diastolic pressure"),
        ("NIMAP", "MAP", "mean pressure"),
    ],
)
def test_invasive_pressure_wins(write: Callable[[Stays], str], cuff: str, invasive: str, feature: str) -> None:
    rows: list[Row] = [
        ("03:00", invasive, 90),
        ("03:40", cuff, 70),
        ("04:00", cuff, 71),
        ("05:00", invasive, 91),
        ("06:00", cuff, 72),
        ("06:30", invasive, 0),  # a recording error wins over nothing
    ]
    assert course(everyone(write(stays(rows))), "A", feature) == {3: 90, 4: 71, 5: 91, 6: 72}


def test_missing_and_implausible_descriptors(write: Callable[[Stays], str]) -> None:
    cohort = everyone(write(stays(Height=-1, Weight=-1, Gender=-1)))
    assert cohort.sites["C"].observed[0, 0].tolist() == [True, False, False, False]
    assert cohort.sites["C"].values[0, 0].tolist() == [60, 0, 0, 0]
    assert cohort.sites["C"].values[1, 0].tolist() == [60, 170, 80, 1]
    assert course(everyone(write(stays(Height=1.8))), "C", "height") == {}
    assert course(everyone(write(stays(Height=431.8))), "C", "height") == {}
    assert course(everyone(write(stays(Gender=0))), "C", "sex") == {0: 0}


def test_weight_is_the_first_valid_one(write: Callable[[Stays], str]) -> None:
    later: list[Row] = [("03:00", "Weight", 82), ("02:00", "Weight", 81)]
    assert course(everyone(write(stays(later))), "C", "weight") == {0: 80}
    assert course(everyone(write(stays(later, Weight=-1))), "C", "weight") == {0: 81}


@pytest.mark.parametrize("icu_type", [1, 2, 3, 4])
def test_care_unit_is_one_hot(write: Callable[[Stays], str], icu_type: int) -> None:
    units = everyone(write(stays(ICUType=icu_type))).labels["care-unit"]
    assert units.shape == (COUNT, 4)
    assert units[0].tolist() == [int(icu_type == code) for code in (1, 2, 3, 4)]
    assert (units.sum(axis=1) == 1).all()


@pytest.mark.parametrize(("survival", "early"), [(-1, 0), (0, 0), (1, 0), (2, 1), (7, 1), (8, 0), (400, 0)])
@pytest.mark.parametrize("death", [0, 1])
def test_death_labels(tmp_path: Path, survival: int, early: int, death: int) -> None:
    content = stays()
    write_packed(tmp_path, content)
    write_outcomes(tmp_path, list(content), survival, death)
    labels = everyone(tmp_path).labels
    assert (labels["ihm"][0], labels["early-death"][0]) == (death, early)
    assert not labels["ihm"][1:].any()
    assert not labels["early-death"][1:].any()


# --- the two forms ---


def busy_stays() -> dict[int, list[Row]]:
    """Stays of different length with errors, gaps and repeated minutes in all features."""
    rng = np.random.default_rng(7)
    names = ["HR", "NISysABP", "SysABP", "DiasABP", "MAP", "Temp", "RespRate", "GCS", "BUN", "Weight", "Urine"]
    content = stays(count=30)
    for record, rows in content.items():
        minutes = np.sort(rng.integers(0, 2881, size=rng.integers(0, 60)))
        values = np.round(rng.normal(60, 60, size=len(minutes)), 2)
        rows += [
            (f"{minute // 60:02d}:{minute % 60:02d}", str(rng.choice(names)), float(value))
            for minute, value in zip(minutes, values, strict=True)
        ]
        content[record] = rows
    return content


def folder_with(parent: Path, name: str, write: Writer, content: Stays) -> Path:
    folder = parent / name
    folder.mkdir()
    write(folder, content)
    write_outcomes(folder, sorted(content))
    return folder


def test_both_forms_give_the_same_cohort(tmp_path: Path) -> None:
    content = busy_stays()
    packed = folder_with(tmp_path, "packed", write_packed, content)
    original = folder_with(tmp_path, "original", write_original, content)
    shuffled = folder_with(tmp_path, "shuffled", write_packed, dict(reversed(content.items())))
    write_outcomes(shuffled, sorted(content)[:1] + sorted(content, reverse=True)[:-1])
    (packed / "set-b.csv.gz").write_text("of no interest")
    (original / "Outcomes-b.txt").write_text("of no interest")
    prints = {fingerprint(read(folder)) for folder in (packed, original, shuffled)}
    assert len(prints) == 1
    assert everyone(packed).sites["A"].observed.sum() > 100


def test_line_ends_do_not_matter(tmp_path: Path) -> None:
    content = busy_stays()
    original = folder_with(tmp_path, "original", write_original, content)
    windows = folder_with(tmp_path, "windows", write_original, content)
    for path in windows.glob("5*.txt"):
        path.write_bytes(path.read_bytes().rstrip().replace(b"\n", b"\r\n"))
    assert fingerprint(read(windows)) == fingerprint(read(original))


@pytest.mark.parametrize("outcomes_inside", [True, False])
@pytest.mark.parametrize("given", [".", "set-a"])
def test_original_files_in_a_subfolder(tmp_path: Path, outcomes_inside: bool, given: str) -> None:
    content = stays()
    inner = folder_with(tmp_path, "set-a", write_original, content)
    if not outcomes_inside:
        (inner / "Outcomes-a.txt").rename(tmp_path / "Outcomes-a.txt")
    assert count_train(str(tmp_path / given)) == 14
    assert len(everyone(tmp_path / given)) == COUNT


# --- the splits ---


@pytest.mark.parametrize("count", [10, 11, 19, 20, 33])
def test_splits_partition_the_stays(write: Callable[[Stays], str], count: int) -> None:
    folder = write(stays(count=count))
    splits = read(folder)
    parts = (splits.train, splits.validation, splits.test)
    ids = np.concatenate([part.record_ids for part in parts])
    assert sorted(ids) == list(range(FIRST, FIRST + count))
    assert [len(part) for part in parts] == [count * 7 // 10, count // 10, count - count * 7 // 10 - count // 10]
    assert count_train(folder) == len(splits.train)


def test_splits_follow_the_seed(write: Callable[[Stays], str]) -> None:
    folder = write(stays([("01:00", "HR", 80)]))
    assert fingerprint(read(folder, 3)) == fingerprint(read(folder, 3))
    assert read(folder, 3).train.record_ids.tolist() != read(folder, 4).train.record_ids.tolist()


def test_rows_stay_together(write: Callable[[Stays], str]) -> None:
    content = {record: descriptors(record, Age=20 + record - FIRST) for record in range(FIRST, FIRST + COUNT)}
    splits = read(write(content))
    for part in (splits.train, splits.validation, splits.test):
        assert part.sites["C"].values[:, 0, 0] == pytest.approx(20 + part.record_ids - FIRST)


def test_stays_without_measurements_are_kept(write: Callable[[Stays], str]) -> None:
    folder = write(stays())
    cohort = everyone(folder)
    assert not cohort.sites["A"].observed.any()
    assert not cohort.sites["B"].observed.any()
    assert count_train(folder) == len(read(folder).train)


# --- what is refused ---


def test_refuses_a_missing_folder(tmp_path: Path) -> None:
    for call in (count_train, read):
        with pytest.raises(InputError, match=r"no folder '.*nowhere'"):
            call(str(tmp_path / "nowhere"))


def test_refuses_a_folder_without_set_a(tmp_path: Path) -> None:
    write_outcomes(tmp_path, range(FIRST, FIRST + COUNT))
    for call in (count_train, read):
        with pytest.raises(InputError, match=r"looked for set-a\.csv\.gz, and for files like 132539\.txt"):
            call(str(tmp_path))


def test_refuses_missing_outcomes(write: Callable[[Stays], str]) -> None:
    folder = write(stays())
    (Path(folder) / "Outcomes-a.txt").unlink()
    for call in (count_train, read):
        with pytest.raises(InputError, match=r"no Outcomes-a\.txt .*looked for"):
            call(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",Survival", ",Days", "no column Survival; expected RecordID, Survival, In-hospital_death"),
        ("RecordID", "Patient", "no column RecordID"),
        ("\n502,", "\n503,", "lists record 503 twice"),
        ("\n502,6,1,5,-1,0", "\n502,6,1,5,-1,-1", "In-hospital_death of record 502 is not 0 or 1"),
        ("\n502,6,1,5,-1,0", "\n502,6,1,5,,0", "cannot read"),
        ("\n502,6,1,5,-1,0", "\n502,6,1,5,soon,0", "cannot read"),
        ("\n502,6,1,5,-1,0", "\n502,6", "cannot read"),
    ],
)
def test_refuses_bad_outcomes(write: Callable[[Stays], str], old: str, new: str, message: str) -> None:
    folder = write(stays())
    edit(Path(folder) / "Outcomes-a.txt", old, new)
    for call in (count_train, read):
        with pytest.raises(InputError, match=message):
            call(folder)


def test_refuses_empty_outcomes_and_too_few_stays(write: Callable[[Stays], str]) -> None:
    with pytest.raises(InputError, match="lists 9 stays; three splits need at least 10"):
        count_train(write(stays(count=9)))
    folder = write(stays())
    (Path(folder) / "Outcomes-a.txt").write_text("")
    with pytest.raises(InputError, match="cannot read"):
        count_train(folder)


def test_refuses_a_record_without_outcome(write: Callable[[Stays], str]) -> None:
    folder = write(stays())
    write_outcomes(Path(folder), [record for record in range(FIRST, FIRST + COUNT) if record != 507])
    with pytest.raises(InputError, match=r"holds record 507, which .*Outcomes-a\.txt does not list"):
        read(folder)


@pytest.mark.parametrize(
    "rows", [[], descriptors(507)[:4], descriptors(507, ICUType=-1), descriptors(507, ICUType=2.5)]
)
def test_refuses_a_record_without_care_unit(write: Callable[[Stays], str], rows: list[Row]) -> None:
    with pytest.raises(InputError, match="record 507 has no ICUType row"):
        read(write(stays() | {507: rows}))


def test_refuses_a_listed_record_without_a_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "original", write_original, stays())
    (folder / "507.txt").unlink()
    with pytest.raises(InputError, match=r"record 507 has no ICUType row .* or no rows at all \(1 such"):
        read(folder)


def test_refuses_rows_under_another_record(write: Callable[[Stays], str]) -> None:
    with pytest.raises(InputError, match="record 507 holds rows of another"):
        read(write(stays() | {507: descriptors(508)}))


@pytest.mark.parametrize("time", ["48:01", "99:00", "12:60", "7:30", "noon", ""])
def test_refuses_times_that_are_none(write: Callable[[Stays], str], time: str) -> None:
    with pytest.raises(InputError, match=r"record 501 has the time .*expected 00:00 to 48:00"):
        read(write(stays([(time, "HR", 80)])))


def test_refuses_values_that_are_no_numbers(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "original", write_original, stays([("07:00", "HR", 80)]))
    edit(folder / "501.txt", "07:00,HR,80", "07:00,HR,fast")
    with pytest.raises(InputError, match=r"cannot read .*fast"):
        read(folder)


@pytest.mark.parametrize("content", [b"", b"Time,Value\n", b"\xff\xfe\x00"])
def test_refuses_a_file_with_another_header(tmp_path: Path, content: bytes) -> None:
    folder = folder_with(tmp_path, "original", write_original, stays())
    (folder / "507.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"507\.txt does not begin with Time,Parameter,Value"):
        read(folder)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text", "empty", "columns"])
def test_refuses_a_damaged_packed_file(tmp_path: Path, damage: str) -> None:
    folder = folder_with(tmp_path, "packed", write_packed, busy_stays())
    path = folder / "set-a.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "truncated": whole[: len(whole) // 2],
            "flipped": whole[:1000] + bytes(255 - byte for byte in whole[1000:1100]) + whole[1100:],
            "text": gzip.decompress(whole),
            "empty": b"",
            "columns": gzip.compress(b"RecordID,Time,Parameter\n501,00:00,HR\n"),
        }[damage]
    )
    assert count_train(str(folder)) == 21
    with pytest.raises(InputError, match=r"cannot read .*set-a\.csv\.gz"):
        read(folder)


# --- the real set a ---


@dataclass(frozen=True)
class Aggregates:
    """All that these tests, and so pytest's reports of a failure, get to see of real persons."""

    stays: int
    train: int
    counted: int
    without_measurement: int
    positives: Mapping[str, list[int]]
    features: Mapping[str, Feature]
    coverage: Mapping[str, float]
    quantiles: Mapping[str, tuple[float, float, float]]  # least, median, greatest


@pytest.fixture(scope="module")
def real(real_data: Path) -> Aggregates:
    folder = real_data / "physionet2012"
    if not folder.is_dir():
        pytest.skip(f"no real PhysioNet 2012 data: {folder} is not a folder")
    cohort = everyone(folder)
    columns = {
        feature.name: (feature, data.values[..., column], data.observed[..., column])
        for data in cohort.sites.values()
        for column, feature in enumerate(data.features)
    }
    measured = [cohort.sites[site].observed.any(axis=(1, 2)) for site in "AB"]
    return Aggregates(
        stays=len(cohort),
        train=len(read(folder).train),
        counted=count_train(str(folder)),
        without_measurement=int(np.sum(~(measured[0] | measured[1]))),
        positives={name: np.atleast_1d(labels.sum(axis=0)).tolist() for name, labels in cohort.labels.items()},
        features={name: feature for name, (feature, _, _) in columns.items()},
        coverage={name: float(seen.mean()) for name, (_, _, seen) in columns.items()},
        quantiles={
            name: tuple(np.quantile(values[seen], [0, 0.5, 1]).tolist()) for name, (_, values, seen) in columns.items()
        },
    )


def test_real_labels(real: Aggregates) -> None:
    assert real.stays == 4_000
    assert real.counted == real.train == 2_800
    assert real.positives == {"ihm": [554], "early-death": [250], "care-unit": [577, 874, 1481, 1068]}


@pytest.mark.parametrize(
    ("feature", "low", "high"),
    [
        ("heart rate", 75, 95),
        ("systolic pressure", 110, 125),
        ("diastolic pressure", 50, 65),
        ("mean pressure", 70, 85),
        ("respiratory rate", 16, 22),
        ("temperature", 36.5, 37.5),
        ("SaO2", 95, 99),
        ("blood urea nitrogen", 15, 25),
        ("creatinine", 0.8, 1.2),
        ("glucose", 110, 140),
        ("Glasgow coma scale", 11, 15),
        ("age", 60, 70),
        ("height", 165, 175),
        ("weight", 75, 85),
        ("sex", 1, 1),
    ],
)
def test_real_values(real: Aggregates, feature: str, low: float, high: float) -> None:
    least, median, greatest = real.quantiles[feature]
    assert low <= median <= high
    known = real.features[feature]
    assert np.float32(known.low) <= least <= greatest <= np.float32(known.high)


def test_real_coverage(real: Aggregates) -> None:
    """Most hours have a heart rate, few a laboratory value, half of the stays a height."""
    assert 0.85 < real.coverage["heart rate"] < 0.95
    assert 0.05 < real.coverage["creatinine"] < 0.10
    assert 0.45 < real.coverage["height"] < 0.60
    assert real.coverage["age"] == 1
    assert real.without_measurement == 4

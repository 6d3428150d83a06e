"""Surveys by name and file: the coding, an unseen survey, everything that is refused, then the real files."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_surveys import REAL, real

from privbench.data.surveys import toml
from privbench.data.surveys.coding import coded, computed
from privbench.data.surveys.read import SCHEMAS, Spec, parse_spec, read_survey, schema_named
from privbench.data.surveys.samples import samples
from privbench.data.surveys.schema import Outcome, Question, Schema
from privbench.data.surveys.survey import Survey
from privbench.errors import InputError

# --- coding ---


def answers(cells: list[str], question: Question, missing: tuple[str, ...] = ("", "na", "?")) -> list[str | None]:
    return coded(pd.Series(cells, dtype="category"), question, missing).answers.tolist()


def notes(cells: list[str], question: Question) -> tuple[str, ...]:
    return coded(pd.Series(cells, dtype="category"), question, ("",)).notes


SLEEP = Question("Sleep", "sleep", "ordinal", ("5-6 hours", "7-8 hours"), {"others": ""})
AGE = Question("Age", "age", "number", low=16, high=100)


def test_spellings_of_one_answer() -> None:
    cells = ["5-6 hours", "'5-6 hours'", " 5-6  Hours", "?", "NA", "", "Others", "7-8\xa0hours", "9 hours"]
    assert answers(cells, SLEEP) == ["5-6 hours"] * 3 + [None] * 4 + ["7-8 hours", None]


def test_codes_of_numbers() -> None:
    question = Question("Q", "q", "ordinal", ("never", "often"), {"1": "never", "2.0": "often", "0": ""})
    assert answers(["1", "1.0", " 2", "2.00", "0", "3"], question) == ["never", "never", "often", "often", None, None]


def test_numbers_are_rounded_and_junk_is_missing() -> None:
    assert answers(["33.0", "33", " 33.4 ", "15", "101", "-1726", "99999999999", "x"], AGE) == ["33"] * 3 + [None] * 5
    grade = Question("G", "g", "number", decimals=1, codes={"99": ""})
    assert answers(["8.97", "9", "-0.01", "7,25", "99"], grade) == ["9.0", "9.0", "0.0", "7.2", None]


def test_a_code_wins_over_a_missing_answer() -> None:
    question = Question("country", "country", "choice", ("namibia", "other"), {"NA": "namibia", "*": "other"})
    assert answers(["NA", "na", "de", "?"], question) == ["namibia", "namibia", "other", None]


def test_what_was_not_taken_as_it_stands_is_counted() -> None:
    assert notes(["20"] * 30, AGE) == ()
    assert notes(["20"] * 30 + ["5"], AGE) == (
        "Age: fewer than 10 answers outside the plausible range count as missing.",
    )
    gender = Question("Gender", "gender", "choice", ("m", "other"), {"*": "other"})
    assert notes(["m", *(f"own word {n}" for n in range(12)), ""], gender) == (
        "Gender: 12 other answers count as 'other'.",
    )


def test_rare_words_are_never_quoted() -> None:
    """Of answers that no schema lists at most three are shown, and only those of ten people or more."""
    cells = ["often used"] * 10 + ["five"] * 13 + ["six"] * 12 + ["seven"] * 11 + ["my own story"] * 9
    (line,) = notes(cells, SLEEP)
    assert line == ("Sleep: 55 answers that it does not list count as missing (such as 'five', 'six', 'seven').")
    (line,) = notes(["my own story"] * 9, SLEEP)
    assert "story" not in line


def test_words_that_few_people_said_often_are_not_quoted() -> None:
    """Nine people, five times each: 45 rows, and fewer than ten who said it."""
    cells = pd.Series(pd.Categorical(["my own story"] * 45 + ["five"] * 20))
    people = np.concatenate([np.arange(45) // 5, 100 + np.arange(20)])
    (line,) = coded(cells, SLEEP, [], people).notes
    assert line == "Sleep: 65 answers that it does not list count as missing (such as 'five')."
    (line,) = coded(cells[:45], SLEEP, [], people[:45]).notes
    assert line == "Sleep: fewer than 10 answers that it does not list count as missing."


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=3), st.integers(1, 9), st.integers(1, 9))
def test_a_computed_outcome_is_its_ranks_sum_cut(ranks: list[str | None], first: int, second: int) -> None:
    """Against a naive twin, with an item that is missing and one that is counted twice."""
    scale = ("a", "b", "c")
    items = {name: Question(name, name, "ordinal", scale) for name in "xyz"}
    cuts = (min(first, second), max(first, second) + 0.5)
    outcome = Outcome("o", Question("o", "o", "ordinal", ("low", "middle", "high")), tuple("xyz"), tuple("xyzz"), cuts)
    columns = {name: np.array([rank], dtype=object) for name, rank in zip("xyz", ranks, strict=True)}
    (level,) = computed(columns, outcome, items)
    if None in ranks:
        assert level is None
        return
    total = sum(scale.index(rank) for rank in [*ranks, ranks[-1]] if rank)
    assert level == ("low" if total < cuts[0] else "middle" if total < cuts[1] else "high")


# --- names ---


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("osmi:a.csv", Spec("osmi", "a.csv")),
        ("survey:a,b.csv", Spec("survey", "a,b.csv")),
        ("survey:C:\\a.csv", Spec("survey", "C:\\a.csv")),
        ("survey:a.csv,schema=s.toml", Spec("survey", "a.csv", "s.toml")),
        ("survey:a.csv,outcome=felt sad, or not,schema=s", Spec("survey", "a.csv", "s", "felt sad, or not")),
        ("osmi:a.csv,outcome=Do you *now*?", Spec("osmi", "a.csv", None, "Do you now?")),
    ],
)
def test_specs(spec: str, expected: Spec) -> None:
    assert parse_spec(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("osmo:a.csv", "unknown survey 'osmo'; did you mean osmi"),
        ("osmi", "survey osmi needs its file: osmi:FILE.csv"),
        ("osmi:", "survey osmi needs its file"),
        ("survey:a.csv,outcome=", "gives outcome without a value"),
        ("survey:a.csv,outcome=x,outcome=y", "gives outcome twice"),
        ("osmi:a.csv,schema=s.toml", "survey osmi has its own schema; .* write survey:a.csv,schema=s.toml"),
        ("osmi:nowhere.csv", "there is no file 'nowhere.csv'"),
        ("survey:nowhere.csv,outcom=x", "unknown option of a survey 'outcom'; did you mean outcome"),
        ("osmi:nowhere.csv,Outcome=x", "unknown option of a survey 'Outcome'; did you mean outcome"),
        ("survey:nowhere.csv,schema=s.toml,outcme=x", "unknown option of a survey 'outcme'; did you mean outcome"),
        ("survey:nowhere.csv,scheme=s.toml,outcome=x", "unknown option of a survey 'scheme'; did you mean schema"),
        ("survey:nowhere.csv,target=x", "unknown option of a survey 'target'; known: outcome, schema"),
    ],
)
def test_refuses_a_spec(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_survey(spec)


def test_a_file_may_be_named_as_an_option_is_written(tmp_path: Path) -> None:
    (tmp_path / "run,seed=3").mkdir()
    path = invented_file(tmp_path / "run,seed=3", "osmi-2014")
    assert read_survey(f"osmi:{path}").schema.name == "osmi-2014"
    with pytest.raises(InputError, match="unknown option of a survey 'seed'"):
        read_survey(f"osmi:{path}x")


# --- files ---


def example(question: Question, row: int) -> str:
    """A cell that this question reads, another in the next row."""
    if question.kind == "number":
        return f"{(question.low or 0) + row % 3:g}"
    return question.answers[row % len(question.answers)].upper()


def invented_file(folder: Path, name: str, rows: int = 40, without: tuple[str, ...] = (), **extra: str) -> Path:
    """A file that fits a schema of the package, with cells of nobody."""
    schema = schema_named(name)
    asked = {question.column: question for question in schema.questions if question.column not in without}
    more = [column for column in schema.groups if column not in asked]
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*asked, *more, *extra])
        for row in range(rows):
            cells = [example(question, row + at) for at, question in enumerate(asked.values())]
            writer.writerow([*cells, *(f"g{row % 7}" for _ in more), *extra.values()])
    return path


FAMILIES = [(family, name) for family, names in SCHEMAS.items() for name in names]


@pytest.mark.parametrize(("family", "name"), FAMILIES)
def test_headers_tell_the_schema(tmp_path: Path, family: str, name: str) -> None:
    survey = read_survey(f"{family}:{invented_file(tmp_path, name, Comments='x')}")
    assert survey.schema.name == name
    assert len(survey) == survey.account.rows == 40
    assert not survey.answers[[question.column for question in survey.schema.questions]].isna().to_numpy().any()
    assert ("Comments", "not in the schema") in survey.account.dropped
    assert any("has " in note and "rows, this one 40" in note for note in survey.account.notes)
    assert survey.index.tolist() == list(range(40))
    assert survey.groups.dtype == survey.index.dtype == np.int64


def test_headers_may_differ_in_case_and_markup(tmp_path: Path) -> None:
    path = invented_file(tmp_path, "osmi-2016")
    text = path.read_text(encoding="utf-8")
    changed = text.replace("Do you currently have", "do you <strong>currently</strong>\xa0 have")
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    assert read_survey(f"osmi:{path}").schema.name == "osmi-2016"


def test_refuses_a_file_that_fits_none(tmp_path: Path) -> None:
    path = invented_file(tmp_path, "osmi-2014", without=("benefits", "leave"))
    with pytest.raises(
        InputError, match=r"of osmi-2014, osmi-2016, osmi-2019: for osmi-2014 it lacks .*'benefits', 'leave';"
    ):
        read_survey(f"osmi:{path}")
    with pytest.raises(
        InputError, match=r"fits no schema of dass-items, dass-tipi: for .* and \d+ more; give another file"
    ):
        read_survey(f"dass:{path}")


def test_groups_are_the_equal_values(tmp_path: Path) -> None:
    survey = read_survey(f"mental-health:{invented_file(tmp_path, 'mental-health')}")
    assert survey.groups.tolist() == [row % 7 for row in range(40)]


def test_a_row_without_a_group_is_alone(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", tmp_path / "s.toml"
    path.write_text("who,mood\na,good\n,bad\na,bad\n?,good\n", encoding="utf-8")
    mood = Question("mood", "mood", "choice", ("good", "bad"))
    schema.write_text(toml.dump(Schema("n", "t", (mood,), (Outcome("mood", mood),), groups=("who",))), encoding="utf-8")
    groups = read_survey(f"survey:{path},schema={schema}").groups.tolist()
    assert groups[0] == groups[2]
    assert len(set(groups)) == 3


def test_an_outcome_with_one_value(tmp_path: Path) -> None:
    path = invented_file(tmp_path, "osmi-2016")
    frame = pd.read_csv(path, dtype=str)
    column = schema_named("osmi-2016").outcome("treatment").question.column
    frame[column] = "1"
    frame.to_csv(path, index=False)
    survey = read_survey(f"osmi:{path}")
    assert [outcome.name for outcome in survey.schema.outcomes] == ["disorder"]
    assert any("Dropped: outcome treatment" in note and "has one value" in note for note in survey.account.notes)
    with pytest.raises(InputError, match=r"outcome treatment \(column 'Have you .*'\) has one value in all 40 rows"):
        read_survey(f"osmi:{path},outcome=treatment")
    frame[schema_named("osmi-2016").outcome("disorder").question.column] = ""
    frame.to_csv(path, index=False)
    with pytest.raises(InputError, match=r"survey osmi-2016: outcome disorder .* has no value"):
        read_survey(f"osmi:{path}")


def test_an_outcome_question_of_its_own(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", tmp_path / "s.toml"
    path.write_text("mood,level\ngood,1\nbad,2\n", encoding="utf-8")
    schema.write_text(
        'name = "n"\ntitle = "t"\n[questions]\nmood = { ask = "mood", choice = ["good", "bad"] }\n[outcomes]\n'
        'o = { column = "level", ask = "level", ordinal = ["low", "high"], codes = { "1" = "low", "2" = "high" } }\n',
        encoding="utf-8",
    )
    survey = read_survey(f"survey:{path},schema={schema}")
    assert survey.answers["level"].tolist() == ["low", "high"]
    assert [question.ask for question in survey.inputs(survey.schema.outcome("o"))] == ["mood"]
    path.write_text("mood\ngood\nbad\n", encoding="utf-8")
    with pytest.raises(InputError, match="lacks the columns 'level'"):
        read_survey(f"survey:{path},schema={schema}")


def test_the_quoted_variant_of_student_depression_reads_the_same(tmp_path: Path) -> None:
    path = invented_file(tmp_path, "student-depression")
    first = read_survey(f"student-depression:{path}")
    text = path.read_text(encoding="utf-8").replace("HOURS", "hours")
    for sleep in ("7-8 hours", "LESS THAN 5 hours", "MORE THAN 8 hours", "5-6 hours"):
        text = text.replace(sleep, f"'{sleep.lower()}'")
    path.write_text(text.replace("suicidal thoughts?", "suicidal thoughts ?"), encoding="utf-8")
    assert "'5-6 hours'" in text
    pd.testing.assert_frame_equal(read_survey(f"student-depression:{path}").answers, first.answers)


# --- a survey nobody here has seen ---


def unseen(folder: Path, encode: str) -> Path:
    """Semicolons, Latin-1 or a BOM, line ends in free text, equal headers, ? for missing, scales of its own."""
    header = [
        "Participant ID", "Submitted", "How often do you feel lonely?", "How often do you feel lonely?",
        "Stress <em>level</em>", "Größe; in cm", "Weight", "Therapy", "Comments", "Occupation", "Batch", "",
    ]  # fmt: skip
    lonely = ("hardly ever", "sometimes", "often")
    file = io.StringIO()
    writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
    writer.writerow(header)
    for row in range(90):
        story = f'Well;\nit was "day {row}",\r\nthen früh'
        cells = [
            f"p{row:03d}", f"{1 + row % 28:02d}.01.2023 10:{row % 60:02d}", lonely[row % 3], str(1 + row % 5),
            "?" if row % 9 == 0 else ("low", "moderate", "very high")[row // 3 % 3], f"{150 + row % 40},5",
            "?" if row % 30 == 0 else str(50 + row % 37), ("yes", "no", "Prefer not to say")[row % 3], story,
            ("Bäcker", "nurse")[row % 2], "7", "",
        ]  # fmt: skip
        writer.writerow(cells)
    path = folder / "unseen_wave3.csv"
    path.write_bytes(file.getvalue().encode(encode))
    return path


@pytest.mark.parametrize("encode", ["latin-1", "utf-8-sig", "utf-16"])
def test_an_unseen_survey(tmp_path: Path, encode: str) -> None:
    path = unseen(tmp_path, encode)
    survey = read_survey(f"survey:{path}")
    assert (survey.schema.name, survey.account.rows, survey.account.columns) == ("unseen-wave3", 90, 12)
    kinds = {question.column: (question.ask, question.kind) for question in survey.schema.questions}
    assert kinds == {
        "How often do you feel lonely?": ("often feel lonely", "ordinal"),
        "How often do you feel lonely? (2)": ("often feel lonely 2", "ordinal"),
        "Stress level": ("stress level", "ordinal"),
        "Größe; in cm": ("größe in cm", "number"),
        "Weight": ("weight", "number"),
        "Therapy": ("therapy", "choice"),
        "Occupation": ("occupation", "choice"),
    }
    asked = {question.column: question for question in survey.schema.questions}
    assert asked["How often do you feel lonely?"].answers == ("hardly ever", "sometimes", "often")
    assert asked["Stress level"].answers == ("low", "moderate", "very high")
    assert asked["Therapy"].answers == ("no", "prefer not to say", "yes")
    assert asked["Occupation"].answers == ("bäcker", "nurse")
    dropped = dict(survey.account.dropped)
    assert "identifies a person" in dropped["Participant ID"]
    assert "dates" in dropped["Submitted"]
    assert dropped["Comments"] == "free text"
    assert dropped["Batch"] == "the same answer in every row that has one"
    assert dropped["column 12"] == "empty in every row"
    assert survey.answers["Stress level"].isna().sum() == 10
    assert survey.answers["Größe; in cm"].tolist()[:2] == ["150.5", "151.5"]


def test_an_inferred_schema_can_be_saved_and_used(tmp_path: Path) -> None:
    path, file = unseen(tmp_path, "latin-1"), tmp_path / "s.toml"
    first = read_survey(f"survey:{path},outcome=Therapy")
    file.write_text(toml.dump(first.schema), encoding="utf-8")
    second = read_survey(f"survey:{path},schema={file}")
    assert second.schema == first.schema
    pd.testing.assert_frame_equal(second.answers, first.answers)
    sample = next(samples(second, second.schema.outcome(None)))
    assert sample.question == "Question: therapy (no / prefer not to say / yes)\nAnswer:"
    assert "stress level: no answer\n" in sample.prompt


def test_an_unseen_survey_has_no_outcome_until_one_is_named(tmp_path: Path) -> None:
    path = unseen(tmp_path, "latin-1")
    with pytest.raises(InputError, match="names no outcome; add ,outcome=NAME: 'How often do you feel lonely"):
        read_survey(f"survey:{path}").schema.outcome(None)
    for name, message in {
        "Comments": "'Comments' cannot be an outcome of survey unseen-wave3: dropped .free text",
        "Batch": "dropped .the same answer",
        "Weight": "'Weight' has any number of answers",
        "Terapy": "unknown outcome 'Terapy'; did you mean Therapy",
    }.items():
        with pytest.raises(InputError, match=message):
            read_survey(f"survey:{path},outcome={name}")


# --- the real files: aggregates only ---


@dataclass(frozen=True)
class Facts:
    """All that these tests, and so pytest's reports of a failure, get to see of real persons."""

    schema: str
    rows: int
    columns: int
    groups: int
    notes: tuple[str, ...]
    outcomes: Mapping[str, Mapping[str, int]]
    missing: Mapping[str, int]


def facts(survey: Survey) -> Facts:
    return Facts(
        schema=survey.schema.name,
        rows=len(survey),
        columns=survey.account.columns,
        groups=len(np.unique(survey.groups)),
        notes=survey.account.notes,
        outcomes={o.name: Counter(survey.answers[o.question.column].dropna()) for o in survey.schema.outcomes},
        missing=survey.answers.isna().sum().to_dict(),
    )


@pytest.fixture(scope="module")
def known(real_data: Path) -> dict[str, Facts]:
    missing = [name for name in REAL if not Path(real(name, real_data).partition(":")[2]).is_file()]
    if missing:
        pytest.skip(f"no real surveys {', '.join(missing)} in {real_data}")
    return {name: facts(read_survey(real(name, real_data))) for name in REAL}


SHAPES = {
    "osmi-2014": (1_259, 27), "osmi-2016": (1_433, 63), "osmi-2019": (352, 82), "dass-items": (5_000, 58),
    "dass-tipi": (39_760, 29), "student-depression": (27_901, 18), "mental-health": (292_364, 17),
}  # fmt: skip


def test_real_shapes(known: Mapping[str, Facts]) -> None:
    assert {name: (item.rows, item.columns) for name, item in known.items()} == SHAPES
    assert all(item.schema == name for name, item in known.items())
    assert not any("The public file" in note for item in known.values() for note in item.notes)


def test_real_outcomes(known: Mapping[str, Facts]) -> None:
    assert known["osmi-2014"].outcomes == {"treatment": {"yes": 637, "no": 622}}
    assert known["osmi-2016"].outcomes["disorder"] == {"yes": 575, "no": 531, "maybe": 327}
    assert known["osmi-2016"].outcomes["treatment"] == {"yes": 839, "no": 594}
    assert known["osmi-2019"].outcomes["disorder"] == {"yes": 147, "no": 104, "possibly": 75, "don't know": 26}
    assert known["student-depression"].outcomes == {"depression": {"yes": 16_336, "no": 11_565}}
    assert known["mental-health"].outcomes["treatment"] == {"yes": 147_606, "no": 144_758}
    assert known["mental-health"].outcomes["growing-stress"] == {"maybe": 99_985, "yes": 99_653, "no": 92_726}
    levels = ("normal", "mild", "moderate", "severe", "extremely severe")
    depression = dict(zip(levels, (8_852, 3_786, 7_079, 6_477, 13_566), strict=True))
    assert known["dass-tipi"].outcomes["depression"] == depression


def test_real_groups_and_repeats(known: Mapping[str, Facts]) -> None:
    assert known["mental-health"].groups == 580
    assert "2,313 rows repeat an earlier one in every column." in known["mental-health"].notes
    assert all(item.groups == item.rows for name, item in known.items() if name != "mental-health")


def test_real_answers_are_all_understood(known: Mapping[str, Facts]) -> None:
    """No answer is outside its list; only ages and sizes of families hold junk."""
    outside = [note for item in known.values() for note in item.notes if "that it does not list" in note]
    assert outside == []
    junk = {note.split(":")[0] for item in known.values() for note in item.notes if "plausible range" in note}
    assert junk == {"Age", "What is your age?", "CGPA", "age", "family_size"}
    assert known["mental-health"].missing["self_employed"] == 5_202
    assert known["student-depression"].missing["Financial Stress"] == 3
    assert known["osmi-2014"].missing["work_interfere"] == 264


@pytest.mark.parametrize(
    ("name", "column"), [("depression", "Depression"), ("anxiety", "Anxiety"), ("stress", "Stress")]
)
def test_real_severities_follow_from_the_files_own_sums(
    known: Mapping[str, Facts], real_data: Path, name: str, column: str
) -> None:
    """The file's sums count items from 1; less 14 they are the official score, here cut by hand."""
    del known  # which skips where the file is not
    survey = read_survey(real("dass-items", real_data))
    path = real("dass-items", real_data).partition(":")[2]
    score = pd.read_csv(path)[column] - 14
    cuts = {"depression": [10, 14, 21, 28], "anxiety": [8, 10, 15, 20], "stress": [15, 19, 26, 34]}[name]
    levels = np.array(["normal", "mild", "moderate", "severe", "extremely severe"])
    expected = levels[sum((score >= cut).astype(int) for cut in cuts)]
    differing = int((survey.answers[survey.schema.outcome(name).question.column].to_numpy() != expected).sum())
    assert differing == 0


def test_real_files_in_other_forms(known: Mapping[str, Facts], real_data: Path, tmp_path: Path) -> None:
    """With semicolons, in UTF-16 and in a zip a file reads the same."""
    source = real("student-depression", real_data).partition(":")[2]
    frame = pd.read_csv(source, dtype=str, keep_default_na=False)
    text = frame.to_csv(sep=";", index=False, lineterminator="\r\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", text.encode("utf-16"))
    other = facts(read_survey(f"student-depression:{tmp_path / 'a.zip'}"))
    assert (other.outcomes, other.missing) == (
        known["student-depression"].outcomes,
        known["student-depression"].missing,
    )

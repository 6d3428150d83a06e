"""`privbench data check`: what it says, what it withholds, its exit codes."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from invented_surveys import invented
from rich.console import Console

from privbench.cli.survey import show
from privbench.data.catalogue import READERS, SURVEYS
from privbench.data.surveys.cells import FEWEST, cells, few
from privbench.data.surveys.check import check
from privbench.data.surveys.check import invented as persons
from privbench.data.surveys.samples import samples
from privbench.errors import InputError

# --- counts that may be shown ---


def test_counts_in_a_sentence() -> None:
    assert [few(count) for count in (0, 1, 9, 10, 1234)] == ["0", "fewer than 10", "fewer than 10", "10", "1,234"]


def test_a_small_cell_takes_another_with_it() -> None:
    assert cells([100, 20, 3]) == ["100", ">=10", "<10"]
    assert cells([100, 4, 3]) == ["100", "<10", "<10"]
    assert cells([100, 20, 0]) == ["100", "20", "0"]
    assert cells([4]) == ["<10"]


def test_a_cell_of_few_people_is_small_however_many_rows_it_has() -> None:
    assert few(45, 9) == "fewer than 10"
    assert few(45, 10) == "45"
    assert cells([400, 40, 0], [30, 9, 0]) == [">=10", "<10 people", "0"]
    assert cells([400, 40, 7], [30, 12, 7]) == ["400", ">=10", "<10"]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_no_small_cell_follows_from_the_total(counts: list[int]) -> None:
    shown = cells(counts)
    hidden = [count for count, text in zip(counts, shown, strict=True) if text.startswith(("<", ">"))]
    assert all(text == f"{count:,}" or count > 0 for count, text in zip(counts, shown, strict=True))
    assert not [count for count, text in zip(counts, shown, strict=True) if 0 < count < FEWEST and text == str(count)]
    if any(0 < count < FEWEST for count in counts) and any(count >= FEWEST for count in counts):
        assert len(hidden) >= 2


# --- persons who do not exist ---


def test_invented_persons_are_nobody() -> None:
    """Rare answers are never drawn, numbers come from the middle half, the seed is fixed."""
    count = 400
    survey, outcome = invented(
        {
            "treatment": ["yes", "no"] * (count // 2),
            "secret": ["common"] * (count - 9) + ["rare"] * 9,
            "age": [str(15 + row // 4) for row in range(count)],
            "gap": [None] * count,
        },
        kinds={"age": "number"},
    )
    made = persons(survey)
    assert len(made) == 2
    assert made == persons(survey)
    for sample in made:
        lines = dict(line.split(": ", 1) for line in sample.prompt.split("---\n")[1].splitlines()[:-1])
        assert lines["secret"] == "common"
        assert 40 <= int(lines["age"]) <= 90
        assert lines["gap"] == "no answer"
        assert sample.answer in ("yes", "no")
        assert sample.header == next(samples(survey, outcome)).header


def test_answers_are_drawn_apart() -> None:
    """Two columns that always agree in the survey need not in the samples of many surveys."""
    apart = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        column = rng.choice(["a", "b"], size=100).tolist()
        survey, _ = invented({"treatment": ["yes", "no"] * 50, f"x{seed}": column, f"y{seed}": column})
        for sample in persons(survey):
            apart += sample.features[0][1] != sample.features[1][1]
    assert apart > 0


def test_a_survey_of_few_draws_from_the_schema() -> None:
    survey, _ = invented({"treatment": ["yes", "no"], "mood": ["good", "bad"]})
    assert {part[1] for sample in persons(survey) for part in sample.features} <= {"good", "bad"}


def test_an_answer_of_one_person_is_not_drawn_however_often_it_is_copied() -> None:
    person = np.repeat(np.arange(40), 40)
    columns = {"treatment": np.where(person % 2, "yes", "no"), "secret": np.where(person < 5, "rare", "common")}
    for seed in range(10):
        survey, _ = invented(columns | {f"n{seed}": person}, kinds={f"n{seed}": "number"}, groups=person)
        for made in persons(survey):
            assert ("secret: ", "common", "\n") in made.features


def test_numbers_of_few_are_not_drawn() -> None:
    survey, _ = invented(
        {"treatment": ["yes", "no"] * 50, "dose": ["77"] * 9 + [None] * 91, "q": ["a", "b"] * 50},
        kinds={"dose": "number"},
    )
    assert all("77" not in sample.prompt for sample in persons(survey))


# --- the check and its command ---

ROWS = 200


def written(folder: Path) -> str:
    """Semicolons, a rare class, a leaking column, a rare story, repeated rows."""
    lines = ["who;mood;sad;leak;story;age"]
    for row in range(ROWS):
        sad = "severe" if row < 4 else ("none", "mild")[row % 2]
        story = f"story number {row}, the only one"
        lines.append(f"id{row:03d};{('good', 'bad')[row // 3 % 2]};{sad};{sad};{story};{20 + row % 40}")
    path = folder / "own.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"survey:{path}"


def test_facts(tmp_path: Path) -> None:
    result = check(f"{written(tmp_path)},outcome=sad")
    assert (result.survey.account.rows, result.survey.account.columns) == (ROWS, 6)
    (outcome,) = result.outcomes
    assert outcome.counts == (("none", ">=10"), ("mild", "98"), ("severe", "<10"), (None, "0"))
    assert {leak.column for leak in outcome.leaks} == {"leak"}
    assert (result.groups, result.largest, result.missing) == (ROWS, 1, 0)
    assert result.repeated == ROWS - result.survey.answers.drop_duplicates().shape[0]
    assert all("leak:" not in sample.prompt for sample in result.samples)


def test_the_command_prints_all_of_it(tmp_path: Path, command_line: CommandLine) -> None:
    done = command_line("data", "check", written(tmp_path), "--outcome", "sad", "--save-schema", "s.toml")
    assert done.returncode == 0, done.stderr
    out = done.stdout
    for text in (
        "rows",
        "200",
        "6: 4 questions, 2 dropped",
        "sad (ordered)",
        "<10",
        "leaks it",
        "none < mild < severe",
    ):
        assert text in out, text
    for text in ("free text", "identifies a person", "semicolons", "Two samples of invented persons", "Question: sad"):
        assert text in out, text
    assert "story number" not in out
    assert "id00" not in out
    assert f"survey:{tmp_path / 'own.csv'},schema=s.toml" in done.stderr
    again = command_line("data", "check", f"{written(tmp_path)},schema=s.toml")
    assert again.returncode == 0
    assert again.stdout == out


def test_numbers_in_sentences_have_thousands_separators(tmp_path: Path, command_line: CommandLine) -> None:
    """Of 3,000 records 2,400 tick nearly the same throughout."""
    rng = np.random.default_rng(0)
    lines = ["who;sad;leak;" + ";".join(f"q{n}" for n in range(12))]
    for row in range(3_000):
        ticked = rng.integers(0, 2 if row < 2_400 else 9, 12).tolist()
        sad = ("none", "mild")[rng.integers(2)]
        lines.append(f"id{row};{sad};{sad};" + ";".join(map(str, ticked)))
    (tmp_path / "large.csv").write_text("\n".join(lines), encoding="utf-8")
    done = command_line("data", "check", "survey:large.csv,outcome=sad")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\(\d,\d{3} respondents", done.stdout)
    assert re.search(r"only among \d,\d{3} of 3,000 records", " ".join(done.stdout.split()))
    assert not re.findall(r"\b\d{4,}\b", done.stdout)


def test_without_an_outcome_candidates_are_listed(tmp_path: Path, command_line: CommandLine) -> None:
    done = command_line("data", "check", written(tmp_path))
    assert done.returncode == 0
    assert "None named. Candidates: mood, sad, leak." in done.stdout
    assert "Question: mood" in done.stdout


def test_a_small_or_blown_up_survey_says_nothing_of_one_person(tmp_path: Path, command_line: CommandLine) -> None:
    """44 people, and 40 who are there 40 times without a column that says so: the report and the schema are silent."""
    small = ["age,why,treated"]
    small += [
        f"{20 + row},{'RARE boss' if row < 2 else 'fine' if row < 30 else 'tired'},{row % 2}" for row in range(44)
    ]
    blown = ["age,comment,treated,scale"]
    blown += [f"{20 + row // 40},RARE tale {row // 40},{row // 40 % 2},{row // 40 % 5}" for row in range(1600)]
    for name, lines in {"small": small, "blown": blown}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
        done = command_line(
            "data", "check", f"survey:{name}.csv", "--outcome", "treated", "--save-schema", f"{name}.toml"
        )
        assert done.returncode == 0, done.stderr
        assert "rare" not in (done.stdout + (tmp_path / f"{name}.toml").read_text(encoding="utf-8")).lower()
        assert "Too few respondents to look for leaks" in done.stdout
    assert "none named: 40 people" in done.stdout


def test_identifiers_are_named_and_not_shown(tmp_path: Path, command_line: CommandLine) -> None:
    """Columns of a form that anybody may export; six names are those of 25 people each."""
    lines = ["First name,Phone,Q3,zip,Do you own a phone?"]
    lines += [
        f"{f'SECRET{row % 8}' if row % 8 < 6 else f'RARE{row}'},{5_000_000 + row % 90},"
        f"SECRET{row}@example.org,{10_000 + row % 60},{('yes', 'no')[row % 2]}"
        for row in range(ROWS)
    ]
    (tmp_path / "form.csv").write_text("\n".join(lines), encoding="utf-8")
    done = command_line("data", "check", "survey:form.csv", "--save-schema", "form.toml")
    assert done.returncode == 0, done.stderr
    dropped = done.stdout.partition("Dropped\n")[2].partition("Two samples")[0]
    for column in ("First name", "Phone", "Q3", "zip"):
        (line,) = [line for line in dropped.splitlines() if line.strip().startswith(column)]
        assert "identif" in line
    assert "5: 1 questions, 4 dropped" in done.stdout
    said = (done.stdout + (tmp_path / "form.toml").read_text(encoding="utf-8")).lower()
    assert "secret" not in said
    assert "rare" not in said


texts = st.sampled_from(
    ["", "?", "NA", "yes", "No", "often", "never", "3", "2.5", "1,5", "1-5", "2020-01-01 10:00", "[b]", "a b"]
)
headers = st.text(alphabet=st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["id", "age", "country", "<b>"])


@given(
    header=st.lists(headers, min_size=1, max_size=4),
    columns=st.lists(st.lists(texts | st.text(max_size=5), min_size=1, max_size=40), min_size=4, max_size=4),
)
def test_any_table_is_checked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, header: list[str], columns: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.csv"
    rows = [[column[row % len(column)] for column in columns[: len(header)]] for row in range(40)]
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([header, *rows])
    try:
        result = check(f"survey:{path}")
    except InputError:
        return
    console = Console(file=io.StringIO(), width=100)
    show(result, console)
    assert result.survey.account.rows == 40
    asked = {question.column for question in result.survey.schema.questions}
    assert len(asked | set(result.survey.schema.dropped)) == len(header)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["osmi:nowhere.csv"], "there is no file 'nowhere.csv'"),
        (["osmo:own.csv"], "did you mean osmi"),
        (["osmi:own.csv"], "fits no schema of osmi-2014, osmi-2016, osmi-2019"),
        (["survey:own.csv", "--outcome", "story"], "'story' cannot be an outcome"),
        (["survey:own.csv", "--outcome", "age"], "'age' has any number of answers"),
        (["survey:own.csv,outcome=sad", "--outcome", "mood"], "gives outcome twice"),
        (["survey:own.csv,schema=nowhere.toml"], "cannot read the schema nowhere.toml"),
        (["survey:own.csv", "--save-schema", "own.csv"], "--save-schema own.csv: there is such a file"),
        (["survey:own.csv", "--save-schema", "no/s.toml"], "--save-schema no/s.toml: cannot write it"),
        ([], "Missing argument 'SPEC'"),
    ],
)
def test_bad_input_exits_2_with_a_line(
    tmp_path: Path, command_line: CommandLine, arguments: list[str], message: str
) -> None:
    written(tmp_path)
    done = command_line("data", "check", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 2


def test_list_shows_cohorts_and_surveys(command_line: CommandLine) -> None:
    out = command_line("list", "datasets").stdout
    assert all(name in out for name in (*READERS, *SURVEYS))

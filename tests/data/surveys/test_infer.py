"""Schemas of files nobody has seen: what each kind of column becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from privbench.data.surveys.infer import infer
from privbench.data.surveys.scales import agreed, ordered
from privbench.data.surveys.schema import Question, Schema
from privbench.data.surveys.table import Table
from privbench.errors import InputError

ROWS = 120
MOODS = [("good", "bad", "so so")[row % 3] for row in range(ROWS)]


def table(columns: Mapping[str, Sequence[object]], path: str = "some_file.csv") -> Table:
    return Table(path, pd.DataFrame({name: pd.Categorical([str(c) for c in cells]) for name, cells in columns.items()}))


def schema_of(columns: Mapping[str, Sequence[object]], outcome: str | None = None) -> Schema:
    return infer(table({"mood": MOODS, **columns}), outcome)


def found(cells: Sequence[object], name: str = "Q") -> Question | str:
    """What one column of 120 rows becomes: a question, or why it is dropped."""
    schema = schema_of({name: [cells[row % len(cells)] for row in range(ROWS)]})
    asked = {question.column: question for question in schema.questions}
    return asked[name] if name in asked else schema.dropped[name]


def test_the_schema_has_a_name_and_no_outcome() -> None:
    schema = infer(table({"mood": MOODS}, "/folder/Well-being_2020 (copy).csv.gz"))
    assert (schema.name, schema.title, schema.outcomes) == ("well-being-2020-copy", "Well-Being 2020 Copy", ())
    assert schema.rows is None
    assert schema.candidates == ("mood",)


# --- what is dropped ---


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("Q", ["", "NA", "?", " - ", "n/a", "No answer"], "empty in every row"),
        ("Q", ["x"], "the same answer"),
        ("Q", ["x", "", "X "], "the same answer"),
        ("id", [f"r-{row:04x}" for row in range(ROWS)], "identifies a person"),
        ("token", [f"{row}f{row}" for row in range(ROWS)], "identifies a person"),
        ("number", list(range(1001, 1001 + ROWS)), "identifies a person"),
        ("code", [123456 + 7919 * row for row in range(ROWS)], "identifies a person"),
        ("mail", [f"p{row % 9}@example.org" for row in range(ROWS)], "addresses"),
        ("at", [f"192.0.2.{row % 9}" for row in range(ROWS)], "addresses"),
        ("when", [f"2020-01-{1 + row % 28:02d}" for row in range(ROWS)], "dates"),
        ("when", [f"{1 + row % 12}/{1 + row % 28}/2014 {row % 24}:{row % 60:02d}" for row in range(ROWS)], "dates"),
        ("when", [f"{1 + row % 28} Jan 2020" for row in range(ROWS)], "dates"),
        ("when", [f"2020-01-01T{row % 24:02d}:{row % 60:02d}:00Z" for row in range(ROWS)], "dates"),
        ("story", [f"this is what happened on day {row}" for row in range(ROWS)], "free text"),
        ("story", [f"the same long answer that somebody typed over and over on day {row % 40}" for row in range(ROWS)],
         "free text"),
        ("job", [f"job {row % 50}" for row in range(ROWS)], "free text: most answers are those of few people"),
        ("Q", ["student"] * 118 + ["nurse", "clerk"], "nearly the same answer"),
    ],
)  # fmt: skip
def test_dropped(name: str, cells: list[object], why: str) -> None:
    reason = found(cells, name)
    assert isinstance(reason, str)
    assert why in reason


# --- who a person is ---

FIRST = ["Anna", "Ben", "Chloe", "Dilip", "Eve", "Femi", "Gus", "Hana", "Ivo", "Jo", "Kim", "Lea", "Mo", "Nia", "Oz"]
NAMES = [FIRST[row % 5 if row < 100 else row % 15] for row in range(ROWS)]
BY_HEADER = "by its header a name, an address, a number or a date of birth: identifies a person"


@pytest.mark.parametrize(
    ("headers", "cells"),
    [
        (("name", "Surname", "first name", "FirstName", "last_name", "What is your full name?", "Respondent's name",
          "student name", "Nickname (optional)", "Names", "your first and last name"), NAMES),
        (("email", "E-mail address:", "Please enter your e-mail", "work email", "Email / Phone"),
         [f"{name}, at home" for name in NAMES]),
        (("phone", "Phone number", "Mobile", "home telephone", "cell phone 2", "Emergency contact"),
         [5_000_000 + row % 60 for row in range(ROWS)]),
        (("address", "Home address line 1", "address2", "Street", "Postal address"),
         [f"{name} Lane" for name in NAMES]),
        (("postcode", "Post code", "zip", "ZIP code", "zipcode", "What is your postal code?", "PIN code"),
         [10_115 + row % 30 for row in range(ROWS)]),
        (("zip", "postcode"), [10_115, 20_095, 80_331]),
        (("ip address", "IPAddress"), [3_232_235_777 + row % 30 for row in range(ROWS)]),
        (("date of birth", "Birthdate", "birthday", "DOB", "When is your birthday?"),
         [19_800_101 + 100 * (row % 40) for row in range(ROWS)]),
        (("social security number", "Passport no", "participant number", "Student number"),
         [40 + row % 40 for row in range(ROWS)]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_header_that_asks_who_one_is_is_dropped_whatever_its_answers(
    headers: tuple[str, ...], cells: list[object]
) -> None:
    """Many of these answers are given by ten people or more, or are plain numbers: without the header all were kept."""
    assert isinstance(found(cells), Question)
    for header in headers:
        assert found(cells, header) == BY_HEADER, header


@pytest.mark.parametrize(
    "header",
    [
        "name of your employer's benefits?",
        "Do you know the name of your supervisor?",
        "Does your employer address mental health?",
        "Do you use your phone at night?",
        "How often do you check e-mail at home?",
        "company name",
        "product names",
        "number of addresses",
        "Year of birth",
        "birth weight",
        "state",
        "Post",
        "namesake",
        "mobility",
        "streetwise",
    ],
)
def test_a_header_that_only_mentions_such_a_word_is_a_question(header: str) -> None:
    assert isinstance(found(NAMES, header), Question)


@pytest.mark.parametrize(
    ("header", "cells"),
    [("phone", ["yes", "no"]), ("Email", ["daily", "weekly", "never"]), ("Mobile", [0, 1]), ("address", ["1-5", "6+"])],
)
def test_a_few_answers_of_many_people_are_a_question_whatever_the_header(header: str, cells: list[object]) -> None:
    assert isinstance(found(cells, header), Question)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([f"+49 30 {7_000_000 + 37 * row}" for row in range(ROWS)], "telephone numbers"),
        ([f"(555) {200 + row}-{4_000 + row} ext. 4" for row in range(ROWS)], "telephone numbers"),
        ([491_701_000_000 + 37 * (row // 2 if row < 10 else row) for row in range(ROWS)], "telephone numbers"),
        ([f"respondent{row}@example.org" for row in range(ROWS)], "addresses"),
        ([f"respondent{row}@example.org" for row in range(ROWS - 6)] + ["none", "I do not want to"] * 3, "addresses"),
    ],
)
def test_answers_that_reach_one_person_are_dropped_whatever_the_header(cells: list[object], why: str) -> None:
    assert found(cells, "Q7") == f"{why}: identify a person"


@pytest.mark.parametrize(
    "cells",
    [
        [round(row * 0.123456789, 9) for row in range(ROWS)],
        [-3_000_000.25 - row for row in range(ROWS)],
        [20_000_000 + 977 * (row % 100) for row in range(ROWS)],
        [150_000_000 + 1_000_000 * (row % 50) for row in range(ROWS)],
        ["1000000-5000000", "5000000-9000000"],
    ],
)
def test_measurements_and_amounts_are_no_telephone_numbers(cells: list[object]) -> None:
    assert isinstance(found(cells), Question)


def test_near_unique_is_by_people_and_not_by_their_copies() -> None:
    """40 people, 40 copies of each: every number is there 40 times and is one person's."""
    person = [row // 40 for row in range(1600)]
    columns = {
        "Q7": [491_701_000_000 + 37 * p for p in person],
        "age": [20 + p for p in person],
        "mood": [MOODS[p] for p in person],
    }
    assert infer(table(columns)).dropped == {"Q7": "telephone numbers: identify a person"}


def test_an_identifier_is_no_outcome() -> None:
    with pytest.raises(InputError, match=r"'First name' cannot be an outcome .*dropped \(by its header a name"):
        schema_of({"First name": NAMES}, "First name")


# --- what is kept ---


@pytest.mark.parametrize(
    ("cells", "answers"),
    [
        (["Often", "never", "Sometimes"], ("never", "sometimes", "often")),
        (["almost always", "Never", "often", "sometimes"], ("never", "sometimes", "often", "almost always")),
        (["Agree", "strongly agree", "Neutral", "disagree", "Strongly disagree"],
         ("strongly disagree", "disagree", "neutral", "agree", "strongly agree")),
        (["severe", "None", "mild", "moderate"], ("none", "mild", "moderate", "severe")),
        (["extremely severe", "normal", "mild", "severe", "moderate"],
         ("normal", "mild", "moderate", "severe", "extremely severe")),
        (["High", "Low", "Medium", ""], ("low", "medium", "high")),
        ([3, 1, 2, 5, 4], ("1", "2", "3", "4", "5")),
        (["3.0", "1.0", "0.0"], ("0", "1", "3")),
        (list(range(11)), tuple(map(str, range(11)))),
        ([0, 1], ("0", "1")),
        (["6-25", "1-5", "More than 1000", "26-100", "100-500", "500-1000"],
         ("1-5", "6-25", "26-100", "100-500", "500-1000", "more than 1000")),
        (["7-8 hours", "'5-6 hours'", "Less than 5 hours", "More than 8 hours"],
         ("less than 5 hours", "5-6 hours", "7-8 hours", "more than 8 hours")),
        (["65+", "18-24", "25-64"], ("18-24", "25-64", "65+")),
        (["2 - a bit", "1 - not at all", "3 - a lot"], ("1 - not at all", "2 - a bit", "3 - a lot")),
        (["often", "never", "sometimes"] * 39 + ["oftn", "n", "x"], ("never", "sometimes", "often")),
    ],
)  # fmt: skip
def test_ordinals(cells: list[object], answers: tuple[str, ...]) -> None:
    question = found(cells)
    assert isinstance(question, Question)
    assert (question.kind, question.answers) == ("ordinal", answers)


@pytest.mark.parametrize(
    ("cells", "answers", "rest"),
    [
        (["Yes", "No", "no"], ("no", "yes"), False),
        (["Yes", "No", "Maybe"], ("no", "maybe", "yes"), False),
        (["TRUE", "FALSE"], ("false", "true"), False),
        (["red", "blue", "Red"], ("blue", "red"), False),
        (["often", "never", "Prefer not to say"], ("never", "often", "prefer not to say"), False),
        (["male"] * 60 + ["female"] * 58 + ["demigirl", "agender"], ("female", "male", "other"), True),
        (["other"] * 60 + ["female"] * 58 + ["a", "b"], ("female", "other"), True),
    ],
)
def test_choices(cells: list[object], answers: tuple[str, ...], rest: bool) -> None:
    question = found(cells)
    assert isinstance(question, Question)
    assert (question.kind, question.answers) == ("choice", answers)
    assert question.codes == ({"*": "other"} if rest else {})


def test_a_country_is_a_choice_of_those_that_ten_people_named() -> None:
    countries = [f"land {row % 15 if row % 3 else 0}" for row in range(600)]
    schema = infer(table({"country": countries, "mood": MOODS * 5}))
    assert "land 0" in schema.questions[0].answers
    rare = infer(
        table({"country": ["my"] * 590 + [f"c{n}" for n in range(10)] + ["us"] * 20, "mood": MOODS * 5 + MOODS[:20]})
    )
    assert rare.questions[0].answers == ("my", "other", "us")


def test_na_is_a_country_among_countries() -> None:
    codes = [f"{a}{b}" for a in "ab" for b in "cdefghi"] + ["NA"]
    question = found(codes * 8, "country")
    assert isinstance(question, str)  # each of them is rare
    schema = infer(table({"country": codes * 20, "state": codes * 20}))
    country, state = schema.questions
    assert country.codes == {"na": "na"}
    assert "na" in country.answers
    assert "na" not in state.answers


@pytest.mark.parametrize(
    ("cells", "decimals"),
    [
        (["33.0", "17", "45", "60", "61", "62", "63", "64", "65", "66", "67", "68"], 0),
        ([row * 0.37 for row in range(ROWS)], 2),
        ([f"{row},5" for row in range(ROWS)], 1),
        ([*range(20, 60), "thirty"], 0),
    ],
)
def test_numbers(cells: list[object], decimals: int) -> None:
    question = found(cells)
    assert isinstance(question, Question)
    assert (question.kind, question.decimals, question.low) == ("number", decimals, None)


def test_an_age_has_limits() -> None:
    question = found(list(range(20, 60)), "What is your age?")
    assert isinstance(question, Question)
    assert (question.ask, question.low, question.high) == ("age", 0, 120)
    assert found(list(range(20, 60)), "wages").low is None


def test_times_that_come_back_are_groups() -> None:
    schema = schema_of({"Timestamp": [f"8/27/2014 11:{row % 20:02d}" for row in range(ROWS)]})
    assert schema.groups == ("Timestamp",)
    assert "taken as one person" in schema.dropped["Timestamp"]
    assert schema_of({"Respondent ID": [row % 20 for row in range(ROWS)]}).groups == ("Respondent ID",)
    subjects = [f"subject {'abcdefghijklmnop'[row % 16]}" for row in range(ROWS)]
    assert schema_of({"subject": subjects}).groups == schema_of({"participant of": subjects}).groups == ()
    assert schema_of({"day": [f"2020-01-{1 + row % 20:02d}" for row in range(ROWS)]}).groups == ()


# --- what is asked ---


@pytest.mark.parametrize(
    ("header", "ask"),
    [
        ("Have you ever had suicidal thoughts?", "suicidal thoughts"),
        ("mental_health_interview", "mental health interview"),
        ("Work/Study Hours", "work/study hours"),
        ("FamilyHistory", "family history"),
        ("How many employees (full time: or part) does your company have in all of the countries?",
         "many employees company all countries"),
        ("do you", "do you"),
        ("???", "question"),
    ],
)  # fmt: skip
def test_asks_are_short(header: str, ask: str) -> None:
    question = found(["yes", "no"], header)
    assert isinstance(question, Question)
    assert question.ask == ask


def test_asks_differ() -> None:
    schema = schema_of({"a b": ["yes", "no"] * 60, "A_b": ["yes", "no"] * 60, "a-b": ["yes", "no"] * 60})
    assert [question.ask for question in schema.questions] == ["mood", "a b", "a b 2", "a-b"]


# --- scales ---


def test_scales_are_not_mixed() -> None:
    assert ordered(["never", "mild"]) is None
    assert ordered(["low", "low "]) is None
    assert ordered(["frequently", "often"]) is None
    assert ordered(["yes", "no"]) is None
    assert ordered([]) is ordered(["often"]) is None
    assert ordered(["11", "12"]) is None
    assert agreed(["yes", "other"]) is None
    assert agreed([]) is None


# --- outcomes, and what is refused ---


def test_an_outcome_by_column_or_by_what_it_asks() -> None:
    columns = {"Have you felt sad?": ["yes", "no"] * 60}
    for name in ("Have you felt sad?", "felt sad", "Felt Sad"):
        assert schema_of(columns, name).outcome(None).question.column == "Have you felt sad?"


def test_few_numbers_are_an_outcome() -> None:
    schema = schema_of({"score": [10 * (row % 12) for row in range(ROWS)]}, "score")
    assert schema.outcome(None).question.answers == tuple(str(10 * n) for n in range(12))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([10 * n for n in range(13)], "'score' has any number of answers; an outcome has 2 to 12: group them"),
        (["x"], r"'score' cannot be an outcome of survey some-file: dropped \(the same answer in every row"),
        ([""], r"dropped \(empty in every row\)"),
        ([f"a story of {row}" for row in range(ROWS)], r"dropped \(free text\)"),
        ([f"answer {row % 13}" for row in range(ROWS)], "dropped|'score' has 13 answers"),
    ],
)
def test_refuses_an_outcome(cells: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        schema_of({"score": [cells[row % len(cells)] for row in range(ROWS)]}, "score")


def test_refuses_an_unknown_outcome() -> None:
    with pytest.raises(InputError, match="unknown outcome 'moods'; did you mean mood"):
        schema_of({}, "moods")


def test_refuses_a_file_without_a_usable_column() -> None:
    with pytest.raises(
        InputError, match=r"some_file\.csv has no column that can be used \('a': empty in every row; 'b'"
    ):
        infer(table({"a": ["", ""], "b": ["x", "x"]}))


def test_rare_answers_are_not_in_the_schema() -> None:
    """Nobody of fewer than ten in a large file can be found in its schema, but on a scale that all surveys have."""
    cells = ["yes, sometimes"] * 400 + ["not really"] * 391 + ["only after the accident"] * 9
    schema = infer(table({"Q": cells, "mood": MOODS * 6 + MOODS[:80]}))
    assert schema.questions[0].answers == ("not really", "other", "yes, sometimes")


@pytest.mark.parametrize(
    ("rare", "kind"),
    [("3 - my boss hit me", "choice"), ("3 years since the accident", "choice"), ("more than 3", "ordinal")],
)
def test_a_step_of_few_people_uses_nobodys_words(rare: str, kind: str) -> None:
    question = found(["1 - low", "2 - low"] * 59 + [rare, rare] if "-" in rare else ["1-2", "2-3"] * 59 + [rare, rare])
    assert isinstance(question, Question)
    assert (question.kind, rare in question.answers) == (kind, kind == "ordinal")


def test_a_small_survey_names_no_answer_of_few_and_can_be_used() -> None:
    """44 people: two of them said the same; before, one in twenty was enough."""
    mood = ["fine"] * 20 + ["tired"] * 12 + ["sad"] * 10 + ["the boss called me names"] * 2
    illness = ["none"] * 30 + ["anxiety"] * 8 + ["gout"] * 6
    columns = {"age": [20 + row % 30 for row in range(44)], "mood": mood, "illness": illness}
    schema = infer(table(columns | {"scale": [1 + row % 5 for row in range(44)]}), "mood")
    answers = {question.column: question.answers for question in schema.questions}
    assert answers["illness"] == ("none", "other")
    assert answers["scale"] == ("1", "2", "3", "4", "5")
    # Two people make no class: they count as missing.
    assert answers["mood"] == schema.outcome(None).question.answers == ("fine", "sad", "tired")
    assert schema.outcome(None).question.codes == {}


def test_an_outcome_keeps_other_where_it_is_a_class() -> None:
    cells = ["red"] * 60 + ["blue"] * 50 + [f"c{row}" for row in range(10)]
    asked = schema_of({"colour": cells}, "colour").outcome(None).question
    assert (asked.answers, asked.codes) == (("blue", "other", "red"), {"*": "other"})


def test_numbers_of_few_people_are_no_outcome_and_are_not_quoted() -> None:
    with pytest.raises(InputError, match="'income' cannot be an outcome: fewer than 10 people gave one") as refused:
        schema_of({"income": [1000] * 60 + [2000] * 59 + [987654]}, "income")
    assert "987654" not in str(refused.value)


@pytest.mark.parametrize("known", ["Timestamp", "row", "nothing"])
def test_people_are_counted_and_not_their_copies(known: str) -> None:
    """40 people, 40 copies of each: by a column that comes back, and without one by their equal rows."""
    person = [row // 40 for row in range(1600)]
    columns = {
        "comment": [f"my story is number {p}" for p in person],
        "team": ["main" if p < 30 else f"team {p % 5}" for p in person],
        "age": [20 + p for p in person],
        "mood": [MOODS[p] for p in person],
    }
    extra = {
        "Timestamp": {"Timestamp": [f"8/27/2014 11:{p:02d}" for p in person]},
        "row": {"row": list(range(1600))},
        "nothing": {},
    }[known]
    schema = infer(table(columns | extra))
    assert schema.groups == (("Timestamp",) if known == "Timestamp" else ())
    assert "free text" in schema.dropped["comment"]
    assert {question.column: question.answers for question in schema.questions}["team"] == ("main", "other")


def test_equal_rows_of_a_coarse_survey_are_different_people() -> None:
    schema = infer(table({"a": ["red", "blue"] * 60, "b": ["left", "right", "left", "left"] * 30}))
    assert [question.answers for question in schema.questions] == [("blue", "red"), ("left", "right")]


def test_a_file_is_inferred_from_its_path(tmp_path: Path) -> None:
    assert infer(table({"mood": MOODS}, str(tmp_path / ".csv"))).name == "survey"

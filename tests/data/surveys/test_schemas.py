"""Schemas as TOML: the round trip, every refusal, and the schemas of the public surveys."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.data.surveys import toml
from privbench.data.surveys.read import SCHEMAS, schema_named
from privbench.data.surveys.samples import header
from privbench.data.surveys.schema import MISSING, Outcome, Question, Schema
from privbench.data.surveys.table import key, normal
from privbench.errors import InputError

NAMES = [name for names in SCHEMAS.values() for name in names]

# --- the round trip ---

words = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
line = words.filter(lambda text: text.strip() and "\n" not in text and key(text) != MISSING)
amounts = st.integers(-99, 99) | st.floats(-1e6, 1e6).filter(lambda value: value != 0)


def codes_to(answers: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    pairs = st.tuples(words, st.sampled_from((*answers, "")))
    return st.lists(pairs, max_size=3, unique_by=lambda pair: key(pair[0])).map(dict)


@st.composite
def questions(draw: st.DrawFn, column: str, ask: str) -> Question:
    kind = draw(st.sampled_from(["ordinal", "choice", "number"]))
    if kind == "number":
        low, high = sorted([draw(amounts), draw(amounts)])
        codes = draw(st.dictionaries(words, st.just(""), max_size=2))
        return Question(
            column, ask, "number", (), codes, draw(st.none() | st.just(low)), draw(st.none() | st.just(high)),
            draw(st.integers(0, 6)),
        )  # fmt: skip
    answers = tuple(draw(st.lists(line.filter(key), min_size=2, max_size=5, unique_by=key)))
    return Question(column, ask, kind, answers, draw(codes_to(answers)))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    columns = draw(st.lists(line, min_size=2, max_size=8, unique=True))
    asks = draw(st.lists(line, min_size=len(columns) + 1, max_size=len(columns) + 1, unique=True))
    count = draw(st.integers(1, len(columns)))
    asked = [draw(questions(column, ask)) for column, ask in zip(columns[:count], asks, strict=False)]
    outcomes = [
        Outcome(draw(words), question, tuple(draw(st.lists(st.sampled_from(columns), unique=True, max_size=2))))
        for question in asked
        if question.kind != "number" and draw(st.booleans())
    ]
    items = tuple(question.column for question in asked if question.kind == "ordinal")
    computed = Question(" ".join(columns), asks[-1], "ordinal", ("low", "middle", "high"))
    if items and computed.column not in columns:
        outcomes.append(Outcome("computed level", computed, items, items, tuple(sorted({draw(amounts), 100.0}))[-2:]))
        if len(outcomes[-1].cuts) != 2:
            outcomes.pop()
    return Schema(
        name=draw(line),
        title=draw(line),
        questions=tuple(asked),
        outcomes=tuple({outcome.name: outcome for outcome in outcomes}.values()),
        dropped={column: draw(words) for column in columns[count:]},
        groups=tuple(draw(st.lists(words, max_size=2))),
        missing=tuple(draw(st.lists(words | st.just(""), max_size=3))),
        rows=draw(st.none() | st.integers(0, 10**9)),
    )


@given(schemas())
def test_a_dumped_schema_is_read_back(schema: Schema) -> None:
    assert toml.parse(toml.dump(schema), "dumped") == schema


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    schema = schema_named("osmi-2014")
    file.write_text(toml.dump(schema), encoding="utf-8")
    assert toml.load(file) == schema


def test_the_example_in_the_documentation_is_one() -> None:
    text = "\n".join(row.removeprefix("    ") for row in str(toml.__doc__).splitlines() if row.startswith("    "))
    schema = toml.parse(text, "docs")
    assert [question.kind for question in schema.questions] == ["number", "choice", "ordinal"]
    assert schema.outcome("level").derived == ("Q1",)
    assert schema.questions[2].codes == {"1": "never", "2": "sometimes"}


# --- what is refused ---

GOOD = """
name = "n"
title = "t"
[scales]
s = { ordinal = ["low", "high"] }
[questions]
"Q" = { ask = "q", scale = "s" }
"N" = { ask = "n", low = 0, high = 10 }
[outcomes]
"o" = { column = "Q" }
"c" = { ask = "level", ordinal = ["low", "high"], items = ["Q"], cuts = [1] }
[dropped]
"D" = "why"
"""


def test_the_good_one_is_read() -> None:
    assert [outcome.name for outcome in toml.parse(GOOD, "s.toml").outcomes] == ["o", "c"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "n"', 'name = "n', "s.toml is no TOML"),
        ('name = "n"', "", "s.toml: name must be one line of text; it is missing"),
        ('title = "t"', "title = 3", "title must be one line of text; got 3"),
        ('title = "t"', 'title = "t"\nrows = -1', "rows must be a whole number of at least 0; got -1"),
        ('title = "t"', 'title = "t"\nrows = true', "rows must be a whole number"),
        ('title = "t"', 'title = "t"\ngroups = "Q"', "groups must be a list of texts; got 'Q'"),
        ('title = "t"', 'title = "t"\nmissing = [1]', "missing must be a list of texts"),
        ('title = "t"', 'title = "t"\nquestion = 1', "unknown key 'question'; did you mean questions"),
        ("[dropped]", "[dropped]\nE = 1", "dropped must be a table of texts"),
        ("[dropped]\n", "[dropped]\nQ = 'x'\n", "column 'Q' is a question and dropped"),
        ('"N" = { ask = "n", low = 0, high = 10 }', '"N" = 3', 'question "N" must be a table, got 3'),
        ('ask = "n"', 'ask = "q"', "'q' is asked twice"),
        ('ask = "n"', 'ask = ""', 'question "N": ask must be one line'),
        ('ask = "n"', 'asks = "n"', "unknown key 'asks'; did you mean ask"),
        ("low = 0", "low = 11", r"low must be at most high \(10\); got 11"),
        ("low = 0", 'low = "0"', "low must be a finite number; got '0'"),
        ("low = 0", "low = nan", "low must be a finite number"),
        ("low = 0", "decimals = 7", "decimals must be at most 6; got 7"),
        ("low = 0", "decimals = 0.5", "decimals must be a whole number"),
        ('"q", scale = "s"', '"q", scale = "r"', "question \"Q\": unknown scale 'r'; known: s"),
        ('s = { ordinal = ["low", "high"] }', 's = { ordinal = ["low"] }', "at least two answers, all different"),
        (
            's = { ordinal = ["low", "high"] }',
            's = { ordinal = ["low", "LOW"] }',
            "at least two answers, all different",
        ),
        ('s = { ordinal = ["low", "high"] }', 's = { ordinal = ["a", "b"], choice = ["a", "b"] }', "not both"),
        (
            's = { ordinal = ["low", "high"] }',
            's = { ordinal = ["low", "No answer"] }',
            "'No answer' cannot be an answer",
        ),
        ('s = { ordinal = ["low", "high"] }', 's = { ordinal = ["low", " "] }', "' ' cannot be an answer"),
        (
            's = { ordinal = ["low", "high"] }',
            's = { ordinal = ["low", "high"], codes = { "1" = "mid" } }',
            "'mid', which",
        ),
        ('scale = "s"', 'scale = "s", codes = { "A" = "low", "a " = "high" }', "'a ' is coded twice"),
        ('column = "Q"', 'column = "R"', "outcome \"o\": unknown question 'R'"),
        ('column = "Q"', 'column = "N"', "N is a number; an outcome needs ordinal or choice"),
        ('column = "Q"', 'column = "Q", derived = ["E"]', "unknown derived column 'E'"),
        ('items = ["Q"]', 'items = ["N"]', "item 'N' must be a column of .questions. with ordinal answers"),
        ('items = ["Q"]', 'column = "N", items = ["Q"]', "column must be a name of its own"),
        (
            "cuts = [1]",
            "cuts = [1, 2]",
            r"cuts must be 1 rising numbers, one for each answer but the first; got \[1, 2\]",
        ),
        ("cuts = [1]", "cuts = [nan]", r"cuts must be a list of finite numbers; got \[nan\]"),
        (
            'column = "Q"',
            'column = "Q", cuts = [1]',
            r"cuts must be left out where there are no items to add; got \[1\]",
        ),
        (
            '["low", "high"], items',
            f"{[str(n) for n in range(13)]}, items",
            r"level has 13 answers; an outcome has 2 to 12: group them by codes",
        ),
        ("cuts = [1]", 'cuts = ["1"]', "cuts must be a list of finite numbers"),
        (
            '"Q" = { ask = "q", scale = "s" }\n"N" = { ask = "n", low = 0, high = 10 }',
            "",
            r"unknown question|no \[questions\]",
        ),
    ],
)
def test_refuses_a_bad_schema(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=message) as refused:
        toml.parse(GOOD.replace(old, new, 1), "s.toml")
    assert "s.toml" in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 2


def test_refuses_a_schema_without_questions() -> None:
    with pytest.raises(InputError, match=r"s\.toml has no \[questions\]"):
        toml.parse('name = "n"\ntitle = "t"', "s.toml")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xff"])
def test_refuses_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "s.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read the schema .*s\.toml"):
        toml.load(file)


# --- the public surveys' ---


def test_every_schema_of_the_package_has_a_name_to_be_read_by() -> None:
    folder = files("privbench.data.surveys").joinpath("schemas")
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{name}.toml" for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_public_schemas(name: str) -> None:
    schema = schema_named(name)
    assert schema.name == name
    assert schema.rows is not None
    assert schema.outcomes
    for question in (*schema.questions, *(outcome.question for outcome in schema.outcomes)):
        assert normal(question.column) == question.column
        assert len(question.ask.split()) <= 4
        assert ": " not in question.ask
        assert all(answer == key(answer) for answer in question.answers)
    assert all(why for why in schema.dropped.values())
    assert toml.parse(toml.dump(schema), name) == schema


@pytest.mark.parametrize("name", NAMES)
def test_public_samples_are_short(name: str) -> None:
    """With the header, in words and marks, at their longest; a small tokenizer makes about 1.2 pieces of each."""
    schema = schema_named(name)
    for outcome in schema.outcomes:
        hidden = {outcome.question.column, *outcome.derived}
        asked = [question for question in schema.questions if question.column not in hidden]
        longest = [max((*question.answers, MISSING), key=lambda text: len(text.split())) for question in asked]
        text = header(schema.title, asked) + "\n".join(f"{q.ask}: {a}" for q, a in zip(asked, longest, strict=True))
        assert len(text.replace("\n", " . ").replace(":", " :").replace(",", " ,").split()) < 420


def test_severity_cuts_are_the_official_ones() -> None:
    """Lovibond & Lovibond 1995, on the sum of 14 items scored 0 to 3."""
    schema = schema_named("dass-items")
    assert {outcome.name: outcome.cuts for outcome in schema.outcomes} == {
        "depression": (10, 14, 21, 28),
        "anxiety": (8, 10, 15, 20),
        "stress": (15, 19, 26, 34),
    }
    for outcome in schema.outcomes:
        assert len(set(outcome.items)) == 14
        assert len({item[-1] for item in outcome.items}) == 1
        assert len(outcome.question.answers) == 5
        assert {*outcome.items, "Depression", "Anxiety", "Stress", "dasssum"} == set(outcome.derived)


# --- outcomes ---


def test_outcomes_by_name() -> None:
    schema = schema_named("osmi-2016")
    assert schema.outcome(None).name == "disorder"
    assert schema.outcome("treatment").question.answers == ("no", "yes")
    assert schema.led_by("treatment").outcome(None).name == "treatment"
    assert schema.led_by("Family History").outcome(None).question.ask == "family history"
    with pytest.raises(InputError, match="unknown outcome 'tretment'; did you mean treatment"):
        schema.outcome("tretment")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Why or why not?", r"'Why or why not\?' cannot be an outcome of survey osmi-2016: dropped \(free text\)"),
        ("age", "'age' has any number of answers; an outcome has 2 to 12"),
        ("moods", "unknown outcome 'moods'"),
    ],
)
def test_what_cannot_be_an_outcome(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        schema_named("osmi-2016").led_by(name)


def test_a_schema_without_outcomes_says_what_can_be_one() -> None:
    schema = Schema("n", "t", (Question("Q", "q", "choice", ("a", "b")), Question("N", "n", "number")), ())
    with pytest.raises(InputError, match=r"names no outcome; add ,outcome=NAME: 'Q' can be one"):
        schema.outcome(None)

"""Any CSV as a table of text: each trap of the format, and everything that is refused."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.data.surveys.table import key, normal, number, plain, read_table
from privbench.errors import InputError

TEXT = 'name,"free, text",level\nAnna,"two\nlines; and a ""quote""",3\nJosé,,NA\n'
CELLS = [["Anna", 'two\nlines; and a "quote"', "3"], ["José", "", "NA"]]


def cells(path: Path) -> list[list[str]]:
    return read_table(str(path)).frame.astype(object).to_numpy().tolist()


def put(folder: Path, content: bytes | str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- compression and encoding ---


def test_plain_gzip_and_zip_are_told_by_content(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("folder/", "")
        file.writestr("__MACOSX/._survey.csv", "junk")
        file.writestr("readme.md", "not a table")
        file.writestr("folder/survey.csv", TEXT)
    for content in (TEXT.encode(), gzip.compress(TEXT.encode()), archive.getvalue()):
        assert cells(put(tmp_path, content)) == CELLS


@pytest.mark.parametrize(
    ("encode", "note"),
    [
        (lambda text: text.encode(), None),
        (lambda text: codecs.BOM_UTF8 + text.encode(), None),
        (lambda text: text.encode("utf-16"), "UTF-16"),
        (lambda text: text.encode("utf-16-le"), "UTF-16"),
        (lambda text: text.encode("utf-16-be"), "UTF-16"),
        (lambda text: text.encode("latin-1"), "Windows-1252"),
        (lambda text: text.encode("cp1252"), "Windows-1252"),
    ],
    ids=["utf-8", "bom", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"],
)
def test_encodings(tmp_path: Path, encode: codecs.Codec, note: str | None) -> None:
    path = put(tmp_path, encode(TEXT))
    table = read_table(str(path))
    assert cells(path) == CELLS
    assert list(table.frame.columns) == ["name", "free, text", "level"]
    assert [note in line for line in table.notes] == ([True] if note else [])


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_and_empty_lines(tmp_path: Path, ends: str) -> None:
    assert cells(put(tmp_path, ends.join(["a,b", "1,2", "", "3,4", "", ""]))) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    """Free text holds all the others, quoted, and so does a header; one column has decimal commas."""
    others = ", ; | \t and, so; on | more\nlines, of; it"
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    rows = [["if yes, why; or | why not", "story", "weight"], *([str(n), others, f"{n},5"] for n in range(30))]
    writer.writerows(rows)
    path = put(tmp_path, file.getvalue())
    assert cells(path) == rows[1:]
    assert bool(read_table(str(path)).notes) == (separator != ",")


@pytest.mark.parametrize("first", ["sep=;\n", '"SEP=;"\r\n'])
def test_a_line_that_names_the_separator(tmp_path: Path, first: str) -> None:
    assert cells(put(tmp_path, first + "a,x;b\n1;2\n")) == [["1", "2"]]


def test_one_column_is_a_table(tmp_path: Path) -> None:
    assert cells(put(tmp_path, "mood\ngood\nbad\n")) == [["good"], ["bad"]]


table = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.text(alphabet="ab,;|\t\"'\n é", max_size=8), min_size=width, max_size=width))
)


@given(rows=table, separator=st.sampled_from(",;\t|"))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list, separator: str) -> None:
    width = len(rows[0]) if rows else 1
    header = [f"c{column}" for column in range(width)]
    if not rows or width == 1:
        return  # nothing to read, or nothing that tells the separator
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([header, *rows])
    path = put(tmp_path_factory.mktemp("written"), file.getvalue())
    assert cells(path) == rows


# --- headers ---


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Do you <strong>currently</strong> have a disorder?", "Do you currently have a disorder?"),
        ("Do you *currently* have a disorder?", "Do you currently have a disorder?"),
        ("work *when* _*NOT*_* being treated (i.e., now)?*", "work when NOT being treated (i.e., now)?"),
        ("treatment of \xa0mental  health", "treatment of mental health"),
        ("  'quoted' ", "quoted"),
        ('""twice""', "twice"),
        ("thoughts ?", "thoughts?"),
        ("family_history_of", "family_history_of"),
        ("R&amp;D&nbsp;work", "R&D work"),
        ("age < 18 or > 65", "age < 18 or > 65"),
        ("don’t\nknow", "don't know"),
        ("\ufeffid", "id"),
        ("mo\u200bod\x1b[31m\u202e", "mood[31m"),
        ("**", ""),
    ],
)
def test_normal(raw: str, expected: str) -> None:
    assert normal(raw) == expected


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=30) | st.text(alphabet="<b>/&amp;lt*_'\"? a", max_size=30)
)
def test_normal_headers_stay(text: str) -> None:
    assert normal(normal(text)) == normal(text)


def test_repeated_and_empty_headers(tmp_path: Path) -> None:
    frame = read_table(str(put(tmp_path, "why?,why?,, *why?* ,why? (2)\n1,2,3,4,5\n")))
    assert list(frame.frame.columns) == ["why?", "why? (2)", "column 3", "why? (3)", "why? (2) (2)"]
    assert any("3 repeated headers" in line for line in frame.notes)
    assert any("1 empty headers" in line for line in frame.notes)


# --- spellings ---


@pytest.mark.parametrize("text", ["5-6 hours", " '5-6 Hours' ", '"5-6  hours"', "5-6\xa0HOURS", "5–6 hours"])
def test_one_answer_in_many_spellings(text: str) -> None:
    assert key(text) == "5-6 hours"


def test_whole_numbers_have_one_key() -> None:
    assert key("33.0") == key("33") == key(" 33.00 ") == "33"
    assert key("33.5") == "33.5"
    assert key("v1.0") == "v1.0"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-1.50", -1.5), ("3,5", 3.5), ("'7'", 7), ("1,000", None), ("1e5", None), ("nan", None), ("inf", None),
     ("1_0", None), ("", None), (".", None), ("9" * 400, None), ("3 h", None), (".5", 0.5)],
)  # fmt: skip
def test_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


@given(st.text(max_size=20))
def test_plain_is_one_line_that_a_terminal_does_not_obey(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    assert plain(text).isprintable()


# --- what is refused ---


def archive_of(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name in names:
            file.writestr(name, TEXT)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"a\.csv is empty"),
        ("\n\n", r"a\.csv is empty"),
        (codecs.BOM_UTF8, r"a\.csv is empty"),
        ("a,b\n", "header of 2 columns but no rows"),
        ("a,b\n1,2\n1,2,3\n1\n", r"row 2 after the header has 3 fields, the header 2 \(2 such rows of 3\)"),
        ("a,b\n1,2\n1,\0\n", "NUL byte in line 3"),
        ('a,b\n1,"never closed\n2,3\n', r"line \d: unexpected end of data"),
        ('a,b\n1,"closed" early\n', r"line 2: .* double the quotes"),
        ('a,b\n1,"' + "x" * 200_000 + '"\n', "field larger than field limit"),
        (gzip.compress(TEXT.encode())[:-12], "cut short: copy it again"),
        (gzip.compress(TEXT.encode())[:12], "cut short: copy it again"),
        (archive_of("a.csv")[:-30], "damaged or cut short"),
        (archive_of("a.csv", "b.csv"), r"must hold one CSV file, found 2 \(a\.csv, b\.csv\)"),
        (archive_of("readme.md"), r"found 0 \(none\)"),
        (archive_of("[Content_Types].xml", "xl/workbook.xml"), "spreadsheet: save it as CSV"),
        (codecs.BOM_UTF16_LE + b"a\0,\0b\0\n\0\x00\xd8", "cannot read .* as utf-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0", "NUL byte in line"),
    ],
    ids=range(17),
)
def test_refuses_what_is_no_table(tmp_path: Path, content: bytes | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(str(put(tmp_path, content)))


@pytest.mark.parametrize("name", ["nowhere.csv", "."])
def test_refuses_what_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"there is no file '.*'; give a CSV file"):
        read_table(str(tmp_path / name))


def test_a_wrong_row_late_in_a_long_file_is_found(tmp_path: Path) -> None:
    lines = ["a,b", *("1,2" for _ in range(9_999)), "1,2,3"]
    with pytest.raises(InputError, match=r"row 10000 .* \(1 such rows of 10,000\)"):
        read_table(str(put(tmp_path, "\n".join(lines))))

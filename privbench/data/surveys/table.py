"""Any CSV file as a table of text: compression, encoding, separator and headers are found, nothing else is guessed.

Every cell stays text, so that a country coded NA is no missing answer. What had to be guessed is said in `notes`.
"""

from __future__ import annotations

import csv
import gzip
import html
import io
import itertools
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from privbench.errors import InputError

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SAMPLE = 200  # records from which the separator is found
_CHUNK = 4096  # records that are held as lists before they are packed
_UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_EMPHASIS = re.compile(r"(?<!\w)_(\S(?:[^_]*\S)?)_(?!\w)")
_BEFORE_MARK = re.compile(r" +([?!.,:;])")
_WHOLE = re.compile(r"[+-]?\d+\.0+")
_NUMBER = re.compile(r"[+-]?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})")
_COMMA = re.compile(r"[+-]?\d+,(\d{1,2}|\d{4,})")
_NAMED = re.compile(r"\"?sep=([,;\t|])\"?(\r\n|\n|\r)", re.IGNORECASE)
_TYPESET = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-"})


@dataclass(frozen=True)
class Table:
    """A file's cells as they stand in it.

    path: as given; frame [N, C]: every column categorical, its categories the distinct texts in order of appearance,
    headers normalised and made unique; notes: what was assumed in reading it
    """

    path: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)


def plain(text: str) -> str:
    """One line without the blanks, quotes, typeset marks and invisible characters that mean nothing in an answer."""
    shown = "".join(c for c in text.translate(_TYPESET) if c.isprintable() or c.isspace())
    line = " ".join(unicodedata.normalize("NFC", shown).split())
    while len(line) > 1 and line[0] == line[-1] and line[0] in "'\"":
        line = line[1:-1].strip()
    return line


def key(text: str) -> str:
    """What two spellings of one answer share: case, blanks, quotes around it and a decimal .0 do not matter."""
    line = plain(text).casefold()
    return line.split(".")[0] if _WHOLE.fullmatch(line) else line


def number(text: str) -> float | None:
    """A finite number with a decimal point, or a comma that can be no thousands mark; None for any other text."""
    line = plain(text)
    if _COMMA.fullmatch(line):
        line = line.replace(",", ".")
    return float(line) if _NUMBER.fullmatch(line) else None


def normal(header: str) -> str:
    """A header without markup (<strong>, *..*, _.._), entities, quotes around it, blanks that say nothing."""
    while True:
        text = _EMPHASIS.sub(r"\1", _TAG.sub(" ", html.unescape(header)).replace("*", ""))
        text = _BEFORE_MARK.sub(r"\1", plain(text))
        if text == header:
            return text
        header = text


def read_table(path: str) -> Table:
    """Read a CSV file, plain, in gzip, or as the one such file of a zip.

    Separators are comma, semicolon, tab or bar; UTF-8, UTF-16 and, where neither fits, Windows-1252. Of equal headers
    the second becomes "NAME (2)"; an empty one "column 3". `InputError` for a file that is damaged, empty or has rows
    of another length than its header.
    """
    text, notes = _decode(path, _content(path))
    separator = _separator(text)
    records = _records(path, text, separator)
    header = next(records, None)
    if header is None:
        raise InputError(f"{path} is empty; expected a header and one row per respondent.")
    names, renamed = _headers(header)
    frame = _pack(path, names, records)
    if not len(frame):
        raise InputError(f"{path} has a header of {len(names):,} columns but no rows; expected one row per respondent.")
    if separator != ",":
        notes.append(f"Fields are separated by {_SEPARATORS[separator]}.")
    return Table(path, frame, (*notes, *renamed))


def _content(path: str) -> bytes:
    """The file's bytes, unpacked by what they are, not by the name."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file '{path}'; give a CSV file, plain, .gz or .zip.")
    try:
        raw = file.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            return gzip.decompress(raw)
        if raw.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return _member(path, raw)
    except _UNREADABLE as error:
        raise InputError(f"cannot read {path} ({error}); it is damaged or cut short: copy it again.") from error
    return raw


def _member(path: str, raw: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        tables = [name for name in names if name.lower().endswith((".csv", ".tsv", ".tab", ".txt"))]
        if len(tables) != 1:
            found = ", ".join(tables[:3]) or "none"
            sheet = " It looks like a spreadsheet: save it as CSV." if "[Content_Types].xml" in names else ""
            raise InputError(f"{path} must hold one CSV file, found {len(tables)} ({found}).{sheet}")
        return archive.read(tables[0])


def _decode(path: str, raw: bytes) -> tuple[str, list[str]]:
    notes = []
    head = raw[:4096]
    if raw.startswith(_UTF16):
        encoding = "utf-16"
    elif b"\0" in head and (not any(head[::2]) or not any(head[1::2])):
        # Latin text in UTF-16 without its mark: every other byte is zero.
        encoding = "utf-16-be" if not any(head[::2]) else "utf-16-le"
    else:
        encoding = "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise InputError(f"cannot read {path} as {encoding} ({error.reason}); save it as UTF-8.") from error
        text = raw.decode("cp1252", errors="replace")
        notes.append("Not UTF-8: read as Windows-1252 (Latin-1).")
    if encoding.startswith("utf-16"):
        notes.append("Read as UTF-16.")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path} holds a NUL byte in line {line}; it is damaged or no text: save it as CSV again.")
    return text, notes


def _separator(text: str) -> str:
    """The one that the first line names (sep=;, as spreadsheets do), or the one that cuts the most of the first records
    into as many fields as the header, of these the most fields.
    """
    if named := _NAMED.match(text):
        return named[1]
    best, chosen = (0.0, 1), ","
    for separator in _SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
            rows = [row for row in itertools.islice(reader, _SAMPLE) if row]
        except csv.Error:
            continue
        width = len(rows[0]) if rows else 0
        if width < 2:
            continue
        score = (sum(len(row) == width for row in rows) / len(rows), width)
        if score > best:
            best, chosen = score, separator
    return chosen


def _records(path: str, text: str, separator: str) -> Iterator[list[str]]:
    """All records but empty lines; a quote that is not closed, or closed within a field, is refused."""
    table = _NAMED.sub("", text, count=1) if _NAMED.match(text) else text
    reader = csv.reader(io.StringIO(table, newline=""), delimiter=separator, strict=True)
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{path}, line {reader.line_num}: {error}; put a field with quotes or line ends into quotes, and "
                f"double the quotes within it."
            ) from error
        if record:
            yield record


def _headers(header: list[str]) -> tuple[list[str], list[str]]:
    """Normalised unique names, and notes on those that were made up."""
    names: list[str] = []
    empty = repeated = 0
    for place, raw in enumerate(header, start=1):
        name = normal(raw)
        if not name:
            name, empty = f"column {place}", empty + 1
        if name in names:
            repeated += 1
            name = next(other for n in itertools.count(2) if (other := f"{name} ({n})") not in names)
        names.append(name)
    notes = []
    if empty:
        notes.append(f'{empty:,} empty headers are named by their place ("column 3").')
    if repeated:
        notes.append(f'{repeated:,} repeated headers are numbered ("NAME (2)").')
    return names, notes


def _pack(path: str, names: list[str], records: Iterator[list[str]]) -> pd.DataFrame:
    """Categorical columns: each distinct text is kept once, so that 300,000 rows take little memory."""
    codes: list[list[int]] = [[] for _ in names]
    known: list[dict[str, int]] = [{} for _ in names]
    wrong: list[tuple[int, int]] = []
    rows = 0
    while chunk := list(itertools.islice(records, _CHUNK)):
        wrong += [(rows + at, len(row)) for at, row in enumerate(chunk, start=1) if len(row) != len(names)]
        rows += len(chunk)
        if wrong:
            continue
        for column, cells in enumerate(zip(*chunk, strict=True)):
            seen = known[column]
            codes[column] += [seen.setdefault(cell, len(seen)) for cell in cells]
    if wrong:
        row, width = wrong[0]
        raise InputError(
            f"{path}: row {row} after the header has {width} fields, the header {len(names)} ({len(wrong):,} such rows "
            f"of {rows:,}); quote fields that hold the separator, or repair these rows."
        )
    columns = {
        name: pd.Categorical.from_codes(code, categories=pd.Index(list(seen), dtype=object))
        for name, code, seen in zip(names, codes, known, strict=True)
    }
    return pd.DataFrame(columns)

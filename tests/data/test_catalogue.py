"""Data sets and models as they are given, and what a record says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forging import made
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench.data.catalogue import SURVEYS, without_folders
from privbench.data.surveys.read import parse_spec
from privbench.registry import Registry
from privbench.verify import verify


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("synthetic", "synthetic"),
        ("synthetic:level", "synthetic:level"),
        ("tiny", "tiny"),
        ("path:/home/me/models/llama", "path:llama"),
        ("physionet2012:/data/set-a/", "physionet2012:set-a"),
        ("/home/me/drawn", "drawn"),
        ("/home/me:you/drawn", "drawn"),
        (".", "."),
        ("osmi:/data/2014.csv", "osmi:2014.csv"),
        ("osmi:../2014.csv,outcome=a/b, or not", "osmi:2014.csv,outcome=a/b, or not"),
        ("survey:a/b.csv,schema=/c/s.toml,outcome=x", "survey:b.csv,schema=s.toml,outcome=x"),
        ("survey:a/b.csv,outcome=x,schema=c/s.toml", "survey:b.csv,outcome=x,schema=s.toml"),
        ("physionet2012:/home/me,outcome=x/set-a", "physionet2012:set-a"),
    ],
)
def test_files_are_named_and_folders_are_not(text: str, named: str) -> None:
    assert without_folders(text) == named


words = st.text("abc ._-", min_size=1, max_size=6).filter(lambda text: text.strip(" ."))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sampled_from([*SURVEYS]), st.lists(words, min_size=1, max_size=3), words)
def test_what_a_record_names_is_read_as_the_same_survey(kind: str, folders: list[str], outcome: str) -> None:
    """The folders SECRET and those between, of the file and of the schema, leave nothing else changed."""
    there = "/".join(["/SECRET", *folders, "file.csv"])
    spec = f"{kind}:{there}" + (f",schema=/SECRET/{folders[0]}/s.toml" if kind == "survey" else "")
    asked, again = (
        parse_spec(f"{spec},outcome={outcome}"),
        parse_spec(without_folders(f"{spec},outcome={outcome}")),
    )
    assert "SECRET" not in repr(again)
    assert (again.name, again.path, again.outcome) == (asked.name, "file.csv", asked.outcome)
    assert again.schema == ("s.toml" if kind == "survey" else None)


def test_a_record_names_the_folder_of_its_files_however_it_was_given(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = {"records": "160", "releases": "2", "width": "8"}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for data, named in ((".", "."), (str(tmp_path / "drawn"), "drawn")):
        record = made(tmp_path / "record", registry, "gaussian", sigma=2.0, settings=draw, data=data)
        text = (record / "audit.json").read_text(encoding="utf-8")
        assert json.loads(text)["manifest"]["config"]["given"]["data"] == named
        assert str(tmp_path) not in text
        assert verify(record, registry) == ()

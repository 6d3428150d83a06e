"""From a data set's name to respondents: what is dropped and said, what is hashed, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privbench.data.surveys import toml
from privbench.data.surveys.read import read_survey
from privbench.errors import InputError
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.respondents import Respondents, file_hash, fingerprint, load

SIZES: dict[str, Any] = {"train": 120, "validation": 20, "test": 40, "clients": 2}


def people(data: str, seed: int = 0, **tuning: Any) -> Respondents:
    (found,) = load(data, Tuning(**(SIZES | tuning)), np.random.default_rng(seed))
    return found


def write_survey(path: Path, rows: int = 400, **columns: Sequence[str]) -> str:
    """Five scales about nothing, an outcome `seeks help`, and whatever else is given."""
    rng = np.random.default_rng(3)
    frame = {f"item {n}": rng.choice(["never", "sometimes", "often"], rows) for n in range(5)}
    frame |= {"seeks help": rng.choice(["no", "yes"], rows), "mood": rng.choice(["low", "medium", "high"], rows)}
    pd.DataFrame({**frame, **columns}).to_csv(path, index=False)
    return f"survey:{path},outcome=seeks help"


@pytest.fixture
def leaking(tmp_path: Path) -> str:
    """A column that repeats the outcome in other words."""
    write_survey(tmp_path / "a.csv")
    said = pd.read_csv(tmp_path / "a.csv")["seeks help"].map({"no": "not so far", "yes": "by a doctor"})
    return write_survey(tmp_path / "a.csv", treated=said.tolist())


def asked(found: Respondents) -> list[str]:
    return [question.column for question in found.splits.train.inputs(found.outcome)]


def test_leaks_are_dropped_and_named(leaking: str) -> None:
    dropped, kept = people(leaking), people(leaking, leaks="keep")
    assert "treated" not in asked(dropped)
    assert "treated" in asked(kept)
    assert set(asked(kept)) - set(asked(dropped)) == {"treated"}
    for found, verb in ((dropped, "Dropped"), (kept, "Kept")):
        notes = [note for note in found.notes if "treated" in note]
        assert len(notes) == 1
        assert notes[0].startswith(f"{verb} treated: predicts ")
        assert "alone with AUC 1.00" in notes[0]


def test_a_survey_whose_every_question_leaks_is_refused(tmp_path: Path) -> None:
    said = np.random.default_rng(0).choice(["no", "yes"], 300)
    pd.DataFrame({"treated": np.where(said == "yes", "often", "never"), "seeks help": said}).to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(InputError, match=r"outcome seeks help: no question is left as input; .*--set leaks=keep"):
        people(f"survey:{tmp_path / 'a.csv'},outcome=seeks help")


def test_the_outcome_is_chosen_by_name(tmp_path: Path) -> None:
    name = write_survey(tmp_path / "a.csv")
    assert people(name).outcome.name == "seeks help"
    assert people(name.replace("seeks help", "mood")).outcome.name == "mood"
    assert people("synthetic").outcome.name == "sought help"
    assert people("synthetic", outcome="exhaustion").outcome.name == "exhaustion"
    assert people("synthetic:sleep", outcome="tired by day").splits.train.schema.name == "sleep"
    with pytest.raises(InputError, match="unknown outcome 'exhastion'; did you mean exhaustion"):
        people("synthetic", outcome="exhastion")


def test_notes_say_who_is_where_and_what_the_file_was(leaking: str) -> None:
    found = people(leaking, share="3:1")
    held = np.bincount(found.splits.client)
    assert held.tolist() == [90, 30]
    groups = {int(g) for side in (found.splits.train, found.splits.validation, found.splits.test) for g in side.groups}
    assert (
        f"120 respondents for training over 2 clients (90, 30), 20 for validation, 40 for testing, in {len(groups)} "
        "groups; no group is on two sides." in found.notes
    )
    assert set(found.splits.train.account.notes) <= set(found.notes)
    assert len(found.notes) == 2 + len(found.splits.train.account.notes)


def test_sizes_that_shrink_are_a_note(tmp_path: Path) -> None:
    found = people(write_survey(tmp_path / "a.csv", rows=90))
    assert any(note.startswith("sizes shrunk from 120, 20, 40 to ") for note in found.notes)


def test_no_respondent_and_no_group_is_on_two_sides_or_at_two_clients() -> None:
    found = people("synthetic:campus").splits
    sides = [found.validation, found.test, *(found.train.take(np.flatnonzero(found.client == c)) for c in (0, 1))]
    for numbers in ([set(side.index.tolist()) for side in sides], [set(side.groups.tolist()) for side in sides]):
        assert sum(map(len, numbers)) == len(set.union(*numbers))


def test_the_fingerprint_is_of_every_answer() -> None:
    one, again, other = people("synthetic"), people("synthetic"), people("synthetic", seed=1)
    assert one.fingerprint == again.fingerprint != other.fingerprint
    test = one.splits.test
    for column in (0, -1):
        changed = test.answers.copy()
        changed.iloc[-1, column] = None
        moved = type(test)(test.schema, changed, test.groups, test.index, test.account)
        splits = type(one.splits)(one.outcome, one.splits.train, one.splits.validation, moved, one.splits.client)
        assert fingerprint(splits) != one.fingerprint


def test_the_hash_of_files_is_of_survey_and_schema(tmp_path: Path) -> None:
    file, schema = tmp_path / "a.csv", tmp_path / "s.toml"
    name = write_survey(file)
    schema.write_text(toml.dump(read_survey(name).schema), encoding="utf-8")
    with_schema = f"survey:{file},schema={schema}"
    seen = [file_hash(name), file_hash(with_schema)]
    assert seen == [file_hash(name.replace("seeks help", "mood")), file_hash(with_schema)]
    schema.write_text(schema.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    seen.append(file_hash(with_schema))
    file.write_bytes(file.read_bytes() + b"often,often,often,often,often,no,low\n")
    seen += [file_hash(name), file_hash(with_schema)]
    assert len(set(seen)) == 5
    assert file_hash("synthetic") == file_hash("synthetic:sleep") == ""


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ("1000:1", "client 2 of 2 would hold no respondent; "),
        ("1:0", "share 1:0: 2 clients need 2 positive numbers"),
        ("1:2:3", "share 1:2:3: 2 clients need 2 positive numbers"),
        ("1:-1", "share 1:-1: 2 clients need 2 positive numbers"),
        ("inf:1", "share inf:1: 2 clients need 2 positive numbers"),
        ("1:two", "share must be a number, got 'two'"),
        ("evne", "unknown value of share 'evne'; did you mean even"),
    ],
)
def test_a_client_without_respondents_is_refused(share: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        people("synthetic", share=share)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("osmy:a.csv", "unknown survey 'osmy'; did you mean osmi"),
        ("osmi", "survey osmi needs its file: osmi:FILE.csv; got 'osmi'"),
        ("survey:no.csv", "cannot read no.csv: No such file or directory"),
    ],
)
def test_files_that_are_not_there(data: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        file_hash(data)


def test_an_outcome_that_is_missing_or_has_one_value(tmp_path: Path) -> None:
    name = write_survey(tmp_path / "a.csv", same=["yes"] * 400)
    with pytest.raises(InputError, match="'sleepz'"):
        people(name.replace("seeks help", "sleepz"))
    with pytest.raises(InputError, match="same"):
        people(name.replace("seeks help", "same"))

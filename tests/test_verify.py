"""`privbench verify`: agrees with an honest record, and finds every kind of change."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from privbench import accounting
from privbench.errors import RecordError
from privbench.record import hash_record, hash_scores, read
from privbench.recording import Secrets
from privbench.registry import Registry
from privbench.verify import verify


@pytest.fixture(scope="module", autouse=True)
def fast_accounting() -> Iterator[None]:
    """The same noise is asked for again and again here: found once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounting, "nominal_multiplier", cache(accounting.nominal_multiplier))
        yield


@pytest.fixture
def copy(small_record: Path, tmp_path: Path) -> Path:
    """Without its pages: rendering them again takes longer than all the rest (tests/test_verify_record.py does)."""
    shutil.copytree(small_record, tmp_path / "record", ignore=shutil.ignore_patterns("audit.md", "audit.html"))
    return tmp_path / "record"


def change(folder: Path, edit: Callable[[dict[str, Any]], None], *, forge: bool = False) -> None:
    """Edit audit.json; a forger also renews the record's own hash."""
    data = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    edit(data)
    if forge:
        data["record_sha256"] = hash_record(data)
    (folder / "audit.json").write_text(json.dumps(data), encoding="utf-8")


def test_an_honest_record_agrees(copy: Path, registry: Registry) -> None:
    assert verify(copy, registry) == ()


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every number in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from numbers(item, (*path, number))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def test_a_changed_digit_anywhere_is_found(copy: Path, registry: Registry) -> None:
    """A sample of 60 numbers from all over the record, each changed in its last digits."""
    original = (copy / "audit.json").read_text(encoding="utf-8")
    paths = list(numbers(json.loads(original)))
    assert len(paths) > 300
    for path in random.Random(0).sample(paths, 60):
        data = json.loads(original)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] += 1 if isinstance(holder[path[-1]], int) else 1e-9 * max(1.0, abs(holder[path[-1]]))
        (copy / "audit.json").write_text(json.dumps(data), encoding="utf-8")
        try:
            found = verify(copy, registry)
        except RecordError:
            continue  # the schema already refuses it
        assert found, path
        with pytest.raises(RecordError, match="was changed after it was written"):
            read(copy)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("value", 0.123, "value"),
        ("low", 0.0, "low"),
        ("n", 1, "n"),
        ("strength", 0.123, "strength"),
        ("reason", "trust me", "reason"),
        ("seed", 9, "seed"),
    ],
)
def test_a_forged_finding_is_named(copy: Path, registry: Registry, key: str, value: Any, named: str) -> None:
    change(copy, lambda data: data["findings"][2].update({key: value}), forge=True)
    found = verify(copy, registry)
    assert any(f": {named}" in line for line in found)


def test_a_forged_verdict_is_named(copy: Path, registry: Registry) -> None:
    def whitewash(data: dict[str, Any]) -> None:
        for finding in data["findings"]:
            if finding["role"] == "confirmatory":
                finding["verdict"] = "WITHIN" if finding["verdict"] != "WITHIN" else "INCONCLUSIVE"

    change(copy, whitewash, forge=True)
    assert sum(": verdict: recorded" in line for line in verify(copy, registry)) == 6


def test_forged_bounds_controls_and_curves_are_named(copy: Path, registry: Registry) -> None:
    def forge(data: dict[str, Any]) -> None:
        first, second, *_ = (finding for finding in data["findings"] if finding["bound"])
        first["bound"]["value"] += 0.01
        second["controls"]["positive"]["value"] = 0.95
        data["series"]["label/spectral"]["y"][0] = 0.5
        data["mechanisms"][0]["sigma"]["ihm"] *= 1.01

    change(copy, forge, forge=True)
    text = "\n".join(verify(copy, registry))
    for part in ("bound/value", "controls/positive/value", "series label/spectral/y", "bound/inputs/sigma/ihm"):
        assert part in text


def test_a_dropped_finding_is_missing_even_when_it_was_unplanned_too(copy: Path, registry: Registry) -> None:
    def drop(data: dict[str, Any]) -> None:
        gone = data["findings"].pop(0)
        data["planned"].remove(gone["id"])

    change(copy, drop, forge=True)
    assert any("planned, but missing" in line for line in verify(copy, registry))


def test_changed_scores_are_found_even_with_a_new_hash(copy: Path, registry: Registry) -> None:
    scores = load_file(copy / "scores.safetensors")
    key = "scores/label/oracle-lr/joint/3"
    scores[key] = np.where(scores[key.replace("scores/", "coins/")] == 1, 1.0, -1.0)
    save_file(scores, copy / "scores.safetensors")
    assert any(line.startswith("scores_sha256") for line in verify(copy, registry))
    change(copy, lambda data: data.update(scores_sha256=hash_scores(scores)), forge=True)
    assert any(": value: recorded" in line for line in verify(copy, registry))


def test_coins_are_checked_against_the_secrets(copy: Path, registry: Registry) -> None:
    scores = load_file(copy / "scores.safetensors")
    index, coins = scores["index/joint"], scores["coins/label/oracle-lr/joint/1"]
    truth, mask = np.full(int(index.max()) + 1, -1, np.int64), np.zeros(int(index.max()) + 1, np.uint8)
    truth[index], mask[index] = coins, 1

    def secrets(rows: slice = slice(None), name: str = "joint") -> Secrets:
        return Secrets({f"labels/{name}": truth[rows], f"canary/{name}": mask[rows]}, {"joint": ["a", "b"]})

    assert verify(copy, registry, secrets()) == ()
    truth[index[:3]] = 1 - truth[index[:3]]
    assert any("in 3 records" in line for line in verify(copy, registry, secrets()))
    assert any("are no canaries there" in line for line in verify(copy, registry, secrets(slice(10))))
    assert any("hold no coins" in line for line in verify(copy, registry, secrets(name="a")))


def test_lost_scores_are_a_clear_error(copy: Path, registry: Registry) -> None:
    scores = load_file(copy / "scores.safetensors")
    del scores["coins/label/spectral/joint/1"]
    save_file(scores, copy / "scores.safetensors")
    with pytest.raises(RecordError, match="lacks coins/label/spectral/joint/1"):
        verify(copy, registry)

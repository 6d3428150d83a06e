"""Estimated inputs in a record: what a forger may not change, though every hash is renewed; honest records agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from forging import Arrays, Data, Edit, forge, made, set_at

from privbench.record import read
from privbench.registry import Registry
from privbench.verify import covered_by_hash, verify

CUT = {
    "records": "400",
    "canaries": "300",
    "releases": "3",
    "width": "8",
    "tasks": "3",
    "moved": "2",
    "inputs": "3",
    "cut_noise": "0.5",
}
RIDGE, KNOWING, COSTLY = "inversion/ridge", "inversion/optimise", "inversion/unsplit"
NAME = "input/A"


@pytest.fixture(scope="module")
def cut(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A noised linear cut, attacked by who learns, by who holds the encoder, and by who is asked about few records."""
    attacks = ("label/oracle-lr", RIDGE, KNOWING, COSTLY)
    return made(
        tmp_path_factory.mktemp("cut") / "record", registry, "gaussian", sigma=4.0, settings=CUT, attacks=attacks
    )


def test_the_record_is_honest_and_forging_nothing_leaves_it_so(cut: Path, registry: Registry, tmp_path: Path) -> None:
    assert verify(cut, registry) == ()
    assert verify(forge(cut, tmp_path / "f", lambda data, scores: None, registry), registry) == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"records": "30", "inputs": "2"},
        {"records": "39", "inputs": "2"},
        {"records": "40", "inputs": "2"},
        {"inputs": "2", "cut_noise": "0"},
        {"inputs": "0"},
        {"inputs": "1", "tasks": "2", "moved": "1"},
        {"inputs": "2", "broken": "half-noise"},
    ],
)
def test_other_honest_records_agree(settings: dict[str, str], registry: Registry, tmp_path: Path) -> None:
    """Too few records to learn from, no noise at the cut, no cut, one natural label beside it."""
    given = {"records": "200", "releases": "2", "width": "8", **settings}
    attacks = ("label/oracle-lr", RIDGE)
    assert (
        verify(made(tmp_path / "r", registry, "gaussian", sigma=4.0, settings=given, attacks=attacks), registry) == ()
    )


def in_fit(part: str, attack: str, at: int, value: float) -> Edit:
    """A number of a fit, and what the record shows of it."""

    def edit(data: Data, scores: Arrays) -> None:
        scores[f"fit/{part}{attack}/{NAME}"][at] = value
        if not part:
            features = len(data["estimates"]["r2"][attack])
            data["estimates"]["r2"][attack] = scores[f"fit/{attack}/{NAME}"][:features].tolist()

    return edit


def drop(name: str) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        del scores[name]

    return edit


def together(*edits: Edit) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        for part in edits:
            part(data, scores)

    return edit


def quieter(data: Data, scores: Arrays) -> None:
    """Eight times the noise at the cut, wherever the record says it but in the manifest."""
    data["estimates"]["cut"]["eta"] *= 8
    for item in data["mechanisms"]:
        if item["channel"] == "activations":
            item["sigma"] = {name: 8 * sigma for name, sigma in item["sigma"].items()}


def deleted(attack: str) -> Edit:
    """An attack of which nothing is left anywhere: manifest, findings, plan, scores, tables."""

    def edit(data: Data, scores: Arrays) -> None:
        data["manifest"]["config"]["attacks"].remove(attack)
        data["manifest"]["config"]["given"]["attacks"] = ["all"]
        data["findings"] = [item for item in data["findings"] if item["attack"] != attack]
        for table in ("r2", "off", "harms"):
            data["estimates"][table].pop(attack, None)
        for name in [name for name in scores if f"{attack}/" in name]:
            del scores[name]

    return edit


def only_refused(data: Data, scores: Arrays) -> None:
    """As if no run had held inputs."""
    data["estimates"] = None
    for item in data["findings"]:
        if item["attack"].startswith("inversion/"):
            item |= {"secret": "none", "verdict": "NOT_APPLICABLE", "reason": "x", "value": None, "bound": None}
    for name in [name for name in scores if NAME in name]:
        del scores[name]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (set_at("estimates", "cut", "eta", value=4.0), "estimates/cut/eta: recorded 4.0, recomputed 0.5"),
        (quieter, "mechanism of A at the cut: sigma: recorded 4.0, recomputed 0.5"),
        (set_at("estimates", "cut", "trace", value=0.3), "estimates/cut/trace"),
        (set_at("estimates", "cut", "sent", value=[1.0] * 4), "4 directions of 3 inputs"),
        (set_at("estimates", "hours", value=2), "bounds speak of one hour, and 2 are recorded"),
        (set_at("estimates", "known", value=300), "estimates/known: recorded 300, recomputed 200"),
        (set_at("estimates", "others", value=False), "estimates/others says otherwise"),
        (drop(f"fit/others/{RIDGE}/{NAME}"), f"fit/others/{RIDGE}: missing"),
        (drop(f"fit/constant/{RIDGE}/{NAME}"), "missing; inversion/ridge was scored"),
        (in_fit("prior/", RIDGE, 0, 0.5), "above what any estimate reads that says the same of every record"),
        (in_fit("others/", RIDGE, 0, -0.9), ": r2 is not that of inversion/"),
        (in_fit("constant/", RIDGE, 0, -0.5), "below what the mean of all hours explains"),
        (in_fit("", RIDGE, 0, 1.5), "R2 is at most 1"),
        (in_fit("", RIDGE, -3, -4), "-4 of 200 records are found"),
        (in_fit("", RIDGE, -3, 300), "300 of 200 records are found"),
        (in_fit("", RIDGE, -2, 100), "of 100 records, and the attack is asked about 200"),
        (in_fit("", COSTLY, -2, 200), "of 200 records, and the attack is asked about 64"),
        (in_fit("", RIDGE, -1, 2.0), "shares in 0 .. 1"),
        (set_at("estimates", "r2", "inversion/mlp", value=[0.1] * 3), "of inversion/mlp, inversion/optimise"),
        (set_at("estimates", "shown", value=COSTLY), "inversion/unsplit is not the best of"),
        (set_at("estimates", "examples", value=[{"measured": [], "estimated": []}]), "there are some exactly where"),
        (set_at("estimates", "harms", value={RIDGE: []}), "inversion/ridge acted in no run"),
        (set_at("estimates", "features", value=[{"name": "x", "unit": "y"}]), "1 are named"),
        (only_refused, "estimates: none is recorded, and the target's runs hold one"),
        (deleted(COSTLY), "inversion/unsplit was asked for, and is not among the attacks that were planned"),
    ],
)
def test_a_forged_estimate_is_named(edit: Edit, said: str, cut: Path, registry: Registry, tmp_path: Path) -> None:
    found = verify(forge(cut, tmp_path / "f", edit, registry), registry)
    assert any(said in line for line in found), found


def everywhere(data: Data, scores: Arrays) -> None:
    """Every record number the same."""
    scores[f"index/{NAME}"] = np.full_like(scores[f"index/{NAME}"], 4)


def beyond(data: Data, scores: Arrays) -> None:
    scores[f"index/{NAME}"][-1] = 9_999


@pytest.mark.parametrize(("edit", "said"), [(everywhere, "is scored twice"), (beyond, "names a record beyond the 400")])
def test_record_numbers_are_those_of_records(
    edit: Edit, said: str, cut: Path, registry: Registry, tmp_path: Path
) -> None:
    found = verify(forge(cut, tmp_path / "f", edit, registry), registry)
    assert any(said in line for line in found), found


# The whole of PRISM


def no_blind(data: Data, scores: Arrays) -> None:
    del scores["blind/member"]
    data["members"]["blind"] = False


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (drop("blind/member"), "blind/member: missing, and members/blind says otherwise"),
        (no_blind, "members/blind: recorded False, recomputed True"),
        (deleted("inversion/sequence"), "inversion/sequence was asked for, and is not among"),
        (deleted("inversion/fsha"), "inversion/fsha was asked for, and is not among"),
        (set_at("members", "references", value=0), "members/references: recorded 0, recomputed 2"),
    ],
)
def test_what_prism_holds_is_all_there(
    edit: Edit, said: str, small_record: Path, registry: Registry, tmp_path: Path
) -> None:
    found = verify(forge(small_record, tmp_path / "f", edit, registry), registry)
    assert any(said in line for line in found), found


def test_a_record_of_other_code_says_what_its_hash_alone_covers(
    cut: Path, small_record: Path, registry: Registry, tmp_path: Path
) -> None:
    """Which attacks "all" meant then, nobody can know now: an honest older record agrees, and verify says so."""
    older = together(set_at("manifest", "code", value="0.0.1+0123456789abcdef"), deleted("inversion/fsha"))
    record = forge(small_record, tmp_path / "f", older, registry)
    assert not any("was asked for" in line for line in verify(record, registry))
    said = "which attacks there were when other code than this made it"
    assert said in covered_by_hash(read(record))
    assert said not in covered_by_hash(read(cut))

"""Reference models: fair halves, what the adversary holds of them, and a cache that names all that changes a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from privbench.errors import InputError
from privbench.options import AuditOptions, parse_number
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.references import balanced_halves, cached_at, inclusions, merged, row_of
from privbench.registry import Registry, default_registry
from privbench.runner import run_audit
from privbench.seeds import stream
from privbench.target import REFERENCE, ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.threat import Channel, ThreatModel, curious_outsider
from privbench.workers import RUN_FILE, Job, run_all

POPULATION = 40


@dataclass(frozen=True)
class EnrolledConfig:
    records: int = 240
    references: int = 4
    role: Role = "audited"


class Enrolled(Target):
    """Trains nothing: logits that are higher where a coin put the record in. `ran`: the roles that ran, in order."""

    card = TargetCard("enrolled", "invented patients", "none", (Channel.OUTPUTS,), ("server",), "nothing")
    ran: ClassVar[list[Role]] = []

    def configure(self, options: AuditOptions, registry: Registry) -> EnrolledConfig:
        numbers: dict[str, Any] = {key: parse_number(key, text, whole=True) for key, text in options.settings.items()}
        return EnrolledConfig(**numbers)

    def describe(self, config: EnrolledConfig) -> dict[str, Any]:
        return {"data": "invented patients", "defense": "none", "eps": None, "patients": asdict(config)}

    def roles(self, config: EnrolledConfig) -> Mapping[Role, EnrolledConfig]:
        models = [f"{REFERENCE}{number + 1}" for number in range(config.references)]
        return {role: replace(config, role=role) for role in ("audited", "members", *models)}

    def fingerprint(self, config: EnrolledConfig) -> str:
        return ""

    def threats(self, config: EnrolledConfig) -> tuple[ThreatModel, ...]:
        return (curious_outsider(),)

    def epsilons(self, config: EnrolledConfig) -> tuple[Epsilon, ...]:
        return ()

    def run(
        self,
        config: EnrolledConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        self.ran.append(config.role)
        data_rng, coin_rng, noise_rng = rng.spawn(3)
        asked = config.records + POPULATION
        hard, coins = data_rng.normal(1.5, 1.5, asked), coin_rng.integers(0, 2, (1, config.records))
        rows = np.concatenate([coins, balanced_halves(coin_rng, config.references, config.records)])
        which = int(config.role.removeprefix(REFERENCE)) if config.role.startswith(REFERENCE) else 0
        member = np.concatenate([rows[which], np.zeros(POPULATION)]).astype(np.uint8)
        right = hard + 2 * member + noise_rng.spawn(which + 1)[which].normal(0, 0.7, asked)
        arrays: dict[str, Any] = {
            "outputs/ill": right[:, None].astype(np.float32),
            "outputs/ill/labels": np.ones((asked, 1), np.int64),
            "outputs/population": (np.arange(asked) >= config.records).astype(np.uint8),
        }
        secrets: dict[str, Any] = {"labels/ill": np.ones((asked, 1), np.int64)}
        if config.role != "audited":
            secrets = {MEMBER: member, f"canary/{MEMBER}": 1 - arrays["outputs/population"]}
        return TargetRun(
            Transcript(arrays, {"features": {"server": []}}), None, Secrets(secrets), (), {"a": (1.0,)}, ""
        )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing that ran yet."""
    monkeypatch.setenv("PRIVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Enrolled, "ran", [])
    return tmp_path / "cache"


def runs_of(config: EnrolledConfig, seed: int = 0) -> dict[Role, TargetRun]:
    target = Enrolled()
    return {role: target.run(item, stream(seed, "run")) for role, item in target.roles(config).items()}


# Halves


@pytest.mark.parametrize("references", [2, 4, 16])
def test_an_even_number_trains_on_every_record_in_half_of_them(references: int) -> None:
    member = balanced_halves(np.random.default_rng(0), references, 5_000)
    assert member.shape == (references, 5_000)
    assert member.dtype == np.uint8
    assert (member.sum(axis=0) == references // 2).all()


@pytest.mark.parametrize("references", [1, 3, 7])
def test_of_an_odd_number_one_more_or_one_fewer_by_chance(references: int) -> None:
    """20,000 fair coins: 4 standard errors are .0142."""
    counts = balanced_halves(np.random.default_rng(1), references, 20_000).sum(axis=0)
    assert set(counts.tolist()) == {references // 2, references // 2 + 1}
    assert abs((counts > references // 2).mean() - 0.5) < 0.0142


def test_no_references_at_all() -> None:
    assert balanced_halves(np.random.default_rng(2), 0, 7).shape == (0, 7)


def test_every_half_is_as_likely_and_records_are_drawn_apart() -> None:
    """Six halves of four references: over 20,000 records, and over the 36 pairs of neighbours. p below 1e-4 fails."""
    member = balanced_halves(np.random.default_rng(3), 4, 20_000)
    halves, found = np.unique(member, axis=1, return_inverse=True)
    assert halves.shape == (4, 6)
    kind = found.reshape(-1)
    assert stats.chisquare(np.bincount(kind, minlength=6)).pvalue > 1e-4
    pairs = np.bincount(6 * kind[:-1:2] + kind[1::2], minlength=36)
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_each_model_is_trained_on_about_half_of_the_records() -> None:
    """20,000 fair coins each: 4 standard errors."""
    for references in (1, 3, 4):
        shares = balanced_halves(np.random.default_rng(4), references, 20_000).mean(axis=1)
        assert (abs(shares - 0.5) < 0.0142).all()


def test_one_generator_one_draw() -> None:
    first, again, other = (balanced_halves(np.random.default_rng(seed), 4, 100) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_members_coins_are_fair_and_independent_of_every_half() -> None:
    """20,000 of them, and each against each of four references: 4 standard errors. It errs 6 times in 100,000 each."""
    rows = inclusions(np.random.default_rng(5), 4, 20_000)
    assert rows.shape == (5, 20_000)
    assert rows.dtype == np.uint8
    assert (rows[1:].sum(axis=0) == 2).all()
    assert abs(rows[0].mean() - 0.5) < 0.0142
    assert (abs((rows[1:] == rows[0]).mean(axis=1) - 0.5) < 0.0142).all()


def test_each_run_has_a_row() -> None:
    assert [row_of(role) for role in ("members", f"{REFERENCE}1", f"{REFERENCE}12")] == [0, 1, 12]


# What the adversary holds


def test_merged_references_are_rows_of_what_the_members_adversary_holds() -> None:
    runs = runs_of(EnrolledConfig(references=12))
    before, after = runs["members"], merged(runs)
    assert list(after) == ["audited", "members"]
    assert after["audited"] is runs["audited"]
    seen = after["members"].transcript
    for number in range(12):
        reference = runs[f"{REFERENCE}{number + 1}"]
        assert np.array_equal(seen.array("reference/outputs/ill")[number], reference.transcript.array("outputs/ill"))
        assert np.array_equal(seen.array("reference/member")[number], reference.secrets.array(MEMBER))
    added = set(seen.arrays) - set(before.transcript.arrays)
    assert added == {"reference/outputs/ill", "reference/member"}
    assert all(np.array_equal(seen.array(name), before.transcript.array(name)) for name in before.transcript.arrays)
    assert seen.metadata == before.transcript.metadata
    assert after["members"].secrets is before.secrets


def test_without_references_the_run_stays_as_it_is() -> None:
    runs = runs_of(EnrolledConfig(references=0))
    assert merged(runs) == runs


def test_a_reference_of_another_cohort_is_refused() -> None:
    runs = runs_of(EnrolledConfig(references=1))
    other = runs_of(EnrolledConfig(records=100, references=1))
    with pytest.raises(InputError, match="must agree"):
        merged({**runs, f"{REFERENCE}1": other[f"{REFERENCE}1"]})


# The cache


def key(**changes: Any) -> Path:
    given: dict[str, Any] = {
        "options": AuditOptions("enrolled", seed=changes.pop("seed", 0)),
        "resolved": {"eps": 1.0, "data": "a", "training": {"train": 10}},
        "role": f"{REFERENCE}1",
        "files": "f00d",
        "registry": default_registry(),
    }
    if "target" in changes:
        given["options"] = AuditOptions(changes.pop("target"))
    return cached_at(**{**given, **changes})


def test_a_run_lies_in_the_cache_under_a_name_of_its_own(cache: Path) -> None:
    assert key().parent == cache / "references"
    assert key() == key(resolved={"data": "a", "training": {"train": 10}, "eps": 1.0})


@pytest.mark.parametrize(
    "change",
    [
        {"target": "prism"},
        {"role": f"{REFERENCE}2"},
        {"seed": 1},
        {"files": "beef"},
        {"resolved": {"eps": 2.0, "data": "a", "training": {"train": 10}}},
        {"resolved": {"eps": 1.0, "data": "a", "training": {"train": 11}}},
        {"resolved": {"eps": 1.0, "data": "a", "training": {"train": 10}, "defense": "gaussian"}},
    ],
    ids=" ".join,
)
def test_what_changes_a_run_changes_its_name(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_a_changed_line_of_code_changes_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr("privbench.manifest.code_version", lambda: "0.1+changed")
    assert key() != before


def reference(folder: Path, config: EnrolledConfig | None = None) -> TargetRun:
    """One reference run, made or found; its recordings in a fresh folder."""
    role = f"{REFERENCE}1"
    made = replace(config or EnrolledConfig(), role=role)
    job = Job(role, Enrolled(), made, 0, key(resolved=asdict(made)))
    number = len(list(folder.glob("run*")))
    return run_all({role: job}, 1, lambda stage, share: None, folder / f"run{number}")[role]


def same(first: TargetRun, other: TargetRun) -> bool:
    parts = ((first.transcript, other.transcript), (first.secrets, other.secrets))
    return first.diagnostics == other.diagnostics and all(
        a.arrays.keys() == b.arrays.keys()
        and a.metadata == b.metadata
        and all(np.array_equal(a.array(name), b.array(name)) for name in a.arrays)
        for a, b in parts
    )


def test_a_reference_is_made_once_and_found_again(tmp_path: Path) -> None:
    first, again = reference(tmp_path), reference(tmp_path)
    assert Enrolled.ran == [f"{REFERENCE}1"]
    assert same(first, again)


def test_another_configuration_is_another_run(tmp_path: Path) -> None:
    first, other = reference(tmp_path), reference(tmp_path, EnrolledConfig(records=100))
    assert len(Enrolled.ran) == 2
    assert not same(first, other)


def test_a_run_that_is_not_kept_is_made_each_time(tmp_path: Path, cache: Path) -> None:
    job = Job("members", Enrolled(), replace(EnrolledConfig(), role="members"), 0)
    for number in range(2):
        run_all({"members": job}, 1, lambda stage, share: None, tmp_path / str(number))
    assert Enrolled.ran == ["members", "members"]
    assert not cache.exists()


@pytest.mark.parametrize("name", [RUN_FILE, Transcript.file_name(), Secrets.file_name()])
@pytest.mark.parametrize("left", [None, 0.0, 0.5, 0.99], ids=["gone", "empty", "half", "most"])
def test_a_run_cut_short_is_made_anew_and_replaced(tmp_path: Path, name: str, left: float | None) -> None:
    first = reference(tmp_path)
    file = key(resolved=asdict(replace(EnrolledConfig(), role=f"{REFERENCE}1"))) / name
    whole = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(whole[: int(left * len(whole))])
    again = reference(tmp_path)
    assert len(Enrolled.ran) == 2
    assert same(first, again)
    assert file.read_bytes() == whole
    reference(tmp_path)
    assert len(Enrolled.ran) == 2


def test_only_its_owner_may_read_it(tmp_path: Path, cache: Path) -> None:
    """Whatever the umask: a reference run says of real records what was predicted for them."""
    before = os.umask(0)
    try:
        reference(tmp_path)
    finally:
        os.umask(before)
    (kept,) = (cache / "references").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in kept.iterdir()} == {RUN_FILE, Transcript.file_name(), Secrets.file_name()}
    assert str(tmp_path) not in (kept / RUN_FILE).read_text()
    assert json.loads((kept / RUN_FILE).read_text())["diagnostics"] == {"a": [1.0]}


def test_nothing_is_left_beside_a_run_that_could_not_be_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: TargetRun, folder: Path) -> None:
        (folder / Transcript.file_name()).write_bytes(b"begun")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privbench.workers.save_run", full)
    with pytest.raises(InputError, match="cannot keep a reference run: No space left on device"):
        reference(tmp_path)
    assert list((cache / "references").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PRIVBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="Set PRIVBENCH_CACHE to a folder that can be written") as error:
        reference(tmp_path)
    assert str(tmp_path / "file" / "references") in str(error.value)
    assert Enrolled.ran == []  # before any training, not after


def test_what_was_made_a_month_ago_goes(tmp_path: Path, cache: Path) -> None:
    for name, days in (("old", 31), ("young", 29)):
        (cache / "references" / name).mkdir(parents=True)
        (cache / "references" / name / RUN_FILE).write_text("{}")
        made = time.time() - days * 86_400
        os.utime(cache / "references" / name, (made, made))
    reference(tmp_path)
    assert (cache / "references" / "young").exists()
    assert not (cache / "references" / "old").exists()


# A whole audit


def registry() -> Registry:
    return default_registry().add("targets", "enrolled", f"{__name__}:Enrolled")


def audit(*attacks: str, seed: int = 0, **settings: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Findings with what they say, by id, and the scores."""
    options = AuditOptions("enrolled", attacks=attacks or ("membership",), seed=seed, settings=settings)
    result = run_audit(options, registry(), parallel=1)
    return {item.id: item for item in result.audit.findings}, result.scores


def test_an_audit_trains_its_references_once() -> None:
    references = [f"{REFERENCE}{number}" for number in range(1, 5)]
    first, scores = audit()
    assert sorted(Enrolled.ran) == sorted(["audited", "members", *references])
    Enrolled.ran.clear()
    again, same_scores = audit()
    assert Enrolled.ran == ["audited", "members"]
    assert again == first
    assert scores.keys() == same_scores.keys()
    assert all(np.array_equal(scores[name], same_scores[name]) for name in scores)


@pytest.mark.parametrize("change", [{"seed": 1}, {"records": "160"}, {"references": "5"}], ids=" ".join)
def test_another_audit_has_references_of_its_own(change: dict[str, Any]) -> None:
    audit()
    Enrolled.ran.clear()
    audit(**change)
    assert f"{REFERENCE}1" in Enrolled.ran


def test_who_asks_nothing_about_membership_trains_nothing_for_it() -> None:
    found, _ = audit("label")
    assert Enrolled.ran == ["audited"]
    assert {item.verdict for item in found.values()} == {"NOT_APPLICABLE"}


def test_an_audit_says_what_references_show() -> None:
    found, _ = audit()
    areas = {item.attack: item for item in found.values() if item.metric == "auc" and item.value is not None}
    assert areas["membership/lira"].value > areas["membership/loss"].value > 0.6
    assert found["membership/drift/member/1/auc/none"].verdict == "NOT_APPLICABLE"
    assert all(item.verdict == "UNCOVERED" for item in areas.values())


def test_without_references_the_attacks_that_need_them_say_so() -> None:
    found, _ = audit(references="0")
    refused = {item.attack: item.reason for item in found.values() if item.verdict == "NOT_APPLICABLE"}
    assert refused["membership/lira"] == refused["membership/rmia"] == "needs reference models, and none were trained"
    assert "membership/loss" not in refused

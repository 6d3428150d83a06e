from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BRIEF, SMALLER

from privbench import record
from privbench.errors import InputError, RecordError
from privbench.gate import gate
from privbench.options import AuditOptions
from privbench.record import Audit
from privbench.registry import Registry
from privbench.runner import AuditResult, run_audit


def data_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    return loaded


def test_a_record_reads_back_as_it_was_written(registry: Registry, tmp_path: Path) -> None:
    made = run_audit(AuditOptions("prism", eps=0.5, settings=SMALLER, attacks=BRIEF), registry, parallel=1)
    assert all((made.audit.secret, made.audit.members, made.audit.estimates))
    record.write(made.audit, made.scores, {}, tmp_path)
    again = record.read(tmp_path)
    assert [asdict(finding) for finding in again.findings] == [asdict(f) for f in made.audit.findings]
    scores = record.read_scores(tmp_path)
    assert record.hash_scores(scores) == again.scores_sha256
    for name, array in made.scores.items():
        assert np.array_equal(scores[name], array)


def test_the_manifest_names_no_path_host_or_user(small_record: Path) -> None:
    import getpass
    import platform

    text = (small_record / "audit.json").read_text(encoding="utf-8")
    for private in (str(Path.home()), str(Path.cwd()), f'"{platform.node()}"', f'"{getpass.getuser()}"'):
        assert private not in text


def test_the_file_holds_no_nan_or_infinity(small_record: Path) -> None:
    text = (small_record / "audit.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in audit.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "privbench/audit/2"}, "schema is 'privbench/audit/2'"),
        ({"extra": 1}, "does not follow its schema"),
        ({"cell": "short"}, "at cell"),
        ({"planned": None}, "at planned"),
    ],
)
def test_a_record_that_does_not_follow_the_schema_is_refused(
    small_record: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecordError, match=message):
        Audit.from_json(data_of(small_record) | change)


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "SAFE"},
        {"value": None, "reason": ""},
        {"value": "0.5"},
        {"role": "descriptive", "verdict": "WITHIN"},
        {"bound": None, "verdict": "EXCEEDED"},
        {"attacker": "x"},
    ],
)
def test_a_dishonest_finding_is_refused(small_record: Path, change: dict[str, Any]) -> None:
    data = data_of(small_record)
    data["findings"][0] |= change
    with pytest.raises(RecordError, match="findings/0"):
        Audit.from_json(data)


def test_a_killed_write_leaves_the_old_record(small_audit: AuditResult, tmp_path: Path) -> None:
    record.write(small_audit.audit, small_audit.scores, {}, tmp_path)
    before = (tmp_path / "audit.json").read_bytes()

    def fail(aside: Path) -> list[str]:
        (aside / "audit.json").write_text("half a rec", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left on device"):
        record.write_aside(tmp_path, fail)
    assert (tmp_path / "audit.json").read_bytes() == before
    assert not list(tmp_path.glob(".partial-*"))


def test_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is a file"):
        record.check_writable(file)


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"holds no audit\.json"):
        record.read(tmp_path)
    (tmp_path / "audit.json").write_text("{", encoding="utf-8")
    with pytest.raises(RecordError, match="cannot be read"):
        record.read(tmp_path)


def test_gate_follows_the_verdicts(small_audit: AuditResult) -> None:
    audit = small_audit.audit

    def with_verdict(verdict: str) -> Audit:
        judged = [replace(f, verdict=verdict) if f.role == "confirmatory" else f for f in audit.findings]
        return replace(audit, findings=tuple(judged))

    assert gate(with_verdict("WITHIN")).code == 0
    assert gate(with_verdict("EXCEEDED")).code == 1
    assert gate(with_verdict("FAILED")).code == 3
    assert gate(with_verdict("INCONCLUSIVE")).code == 0
    assert gate(with_verdict("INCONCLUSIVE"), strict=True).code == 3
    assert gate(with_verdict("VACUOUS")).code == 3
    assert gate(replace(audit, findings=tuple(replace(f, role="descriptive") for f in audit.findings))).code == 3


def test_gate_never_passes_what_is_missing(small_audit: AuditResult) -> None:
    within = tuple(replace(f, verdict="WITHIN") if f.role == "confirmatory" else f for f in small_audit.audit.findings)
    assert gate(replace(small_audit.audit, findings=within[1:])).code == 3
    assert gate(replace(small_audit.audit, findings=(), planned=())).code == 3


def test_exceeded_outweighs_incomplete(small_audit: AuditResult) -> None:
    first, *rest = [f for f in small_audit.audit.findings if f.role == "confirmatory"]
    mixed = (replace(first, verdict="FAILED"), *(replace(f, verdict="EXCEEDED") for f in rest))
    assert gate(replace(small_audit.audit, findings=mixed)).code == 1

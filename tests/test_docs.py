"""What the documents say is what the code and the published records say."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from privbench import record
from privbench.conformance import check_attack
from privbench.flags import FLAGS
from privbench.layout import RULES
from privbench.options import AuditOptions, RecordingFiles
from privbench.registry import default_registry
from privbench.report import words
from privbench.runner import run_audit
from privbench.verdict import Verdict

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = sorted((ROOT / "reports").glob("*/*/audit.json"))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_every_flag_is_documented_word_for_word() -> None:
    text = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(FLAGS)
    for flag in FLAGS.values():
        for part in (flag.raised_if, flag.means, flag.what_to_do):
            assert part in text, flag.name


def test_readme_explains_every_verdict() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for verdict in Verdict:
        assert f"| {words.MARKS[verdict]} {verdict} |" in text


def test_the_example_of_a_recording_is_audited_at_its_closed_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/recordings.md's script, run as it stands: rho is measured, and the oracle reads Phi(sqrt(5) s)."""
    text = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(text.split("```python\n")[1].split("```")[0], "example", "exec"), {})
    files = RecordingFiles(*(tmp_path / f"{kind}.safetensors" for kind in ("transcript", "secrets", "oracle")))
    found = run_audit(AuditOptions("recorded", recording=files), default_registry()).audit
    rho = found.moves["rho"]["mean"]
    expected = NormalDist().cdf(math.sqrt(5 * 2 * (1 + rho) / (2 * 4)))
    read = found.finding("label/oracle-lr", "g-composed").value
    assert read == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 263))
    assert [flag["name"] for flag in found.flags] == []


SAID_OTHERWISE = {
    "oracle/gradients/SITE/TASK/0": "`oracle/gradients/SITE/SECRET/0`",
    "oracle/gradients/SITE/TASK/1": "`oracle/gradients/SITE/SECRET/0` and `/1`",
    "oracle/gradients/SITE/clean/TASK": "`clean/TASK` where tasks are sent apart",
}


def test_every_array_of_a_recording_is_documented() -> None:
    text = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
    for rules in RULES.values():
        for rule in rules:
            assert SAID_OTHERWISE.get(rule.pattern, f"`{rule.pattern}`") in text, rule.pattern


def test_no_array_is_documented_that_a_recording_may_not_hold() -> None:
    text = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
    rows = [
        row.split("|") for kind in RULES for row in text.split(f"| {kind} | type |")[1].split("\n\n")[0].splitlines()
    ]
    named = {
        name
        for cells in rows[1:]
        for name in re.findall(r"`([a-z]+(?:/[A-Za-z]+)+)`", cells[1])
        if "SECRET" not in name
    }
    assert len(named) > 15
    known = {rule.pattern for rules in RULES.values() for rule in rules}
    assert named - {"canary/joint", "labels/joint"} <= known


def test_the_attack_in_the_readme_fails_the_checks_that_it_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text.split("```python\n")[1].split("```")[0], "example", "exec"), names)
    failed = {item.check for item in check_attack(names["Norm"]) if item.problem}
    assert failed == {"identity", "one release"}


def test_the_run_in_the_readme_is_the_published_one() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pasted = flat(text.split("<!-- run:begin -->")[1].split("<!-- run:end -->")[0])
    audit = record.read(ROOT / "reports" / "prism-first-audit" / "nominal")
    assert words.headline(audit) in pasted
    for finding in words.confirmatory(audit):
        assert words.sentence(finding, audit) in pasted


def test_there_are_published_records() -> None:
    assert len(PUBLISHED) >= 2


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}")
def test_published_records_are_whole(path: Path) -> None:
    audit = record.read(path)
    assert audit.missing == ()
    assert record.hash_scores(record.read_scores(path.parent)) == audit.scores_sha256
    assert (path.parent / "audit.html").exists()


def test_no_document_links_to_a_file_that_is_not_there() -> None:
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reports/*/README.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"

"""Invented respondents beside what was read of them: on every page, by mark and by colour; of others rates only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_llama import SETTINGS, save_llama
from test_pages import everywhere

from privbench.options import AuditOptions
from privbench.record import Audit, validate, write
from privbench.registry import Registry
from privbench.report.answers import RIGHT, WRONG, respondents
from privbench.report.html import html
from privbench.runner import AuditResult, run_audit
from privbench.verify import verify


@pytest.fixture(scope="module")
def spoken(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """An audit of a small split LLaMA whose client replaces some tokens: some answers are read wrong."""
    llama = save_llama(tmp_path_factory.mktemp("models") / "small")
    options = AuditOptions(
        "split-llama",
        model=f"path:{llama}",
        attacks=("inversion/nearest-token", "inversion/rescaled-token"),
        defenses=("token-dchi:eps=12",),
        settings={**SETTINGS, "prompting": "no", "public": "0"},
    )
    return run_audit(options, registry, parallel=1)


def changed(audit: Audit, **inputs: Any) -> Audit:
    return replace(audit, inputs={**(audit.inputs or {}), **inputs})


def test_answers_are_what_the_samples_say(spoken: AuditResult) -> None:
    """Those of invented persons, each question once, in words; most are read, and some wrong."""
    said: Mapping[str, Any] = spoken.audit.inputs or {}
    assert len(said["examples"]) == 5
    assert said["shown"] in ("inversion/nearest-token", "inversion/rescaled-token")
    for person in said["examples"]:
        assert len({item["question"] for item in person}) == len(person) == said["questions"]
        assert all(item["answer"] and item["answer"] == item["answer"].strip() for item in person)
    pairs = [(item["answer"], item["read"]) for person in said["examples"] for item in person]
    right = sum(a == b for a, b in pairs) / len(pairs)
    assert 0 < right < 1
    validate(spoken.audit.to_json())


def test_every_page_shows_them_right_or_wrong(spoken: AuditResult) -> None:
    said = (spoken.audit.inputs or {})["examples"]
    pairs = [(item["answer"], item["read"]) for person in said for item in person]
    shown = respondents(spoken.audit)
    assert shown is not None
    cells = [cell for _, row in shown.rows for cell in row if cell is not None]
    assert sorted((cell.answer, cell.read) for cell in cells) == sorted(pairs)
    assert all(cell.mark == (WRONG if cell.answer == cell.read else RIGHT) for cell in cells)
    for name, text in everywhere(spoken.audit).items():
        if name != "terminal":
            assert shown.caption.split(";")[0] in text, name
    page = html(spoken.audit)
    assert page.count('class="read"') == sum(a == b for a, b in pairs)
    assert page.count('class="kept"') == sum(a != b for a, b in pairs)
    assert page.index("invented respondents") < page.index("Who attacks")


def test_what_the_same_reply_for_all_would_be_right_in_stands_beside(spoken: AuditResult) -> None:
    people = [
        [{"question": "age", "answer": age, "read": "18"}, {"question": "sex", "answer": sex, "read": "female"}]
        for age, sex in (("18", "female"), ("30", "female"), ("18", "male"), ("41", "female"))
    ]
    shown = respondents(changed(spoken.audit, examples=people))
    assert shown is not None
    assert shown.caption.endswith("5 of 8 answers are read. The same reply for all of them would be right in up to 5.")


def test_words_are_escaped(spoken: AuditResult) -> None:
    person = [{"question": "<b>age</b>", "answer": "<script>", "read": "&"}]
    page = html(changed(spoken.audit, examples=[person]))
    assert "<script>" not in page
    assert "&lt;script&gt; (read: &amp;)" in page


def test_where_nobody_is_shown_the_pages_say_nothing(spoken: AuditResult) -> None:
    for quiet in (changed(spoken.audit, examples=[], shown=None), replace(spoken.audit, inputs=None)):
        assert respondents(quiet) is None
        assert not re.search("invented respondents. Their answers", html(quiet))


def test_the_record_agrees_and_nobody_real_can_be_shown(
    spoken: AuditResult, registry: Registry, tmp_path: Path
) -> None:
    write(spoken.audit, spoken.scores, {}, tmp_path / "honest")
    assert verify(tmp_path / "honest", registry) == ()
    manifest = {**spoken.audit.manifest, "data": {**spoken.audit.manifest["data"], "name": "osmi"}}
    config = manifest["config"]
    manifest["config"] = {**config, "resolved": {**config["resolved"], "data": "osmi"}}
    manifest["config"]["given"] = {**config["given"], "data": "osmi"}
    write(replace(spoken.audit, manifest=manifest), spoken.scores, {}, tmp_path / "real")
    found = verify(tmp_path / "real", registry)
    assert any("examples of persons who are not invented" in line for line in found), found

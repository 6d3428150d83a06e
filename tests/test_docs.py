"""What the documents say is what the code and the published records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privbench import record
from privbench.flags import FLAGS
from privbench.report import words
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

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from privbench.record import Audit
from privbench.report import words
from privbench.report.figure import leakage_over_releases
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.runner import AuditResult


class Checker(HTMLParser):
    """Collects tags, and everything that would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [
            value for name, value in attrs if name in ("src", "href") and value and not value.startswith("#")
        ]


def test_the_page_is_self_contained(small_audit: AuditResult) -> None:
    page = html(small_audit.audit)
    checker = Checker()
    checker.feed(page)
    assert checker.loads == []
    assert "script" not in checker.tags
    assert "svg" in checker.tags


def test_every_finding_is_on_every_page(small_audit: AuditResult) -> None:
    audit = small_audit.audit
    text = re.sub(r"\s+", " ", markdown(audit))
    for finding in audit.findings:
        assert words.sentence(finding, audit) in text
        assert words.number(finding.value or 0) in html(audit)


def test_every_flag_and_assumption_is_told(small_audit: AuditResult) -> None:
    text = markdown(small_audit.audit)
    for flag in small_audit.audit.flags:
        assert flag["name"] in text
        assert flag["what_to_do"] in text
    for item in words.assumptions(small_audit.audit.findings):
        assert item in text


def test_foreign_text_is_escaped(small_audit: AuditResult) -> None:
    first, *rest = small_audit.audit.findings
    nasty = replace(first, value=None, verdict="FAILED", role="descriptive", reason="<script>alert(1)</script>")
    assert "<script>" not in html(replace(small_audit.audit, findings=(nasty, *rest)))


def test_the_figure_is_the_same_twice_and_shows_the_bounds(small_audit: AuditResult) -> None:
    svg = leakage_over_releases(small_audit.audit)
    assert svg == leakage_over_releases(small_audit.audit)
    for text in ("g-composed", "dp-cap", "nominal-curve", "chance", "oracle likelihood ratio", "spectral attack"):
        assert text in svg


def test_the_nominal_eps_is_said_not_to_speak_for_the_site(small_audit: AuditResult) -> None:
    note = words.claim_note(small_audit.audit)
    assert note is not None
    assert "does not speak for a curious site" in note
    assert words.claim_note(replace(small_audit.audit, claims=())) is None


def verdicts(audit: Audit, verdict: str, role: str = "confirmatory") -> Audit:
    changed = [replace(f, verdict=verdict, role=role) if f.role == "confirmatory" else f for f in audit.findings]
    return replace(audit, findings=tuple(changed))


def test_headlines_never_flatter(small_audit: AuditResult) -> None:
    audit = small_audit.audit
    assert words.headline(verdicts(audit, "EXCEEDED")).startswith("EXCEEDED")
    assert words.headline(verdicts(audit, "WITHIN")).startswith("Nothing exceeded")
    assert words.headline(verdicts(audit, "VACUOUS")).startswith("NOT JUDGED")
    assert words.headline(verdicts(audit, "INCONCLUSIVE")).startswith("NOT JUDGED")
    assert words.headline(verdicts(audit, "FAILED")).startswith("INCOMPLETE")
    assert words.headline(verdicts(audit, "UNCOVERED", "descriptive")).startswith("UNCOVERED")
    assert words.headline(replace(audit, findings=audit.findings[1:])).startswith(("INCOMPLETE", "EXCEEDED"))


def test_no_page_says_safe_or_secure(small_audit: AuditResult) -> None:
    for verdict in ("WITHIN", "EXCEEDED", "INCONCLUSIVE"):
        text = markdown(verdicts(small_audit.audit, verdict)).lower()
        assert not re.search(r"\b(is|are|as) (safe|secure|private)\b", text)

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from rich.console import Console

from privbench.options import AuditOptions
from privbench.record import Audit, Finding
from privbench.registry import Registry
from privbench.report import notes, utility, words
from privbench.report.figure import leakage_over_releases
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.report.terminal import show
from privbench.runner import AuditResult, run_audit


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


@pytest.fixture(scope="module")
def told(small_audit: AuditResult) -> Mapping[str, str]:
    """The small audit everywhere."""
    return everywhere(small_audit.audit)


def test_the_page_is_self_contained(small_audit: AuditResult) -> None:
    checker = Checker()
    checker.feed(html(small_audit.audit))
    assert checker.loads == []
    assert "script" not in checker.tags
    assert "svg" in checker.tags


def spoken(finding: Finding, audit: Audit) -> str:
    """How a page says it."""
    if finding.verdict == "NOT_APPLICABLE":
        (said,) = (item for item in words.not_run(audit) if item.lower().endswith(f" {finding.reason}.".lower()))
        assert words.attack_name(finding).lower() in said.lower()
        return said
    in_words = finding.metric not in words.TABLED or finding.value is None
    return words.sentence(finding, audit) if in_words else words.measured(finding)


def test_every_finding_is_on_every_page(small_audit: AuditResult, told: Mapping[str, str]) -> None:
    """About coins, or without a value, in a sentence; any other by its value with the interval, in a table."""
    audit = small_audit.audit
    for name, text in told.items():
        flat = re.sub(r"\s+", " ", text)
        for finding in audit.findings:
            assert spoken(finding, audit) in flat, (name, finding.id)


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
    note = notes.claim_note(small_audit.audit)
    assert note is not None
    assert "does not speak for a curious site" in note
    assert notes.claim_note(replace(small_audit.audit, claims=())) is None


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


# Records that are not PRISM's


@pytest.fixture(scope="module")
def drawn(registry: Registry) -> Audit:
    draw = {"records": "200", "releases": "3", "width": "6", "broken": "mean-loss"}
    return run_audit(AuditOptions("gaussian", eps=2.0, settings=draw), registry, parallel=1).audit


def printed(audit: Audit, width: int = 100_000) -> str:
    file = io.StringIO()
    show(audit, Console(file=file, width=width))
    return file.getvalue()


def everywhere(audit: Audit) -> dict[str, str]:
    return {"terminal": printed(audit), "markdown": markdown(audit), "html": unescape(html(audit))}


def test_nobody_assumes_patients_of_a_drawn_record(drawn: Audit, told: Mapping[str, str]) -> None:
    for text in everywhere(drawn).values():
        assert not re.search(r"patient|diagnosis|test stays|training records", text)
        assert "200 records" in text
        assert "A coin is not a real label" in text
    for text in told.values():
        assert "150 training records" in text
        assert "A coin is not a diagnosis" in text


def test_utility_that_was_not_measured_has_no_section(
    drawn: Audit, small_audit: AuditResult, told: Mapping[str, str]
) -> None:
    assert drawn.utility == []
    for name, text in everywhere(drawn).items():
        assert not re.search(r"(?m)^(## |<h2>)?Utility", text), name
    for name, text in told.items():
        assert re.search(r"(?m)^(## |<h2>)?Utility", text), name
        assert utility.note(small_audit.audit) in text


def test_an_attack_that_cannot_be_run_is_said_once(small_audit: AuditResult) -> None:
    audit = small_audit.audit
    refused = [
        replace(f, value=None, bound=None, verdict="NOT_APPLICABLE", role="descriptive", reason="needs more")
        if f.attack == "label/spectral"
        else f
        for f in audit.findings
    ]
    assert len({f.releases for f in refused if f.attack == "label/spectral"}) == 2
    for text in everywhere(replace(audit, findings=tuple(refused))).values():
        assert text.count("NOT_APPLICABLE. Needs more.") == 1


def test_rho_is_said_to_be_used_only_where_it_was(small_audit: AuditResult) -> None:
    audit = small_audit.audit
    assert "used in g" in str(notes.rho_note(audit))
    without = tuple(replace(f, bound=None) for f in audit.findings)
    assert "used in g" not in str(notes.rho_note(replace(audit, findings=without)))


def test_a_failed_control_names_its_attack(small_audit: AuditResult) -> None:
    audit = small_audit.audit
    failed = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 140, "passed": False}
    findings = tuple(
        replace(f, controls={**f.controls, "positive": failed})
        if f.attack == "label/spectral" and f.releases == 3
        else replace(f, controls={**f.controls, "positive": failed | {"passed": f.releases == 3}})
        for f in audit.findings
    )
    flag = {"name": "CLEAN_CONTROL_FAILED", "means": "weak", "raised_if": "weak", "what_to_do": "train"}
    for text in everywhere(replace(audit, findings=findings, flags=[flag])).values():
        assert "CLEAN_CONTROL_FAILED (the spectral attack)" in text
    assert words.flag_name({**flag, "name": "SERVER_NOT_NOISED"}, audit) == "SERVER_NOT_NOISED"


def test_one_release_is_explained_where_all_are_pooled(small_audit: AuditResult, told: Mapping[str, str]) -> None:
    audit = small_audit.audit
    note = str(notes.one_release_note(audit))
    assert "the oracle likelihood ratio is tried on each of a record's 3 releases by itself" in note
    assert "(315 guesses about 105 records)" in note
    for text in told.values():
        assert note in text
    assert "x = 1 is the first release alone" in told["html"]
    single = tuple(replace(f, n=f.canaries) for f in audit.findings)
    assert notes.one_release_note(replace(audit, findings=single)) is None


def test_the_same_record_gives_the_same_pages(small_audit: AuditResult, told: Mapping[str, str]) -> None:
    assert told == everywhere(small_audit.audit)

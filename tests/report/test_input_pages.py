"""What pages say of reconstructed inputs, alone and beside label coins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import surveyed as surveys
from conftest import CommandLine
from test_pages import everywhere, spoken

from privbench.gate import gate
from privbench.options import AuditOptions
from privbench.record import Audit, write
from privbench.report import detail, notes, setting, words
from privbench.report.figure import leakage_over_releases
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.runner import AuditResult, run_audit

ATTACK, SECRET = "inversion/nearest-token", "input/client-1"


@pytest.fixture(scope="module")
def inputs(surveyed: Mapping[str, AuditResult]) -> Audit:
    return surveyed["inputs"].audit


@pytest.fixture(scope="module")
def both(surveyed: Mapping[str, AuditResult]) -> Audit:
    return surveyed["both"].audit


def reading(audit: Audit, **values: float) -> Audit:
    """The same record had the inversion read something else over all releases, and nothing over one."""
    found = tuple(
        replace(item, **values if item.releases > 1 else dict.fromkeys(values, 0.0))
        if item.metric == "token-accuracy" and item.value is not None
        else item
        for item in audit.findings
    )
    return replace(audit, findings=found)


def test_every_finding_is_on_every_page(inputs: Audit, both: Audit) -> None:
    for audit in (inputs, both):
        for name, text in everywhere(audit).items():
            flat = re.sub(r"\s+", " ", text)
            for finding in audit.findings:
                assert spoken(finding, audit) in flat, name
            for note in (*notes.secret_notes(audit), *notes.interval_notes(audit), *audit.notes):
                assert note in flat, name


def test_pages_say_why_nothing_is_judged_once_and_first(inputs: Audit) -> None:
    said = "UNCOVERED: no noise or other mechanism is described at this cut, so that no bound speaks."
    for name, text in everywhere(inputs).items():
        assert text.count(said) == 1, name
        assert text.index(said) < text.index("the best of what takes no cut: one reply for everybody"), name


def test_a_described_mechanism_is_named_and_no_bound_speaks_about_it() -> None:
    audit = run_audit(AuditOptions("surveyed", settings={"described": "1"}), surveys.registry()).audit
    reasons = {item.reason for item in audit.findings if item.attack == ATTACK}
    assert reasons == {"no bound here speaks about tokens behind the kind 'gaussian'"}
    assert "has Gaussian noise of" in markdown(audit)
    assert "-GDP in what it was computed from" in markdown(audit)
    assert "adds no noise" not in markdown(audit)


def test_headline_without_coins(inputs: Audit) -> None:
    best = max(item.value or 0.0 for item in inputs.findings if item.metric == "token-accuracy")
    assert words.headline(inputs) == (
        f"UNCOVERED: {words.number(best)} of the respondents' answer tokens were read by a curious server (one reply "
        "for everybody: at most .369), and no bound speaks about this mechanism."
    )
    assert "label coins" not in words.headline(inputs)


def test_the_headline_names_a_release_that_says_more_by_itself_than_all_pooled(inputs: Audit) -> None:
    """A defence that is learned hides nothing at first, and pooling may lose that."""
    line = replace(inputs.series[ATTACK], x=(1.0, 2.0), y=(0.97, 0.2))
    low = reading(replace(inputs, series={ATTACK: line}), value=0.9, low=0.8)
    said = ".900 of the respondents' answer tokens were read by a curious server, .970 from release 1 by itself ("
    assert said in words.headline(low)
    level = reading(replace(inputs, series={ATTACK: replace(line, y=(0.9, 0.2))}), value=0.9, low=0.8)
    assert "by itself" not in words.headline(level)


def test_an_attack_that_reads_no_more_than_a_language_model_is_not_credited() -> None:
    """Which says everything here: attacks read all as well. One that says half is beaten, and named as what was."""
    said = {}
    for prior in ("1", "2"):
        audit = run_audit(AuditOptions("surveyed", settings={"prior": prior}), surveys.registry()).audit
        said[prior] = words.headline(audit)
        assert ("Data locality" in markdown(audit)) == (prior == "1")
        (head, *body) = next(
            more.table for more in detail.further(audit) if more.name == "Inversion of tokens, further"
        )
        assert head.count("language model") == 2
        assert {row[4] for row in body} == {".500" if prior == "1" else "1.000"}
        assert "language model, no cut" in leakage_over_releases(audit)
    assert "read by a curious server (a language model told all answers before: at most .500)" in said["1"]
    assert "no attack of a curious server read more answer tokens than a language model told all" in said["2"]


def test_headline_with_coins_says_both(both: Audit) -> None:
    said = words.headline(both)
    assert re.search(r"up to \.\d{3} of the label coins were guessed right by curious site A", said)
    assert re.search(r"\(chance: \.5\); \.\d{3} of the respondents' answer tokens were read by a curious server", said)
    assert said.startswith(("NOT JUDGED", "Nothing exceeded", "EXCEEDED"))


def test_attacks_without_a_secret_say_so_once(inputs: Audit, small_audit: AuditResult) -> None:
    for name, text in everywhere(inputs).items():
        flat = re.sub(r"\s+", " ", text)
        said = "oracle likelihood ratio and the spectral attack: NOT_APPLICABLE. No record of this run carries a"
        assert said in flat, name
        assert flat.count("No record of this run carries a label coin.") == 1, name
    for name, text in everywhere(small_audit.audit).items():
        assert text.count("No party's token inputs were recorded in this run.") == 1, name
        assert "respondents" not in text, name


def test_setting_counts_the_releases_of_each_half(inputs: Audit, both: Audit) -> None:
    assert "150 respondents of client-1, 2 releases of each" in setting.setting(inputs)
    assert "150 records in 4 releases, 150 respondents of client-1 in 2 releases" in setting.setting(both)
    assert "one release is" not in str(notes.one_release_note(both))
    assert "a record's 4 releases" in str(notes.one_release_note(both))
    assert notes.one_release_note(inputs) is None


def test_more_passes_than_releases_change_no_word_about_coins() -> None:
    settings = {"coins": "1", "passes": "6"}
    audit = run_audit(AuditOptions("surveyed", settings=settings), surveys.registry()).audit
    for name, text in everywhere(audit).items():
        assert "of the label coins right from all 4 releases" in text, name
        assert "all 6 releases" in text, name
    assert "a record's 4 releases" in str(notes.one_release_note(audit))


@pytest.mark.parametrize(
    ("value", "low", "baseline", "said"),
    [
        (0.9, 0.8, 0.4, "says most of what they hold"),
        (0.45, 0.42, 0.4, "says more than a guess does"),
        (0.45, 0.39, 0.4, None),
        (0.9, 0.8, 0.85, None),
    ],
)
def test_locality_is_no_privacy_where_that_was_shown(
    inputs: Audit, value: float, low: float, baseline: float, said: str | None
) -> None:
    audit = reading(inputs, value=value, low=low, baseline=baseline)
    note = notes.locality_note(audit)
    assert (note is None) == (said is None)
    for name, text in everywhere(audit).items():
        assert ("Data locality is not privacy" in text) == (said is not None), name
        assert said is None or said in text, name


def test_nothing_is_said_of_locality_without_inputs(small_audit: AuditResult) -> None:
    assert notes.locality_note(small_audit.audit) is None


def test_the_figure_shows_what_was_read_against_the_most_frequent_answers(inputs: Audit) -> None:
    svg = leakage_over_releases(inputs)
    assert svg == leakage_over_releases(inputs)
    for text in (
        "nearest-token attack",
        "one reply for all",
        "answer tokens read",
        "release, one pass of the training",
    ):
        assert text in svg
    for text in ("chance", "label coins", "g-composed"):
        assert text not in svg
    assert notes.figure_caption(inputs) in unescape(html(inputs))
    assert "coins" not in notes.figure_caption(inputs)


def test_each_half_has_its_own_axes(both: Audit) -> None:
    svg = leakage_over_releases(both)
    for text in (
        "nearest-token attack", "one reply for all", "answer tokens read", "chance", "label coins guessed right",
        "oracle likelihood ratio", "g-composed",
    ):  # fmt: skip
        assert svg.count(text) == 1, text
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == 2
    assert " Below: Share of the respondents' answer tokens" in notes.figure_caption(both)


def test_one_point_is_no_figure() -> None:
    audit = run_audit(AuditOptions("surveyed", settings={"passes": "1"}), surveys.registry()).audit
    assert "<svg" not in html(audit)
    assert "| the one release |" in markdown(audit)
    assert "one release of each" in setting.setting(audit)


def test_a_table_of_epsilons_has_rows(inputs: Audit, small_audit: AuditResult) -> None:
    head = "| name | eps | delta |"
    assert head in markdown(small_audit.audit)
    assert head not in markdown(inputs)
    assert "None: this run adds no noise, and nothing is promised." in markdown(inputs)


def test_the_gate_never_passes_what_no_bound_covers(
    surveyed: Mapping[str, AuditResult], inputs: Audit, command_line: CommandLine, tmp_path: Path
) -> None:
    assert gate(inputs).code == 3
    assert gate(inputs).reasons == ("no check could have failed: a gate with nothing to hold never passes",)
    write(inputs, surveyed["inputs"].scores, {}, tmp_path / "record")
    done = command_line("gate", str(tmp_path / "record"))
    assert done.returncode == 3
    assert "no check could have failed" in done.stdout


def test_a_failed_shuffled_control_names_the_inversion(inputs: Audit) -> None:
    failed = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 140, "passed": False}
    findings = tuple(
        replace(item, controls={**item.controls, "negative": failed}) if item.attack == ATTACK else item
        for item in inputs.findings
    )
    flag = {"name": "SHUFFLED_CONTROL_FAILED", "means": "m", "raised_if": "r", "what_to_do": "w"}
    for text in everywhere(replace(inputs, findings=findings, flags=[flag])).values():
        assert "SHUFFLED_CONTROL_FAILED (the nearest-token attack)" in text

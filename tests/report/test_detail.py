"""Tables beside the comparison: further metrics, inputs by feature, what acting attacks did to the tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from made_records import FEATURES, HARM, NUMBERS, SILENT, audit, control, finding, member
from test_pages import everywhere, printed

from privbench.record import Audit
from privbench.report import detail, words
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.runner import AuditResult

NEAREST = "inversion/nearest-token"


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def table(record: Audit) -> detail.Table:
    """The only further table of a record."""
    (more,) = detail.further(record)
    return more.table


# Further metrics of a family


def test_membership_says_who_is_found_without_false_alarms_and_the_limit_of_eps() -> None:
    one_run = "membership/one-run"
    record = audit(
        member("auc", 0.6, attack=one_run),
        member("eps", 0.41, low=0.41, attack=one_run, reason="a lower limit; nothing is promised"),
        member("auc", 0.7),
        member("tpr@0.01", 0.031, low=0.02, high=0.05, chance=0.01),
        member("auc", 0.5, attack="membership/loss"),
    )
    assert table(record) == (
        ("attack", "found at .01 false alarms", "eps at least", "records scored"),
        ("RMIA", ".031 [.020, .050]", "–", "1,200"),
        ("one-run audit", "–", ".410", "1,200"),
    )
    (more,) = detail.further(record)
    assert more.notes[0] == "UNCOVERED (eps at least): a lower limit; nothing is promised."
    assert "by chance .01" in more.notes[1]


def test_a_metric_that_nobody_resolved_has_no_column() -> None:
    assert detail.further(audit(member("auc", 0.6))) == ()
    found = table(audit(member("auc", 0.6), member("eps", 0.1, low=0.1)))
    assert found[0] == ("attack", "eps at least", "records scored")


def test_inversion_says_which_features_are_read_and_who_is_found_again() -> None:
    record = audit(
        finding("r2", 0.642),
        finding("r2-share", 0.5, n=12, baseline=0.1),
        finding(
            "re-identification", 0.031, low=0.02, high=0.044, chance=1 / 1_200, baseline=0.002,
            controls={"positive": None, "negative": control(False)},
        ),
        finding("r2", 0.7, attack="inversion/mlp"),
        finding("r2-share", 1.0, attack="inversion/mlp"),
    )  # fmt: skip
    assert table(record)[1:] == (
        ("perceptron", "1.000", "–", "–", "–", "–", "–", "–"),
        ("ridge regression", ".500", ".100", ".031 [.020, .044]", ".002", ".00083", "1,200", "negative FAILED"),
    )
    assert table(record)[0] == (
        "attack", "features read", "without cut", "found again", "without cut", "chance", "among", "control",
    )  # fmt: skip
    assert "**negative FAILED**" in markdown(record)
    assert '<td class="FAILED">negative FAILED</td>' in html(record)


def test_a_reason_is_said_again_only_where_it_is_another() -> None:
    same = audit(finding("r2", 0.6), finding("r2-share", 0.5))
    assert not any("UNCOVERED" in note for more in detail.further(same) for note in more.notes)
    assert all(text.count(f"{SILENT}.") == 1 for text in everywhere(same).values())
    held = finding("r2", 0.6, verdict="REPORTED", reason="shown, not judged")
    (more,) = detail.further(audit(held, finding("r2-share", 0.5), finding("re-identification", 0.1)))
    assert more.notes[0] == f"UNCOVERED (features read, found again): {SILENT}."


def test_answers_are_told_from_one_release_and_from_all(surveyed: Mapping[str, AuditResult]) -> None:
    record = surveyed["inputs"].audit
    head, *body = table(record)
    read = len({item.attack for item in record.findings if item.metric == "token-accuracy" and item.value is not None})
    assert [row[1] for row in body] == ["one release", "all 2 releases"] * read
    body = [row for row in body if row[0] == "nearest-token attack"]
    for row, count in zip(body, (1, 2), strict=True):
        tokens, answers = (
            next(f for f in record.findings if (f.attack, f.metric, f.releases) == (NEAREST, metric, count))
            for metric in words.READ
        )
        base = [words.number(item.baseline or 0.0) for item in (tokens, answers)]
        assert row[2:6] == (words.measured(tokens), base[0], words.measured(answers), base[1])
    assert head.count("one reply for all") == 2
    for name, text in everywhere(record).items():
        for item in record.findings:
            assert item.value is None or words.measured(item) in text, name


# Inputs by feature


def found(*attacks: str) -> Audit:
    """NUMBERS, with the R2 of these attacks among the findings, the first the best, each of another adversary."""
    rows = [finding("r2", 0.9 - 0.1 * k, attack=name, threat_model=f"adversary {k}") for k, name in enumerate(attacks)]
    return audit(*rows, estimates=NUMBERS)


def test_a_cell_holds_r2_and_the_error_in_the_features_own_unit() -> None:
    assert detail.by_feature(found("inversion/mlp", "inversion/ridge")) == (
        ("feature", "unit", "perceptron", "ridge regression"),
        ("heart rate", "beats/min", ".70 (6.02)", ".64 (7.91)"),
        ("lactate", "mmol/L", ".01 (1.10)", "-.03 (1,234)"),
    )
    assert detail.by_feature(found("inversion/ridge", "inversion/mlp"))[0][2:] == ("ridge regression", "perceptron")


def test_an_attack_of_somebody_elses_has_its_column() -> None:
    mine = {**NUMBERS, "r2": {"inversion/mine": [0.1, 0.2]}, "off": {"inversion/mine": [1.0, 2.0]}}
    assert detail.by_feature(audit(finding("auc", 0.5), estimates=mine))[0] == ("feature", "unit", "inversion/mine")


@pytest.mark.parametrize(
    "said",
    [
        None,
        {**NUMBERS, "r2": {}},
        {**NUMBERS, "features": []},
        {**NUMBERS, "r2": {"inversion/ridge": [0.6]}},
        {**NUMBERS, "off": {"inversion/ridge": [0.6]}},
        {**NUMBERS, "off": {}},
    ],
    ids=["nothing estimated", "no attack", "no names", "a feature that does not vary", "one error", "no error"],
)
def test_no_rows_where_nobody_can_say_whose_a_number_is(said: Mapping[str, Any] | None) -> None:
    record = audit(finding("r2", 0.6), estimates=said and {**said, "examples": [], "harms": {}})
    assert detail.by_feature(record) == ()
    assert all("Inputs by feature" not in text for text in everywhere(record).values())


def test_a_terminal_shows_the_best_of_each_adversary_and_the_pages_all(small_audit: AuditResult) -> None:
    record = small_audit.audit
    chosen = detail.best_of_each(record)
    best = {}
    for item in record.findings:
        if item.metric == "r2" and item.value is not None:
            other = best.get(item.threat_model)
            if other is None or other.value < item.value:
                best[item.threat_model] = item
    assert set(chosen) == {item.attack for item in best.values()}
    every = detail.by_feature(record)
    assert len(every[0]) - 2 == len(record.estimates["r2"]) > len(chosen)  # type: ignore[index]
    text, page, terminal = markdown(record), unescape(html(record)), printed(record)
    for row in every:
        assert f"| {' | '.join(row)} |" in text
        assert all(f">{cell}</" in page for cell in row)
    for row in detail.by_feature(record, chosen)[1:]:
        assert " ".join(row) in flat(terminal)


# What acting did


def test_a_change_whose_interval_holds_0_was_not_seen() -> None:
    record = audit(finding("r2", 0.6), estimates=NUMBERS)
    assert detail.harms(record) == (
        ("attack", "task", "honest", "acted in", "change", "seen beside it"),
        ("feature-space hijacking", "ihm", ".850", ".840", "-0.010 [-0.030, +0.010]", "not in 1,400 records"),
        ("feature-space hijacking", "late", ".850", ".840", "-0.010 [-0.020, -0.004]", "yes"),
    )
    for name, text in everywhere(record).items():
        assert flat(text).count("A change that is not seen may still be there") == 1, name


@pytest.mark.parametrize(("low", "high", "noticed"), [(0.0, 0.1, False), (-0.1, 0.0, False), (1e-6, 0.1, True)])
def test_an_interval_that_ends_at_0_holds_it(low: float, high: float, noticed: bool) -> None:
    said = {**NUMBERS, "harms": {"inversion/fsha": [{**HARM, "low": low, "high": high}]}}
    assert (detail.harms(audit(estimates=said))[1][-1] == "yes") == noticed


def test_nothing_is_said_of_acting_where_nobody_acted() -> None:
    assert detail.harms(audit()) == ()
    quiet = audit(finding("r2", 0.6), estimates={**NUMBERS, "harms": {}})
    assert detail.harms(quiet) == ()
    assert all("What acting did" not in text for text in everywhere(quiet).values())


def test_harms_of_a_real_run_are_told(small_audit: AuditResult) -> None:
    record = small_audit.audit
    (acted,) = record.estimates["harms"]  # type: ignore[index]
    assert acted == "inversion/fsha"
    body = detail.harms(record)[1:]
    assert {row[1] for row in body} == {item["task"] for item in record.utility}
    for name, text in everywhere(record).items():
        for row in body:
            assert row[4] in text, name


def test_features_that_are_no_markup(small_audit: AuditResult) -> None:
    said = {**NUMBERS, "features": [{"name": "<script>alert(1)</script>", "unit": "%"}, FEATURES[1]]}
    assert "<script>" not in html(replace(small_audit.audit, estimates=said))

"""The attacks of an audit side by side: label inference, membership inference, inversion."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_records import SILENT, audit, bound, coins, control, finding, member
from test_pages import everywhere, printed

from privbench.estimated import METRICS as FIT_METRICS
from privbench.estimates import Estimation
from privbench.findings_members import METRICS as MEMBER_METRICS
from privbench.membership import MembershipAttack
from privbench.options import AuditOptions
from privbench.parts import by_kind
from privbench.record import Finding
from privbench.recovery import METRICS as READ_METRICS
from privbench.registry import Registry
from privbench.report import estimates, families, members, words
from privbench.report.families import Row, groups
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.runner import AuditResult, run_audit


def row(*found: Finding) -> Row:
    """The only row of a record with these findings."""
    (group,) = groups(audit(*found))
    (only,) = group.rows
    return only


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def cells(line: str) -> tuple[str, ...]:
    """Of a row of a Markdown table."""
    return tuple(cell.strip().strip("*") for cell in line.strip("| ").split("|"))


# Names


def test_every_registered_attack_and_metric_has_a_name_and_a_family(registry: Registry) -> None:
    kinds = by_kind(registry.names("attacks"), registry)
    assert set(estimates.NAMES) == set(kinds[Estimation])
    assert set(members.NAMES) == set(kinds[MembershipAttack])
    assert set(words.ATTACK_NAMES) == {name for found in kinds.values() for name in found}
    assert estimates.METRICS == FIT_METRICS  # a page may read the record only, so that the names stand twice
    assert words.READ == READ_METRICS
    assert set(members.METRICS) == {*MEMBER_METRICS, "eps"}
    assert len({metric for family in families.FAMILIES for metric in family.metrics}) == len(
        [metric for family in families.FAMILIES for metric in family.metrics]
    )


# A row of each family


def test_a_label_attack_stands_beside_its_tightest_bound_that_counts() -> None:
    held = [
        coins(0.7, role="confirmatory", verdict="WITHIN", bound=bound("dp-cap", 0.73), low=0.6, high=0.8),
        coins(0.7, role="confirmatory", verdict="INCONCLUSIVE", bound=bound("nominal-curve", 0.55), low=0.6, high=0.8),
        coins(0.7, verdict="REPORTED", bound=bound("g-as-published", 0.5)),
        coins(0.9, role="confirmatory", verdict="WITHIN", bound=bound("g", 0.52), releases=1),
    ]
    found = row(*held)
    assert found.cells == (
        "oracle likelihood ratio", "curious site A with the model", ".700 [.600, .800]", ".5", "none", "none", "–",
        "nominal-curve .550", "INCONCLUSIVE",
    )  # fmt: skip
    assert found.finding is held[1]
    assert row(*reversed(held)).cells == found.cells


def test_bounds_that_never_count_are_all_shown_where_no_other_is() -> None:
    reported = [coins(0.7, verdict="REPORTED", bound=bound(name, at)) for name, at in (("g", 0.6), ("dp-cap", 0.7))]
    assert row(*reported).bound == "g .600, dp-cap .700"
    assert row(*reported).verdict == "REPORTED"


def test_a_bound_on_inputs_is_in_the_row_and_counts_for_one_attack_only_once() -> None:
    held = [finding("r2", 0.8, verdict="REPORTED", bound=bound(name, at, unit="r2", p_value=None)) for name, at in
            (("channel", 0.81), ("fisher", 0.75))]  # fmt: skip
    assert row(*held).bound == "channel .810, fisher .750"


@pytest.mark.parametrize("loud", ["EXCEEDED", "FAILED"])
def test_what_another_check_of_the_attack_found_is_not_hidden(loud: str) -> None:
    quiet = coins(0.7, role="confirmatory", verdict="WITHIN", bound=bound("dp-cap", 0.73))
    other = coins(0.9, role="confirmatory", verdict=loud, bound=bound("g", 0.75), releases=1)
    assert row(quiet, other).verdict == f"WITHIN (g: {loud})"
    assert row(replace(quiet, verdict=loud), other).verdict == loud


def test_membership_and_inversion_have_their_baselines_chance_and_strength() -> None:
    area = member("auc", 0.586, low=0.555, high=0.617, baseline=0.507, strength=0.8)
    assert row(area, member("eps", 9.0)).cells == (
        "RMIA", "curious server", ".586 [.555, .617]", ".5", ".507", "none", ".80", "none", "UNCOVERED",
    )  # fmt: skip
    fit = finding("r2", 0.642, low=0.6, high=0.68, baseline=0.1, strength=1.0, threat_model="malicious server")
    assert row(finding("re-identification", 0.9), fit).cells == (
        "ridge regression", "malicious server", ".642 [.600, .680]", "0", ".100", "none", "1.00", "none", "UNCOVERED",
    )  # fmt: skip


def test_an_attack_below_chance_has_no_strength_and_an_unknown_one_no_number() -> None:
    assert row(finding("r2", -0.1, strength=-0.3)).strength == "below 0"
    assert row(finding("r2", 0.0, strength=0.0)).strength == ".00"
    assert row(finding("r2", 0.1, strength=None)).strength == "–"


@pytest.mark.parametrize(
    ("positive", "negative", "said"),
    [
        (True, True, "both ok"),
        (None, True, "negative ok"),
        (True, None, "positive ok"),
        (False, True, "positive FAILED, negative ok"),
        (True, False, "positive ok, negative FAILED"),
        (None, False, "negative FAILED"),
        (None, None, "none"),
    ],
)
def test_controls_are_ok_or_failed_side_by_side(positive: bool | None, negative: bool | None, said: str) -> None:
    sides = {"positive": positive, "negative": negative}
    given = {side: None if passed is None else control(passed) for side, passed in sides.items()}
    assert row(finding("r2", 0.5, controls=given)).control == said


def test_an_attack_of_somebody_elses_keeps_its_name() -> None:
    assert row(finding("r2", 0.5, attack="inversion/mine")).attack == "inversion/mine"


def test_rows_stand_strongest_first_and_what_broke_before_all() -> None:
    found = [
        finding("r2", 0.1),
        finding("r2", None, attack="inversion/sdar", verdict="FAILED", reason="it raised"),
        finding("r2", -0.4, attack="inversion/unsplit"),
        finding("r2", 0.6, attack="inversion/mlp"),
    ]
    (group,) = groups(audit(*found))
    assert [item.finding.value for item in group.rows] == [None, 0.6, 0.1, -0.4]


# Reasons, failures and attacks that could not be run


def test_the_reason_for_silence_is_said_once_and_first() -> None:
    found = [finding("r2", 0.1, attack=name) for name in estimates.NAMES]
    for name, text in everywhere(audit(*found)).items():
        assert text.count(f"UNCOVERED: {SILENT}.") == 1, name
        assert text.index(f"UNCOVERED: {SILENT}.") < text.index("ridge regression"), name
        assert text.index(f"UNCOVERED: {SILENT}.") < text.index("share of the inputs' spread explained"), name


def test_a_broken_attack_is_loud_everywhere() -> None:
    broke = member("auc", None, verdict="FAILED", reason="<b>it raised</b>", attack="membership/lira")
    record = audit(member("auc", 0.6), broke)
    assert row(broke).cells[2:] == ("none", ".5", "none", "none", "–", "none", "FAILED")
    for name, text in everywhere(record).items():
        assert text.count("LiRA: FAILED. <b>it raised</b>.") == 1, name
    assert "**! LiRA: FAILED. <b>it raised</b>.**" in markdown(record)
    assert "<b>it raised" not in html(record)
    assert '<p class="FAILED">' in html(record)
    assert 'class="verdict FAILED"' in html(record)
    assert words.headline(record).startswith("INCOMPLETE: 1 checks failed")


def test_a_failed_control_is_loud_in_its_row() -> None:
    record = audit(finding("r2", 0.6, controls={"positive": None, "negative": control(False)}))
    assert '<td class="FAILED">negative FAILED</td>' in html(record)
    assert "**negative FAILED**" in markdown(record)
    assert re.search(r"negative +\S* +– UNCOVERED\s+FAILED", printed(record))


def test_an_attack_that_was_not_run_has_a_line_and_no_row() -> None:
    refused = member("auc", None, verdict="NOT_APPLICABLE", reason="needs models", secret="none")
    assert groups(audit(refused)) == ()
    for name, text in everywhere(audit(refused, finding("r2", 0.5))).items():
        assert text.count("RMIA: NOT_APPLICABLE. Needs models.") == 1, name
        assert "Membership inference" not in text, name


def test_a_finding_of_no_family_keeps_its_sentence() -> None:
    with_bound = member("auc", 0.6, role="confirmatory", bound=bound("cap", 0.7))
    assert words.descriptive(audit(finding("mu", 0.5), finding("r2", 0.5), with_bound)) == (finding("mu", 0.5),)
    assert words.confirmatory(audit(with_bound)) == (with_bound,)


# Real records


def test_prism_has_all_three_families_side_by_side(small_audit: AuditResult) -> None:
    record = small_audit.audit
    found = {group.family.name: group for group in groups(record)}
    assert list(found) == ["Label inference", "Membership inference", "Inversion of inputs"]
    text = markdown(record)
    for group in found.values():
        measured = {item.attack for item in record.findings if item.metric == group.family.metrics[0] and item.value}
        assert {item.finding.attack for item in group.rows} == measured
        for item in group.rows:
            (line,) = [line for line in lines(text, f"| {item.attack} |") if cells(line) == item.cells]
            assert item.finding.threat_model in line
    assert {item.verdict for item in found["Membership inference"].rows} == {"UNCOVERED"}
    assert all(item.bound != "none" for item in found["Label inference"].rows)


def test_a_row_says_what_its_finding_holds(small_audit: AuditResult) -> None:
    for group in groups(small_audit.audit):
        for item in group.rows:
            low, high = item.finding.low, item.finding.high
            assert item.value == f"{words.number(item.finding.value or 0)} {words.interval(low, high)}"
            assert item.baseline == (
                "none" if group.family == families.LABELS else words.number(item.finding.baseline or 0)
            )
            assert item.chance == (".5" if group.family != families.INVERSION else "0")


def test_every_row_is_on_every_page(small_audit: AuditResult) -> None:
    for name, text in everywhere(small_audit.audit).items():
        flat = re.sub(r"\s+", " ", text)
        for group in groups(small_audit.audit):
            assert group.explained in flat, name
            for item in group.rows:
                assert item.value in flat, name
                for word in (*item.attack.split(), *item.adversary.split()):  # a terminal folds its cells
                    assert word in flat, name


@pytest.mark.parametrize("width", [80, 99, 100, 110, 160])
def test_no_line_is_longer_than_the_terminal(small_audit: AuditResult, width: int) -> None:
    text = printed(small_audit.audit, width)
    assert max(map(len, text.splitlines())) <= width
    flat = re.sub(r"\s+", "", text)
    for part in ("INCONCLUSIVE", "UNCOVERED", "nominal-curve", "hijacking", "malicious"):
        assert part in flat


def test_labels_alone_show_one_family(registry: Registry) -> None:
    draw = {"records": "200", "releases": "3", "width": "6"}
    record = run_audit(AuditOptions("gaussian", eps=2.0, settings=draw, attacks=("label",)), registry, parallel=1).audit
    assert [group.family for group in groups(record)] == [families.LABELS]
    for name, text in everywhere(record).items():
        assert not re.search("Membership|Inversion|Inputs by feature|acting", text), name


def test_tokens_are_read_beside_one_reply_for_all(surveyed: Mapping[str, AuditResult]) -> None:
    record = surveyed["both"].audit
    assert [group.family for group in groups(record)] == [families.LABELS, families.TOKENS]
    (read,) = (row for row in groups(record)[1].rows if row.finding.attack == "inversion/nearest-token")
    last = max(item.releases for item in record.findings if item.metric == "token-accuracy")
    assert (read.finding.metric, read.finding.releases) == ("token-accuracy", last)
    assert read.baseline == words.number(read.finding.baseline or 0)
    assert (read.chance, read.control, read.bound) == ("–", "negative ok", "none")


# The headline


def headline(*found: Finding) -> str:
    return words.headline(audit(*found))


def test_the_headline_names_who_is_behind_each_number() -> None:
    site = coins(
        0.6, low=0.55, verdict="INCONCLUSIVE", role="confirmatory", bound=bound("g", 0.6), threat_model="curious site A"
    )
    fit = finding("r2", 0.642, threat_model="malicious server", baseline=0.1)
    sure = member("auc", 0.586, threat_model="curious outsider", low=0.55, high=0.62)
    said = headline(site, fit, sure, member("auc", 0.51, attack="membership/lira", low=0.48, high=0.54))
    assert "up to .600 of the label coins were guessed right by curious site A (chance: .5)" in said
    assert ".642 of the spread of a site's inputs was explained by a malicious server (without the cut: .100)" in said
    assert (
        "members were told from others by a curious outsider (chance .5: AUC .586 [.550, .620], the best of 2, each "
        "with its own error)"
    ) in said
    assert said.count(". ") == 0
    assert said.endswith(".")


def test_the_headline_credits_no_attack_whose_interval_holds_chance() -> None:
    lucky, sure = coins(1.0, low=0.025, high=1.0, releases=1), coins(0.6, low=0.55, high=0.65)
    assert "no attack guessed more label coins than chance may give (.5: at most 1.000, by curious" in headline(lucky)
    assert "up to .600 of the label coins were guessed right by" in headline(lucky, sure)


def test_the_headline_says_nothing_of_what_was_not_asked() -> None:
    end = ", and no bound speaks about this mechanism."
    assert headline(finding("r2", 0.642)) == (
        f"UNCOVERED: .642 of the spread of a site's inputs was explained by a curious server{end}"
    )
    assert headline(member("auc", 0.586, low=0.49, high=0.68)) == (
        f"UNCOVERED: no attack told members from others (chance .5: AUC .586 [.490, .680], the best of 1){end}"
    )
    assert headline() == f"UNCOVERED: nothing was measured{end}"


def test_an_estimate_that_is_worse_than_the_mean_explains_nothing() -> None:
    said = headline(finding("r2", -0.2), finding("r2", -0.1, attack="inversion/mlp"))
    assert "no estimate of a site's inputs, by a curious server or another, was better than their mean" in said
    assert "-.1" not in said


def test_an_exceeded_bound_names_the_adversary(small_audit: AuditResult) -> None:
    changed = [replace(f, verdict="EXCEEDED") if f.role == "confirmatory" else f for f in small_audit.audit.findings]
    assert re.match(r"EXCEEDED: curious site A", words.headline(replace(small_audit.audit, findings=tuple(changed))))


def test_the_setting_counts_releases_only_where_there_are_some() -> None:
    record = audit(member("auc", 0.6))
    assert "of each" not in markdown(record)

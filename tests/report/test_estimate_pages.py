"""What pages say of estimated inputs and of membership, on findings and records made by hand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import pytest
from test_pages import Checker, everywhere

from privbench.estimated import METRICS
from privbench.estimates import Estimation
from privbench.membership import MembershipAttack
from privbench.options import AuditOptions
from privbench.parts import by_kind
from privbench.record import Audit, Finding
from privbench.registry import Registry
from privbench.report import estimates, members, notes, words
from privbench.report.html import html
from privbench.report.markdown import markdown
from privbench.runner import run_audit

PEOPLE, HOURS = 3, 4
FEATURES = ({"name": "heart rate", "unit": "beats/min"}, {"name": "lactate", "unit": "mmol/L"})
EXAMPLES = tuple(
    {
        "measured": [[80.0 + k, None, 82.5, 79.0], [None, 1.5, None, None]],
        "estimated": [[81.0, 81.5, 80.0 + k, 80.0], [1.2, 1.3, 1.4, 1.5]],
    }
    for k in range(PEOPLE)
)
NUMBERS: Mapping[str, Any] = {
    "name": "input/A",
    "records": 1_200,
    "known": 800,
    "hours": HOURS,
    "features": list(FEATURES),
    "r2": {"inversion/ridge": [0.642, -0.031], "inversion/mlp": [0.7, 0.005]},
    "examples": list(EXAMPLES),
}
MEMBERS: Mapping[str, Any] = {"name": "member", "candidates": 1_400, "scored": 1_200, "references": 16}
SILENT = "no bound speaks"


def finding(metric: str, value: float | None, **given: Any) -> Finding:
    """Of ridge regression unless it is told otherwise, judged by nobody."""
    blank = Finding(
        id=f"id/{metric}",
        target="prism",
        party="",
        threat_model="curious server",
        channel="activations",
        attack="inversion/ridge",
        secret="input/A",
        releases=1,
        metric=metric,
        value=value,
        low=None,
        high=None,
        level=None,
        n=1_200,
        canaries=1_200,
        chance=0.0,
        baseline=None,
        controls={"positive": None, "negative": None},
        role="descriptive",
        bound=None,
        verdict="UNCOVERED",
        reason=SILENT,
        strength=None,
        seed=0,
        defense="none",
        eps=None,
    )
    return replace(blank, **given)


def member(metric: str, value: float | None, **given: Any) -> Finding:
    return finding(metric, value, **{"attack": "membership/rmia", "secret": "member", "chance": 0.5, **given})


def audit(*findings: Finding, **parts: Any) -> Audit:
    """A record that holds these findings and nothing else."""
    empty = Audit(
        cell="0" * 64,
        manifest={},
        threats=(),
        mechanisms=(),
        claims=(),
        epsilons=(),
        utility=(),
        secret=None,
        inputs=None,
        members=None,
        estimates=None,
        moves={},
        noise=None,
        findings=findings,
        planned=tuple(item.id for item in findings),
        flags=(),
        notes=(),
        series={},
        scores_sha256="",
    )
    return replace(empty, **parts)


# Estimated inputs


def test_every_registered_estimation_and_metric_has_words(registry: Registry) -> None:
    kinds = by_kind(registry.names("attacks"), registry)
    assert set(estimates.NAMES) == set(kinds[Estimation])
    assert set(members.NAMES) == set(kinds[MembershipAttack])
    assert estimates.METRICS == METRICS  # a page may read the record only, so that the names stand twice


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            finding("r2", 0.642, low=0.601, high=0.683, baseline=0.1),
            "Ridge regression explains .642 [.601, .683] of the spread of the inputs, averaged over features (from all "
            "other columns: .100); no bound speaks: UNCOVERED.",
        ),
        (
            finding("r2", -0.02, low=-0.05, high=0.01, attack="inversion/mlp"),
            "The perceptron explains -.020 [-.050, .010] of the spread of the inputs, averaged over features; no bound "
            "speaks: UNCOVERED.",
        ),
        (
            finding("r2-share", 0.5, n=12, baseline=0.0, attack="inversion/sequence"),
            "The recurrent decoder explains more than half of the spread of .500 of the features (from all other "
            "columns: .000); no bound speaks: UNCOVERED.",
        ),
        (
            finding("re-identification", 0.031, low=0.02, high=0.044, chance=1 / 1_200),
            "Ridge regression points .031 [.020, .044] of its estimates to their own record among 1,200 (chance: "
            "0.0008); no bound speaks: UNCOVERED.",
        ),
        (
            finding("r2", None, verdict="NOT_APPLICABLE", reason="needs the channel auxiliary"),
            "Ridge regression: NOT_APPLICABLE. Needs the channel auxiliary.",
        ),
    ],
    ids=["r2", "worse than the mean", "share", "re-identification", "refused"],
)
def test_sentences_of_estimates(told: Finding, said: str) -> None:
    assert words.sentence(told, audit(told, estimates=NUMBERS)) == said


def test_only_estimates_are_about_numbers() -> None:
    assert all(estimates.about_numbers(finding(metric, 0.5)) for metric in METRICS)
    for other in (member("auc", 0.6), finding("token-accuracy", 0.6), finding("accuracy", 0.6)):
        assert not estimates.about_numbers(other)


def test_the_best_estimate_explains_most() -> None:
    low, high = finding("r2", 0.4), finding("r2", 0.6, attack="inversion/mlp")
    others = (finding("r2", None), finding("re-identification", 0.9), member("auc", 0.95))
    assert estimates.best(audit(low, high, *others)) is high
    assert estimates.best(audit(*others)) is None
    below = finding("r2", -0.3), finding("r2", -0.1, attack="inversion/mlp")
    assert estimates.best(audit(*below)) is below[1]


def test_the_note_says_whose_inputs_and_what_was_known() -> None:
    assert estimates.note(audit(estimates=NUMBERS)) == (
        "A server estimates what A measured of 1,200 records from their cut activations; it learned from 800 other "
        "records whose inputs it knows, and none of those is scored. Only what was measured counts."
    )
    assert estimates.note(audit()) is None


def test_a_row_per_feature_and_a_column_per_attack() -> None:
    assert estimates.rows(audit(estimates=NUMBERS)) == (
        ("feature", "unit", "ridge regression", "the perceptron"),
        ("heart rate", "beats/min", "0.64", "0.70"),
        ("lactate", "mmol/L", "-0.03", "0.01"),
    )


def test_an_attack_of_somebody_elses_keeps_its_name() -> None:
    said = {**NUMBERS, "r2": {"inversion/mine": [0.1, 0.2]}}
    assert estimates.rows(audit(estimates=said))[0] == ("feature", "unit", "inversion/mine")


@pytest.mark.parametrize("said", [None, {**NUMBERS, "r2": {}}, {**NUMBERS, "features": []}])
def test_no_rows_where_nothing_was_estimated_or_nobody_named_the_features(said: Mapping[str, Any] | None) -> None:
    assert estimates.rows(audit(estimates=said)) == ()


def test_no_rows_where_a_feature_that_does_not_vary_was_left_out() -> None:
    """One R2 and two features: nobody can say whose it is."""
    assert estimates.rows(audit(estimates={**NUMBERS, "r2": {"inversion/ridge": [0.6]}})) == ()


# The figure of invented persons


def drawn(said: Mapping[str, Any] = NUMBERS) -> str:
    svg = estimates.figure(audit(estimates=said))
    assert svg is not None
    return svg


def texts(svg: str) -> list[str]:
    """Everything written in the figure."""
    return ["".join(item.itertext()).strip() for item in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def dots(svg: str) -> int:
    """Points drawn in one of its axes' own markers: ticks are markers of axes' children."""
    return sum(len(re.findall(r"<use ", part)) for part in re.findall(MARKED, svg, re.DOTALL))


MARKED = r'<g clip-path="url\(#[^"]+\)">(.*?)</g>'


def test_a_column_per_person_and_a_row_per_feature() -> None:
    svg = drawn()
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == PEOPLE * len(FEATURES)
    written = texts(svg)
    for k in range(PEOPLE):
        assert written.count(f"invented person {k + 1}") == 1
    assert f"invented person {PEOPLE + 1}" not in written
    for feature in FEATURES:
        assert written.count(feature["name"]) == written.count(feature["unit"]) == 1
    assert written.count("hour") == PEOPLE


def test_a_dot_is_what_was_measured() -> None:
    """Three hours of the heart rate and one of lactate, of each person; none where nobody looked."""
    assert dots(drawn()) == PEOPLE * 4
    unseen = [{**item, "measured": [item["measured"][0], [None] * HOURS]} for item in EXAMPLES]
    assert dots(drawn({**NUMBERS, "examples": unseen})) == PEOPLE * 3


def test_the_same_record_gives_the_same_figure_and_another_one_does_not() -> None:
    before = dict(mpl.rcParams)
    svg = drawn()
    assert svg == drawn()
    assert svg.startswith("<svg")
    assert dict(mpl.rcParams) == before
    other = {**EXAMPLES[0], "estimated": [[60.0] * HOURS, [9.0] * HOURS]}
    assert drawn({**NUMBERS, "examples": [other, *EXAMPLES[1:]]}) != svg


def test_one_person_and_one_feature_are_drawn() -> None:
    one = [{name: values[:1] for name, values in item.items()} for item in EXAMPLES[:1]]
    svg = drawn({**NUMBERS, "features": list(FEATURES[:1]), "examples": one})
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == 1


def test_a_features_name_is_text_and_no_markup() -> None:
    named = [{"name": "<script>alert(1)</script> & co", "unit": "%"}, FEATURES[1]]
    svg = drawn({**NUMBERS, "features": named})
    assert "<script>" not in svg
    assert "<script>alert(1)</script> & co" in texts(svg)


@pytest.mark.parametrize(
    "said",
    [None, {**NUMBERS, "examples": []}, {**NUMBERS, "hours": 1}],
    ids=["no estimates", "real persons", "one hour"],
)
def test_no_figure_without_examples_or_of_one_hour(said: Mapping[str, Any] | None) -> None:
    assert estimates.figure(audit(estimates=said)) is None


# Membership


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            member("auc", 0.586, low=0.555, high=0.617, baseline=0.507),
            "RMIA tells members from others with AUC .586 [.555, .617] (chance: .5, the records alone: .507); no bound "
            "speaks: UNCOVERED.",
        ),
        (
            member("auc", 0.5, low=0.47, high=0.53, attack="membership/loss"),
            "The loss threshold tells members from others with AUC .500 [.470, .530] (chance: .5); no bound speaks: "
            "UNCOVERED.",
        ),
        (
            member("tpr@0.01", 0.031, low=0.02, high=0.05, chance=0.01, attack="membership/lira"),
            "LiRA finds .031 [.020, .050] of the members at .01 false alarms (chance: .01); no bound speaks: "
            "UNCOVERED.",
        ),
        (
            member("eps", 0.41, low=0.41, chance=0.0, attack="membership/one-run"),
            "The one-run audit shows that eps is at least .410; no bound speaks: UNCOVERED.",
        ),
        (
            member("auc", None, verdict="NOT_APPLICABLE", reason="needs reference models"),
            "RMIA: NOT_APPLICABLE. Needs reference models.",
        ),
    ],
    ids=["auc", "without a blind control", "tpr", "eps", "refused"],
)
def test_sentences_of_membership(told: Finding, said: str) -> None:
    assert words.sentence(told, audit(told, members=MEMBERS)) == said


def test_the_best_membership_attack_has_the_highest_auc() -> None:
    low, high = member("auc", 0.55), member("auc", 0.61, attack="membership/lira")
    others = (member("auc", None), member("tpr@0.01", 0.9), member("eps", 3.0), finding("r2", 0.99))
    assert members.best(audit(low, high, *others)) is high
    assert members.best(audit(*others)) is None


def test_the_note_counts_candidates_coins_and_models() -> None:
    assert members.note(audit(members=MEMBERS)) == (
        "In a run of its own a fair coin put each of 1,400 records in or left it out; the adversary knows the records "
        "and 200 of the coins, and it trains 16 reference models on halves of them. The other 1,200 are guessed and "
        "scored."
    )
    assert "and it trains no reference models." in str(members.note(audit(members={**MEMBERS, "references": 0})))
    assert members.note(audit()) is None


def test_a_control_of_membership_is_what_the_records_say_alone() -> None:
    control = {"value": 0.507, "low": 0.45, "high": 0.56, "n": 1_200, "passed": True}
    both = {"positive": None, "negative": control}
    assert notes.controls_note(member("auc", 0.6, controls=both)) == "the records alone .507"
    assert notes.controls_note(finding("r2", 0.6, controls=both)) == "shuffled .507"


def test_the_headline_says_the_most_of_each_and_nothing_of_what_was_not_asked() -> None:
    numbers, who = finding("r2", 0.642), member("auc", 0.586)
    explained = ".642 of the spread of a site's inputs was explained by a curious server"
    told = "members were told from others with AUC up to .586 (chance: .5)"
    end = ", and no bound speaks about this mechanism."
    assert words.headline(audit(numbers, who)) == f"UNCOVERED: {explained}; {told}{end}"
    assert words.headline(audit(numbers)) == f"UNCOVERED: {explained}{end}"
    assert words.headline(audit(who)) == f"UNCOVERED: {told}{end}"


# Whole pages


@pytest.fixture(scope="module")
def whole(registry: Registry) -> Audit:
    """A run on drawn records, had its estimates been of two features over four hours."""
    draw = {"records": "240", "releases": "1", "width": "8", "inputs": "2"}
    options = AuditOptions("gaussian", attacks=("inversion/ridge",), sigma=4.0, settings=draw)
    found = run_audit(options, registry, parallel=1).audit
    assert found.estimates is not None
    shown = {"hours": HOURS, "features": list(FEATURES), "examples": list(EXAMPLES)}
    return replace(found, estimates={**found.estimates, **shown})


def test_every_finding_and_the_note_are_on_every_page(whole: Audit) -> None:
    assert {item.metric for item in whole.findings} == set(METRICS)
    for name, text in everywhere(whole).items():
        flat = re.sub(r"\s+", " ", text)
        for item in whole.findings:
            assert words.sentence(item, whole) in flat, name
        assert str(estimates.note(whole)) in flat, name


def test_the_rows_and_the_persons_are_on_the_page(whole: Audit) -> None:
    page, text = html(whole), markdown(whole)
    assert page == html(whole)
    for row in estimates.rows(whole):
        assert f"| {' | '.join(row)} |" in text
        assert all(f">{cell}</" in page for cell in row)
    assert "invented person 3" in page
    assert "invented person" not in html(replace(whole, estimates={**whole.estimates, "examples": []}))
    checker = Checker()
    checker.feed(page)
    assert checker.loads == []

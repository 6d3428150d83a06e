"""What pages say of estimated inputs and of membership: whom was asked, and the figure of invented persons."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import matplotlib as mpl
import pytest
from made_records import EXAMPLES, FEATURES, HOURS, MANIFEST, MEMBERS, NUMBERS, PEOPLE, audit, finding, member
from test_pages import Checker, everywhere

from privbench.options import AuditOptions
from privbench.record import Audit
from privbench.registry import Registry
from privbench.report import estimates, members, notes
from privbench.report.html import html
from privbench.runner import AuditResult, run_audit

SPLIT = "Split by patient: the stays asked about are of patients that no auxiliary set holds."

# Whom was asked about


def test_the_best_estimate_explains_most() -> None:
    low, high = finding("r2", 0.4), finding("r2", 0.6, attack="inversion/mlp")
    others = (finding("r2", None), finding("re-identification", 0.9), member("auc", 0.95))
    assert estimates.best(audit(low, high, *others)) is high
    assert estimates.best(audit(*others)) is None
    below = finding("r2", -0.3), finding("r2", -0.1, attack="inversion/mlp")
    assert estimates.best(audit(*below)) is below[1]


def test_the_best_membership_attack_has_the_highest_auc() -> None:
    low, high = member("auc", 0.55), member("auc", 0.61, attack="membership/lira")
    others = (member("auc", None), member("tpr@0.01", 0.9), member("eps", 3.0), finding("r2", 0.99))
    assert members.best(audit(low, high, *others)) is high
    assert members.best(audit(*others)) is None


def test_the_notes_say_whose_inputs_which_coins_and_who_was_known() -> None:
    both = audit(finding("r2", 0.5), estimates=NUMBERS, members=MEMBERS)
    assert tuple(notes.secret_notes(both)) == (
        "Membership: in a run of its own a fair coin put each of 1,400 stays in or left it out; an adversary knows "
        "the stays and up to 200 of the coins, and trains 16 reference models on halves of them. The other 1,200 are "
        "guessed and scored.",
        "Inversion: a server estimates what A measured of 1,200 stays from their cut activations, and knows the inputs "
        "of 800 others. Only what was measured counts.",
        SPLIT,
    )
    alone = audit(finding("r2", 0.5), members={**MEMBERS, "references": 0})
    assert "and trains no reference models." in next(iter(notes.secret_notes(alone)))
    assert tuple(notes.secret_notes(audit())) == ()


def test_a_split_by_patient_is_said_only_where_it_is_known() -> None:
    """Records of other targets are of nobody known; a data set may hold two stays of one patient and not say so."""
    elsewhere = audit(finding("r2", 0.5, target="recorded"), estimates=NUMBERS)
    assert not any("patient" in said or "stay" in said for said in notes.secret_notes(elsewhere))
    read = {**MANIFEST, "config": {"resolved": {"data": "physionet2012", "eps": None}}}
    real = tuple(notes.secret_notes(audit(finding("r2", 0.5), estimates=NUMBERS, manifest=read)))
    assert SPLIT not in real
    assert "as far as each stay is of a patient of its own; physionet2012 does not say." in real[-1]


def test_notes_of_a_real_run_are_on_every_page(small_audit: AuditResult) -> None:
    for name, text in everywhere(small_audit.audit).items():
        flat = re.sub(r"\s+", " ", text)
        assert SPLIT in flat, name
        for said in (*notes.secret_notes(small_audit.audit), *notes.interval_notes(small_audit.audit)):
            assert said in flat, name


@pytest.mark.parametrize(
    ("parts", "count"), [({}, 0), ({"members": MEMBERS}, 1), ({"estimates": NUMBERS}, 1), ({"secret": {"a": 1}}, 1)]
)
def test_intervals_are_explained_where_there_are_some(parts: dict[str, Any], count: int) -> None:
    assert len(notes.interval_notes(audit(**parts))) == count


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
    assert len(re.findall(r'<g id="axes_\d+">', svg)) == len(FEATURES)
    assert len(re.findall(r"stroke: #d55e00", svg)) == PEOPLE * len(FEATURES)
    written = texts(svg)
    for k in range(PEOPLE):
        assert written.count(f"invented person {k + 1}") == 1
    assert f"invented person {PEOPLE + 1}" not in written
    for feature in FEATURES:
        assert written.count(feature["name"]) == written.count(feature["unit"]) == 1
    assert written.count("hour") == 1
    assert written.count(str(HOURS)) == PEOPLE


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


@pytest.mark.parametrize("shown", ["inversion/mlp", "inversion/mine"])
def test_the_caption_names_whose_estimates_are_drawn(shown: str) -> None:
    record = audit(finding("r2", 0.5), estimates={**NUMBERS, "shown": shown})
    said = {"inversion/mlp": "the perceptron", "inversion/mine": "the attack inversion/mine"}[shown]
    assert f"measured of 3 invented persons, which no attack knew; line: what {said} makes" in unescape(html(record))


# Controls


def test_a_control_of_membership_is_what_the_records_say_alone() -> None:
    control = {"value": 0.507, "low": 0.45, "high": 0.56, "n": 1_200, "passed": True}
    both = {"positive": None, "negative": control}
    assert notes.controls_note(member("auc", 0.6, controls=both)) == "the records alone .507"
    assert notes.controls_note(finding("r2", 0.6, controls=both)) == "shuffled .507"


# A whole page


@pytest.fixture(scope="module")
def whole(registry: Registry) -> Audit:
    """A run on drawn records, had its estimates been of two features over four hours."""
    draw = {"records": "240", "releases": "1", "width": "8", "inputs": "2"}
    options = AuditOptions("gaussian", attacks=("inversion/ridge",), sigma=4.0, settings=draw)
    found = run_audit(options, registry, parallel=1).audit
    assert found.estimates is not None
    shown = {"hours": HOURS, "features": list(FEATURES), "examples": list(EXAMPLES)}
    return replace(found, estimates={**found.estimates, **shown})


def test_the_persons_are_on_the_page_and_nothing_is_loaded(whole: Audit) -> None:
    page = html(whole)
    assert page == html(whole)
    assert "invented person 3" in page
    assert "invented person" not in html(replace(whole, estimates={**whole.estimates, "examples": []}))
    checker = Checker()
    checker.feed(page)
    assert checker.loads == []

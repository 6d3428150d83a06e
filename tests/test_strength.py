"""How strong an attack was beside the strongest: closed cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from privbench.attack import AttackCard
from privbench.findings import Header
from privbench.record import Finding
from privbench.strength import beside_strongest
from privbench.threat import Channel, server_with_patients

CARD = AttackCard("x", "x", "x", "x", (Channel.ACTIVATIONS,), (), "x")


def finding(metric: str, value: float | None, low: float | None) -> Finding:
    blank = Header("gaussian", 0, "none", None).finding(
        f"{metric}/{value}", "x", CARD, server_with_patients(), "input/A", 1, metric
    )
    return replace(blank, value=value, low=low)


def above(item: Finding) -> float:
    return item.baseline or 0.0


def strengths(found: Sequence[Finding]) -> list[float | None]:
    return [item.strength for item in found]


def test_strength_is_a_share_of_the_strongest() -> None:
    given = [finding("r2", 0.2, 0.1), finding("r2", 0.8, 0.7), finding("r2", 0.4, 0.3)]
    assert strengths(beside_strongest(given, "r2", above)) == pytest.approx([0.25, 1.0, 0.5])


def test_what_lies_above_chance_may_be_measured_by_another_size() -> None:
    given = [finding("auc", 0.5, 0.4), finding("auc", 0.75, 0.7), finding("auc", 0.55, 0.5)]
    found = strengths(beside_strongest(given, "auc", lambda item: 0.5, lambda value: 2 * value))
    assert found == pytest.approx([0.0, 1.0, 0.2])


def test_what_takes_no_leak_is_no_strength() -> None:
    """Each beside the baseline of its own records: the first reads most, and only what stands beside it."""
    given = [
        replace(finding("r2", 0.62, 0.6), baseline=0.6),
        replace(finding("r2", 0.5, 0.4), baseline=0.3),
        replace(finding("r2", 0.2, 0.1), baseline=0.25),
    ]
    found = strengths(beside_strongest(given, "r2", above))
    assert found == pytest.approx([0.1, 1.0, -0.25])


def test_nothing_above_its_baseline_is_no_measure_of_strength() -> None:
    given = [replace(finding("r2", 0.62, 0.6), baseline=0.61), replace(finding("r2", 0.2, 0.1), baseline=0.25)]
    found = beside_strongest(given, "r2", above)
    assert strengths(found) == [None, None]


def test_worse_than_chance_is_a_negative_strength() -> None:
    given = [finding("r2", -0.5, -0.6), finding("r2", 0.5, 0.4)]
    assert strengths(beside_strongest(given, "r2", above)) == [-1.0, 1.0]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [finding("r2", None, None)],
        [finding("r2", 0.3, 0.0), finding("r2", 0.1, 0.05)],
        [finding("r2", 0.3, None)],
        [finding("r2", -0.3, -0.4)],
    ],
)
def test_where_the_strongest_is_not_above_chance_nothing_is_known(given: list[Finding]) -> None:
    """The largest value decides, though the interval of another lies above chance."""
    found = beside_strongest(given, "r2", above)
    assert list(found) == given
    assert all(item is None for item in strengths(found))


def test_findings_of_other_metrics_and_without_a_value_stay_as_they_are() -> None:
    other, refused = finding("r2-share", 0.9, None), finding("r2", None, None)
    found = beside_strongest([other, refused, finding("r2", 0.5, 0.4)], "r2", above)
    assert found[:2] == (other, refused)
    assert found[2].strength == 1.0

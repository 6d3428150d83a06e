"""Utility over seeds in a sweep's pages: means and Student intervals against a naive twin."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.report import sweep_pages, sweep_utility
from privbench.report.words import number
from privbench.sweep.record import Row, Sweep

T = {1: 12.706204736, 2: 4.30265273, 3: 3.182446305}
"""97.5% points of Student's t by degrees of freedom, from a table."""

VALUES = st.lists(st.floats(0, 1).map(lambda x: round(x, 6)), min_size=2, max_size=4)


def item(value: float, gain: float = 0.1, **changes: Any) -> dict[str, Any]:
    return {
        "task": "stress", "metric": "accuracy", "value": value, "low": value - 0.05, "high": value + 0.05, "n": 90,
        "split": "test", "baseline_name": "most frequent answer", "baseline": value - gain, "baseline_other_seed": None,
        "gain": gain, "gain_low": gain - 0.02, "gain_high": gain + 0.02, "references": {"forest": value / 2},
        **changes,
    }  # fmt: skip


def row(seed: int, *utility: Mapping[str, Any], status: Any = "done", **settings: str) -> Row:
    return Row(
        f"cell{seed}", "split-llama", "survey", "none", None, None, seed, settings, status, None, (), utility, ()
    )


def sweep(*rows: Row) -> Sweep:
    return Sweep("1", 0.05, 0, rows)


def naive(values: Sequence[float]) -> tuple[float, float, float]:
    mean = sum(values) / len(values)
    half = T[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def cells_of(found: Sweep) -> list[dict[str, str]]:
    head, body = sweep_utility.table(found)
    return [dict(zip(head, cells, strict=True)) for cells in body]


@given(VALUES)
def test_means_and_intervals_are_their_naive_twins(values: list[float]) -> None:
    found = sweep(*(row(seed, item(value, gain=value / 3)) for seed, value in enumerate(values)))
    (cells,) = cells_of(found)
    mean, low, high = naive(values)
    assert cells["value"] == f"{number(mean)} [{number(low)}, {number(high)}]"
    assert cells["gain"] == f"{mean / 3:+.3f} [{low / 3:+.3f}, {high / 3:+.3f}]"
    for name, expected in (("most frequent answer", mean * 2 / 3), ("forest", mean / 2)):
        assert float(cells[name]) == pytest.approx(expected, abs=0.0005 + 1e-9)  # a tie is rounded either way
    assert cells["seeds"] == str(len(values))


def test_a_known_case() -> None:
    """.5, .6, .7: mean .6, standard deviation .1, half-width 4.303 * .1 / sqrt(3) = .248."""
    (cells,) = cells_of(sweep(*(row(seed, item(value)) for seed, value in enumerate((0.5, 0.6, 0.7)))))
    assert cells["value"] == ".600 [.352, .848]"
    assert cells["gain"] == "+0.100 [+0.100, +0.100]"


def test_of_one_seed_the_interval_is_its_own() -> None:
    found = sweep(row(0, item(0.5)), row(0, item(0.4), depth="2"), row(1, item(0.6), depth="2"))
    alone, paired = cells_of(found)
    assert (alone["value"], alone["gain"], alone["seeds"]) == (".500 [.450, .550]", "+0.100 [+0.080, +0.120]", "1")
    assert paired["seeds"] == "2"
    assert alone["system"] != paired["system"]


def test_every_task_metric_baseline_and_reference_has_its_place() -> None:
    utility = (item(0.5), item(0.4, metric="macro F1"), item(0.3, task="anxiety", references={"logistic": 0.2}))
    other = item(0.6, baseline_name="random encoders", references={})
    found = sweep(row(0, *utility), row(1, *utility, other))
    head, _ = sweep_utility.table(found)
    beside = ("most frequent answer", "random encoders", "forest", "logistic")
    assert head == ("system", "task", "metric", "value", *beside, "gain", "seeds")
    cells = cells_of(found)
    assert [(c["task"], c["metric"]) for c in cells] == [
        ("stress", "accuracy"), ("stress", "macro F1"), ("anxiety", "accuracy"),
    ]  # fmt: skip
    assert cells[2]["forest"] == "–"
    assert cells[2]["logistic"] == ".200"
    assert cells[0]["random encoders"] == ".500"  # of the one item that was held against it


def test_without_two_seeds_of_one_system_nothing_is_shown() -> None:
    assert not sweep_utility.has_seeds(sweep(row(0, item(0.5)), row(1, item(0.5), depth="2")))
    assert not sweep_utility.has_seeds(sweep(row(0), row(1)))
    assert not sweep_utility.has_seeds(sweep(row(0, item(0.5)), row(1, status="failed")))
    assert sweep_utility.has_seeds(sweep(row(0, item(0.5)), row(1, item(0.6))))


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_pages_show_it_from_two_seeds_on(seeds: int) -> None:
    found = sweep(*(row(seed, item(0.5 + 0.1 * seed)) for seed in range(seeds)))
    pages = {"markdown": sweep_pages.markdown(found), "html": unescape(sweep_pages.html(found, None))}
    for name, text in pages.items():
        for said in ("Utility over seeds", sweep_utility.NOTE, ".600 [.352, .848]", "forest", "most frequent answer"):
            assert (said in text) == (seeds > 1), (name, said)


def test_two_noises_are_not_two_seeds() -> None:
    """A mean over noises is no mean over seeds, and what they differ by is no chance."""
    quiet, loud = (replace(row(0, item(value)), noise_multiplier=z) for value, z in ((0.9, 1.0), (0.5, 64.0)))
    assert not sweep_utility.has_seeds(sweep(quiet, loud))
    both = sweep(quiet, loud, replace(quiet, seed=1), replace(loud, seed=1))
    assert sweep_utility.has_seeds(both)
    found = {cells["system"]: cells for cells in cells_of(both)}
    assert {name.rpartition(", ")[2] for name in found} == {"noise multiplier 1", "noise multiplier 64"}
    assert [cells["seeds"] for cells in found.values()] == ["2", "2"]
    assert [cells["value"].split()[0] for cells in found.values()] == [".900", ".500"]


def test_of_unnoised_and_noised_cells_each_is_named() -> None:
    free, bounded = (replace(row(0, item(0.9)), eps=eps) for eps in ("inf", 0.5))
    names = [cells["system"] for cells in cells_of(sweep(free, bounded))]
    assert [name.rpartition(", ")[2] for name in names] == ["eps inf", "eps 0.5"]

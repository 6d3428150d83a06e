"""`privbench bounds`, `accounting` and `verify` on the real command line: golden values, ranges, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CommandLine

Table = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def table(command_line: CommandLine) -> Table:
    """Rows of a command with --json."""

    def call(*arguments: str) -> list[dict[str, Any]]:
        done = command_line(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    return call


PRISM = ("--rho", "0.95", "--tasks", "3", "--moved", "2", "--releases", "20", "--batch", "64", "--records", "2000")


@pytest.mark.parametrize(
    ("z", "one", "all_", "nominal", "cap"),
    [("6.25", 0.572, 0.793, 0.551, 0.731), ("3.39", 0.632, 0.934, 0.593, 0.881), ("1.93", 0.723, 0.996, 0.661, 0.982)],
)
def test_the_designs_table_of_prism(table: Table, z: str, one: float, all_: float, nominal: float, cap: float) -> None:
    bounds = table("bounds", "--noise-multiplier", z, *PRISM)[0]["bounds"]
    assert round(bounds["g"], 3) == one
    assert round(bounds["g-composed"], 3) == all_
    assert round(bounds["nominal-curve"], 3) == nominal
    assert round(bounds["dp-cap"], 3) == pytest.approx(cap, abs=0.001)


def test_the_designs_table_of_many_releases(table: Table) -> None:
    """C = 1, rho = 0, J = K = 2; the page prints sigma 2, 4, 7.66 at T = 1, 10, 20, 30."""
    golden = {2.0: [0.691, 0.943, 0.987, 0.997], 4.0: [0.599, 0.785, 0.868, 0.915], 7.66: [0.552, 0.660, 0.720, 0.763]}
    for sigma, values in golden.items():
        rows = [table("bounds", "--sigma", str(sigma), "--releases", str(t))[0] for t in (1, 10, 20, 30)]
        assert [round(row["bounds"]["g-composed"], 3) for row in rows] == values


def test_ranges_make_every_combination(table: Table) -> None:
    rows = table("bounds", "--sigma", "2:8:4", "--releases", "1:21:3", "--rho", "0:1:2")
    assert len(rows) == 24
    assert {row["releases"] for row in rows} == {1, 11, 21}
    assert [row["sigma"] for row in rows[:6]] == [2.0] * 6


@pytest.mark.parametrize("mechanism", ["sum", "once", "clipped-sum", "separate"])
@pytest.mark.parametrize("unit", ["accuracy", "auc", "advantage", "mu", "tpr@0.01"])
def test_every_mechanism_and_unit_has_a_value(table: Table, mechanism: str, unit: str) -> None:
    row = table("bounds", "--sigma", "2", "--rho", "0.5", "--mechanism", mechanism, "--unit", unit)[0]
    assert row["bounds"]["g"] > 0
    assert row["unit"] == unit


def test_golden_neighbour_of_one_draw(table: Table) -> None:
    row = table("bounds", "--sigma", "2", "--rho", "0.5", "--mechanism", "once")[0]
    assert round(row["bounds"]["g"], 3) == 0.807
    assert "noise" in row["unsupported"]["g-as-published"]


def test_accounting_names_every_epsilon(table: Table) -> None:
    nominal, site = table("accounting", "--eps", "0.5")
    assert nominal["noise multiplier"] == pytest.approx(6.25, abs=0.01)
    assert nominal["site"] == pytest.approx(7.92, abs=0.01)
    assert site["noise multiplier"] == pytest.approx(72.62, abs=0.01)
    assert site["site"] == pytest.approx(0.5, abs=1e-6)
    assert site["nominal"] < 0.5 < site["site, all labels"] < site["outsider"]


def test_golden_epsilons_of_one_run_under_two_relations(table: Table) -> None:
    """q = .01, sigma = 1, T = 10,000, delta = 1e-5: RDP 6.7127, PLD add/remove 6.1877, PLD replace-one 10.8808."""
    row = table("accounting", "--noise-multiplier", "1", "--batch", "1", "--records", "100", "--epochs", "100")[0]
    assert round(row["nominal"], 4) == 6.7127
    assert round(row["nominal, PLD"], 4) == 6.1877
    assert round(row["replace-one, PLD"], 4) == 10.8808


def test_accounting_at_a_given_noise_and_over_a_range(table: Table) -> None:
    rows = table("accounting", "--noise-multiplier", "2:8:3")
    assert [row["noise multiplier"] for row in rows] == [2.0, 5.0, 8.0]
    assert [row["eps"] for row in rows] == [None] * 3
    assert len(table("accounting", "--eps", "1:2:2")) == 4


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_plot_is_written(command_line: CommandLine, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"bounds.{suffix}"
    done = command_line("bounds", "--noise-multiplier", "1:10:8", *PRISM, "--plot", str(file))
    assert done.returncode == 0, done.stderr
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    if suffix == "svg":
        for name in (b"g-composed", b"nominal-curve", b"dp-cap"):
            assert name in content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bounds"], "exactly one of --sigma and --noise-multiplier"),
        (["bounds", "--sigma", "1", "--noise-multiplier", "1"], "exactly one"),
        (["bounds", "--sigma", "-1"], "at least 0"),
        (["bounds", "--sigma", "nan"], "must be a number"),
        (["bounds", "--sigma", "1:2"], "start:stop:count"),
        (["bounds", "--sigma", "1:2:1"], "count of a range"),
        (["bounds", "--sigma", "1:2:9999", "--rho", "0:1:9999"], "at most 10,000"),
        (["bounds", "--sigma", "1", "--clip", "0"], "--clip must be"),
        (["bounds", "--sigma", "1", "--rho", "-1.5"], "--rho must lie in"),
        (["bounds", "--sigma", "1", "--rho", "-0.6", "--tasks", "3", "--moved", "3"], "--rho must lie in [-0.5, 1]"),
        (["bounds", "--sigma", "1", "--moved", "3"], "--moved must lie in 1 .. --tasks = 2"),
        (["bounds", "--sigma", "1", "--moved", "0"], "--moved must lie in"),
        (["bounds", "--sigma", "1", "--releases", "0"], "releases must be at least 1"),
        (["bounds", "--sigma", "1", "--releases", "1.5"], "whole number"),
        (["bounds", "--sigma", "1", "--unit", "tpr@1"], "F in (0, 1)"),
        (["bounds", "--sigma", "1", "--unit", "furlong"], "allowed: accuracy"),
        (["bounds", "--sigma", "1", "--mechanism", "max"], "--mechanism is 'max'"),
        (["bounds", "--sigma", "1", "--plot", "x.svg"], "needs a range of noise"),
        (["bounds", "--sigma", "1:2:2", "--plot", "x.pdf"], "writes .svg or .png"),
        (["accounting"], "exactly one of --eps and --noise-multiplier"),
        (["accounting", "--eps", "0"], "above 0"),
        (["accounting", "--eps", "inf"], "finite"),
        (["accounting", "--eps", "1", "--delta", "1"], "--delta must lie in (0, 1)"),
        (["accounting", "--eps", "1", "--moved", "4"], "--moved must lie in"),
        (["accounting", "--eps", "1", "--batch", "0"], "at least 1"),
        (["accounting", "--noise-multiplier", "0"], "above 0"),
        (["verify", "/no/such/record"], "is not a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(command_line: CommandLine, arguments: list[str], message: str) -> None:
    done = command_line(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_verify_agrees_and_finds_a_change(command_line: CommandLine, small_record: Path, tmp_path: Path) -> None:
    assert command_line("verify", str(small_record)).returncode == 0
    for file in small_record.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    text = (tmp_path / "audit.json").read_text(encoding="utf-8")
    (tmp_path / "audit.json").write_text(
        text.replace('"verdict": "REPORTED"', '"verdict": "WITHIN"', 1), encoding="utf-8"
    )
    done = command_line("verify", str(tmp_path))
    assert done.returncode in (1, 2)
    (tmp_path / "audit.json").write_text(text.replace('"delta": 1e-05', '"delta": 1e-06', 1), encoding="utf-8")
    done = command_line("verify", str(tmp_path))
    assert done.returncode == 1
    assert "record_sha256" in done.stdout
    assert command_line("gate", str(tmp_path)).returncode == 2

"""`privbench bounds`, `accounting` and `verify` on the real command line: golden values, ranges, bad input."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from conftest import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from privbench.accounting import nominal_eps
from privbench.cli import numbers
from privbench.report import figure

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


@pytest.mark.parametrize(
    "arguments",
    [
        ("accounting", "--eps", "1", "--epochs", "1000000"),
        ("accounting", "--noise-multiplier", "1", "--batch", "1", "--records", "1000000000"),
        ("accounting", "--noise-multiplier", "1e-6"),
    ],
)
def test_a_run_beyond_the_privacy_loss_has_its_other_epsilons_in_seconds(
    table: Table, arguments: tuple[str, ...]
) -> None:
    row = table(*arguments)[0]
    assert row["nominal, PLD"] is row["replace-one, PLD"] is None
    assert row["nominal"] > 0
    assert row["site"] > 0


def test_a_row_has_one_rho_in_every_unit(table: Table) -> None:
    """s = sqrt(1 + rho) for C = sigma = 1: mu is twice that of the accuracy of the same row."""
    for rho in ("-0.9", "0", "0.5"):
        expected = math.sqrt(1 + float(rho))
        accuracy = table("bounds", "--sigma", "1", f"--rho={rho}")[0]["bounds"]
        mu = table("bounds", "--sigma", "1", f"--rho={rho}", "--unit", "mu")[0]["bounds"]
        for name in ("g", "g-composed", "g-as-published"):
            assert mu[name] == pytest.approx(2 * expected)
            assert NormalDist().inv_cdf(accuracy[name]) == pytest.approx(expected)


def test_one_record_a_step_is_as_many_steps_as_records(table: Table) -> None:
    row = table("bounds", "--noise-multiplier", "1", "--batch", "1", "--records", "49", "--releases", "1")[0]
    assert row["nominal_claim"]["steps"] == 49


def test_json_says_what_the_nominal_claim_is_made_of(table: Table) -> None:
    row = table("bounds", "--sigma", "6.25", *PRISM, "--delta", "1e-6")[0]
    claim = row["nominal_claim"]
    assert row["noise_multiplier"] == 6.25
    assert {key: claim[key] for key in ("batch", "records", "epochs", "steps", "delta")} == {
        "batch": 64, "records": 2000, "epochs": 20, "steps": 625, "delta": 1e-6,
    }  # fmt: skip
    assert claim["sample_rate"] == 0.032
    assert claim["eps"] == pytest.approx(nominal_eps(6.25, 0.032, 625, 1e-6))


def test_infinity_is_text_in_json(command_line: CommandLine) -> None:
    done = command_line("bounds", "--sigma", "0", "--unit", "mu", "--json")
    rows = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert rows[0]["bounds"]["g"] == "inf"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--noise-multiplier", "0"), "dp-cap says nothing here (–): claim: without noise nothing is claimed."),
        (("--noise-multiplier", "0:1:2"), "dp-cap says nothing in 1 of 2 rows (–): claim: without noise"),
        (("--noise-multiplier", "1", "--delta", "0.9999999"), "ends at eps 0 for delta 0.9999999"),
        (
            ("--noise-multiplier", "0.2"),
            "nominal-curve says nothing here (–): sigma: a multiplier of 0.2 hides nothing",
        ),
        (("--noise-multiplier", "1", "--unit", "mu"), "dp-cap says nothing here"),
    ],
)
def test_a_bound_that_says_nothing_is_named(command_line: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    done = command_line("bounds", *arguments, "--batch", "64", "--records", "2000")
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())


def test_a_table_names_its_claim_and_keeps_one_column_order(command_line: CommandLine) -> None:
    done = command_line("bounds", "--noise-multiplier", "1.123456:10:2", *PRISM)
    head, first, *_ = done.stdout.splitlines()
    columns = [
        "sigma",
        "z",
        "nominal",
        "eps",
        "g",
        "g-composed",
        "g-as-published",
        "single-task",
        "dp-cap",
        "nominal-curve",
    ]
    assert head.split() == columns
    assert first.split()[:2] == ["1.123", "1.123"]
    assert "batch 64 of 2,000 records, q = 0.032, 20 epochs (625 steps), delta 1e-05" in " ".join(done.stdout.split())


def test_a_probability_short_of_one_is_never_printed_as_one(command_line: CommandLine) -> None:
    """Phi(5) is .9999997, and Phi(20) is 1 to every float; without noise it is 1."""
    for sigma, shown in (("0.2", ">.9999"), ("0.05", ">.9999"), ("0", "1")):
        done = command_line("bounds", "--sigma", sigma)
        assert done.stdout.splitlines()[1].split()[2:] == [shown] * 4


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    out = io.StringIO()
    monkeypatch.setattr(numbers, "plain_console", lambda: Console(file=out, width=width, highlight=False))
    nothing = dict.fromkeys(("sigma", "clip", "moved", "mechanism", "unit", "batch", "records", "delta", "plot"))
    asked = {"noise_multiplier": "1.23456:9:3", "rho": "0.12345:1:2", "tasks": "3:4:2", "releases": "1:20:2"}
    numbers.run_bounds(nothing | asked, as_json=False)
    lines = out.getvalue().splitlines()
    rows = [line.split() for line in lines if line.split()[:1] in (["1.235"], ["5.117"], ["9"])]
    assert len(rows) == 24
    assert all(len(row) == 9 for row in rows)
    assert "…" not in out.getvalue()


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_plot_is_written(command_line: CommandLine, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"bounds.{suffix}"
    done = command_line("bounds", "--noise-multiplier", "1:10:8", *PRISM, "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"wrote {file}\n"
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    if suffix == "svg":
        for name in (b"g-composed", b"nominal-curve", b"dp-cap"):
            assert name in content


def test_a_plot_names_what_varies_what_is_fixed_and_what_coincides(command_line: CommandLine, tmp_path: Path) -> None:
    """At K = 3, J = 2, rho .5 the general form is Phi(C / sigma), as is the published one at rho 0."""
    file = tmp_path / "bounds.svg"
    asked = ("--rho", "0:1:3", "--tasks", "3", "--releases", "20", "--plot", str(file))
    assert command_line("bounds", "--noise-multiplier", "1:10:4", *asked).returncode == 0
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", file.read_text(encoding="utf-8"))
    for text in (
        "C = 1, K = 3, J = 2, T = 20",
        "accuracy on the coin",
        "chance",
        "g-composed, rho 0.5",
        "g, rho 0.5 = g-as-published, rho 0 = single-task",
    ):
        assert text in texts
    assert sum("single-task" in text for text in texts) == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted), st.floats(0.01, 0.08))
def test_labels_keep_their_order_their_distance_and_the_axes(values: list[float], gap: float) -> None:
    places = figure._spread(values, gap, 0.0, 1.0)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(places))
    assert gap / 2 - 1e-9 <= places[0]
    assert places[-1] <= 1 - gap / 2 + 1e-9
    if all(b - a >= gap for a, b in itertools.pairwise(values)) and gap / 2 <= values[0] and values[-1] <= 1 - gap / 2:
        assert places == pytest.approx(values)


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
        (["bounds", "--sigma", "1e300"], "--sigma must be 0 or from"),
        (["bounds", "--sigma", "1e-320"], "--sigma must be 0 or from"),
        (["bounds", "--sigma", "1e-200", "--mechanism", "separate"], "--sigma must be 0 or from"),
        (["bounds", "--sigma", "1", "--clip", "1e8"], "sigma / C must be 0 or from"),
        (["bounds", "--sigma=0:inf:3"], "must be finite"),
        (["bounds", "--sigma", "1", "--releases", "1" + 400 * "0"], "at most 1,000,000"),
        (["bounds", "--sigma", "1", "--releases", "1:1" + 400 * "0" + ":3"], "at most 1,000,000"),
        (["bounds", "--sigma", "1", "--moved", "1" + 5000 * "0"], "--moved must be"),
        (["bounds", "--sigma", "1", "--tasks", "1000000000", "--moved", "1"], "--tasks must be at least 1 and at most"),
        (["bounds", "--sigma", "1", "--tasks", "2:4:4"], "not all whole"),
        (["bounds", "--sigma", "1", "--batch", "1", "--records", "1000000000000"], "--records must be at least 1"),
        (["bounds", "--sigma", "1", "--batch", "65", "--records", "64"], "at most --records = 64"),
        (["bounds", "--sigma", "1", "--batch", "64"], "go together"),
        (["bounds", "--sigma", "1", "--records", "64"], "go together"),
        (
            ["bounds", "--sigma", "1", "--batch", "64", "--records", "2000", "--delta", "5"],
            "--delta must lie in (0, 1)",
        ),
        (
            ["bounds", "--sigma", "1", "--batch", "64", "--records", "2000", "--delta", "0"],
            "--delta must lie in (0, 1)",
        ),
        (["bounds", "--sigma", "1", "--delta", "1e-5"], "does nothing without"),
        (["bounds", "--sigma", "1", "--unit", ""], "--unit is empty"),
        (["bounds", "--sigma", "1", "--unit", "tpr@1e-320"], "at least 1e-300"),
        (["bounds", "--sigma", "1:2:2", "--plot", ""], "--plot is empty"),
        (["bounds", "--sigma", "1:2:2", "--plot", "no/such/folder/x.png"], "there is no folder"),
        (["bounds", "--noise-multiplier", "1:2:3", "--rho", "0:1:30", "--plot", "x.png"], "at most 24 lines"),
        (["bounds", "--noise-multiplier", "1:2:501", "--batch", "1", "--records", "2"], "at most 500"),
        (["accounting", "--noise-multiplier", "1e-300"], "above 0"),
        (["accounting", "--noise-multiplier", "1e300"], "above 0"),
        (["accounting", "--noise-multiplier", "1:2:5000"], "at most 500"),
        (["accounting", "--eps", "1", "--sites", "0"], "--sites must be at least 1"),
        (["accounting", "--eps", "1", "--sites", "-1"], "--sites must be at least 1"),
        (["accounting", "--eps", "1", "--epochs", "1000000000"], "--epochs must be at least 1 and at most"),
        (["accounting", "--eps", "1", "--batch", "65", "--records", "64"], "at most --records = 64"),
        (["accounting", "--eps", "1", "--tasks", "2:4:3"], "takes one number"),
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

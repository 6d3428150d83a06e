"""A sweep is verified cell by cell, and its judgement again from the cells; its report is printed as the sweep was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CommandLine
from forging import forge

from privbench.errors import RecordError
from privbench.options import AuditOptions
from privbench.record import SWEEP_FILE
from privbench.registry import Registry
from privbench.report import sweep_pages
from privbench.report.pages import write_pages
from privbench.sweep.plan import plan
from privbench.sweep.record import Sweep, read_sweep
from privbench.sweep.summary import collect, judge_again
from privbench.sweep.verify import verify_sweep
from privbench.sweep.work import run_cells

SETTINGS = {"records": "160", "releases": "4", "width": "8", "rho": "0.5"}
Edit = Callable[[list[dict[str, Any]]], None]


@pytest.fixture(scope="module")
def swept(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cells of two noises that ended, and one that did not."""
    out = tmp_path_factory.mktemp("swept")
    wanted = [
        AuditOptions("gaussian", noise_multiplier=noise, seed=seed, settings=SETTINGS)
        for noise in (1.0, 4.0)
        for seed in range(2)
    ]
    cells = plan(wanted, registry)
    run_cells(cells[:3], out, jobs=1, retry=False, ended=lambda item: None)
    write_all(collect(cells, out, registry), out)
    return out


def write_all(sweep: Sweep, out: Path) -> None:
    write_pages({**sweep_pages.pages(sweep), SWEEP_FILE: sweep.to_text().encode()}, out)


@pytest.fixture
def copy(swept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(swept, tmp_path / "sweep"))


def edit_rows(out: Path, edit: Edit) -> None:
    """A forger's sweep.json, with pages that say the same."""
    data = json.loads((out / SWEEP_FILE).read_text(encoding="utf-8"))
    edit(data["rows"])
    (out / SWEEP_FILE).write_text(json.dumps(data), encoding="utf-8")
    write_all(read_sweep(out), out)


def cells_of(out: Path) -> list[Path]:
    return [file.parent for file in sorted(out.glob("cells/*/audit.json"))]


def test_an_honest_sweep_agrees(copy: Path, command_line: CommandLine, registry: Registry) -> None:
    assert verify_sweep(copy, registry).cells == 3
    for given in (copy, copy / SWEEP_FILE):
        done = command_line("verify", str(given))
        assert done.returncode == 0, done.stdout
        assert done.stdout.startswith("Recomputed, and all agrees: of 3 cells values,")
        assert "Not checked: the coins, the figure." in done.stdout


def test_judging_again_writes_the_same_file(swept: Path, registry: Registry) -> None:
    text = (swept / SWEEP_FILE).read_text(encoding="utf-8")
    assert judge_again(read_sweep(swept), swept, registry).to_text() == text
    assert [row["status"] for row in json.loads(text)["rows"]] == ["done", "done", "done", "missing"]


@pytest.mark.parametrize("forged", [False, True], ids=["edited", "forged"])
def test_each_cell_that_differs_has_one_line(
    copy: Path, command_line: CommandLine, registry: Registry, forged: bool
) -> None:
    """Two of three cells, with several differences each; with hashes renewed they differ no less."""
    first, second, third = cells_of(copy)

    def better(data: dict[str, Any], scores: Any = None) -> None:
        for finding in data["findings"]:
            finding["value"], finding["reason"] = 0.5, "trust me"

    for folder in (first, third):
        if forged:
            aside = forge(folder, copy / "aside", better, None)
            shutil.rmtree(folder)
            aside.rename(folder)
        else:
            data = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
            better(data)
            (folder / "audit.json").write_text(json.dumps(data), encoding="utf-8")
    done = command_line("verify", str(copy))
    assert done.returncode == 1
    *lines, summary = done.stdout.splitlines()
    named = [line for line in lines if not line.startswith(SWEEP_FILE)]
    assert [line.partition(":")[0] for line in named] == [first.name, third.name]
    assert all(f"more: privbench verify {folder}" in done.stdout for folder in (first, third))
    assert second.name not in done.stdout
    assert summary.startswith("2 of 3 cells differ; sweep.json or its pages differ in ")


def test_a_damaged_cell_is_a_difference_and_the_others_are_verified(copy: Path, command_line: CommandLine) -> None:
    first, _, third = cells_of(copy)
    (first / "audit.json").write_text("{", encoding="utf-8")
    (third / "scores.safetensors").unlink()
    done = command_line("verify", str(copy))
    assert done.returncode == 1
    assert f"{first.name}: " in done.stdout
    assert f"{third.name}: " in done.stdout
    assert "sweep.json: it cannot be judged again" in done.stdout


def within(rows: list[dict[str, Any]]) -> None:
    for finding in rows[0]["findings"]:
        finding["verdict"] = "WITHIN" if finding["verdict"] != "WITHIN" else "EXCEEDED"


def larger_share(rows: list[dict[str, Any]]) -> None:
    judged = next(finding for finding in rows[1]["findings"] if finding["share"] is not None)
    judged["share"] *= 2


def dropped(rows: list[dict[str, Any]]) -> None:
    del rows[0]["findings"][0]


def another_noise(rows: list[dict[str, Any]]) -> None:
    rows[0]["noise_multiplier"] = 8.0


def another_seed(rows: list[dict[str, Any]]) -> None:
    rows[1]["seed"] = 9


def another_setting(rows: list[dict[str, Any]]) -> None:
    rows[1]["settings"]["rho"] = "0"


def swapped(rows: list[dict[str, Any]]) -> None:
    rows[0]["cell"], rows[2]["cell"] = rows[2]["cell"], rows[0]["cell"]


def made_up(rows: list[dict[str, Any]]) -> None:
    rows[3] |= {"status": "done", "findings": rows[2]["findings"]}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            within,
            "noise multiplier 1.0, records 160, releases 4, width 8, rho 0.5, seed 0/findings/0/verdict: recorded",
        ),
        (larger_share, "/share: recorded"),
        (dropped, "/findings/"),
        (another_noise, "/noise_multiplier: recorded 8.0, recomputed 1.0"),
        (another_seed, "/seed: recorded 9, recomputed 1"),
        (another_setting, "/settings/rho: recorded '0', recomputed '0.5'"),
        (swapped, "recomputed"),
        (made_up, "seed 1: recorded as done, and its cell is missing"),
    ],
)
def test_a_sweep_that_says_something_else_than_its_cells_is_found(
    copy: Path, command_line: CommandLine, edit: Edit, said: str
) -> None:
    edit_rows(copy, edit)
    done = command_line("verify", str(copy))
    assert done.returncode == 1
    assert said in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 of 3 cells differ; sweep.json or its pages differ in ")


def test_an_unfinished_sweep_takes_no_larger_share(copy: Path, registry: Registry) -> None:
    """A row left out would lend its share to the others: the tests no longer add up to those of the file."""
    edit_rows(copy, lambda rows: rows.pop())
    assert verify_sweep(copy, registry).files[0].startswith("sweep.json: tests: recorded 8, recomputed 6")


def test_a_cell_that_the_sweep_leaves_out_is_said(copy: Path, command_line: CommandLine, registry: Registry) -> None:
    left = read_sweep(copy)
    kept = judge_again(Sweep(left.version, left.alpha, left.tests, left.rows[1:]), copy, registry)
    write_all(kept, copy)
    done = command_line("verify", str(copy))
    assert done.returncode == 0, done.stdout
    assert "1 of 3 cells is in no row of sweep.json: verified by itself alone." in done.stdout


@pytest.mark.parametrize("page", ["sweep.md", "sweep.html"])
def test_a_page_that_says_something_else_is_named(copy: Path, registry: Registry, page: str) -> None:
    text = (copy / page).read_text(encoding="utf-8")
    (copy / page).write_text(text.replace("3 of 4 cells", "4 of 4 cells"), encoding="utf-8")
    assert [line.partition(":")[0] for line in verify_sweep(copy, registry).files] == [page]
    (copy / page).unlink()
    assert verify_sweep(copy, registry).files == ()


def test_a_folder_that_holds_no_cell_or_no_sweep_exits_2(copy: Path, command_line: CommandLine) -> None:
    done = command_line("verify", str(copy), "--secrets", "secrets.safetensors")
    assert (done.returncode, "--secrets are of one audit" in done.stderr) == (2, True)
    shutil.rmtree(copy / "cells")
    done = command_line("verify", str(copy))
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds sweep.json and no cell" in done.stderr
    (copy / SWEEP_FILE).write_text('{"schema": 1}', encoding="utf-8")
    for command in ("verify", "report"):
        done = command_line(command, str(copy))
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_an_audit_within_a_sweeps_folder_is_still_an_audit(swept: Path, copy: Path, command_line: CommandLine) -> None:
    for file in cells_of(swept)[0].iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    done = command_line("verify", str(copy))
    assert done.returncode == 0
    assert done.stdout.startswith("Recomputed, and all agrees: values,")


def test_report_prints_what_the_sweep_did_and_renders_its_pages(command_line: CommandLine, tmp_path: Path) -> None:
    grid = ["--target", "gaussian", "--noise-multiplier", "1,4", "--jobs", "1", "--exit-zero"]
    settings = [item for key, value in SETTINGS.items() for item in ("--set", f"{key}={value}")]
    done = command_line("sweep", *grid, *settings, "--out", "sweep")
    assert done.returncode == 0, done.stderr
    pages = {file.name: file.read_bytes() for file in (tmp_path / "sweep").iterdir() if file.is_file()}
    assert len(pages) == 5
    for name in set(pages) - {SWEEP_FILE}:
        (tmp_path / "sweep" / name).unlink()
    again = command_line("report", "sweep")
    assert again.returncode == 0
    assert again.stdout == done.stdout.removesuffix("Sweep: sweep\n") != done.stdout
    assert {name: (tmp_path / "sweep" / name).read_bytes() for name in pages} == pages


def test_an_empty_folder_is_no_sweep(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(RecordError, match=r"holds no sweep\.json"):
        verify_sweep(tmp_path, registry)

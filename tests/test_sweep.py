"""Sweeps: the grid, killing and sharing, failed cells, one judgement over all, what is printed."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import ROOT, CommandLine

from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.registry import default_registry
from privbench.report import sweep_pages
from privbench.report.sweep_lines import lines
from privbench.sweep.plan import Cell, combinations, plan
from privbench.sweep.record import Sweep, read_sweep
from privbench.sweep.summary import collect, exit_code
from privbench.sweep.work import FAILED_FILE, failure, folder_of, is_done, run_cell, run_cells
from privbench.verdict import ALPHA, RHO_SHARE

SMALL = ["--set", "records=160", "--set", "releases=4", "--set", "width=8"]
SETTINGS = {"records": "160", "releases": "4", "width": "8"}


def cells(noises: tuple[float, ...] = (1.0, 4.0), seeds: int = 2, **settings: str) -> tuple[Cell, ...]:
    wanted = [
        AuditOptions("gaussian", noise_multiplier=noise, seed=seed, settings={**SETTINGS, **settings})
        for noise in noises
        for seed in range(seeds)
    ]
    return plan(wanted, default_registry())


def run(found: tuple[Cell, ...], out: Path, jobs: int = 1, *, retry: bool = False) -> Sweep:
    run_cells(found, out, jobs=jobs, retry=retry, ended=lambda item: None)
    return collect(found, out, default_registry())


def findings(out: Path) -> dict[str, str]:
    """Every cell's findings as text, by address."""
    return {
        folder.name: json.dumps(json.loads((folder / "audit.json").read_text(encoding="utf-8"))["findings"])
        for folder in sorted((out / "cells").iterdir())
    }


# The grid


def test_every_combination_is_one_cell_and_the_same_audit_is_not_run_twice() -> None:
    assert len(combinations({"a": 1}, {"x": [1, 2, 3], "y": "ab"})) == 6
    assert [item["y"] for item in combinations({}, {"x": [1], "y": "ab"})] == ["a", "b"]
    assert len({cell.address for cell in cells(seeds=3)}) == 6
    twice = [AuditOptions("gaussian", noise_multiplier=2.0)] * 2
    assert len(plan(twice, default_registry())) == 1


def test_everything_that_changes_a_result_changes_the_address() -> None:
    base = AuditOptions("gaussian", noise_multiplier=2.0)
    others = [
        replace(base, seed=1),
        replace(base, noise_multiplier=2.5),
        replace(base, settings={"rho": "0.5"}),
        replace(base, delta=1e-6),
        replace(base, attacks=("label/spectral",)),
        AuditOptions("prism", noise_multiplier=2.0),
        AuditOptions("prism", noise_multiplier=2.0, party="B"),
    ]
    assert len({cell.address for cell in plan([base, *others], default_registry())}) == 1 + len(others)


def test_a_changed_plugin_is_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack of somebody else: its source is part of the address, so that no stale record is taken for its own."""
    source = tmp_path / "somebodys_attack.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    addresses = []
    for sign in ("+", "-"):
        source.write_text(
            f"from privbench.attacks.label.spectral import Spectral\nclass Own(Spectral):\n    SIGN = {sign}1\n",
            encoding="utf-8",
        )
        registry = default_registry().add("attacks", "label/own", "somebodys_attack:Own")
        addresses.append(plan([AuditOptions("gaussian", noise_multiplier=2.0)], registry)[0].address)
    assert addresses[0] != addresses[1]


def test_a_grid_that_is_too_large_or_empty_is_refused() -> None:
    with pytest.raises(InputError, match="at most 100,000"):
        combinations({}, {"x": range(1_000), "y": range(1_000)})
    with pytest.raises(InputError, match="empty list"):
        combinations({}, {"eps": []})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "gaussian"], "exactly one of --eps"),
        (["--target", "gaussian", "--eps", "1", "--sigma", "2"], "takes one of --eps"),
        (["--target", "gaussian", "--noise-multiplier", "1,x"], "must be a number, got 'x'"),
        (["--target", "gaussian", "--noise-multiplier", "1,-2"], "got -2"),
        (["--target", "nobody", "--eps", "1"], "unknown target 'nobody'"),
        (["--target", "gaussian", "--eps", "1", "--seeds", "0"], "--seeds must be from 1"),
        (["--target", "gaussian", "--eps", "1", "--backend", "spark"], "unknown backend 'spark'"),
        (["--target", "gaussian", "--sigma", "1", "--data", "x"], "leave it out in a sweep"),
        (["--target", "gaussian", "--sigma", "1", "--set", "rho"], "key=value"),
        (["--target", "gaussian", "--sigma", "1", "--set", "rho=0,7"], "rho must be in"),
        (["--target", "gaussian", "--sigma", "1", "--set", "recods=20,40"], "did you mean records"),
        (["--target", "gaussian", "--sigma", "1", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    command_line: CommandLine, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = command_line("sweep", *arguments, "--out", str(tmp_path / "out"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not (tmp_path / "out").exists()


# Killing, sharing, failing


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    found = cells()
    run(found[:2], tmp_path)
    before = {cell.address: (folder_of(tmp_path, cell.address) / "audit.json").stat().st_mtime_ns for cell in found[:2]}
    run(found, tmp_path)
    for address, written in before.items():
        assert (folder_of(tmp_path, address) / "audit.json").stat().st_mtime_ns == written
    assert all(is_done(tmp_path, cell) for cell in found)


def test_two_workers_and_one_find_the_same_byte_for_byte(tmp_path: Path) -> None:
    found = cells()
    one, two = run(found, tmp_path / "one"), run(found, tmp_path / "two", jobs=2)
    assert one.to_text() == two.to_text()
    assert findings(tmp_path / "one") == findings(tmp_path / "two")


def test_a_cell_that_another_sweep_holds_is_left_to_it(tmp_path: Path) -> None:
    from filelock import FileLock

    cell = cells(seeds=1)[0]
    folder = folder_of(tmp_path, cell.address)
    folder.mkdir(parents=True)
    with FileLock(folder / ".lock"):
        assert run_cell(cell, tmp_path, wait=False).status == "busy"
    assert run_cell(cell, tmp_path, wait=False).status == "done"


def test_two_sweeps_at_once_share_a_folder(tmp_path: Path) -> None:
    """Both end well, each cell was made once (a record is never written over), and they agree."""
    command = [
        sys.executable,
        "-m",
        "privbench",
        "sweep",
        "--target",
        "gaussian",
        "--noise-multiplier",
        "1,2,4,8",
        *SMALL,
    ]
    command += ["--seeds", "3", "--jobs", "1", "--exit-zero", "--quiet", "--out", str(tmp_path)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert len(findings(tmp_path)) == 12
    assert not list(tmp_path.glob("cells/*/.partial*"))
    assert read_sweep(tmp_path).ended("done") == 12


def test_an_interrupted_sweep_says_what_is_kept(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privbench.cli import sweep as command

    honest, grid = command.run_cells, ["--target", "gaussian", "--sigma", "2,4", *SMALL, "--jobs", "1"]

    def interrupted(cells: tuple[Cell, ...], *arguments: object, **named: object) -> None:
        honest(cells[:1], *arguments, **named)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_cells", interrupted)
    done = command_line("sweep", *grid, "--out", str(tmp_path / "out"))
    assert done.returncode == 3
    assert "interrupted; 1 of 2 cells are kept in" in done.stderr


def test_a_failed_cell_stays_with_its_reason_until_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privbench.sweep import work

    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("out of luck")

    found = cells(noises=(2.0,), seeds=2)
    run(found[:1], tmp_path)
    honest = work.run_prepared
    monkeypatch.setattr(work, "run_prepared", broken)
    sweep = run(found, tmp_path)
    assert [row.status for row in sweep.rows] == ["done", "failed"]
    assert sweep.rows[1].reason == "RuntimeError: out of luck"
    assert exit_code(sweep, strict=False) == 3
    monkeypatch.setattr(work, "run_prepared", honest)
    assert run(found, tmp_path).rows[1].status == "failed"  # it is not tried again by itself
    again = run(found, tmp_path, retry=True)
    assert [row.status for row in again.rows] == ["done", "done"]
    assert not list(tmp_path.glob(f"cells/*/{FAILED_FILE}"))


def swept_with(folder: Path, cell: str, seeds: int) -> tuple[tuple[Cell, ...], str]:
    """A sweep of one cell a seed by two workers that do `cell` (lines of Python) before each; and what it printed."""
    (folder / "changed.py").write_text(
        "import os, signal, time\n"
        "import numpy as np\n"
        "from privbench.sweep import work\n"
        "HONEST, KEPT = work.run_cell, []\n"
        "def run_cell(cell, out, *, wait):\n"
        f"{textwrap.indent(cell, '    ')}\n"
        "    return HONEST(cell, out, wait=wait)\n",
        encoding="utf-8",
    )
    (folder / "script.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "import changed\n"
        "from privbench.options import AuditOptions\n"
        "from privbench.registry import default_registry\n"
        "from privbench.sweep import work\n"
        "from privbench.sweep.plan import plan\n"
        f"options = [AuditOptions('gaussian', sigma=2.0, seed=s, settings={SETTINGS!r}) for s in range({seeds})]\n"
        "cells = plan(options, default_registry())\n"
        "work.run_cell = changed.run_cell\n"
        "work.run_cells(cells, Path(sys.argv[1]), jobs=2, retry=False, ended=lambda item: None)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "script.py", str(folder / "out")],
        check=False, capture_output=True, text=True, timeout=300, cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    wanted = [AuditOptions("gaussian", sigma=2.0, seed=seed, settings=SETTINGS) for seed in range(seeds)]
    return plan(wanted, default_registry()), done.stdout + done.stderr


def test_a_killed_worker_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """One cell takes its process down, as the kernel does for memory."""
    found, _ = swept_with(tmp_path, "if cell.options.seed == 2:\n    os.kill(os.getpid(), signal.SIGKILL)", 4)
    out = tmp_path / "out"
    assert [is_done(out, cell) for cell in found] == [True, True, False, True]
    assert "its worker was killed" in str(failure(out, found[2].address))


def test_a_worker_that_grew_is_replaced_without_a_word(tmp_path: Path) -> None:
    """Each cell leaves 400 MB behind, and takes longer than loky waits between two looks: it ends the worker."""
    hoards = "KEPT.append(np.ones(50_000_000))\ntime.sleep(1.1)\n(out.parent / f'pid-{os.getpid()}').touch()"
    found, said = swept_with(tmp_path, hoards, 6)
    assert all(is_done(tmp_path / "out", cell) for cell in found)
    assert len(list(tmp_path.glob("pid-*"))) > 2
    assert said == ""


def killed_sweep(out: Path, grid: list[str], moments: list[float]) -> None:
    """Start the sweep, kill its whole process group after so many seconds, again and again, then let it end."""
    command = [sys.executable, "-m", "privbench", "sweep", *grid, "--quiet", "--exit-zero", "--out", str(out)]
    for moment in moments:
        process = subprocess.Popen(
            command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        time.sleep(moment)
        members = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for member in members:
            if member.is_running():
                member.kill()
        with suppress(ProcessLookupError):  # it had ended already
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    assert subprocess.run(command, check=False, capture_output=True, timeout=600).returncode == 0


def test_a_killed_sweep_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    """Eight cells, killed three times; ten times and sixty cells among the slow tests."""
    grid = ["--target", "gaussian", "--noise-multiplier", "1,2,4,8", "--seeds", "2", "--jobs", "2", *SMALL]
    killed_sweep(tmp_path / "killed", grid, [2.5, 3.0, 3.5])
    killed_sweep(tmp_path / "undisturbed", grid, [])
    assert findings(tmp_path / "killed") == findings(tmp_path / "undisturbed")
    assert (tmp_path / "killed" / "sweep.json").read_bytes() == (tmp_path / "undisturbed" / "sweep.json").read_bytes()
    assert not list(tmp_path.glob("killed/cells/*/.partial*"))


@pytest.mark.slow
def test_sixty_cells_killed_at_ten_random_moments_end_as_undisturbed(tmp_path: Path) -> None:
    grid = ["--target", "gaussian", "--noise-multiplier", "1,2,4,8,16,32", "--seeds", "10", "--jobs", "2"]
    moments = random.Random(4)
    killed_sweep(tmp_path / "killed", grid, [moments.uniform(1.0, 9.0) for _ in range(10)])
    killed_sweep(tmp_path / "undisturbed", grid, [])
    assert len(findings(tmp_path / "killed")) == 60
    assert findings(tmp_path / "killed") == findings(tmp_path / "undisturbed")
    assert (tmp_path / "killed" / "sweep.json").read_bytes() == (tmp_path / "undisturbed" / "sweep.json").read_bytes()


# One judgement


def test_all_tests_share_one_error_rate(tmp_path: Path) -> None:
    """The share of the smallest p-value is that of Holm over all cells; rho's limit is stricter than a cell's own."""
    found = cells(noises=(2.0,), seeds=6, rho="0.5")
    sweep = run(found, tmp_path)
    counted = [item for row in sweep.rows for item in row.findings if item.role == "confirmatory"]
    assert sweep.tests == len(counted) == 12
    assert min(item.share for item in counted if item.share) == pytest.approx((ALPHA - RHO_SHARE) / 12)
    cell = read(folder_of(tmp_path, found[0].address))
    own = {f.id: f.bound["p_value"] for f in cell.findings if f.role == "confirmatory" and f.bound}
    for item in sweep.rows[0].findings:
        if item.id in own and item.p_value is not None:
            assert item.p_value > own[item.id]


def test_a_leak_in_one_cell_is_exceeded_over_the_sweep_and_exits_1(tmp_path: Path) -> None:
    honest = cells(noises=(4.0,), seeds=3)
    leaky = cells(noises=(4.0,), seeds=1, signal="3")
    sweep = run((*honest, *leaky), tmp_path)
    assert sweep.count("EXCEEDED") >= 1
    assert all(item.verdict != "EXCEEDED" for row in sweep.rows[:3] for item in row.findings)
    assert exit_code(sweep, strict=False) == 1


def test_a_missing_cell_keeps_its_share_and_exits_3(tmp_path: Path) -> None:
    found = cells(noises=(4.0,), seeds=4)
    run_cells(found[:3], tmp_path, jobs=1, retry=False, ended=lambda item: None)
    sweep = collect(found, tmp_path, default_registry())
    assert sweep.ended("missing") == 1
    assert sweep.tests == 8
    assert exit_code(sweep, strict=False) == 3


@pytest.mark.slow
def test_an_honest_mechanism_at_its_bound_is_exceeded_at_most_at_its_level() -> None:
    """200 recordings whose moves sit on the bound; at most 5% EXCEEDED. With 1.5 times the signal at least 95%."""
    from privbench.runner import run_audit

    def exceeded(seed: int, signal: str) -> bool:
        options = AuditOptions("gaussian", noise_multiplier=4.0, seed=seed, settings={"rho": "1", "signal": signal})
        return any(f.verdict == "EXCEEDED" for f in run_audit(options, default_registry()).audit.findings)

    assert sum(exceeded(seed, "1") for seed in range(200)) <= 10
    assert sum(exceeded(seed, "1.5") for seed in range(200)) >= 190


# What is shown


def test_the_record_reads_back_and_lines_average_seeds(tmp_path: Path) -> None:
    sweep = run(cells(noises=(1.0, 8.0), seeds=3), tmp_path)
    (tmp_path / "sweep.json").write_text(sweep.to_text(), encoding="utf-8")
    assert read_sweep(tmp_path).to_text() == sweep.to_text()
    (line,) = lines(sweep)
    assert [point.noise for point in line.points] == [1.0, 8.0]
    quiet = line.points[0]
    values = [row.value("label/oracle-lr", "all") for row in sweep.rows if row.noise_multiplier == 1.0]
    read_back = [item.value for item in values if item is not None and item.value is not None]
    shown = quiet.leakage["label/oracle-lr", "all"]
    assert shown.mean == pytest.approx(np.mean(read_back))
    assert (shown.low, shown.high) == (min(read_back), max(read_back))
    assert quiet.seeds == 3
    # The closed form, T = 4 and rho = 0: rho's limit lies a little above.
    assert quiet.bounds["g-composed"] == pytest.approx(0.5 * (1 + math.erf(2 / math.sqrt(2))), abs=0.02)


def test_an_attack_of_ones_own_has_its_column_and_its_curve(tmp_path: Path) -> None:
    sweep = run(cells(noises=(1.0, 8.0), seeds=1), tmp_path)
    renamed = [
        replace(row, findings=tuple(replace(item, attack="label/own") for item in row.findings)) for row in sweep.rows
    ]
    own = replace(sweep, rows=tuple(renamed))
    text = sweep_pages.markdown(own)
    assert "| label/own, all |" in text
    assert "seed 0; attacks label/own; privbench" in text
    assert b"label/own, all releases" in sweep_pages.figure(own)["sweep.svg"]


def test_the_headline_counts_every_verdict_and_what_was_judged(tmp_path: Path) -> None:
    found = cells(noises=(0.2, 4.0), seeds=2)
    run_cells(found[:3], tmp_path, jobs=1, retry=False, ended=lambda item: None)
    sweep = collect(found, tmp_path, default_registry())
    said = sweep_pages.headline(sweep)
    counted = [item for row in sweep.rows for item in row.findings if item.role == "confirmatory"]
    assert f"3 of 4 cells, {len(counted)} tests judged together" in said
    for verdict in {item.verdict for item in counted}:
        assert f"{sum(item.verdict == verdict for item in counted)} {verdict}" in said
    assert "1 missing" in said
    assert f"{found[3].options.seed}" in sweep_pages.named(sweep.rows[3])


def test_the_command_line_writes_the_pages_and_says_where(command_line: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    grid = ["--target", "gaussian", "--noise-multiplier", "2:8:3", "--set", "rho=0,0.5", *SMALL, "--jobs", "1"]
    done = command_line("sweep", *grid, "--out", str(out), "--exit-zero")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("privbench: 6 of 6 cells to run; recordings take up to ")
    assert "6 of 6 cells" in done.stdout
    assert "rho 0.5" in done.stdout
    names = {file.name for file in out.iterdir()}
    assert names == {"cells", "sweep.json", "sweep.md", "sweep.html", "sweep.svg", "sweep.png"}
    page = (out / "sweep.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert 'src="http' not in page
    assert 'href="http' not in page
    written = (out / "sweep.json").stat().st_mtime_ns
    again = command_line("sweep", *grid, "--out", str(out), "--exit-zero", "--quiet")
    assert again.returncode == 0
    assert (out / "sweep.json").stat().st_mtime_ns == written  # nothing changed, nothing written

"""`privbench sweep`: a grid of audits in one folder, resumable, judged together."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from privbench.cli.audit import SWEEP_LISTS, Request, read_toml, split_list
from privbench.cli.console import note, plain_console
from privbench.errors import OK, InputError, PrivbenchError, unknown
from privbench.grid import parse_range
from privbench.options import RECORDED, parse_number
from privbench.record import SWEEP_FILE, check_writable
from privbench.registry import default_registry
from privbench.report import sweep_pages, sweep_terminal
from privbench.report.pages import write_pages
from privbench.sweep.plan import Cell, combinations, plan
from privbench.sweep.record import Sweep
from privbench.sweep.summary import check_done, collect, exit_code
from privbench.sweep.work import BACKENDS, Ended, failure, is_done, run_cells

DEFAULT_OUT = "privbench-sweep"


def run_sweep(
    given: Mapping[str, Any],
    file: Path | None,
    *,
    retry: bool,
    backend: str | None,
    strict: bool,
    exit_zero: bool,
    quiet: bool,
) -> int:
    """Plan, run what is missing, judge all of it together; the exit code is the sweep's."""
    values = {
        **(read_toml(file, extra=("seeds",)) if file else {}),
        **{k: v for k, v in given.items() if v is not None},
    }
    if backend not in (None, *BACKENDS):
        raise unknown("backend", str(backend), BACKENDS)
    out = Path(str(values.pop("out", DEFAULT_OUT)))
    jobs = int(parse_number("--jobs", str(values.pop("jobs", os.cpu_count() or 1)), whole=True))
    if jobs < 1:
        raise InputError(f"--jobs must be at least 1, got {jobs}.")
    requests = [Request.build(item, None) for item in _grid(values)]
    registry = default_registry()
    cells = plan([request.options for request in requests], registry)
    check_writable(out)
    if not all(is_done(out, cell) for cell in cells):
        check_done(cells, out)  # else they are read once, to be judged
    _announce(cells, out, jobs, quiet)
    try:
        with _progress(cells, out, retry, quiet) as ended:
            run_cells(cells, out, jobs=jobs, retry=retry, ended=ended)
    except KeyboardInterrupt:
        kept = sum(is_done(out, cell) for cell in cells)
        raise PrivbenchError(
            f"interrupted; {kept} of {len(cells)} cells are kept in {out}, and the same command goes on from there."
        ) from None
    sweep = collect(cells, out, registry)
    _write(sweep, out)
    console = plain_console()
    if quiet:
        console.print(sweep_pages.headline(sweep), markup=False, style="bold")
    else:
        sweep_terminal.show(sweep, console)
        if sweep.ended("failed") and not retry:
            console.print("Failed cells stay as they are; --retry runs them again.", markup=False)
        console.print(f"Sweep: {out}", markup=False, style="dim")
    return OK if exit_zero else exit_code(sweep, strict=strict)


def _grid(values: dict[str, Any]) -> list[dict[str, Any]]:
    """One set of options per cell: every combination of what is listed."""
    lists: dict[str, Sequence[Any]] = {}
    for key in ("target", "data", "model", "defense"):
        if key in values:
            found = values.pop(key)
            lists[key] = found if isinstance(found, list) else [found]
    if RECORDED in lists.get("target", ()):
        raise InputError("a recording is one audit: `privbench audit --transcript`; a sweep is over targets that run.")
    if "gaussian" in lists.get("target", ()) and "data" in lists:
        raise InputError("--data of target gaussian is one folder for one recording; leave it out in a sweep.")
    lists["defense"] = [[item] for item in lists.get("defense", [])] or [[]]
    for key in SWEEP_LISTS:
        if key in values:
            lists[key] = _numbers(key, values.pop(key))
    if sum(key in lists for key in SWEEP_LISTS) > 1:
        raise InputError("a sweep takes one of --eps, --noise-multiplier and --sigma; lists are allowed.")
    settings = [str(item) for item in values.pop("set", ())]
    for item in settings:
        key, separator, text = item.partition("=")
        if not separator:
            raise InputError(f"--set takes key=value or key=value,value; got '{item}'.")
        if f"set {key}" in lists:
            raise InputError(f"--set {key} is given twice; list its values in one: --set {key}=VALUE,VALUE.")
        lists[f"set {key}"] = [f"{key}={value}" for value in split_list(text)] or [item]
    first = int(parse_number("--seed", str(values.pop("seed", 0)), whole=True))
    count = int(parse_number("--seeds", str(values.pop("seeds", 1)), whole=True))
    if not 1 <= count <= 10_000:
        raise InputError(f"--seeds must be from 1 to 10,000, got {count}.")
    lists["seed"] = range(first, first + count)
    cells = combinations(values, lists)
    for cell in cells:
        cell["set"] = [cell.pop(key) for key in list(cell) if key.startswith("set ")]
    return cells


def _numbers(key: str, given: Any) -> list[str]:
    """Values by commas, each a number or start:stop:count."""
    found = []
    for item in split_list(given):
        found += (
            [f"{value:.12g}" for value in parse_range(f"--{key.replace('_', '-')}", item)] if ":" in item else [item]
        )
    return found


def _announce(cells: Sequence[Cell], out: Path, jobs: int, quiet: bool) -> None:
    missing = sum(not is_done(out, cell) for cell in cells)
    need = jobs * max((cell.disk_bytes for cell in cells), default=0)
    if missing and not quiet:
        free = shutil.disk_usage(out).free
        text = (
            f"privbench: {missing} of {len(cells)} cells to run; recordings take up to {need / 1e6:,.0f} MB in {out} "
        )
        note(text + f"({free / 1e9:,.0f} GB free).")


@contextmanager
def _progress(cells: Sequence[Cell], out: Path, retry: bool, quiet: bool) -> Iterator[Callable[[Ended], None]]:
    """Cells done, rate and time left on stderr; nothing where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda item: None
        return
    done = sum(is_done(out, cell) or (not retry and failure(out, cell.address) is not None) for cell in cells)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("cells", total=len(cells), completed=done, rate="")
        started, failed = time.monotonic(), 0

        def ended(item: Ended) -> None:
            nonlocal failed
            failed += item.status == "failed"
            bars.advance(task)
            ran = bars.tasks[0].completed - done
            rate = f"{60 * ran / max(time.monotonic() - started, 1e-9):.1f} a minute"
            bars.update(task, rate=rate + (f", {failed} failed" if failed else ""))

        yield ended


def _write(sweep: Sweep, out: Path) -> None:
    """sweep.json and its pages, whole or not at all; nothing where nothing changed."""
    text = sweep.to_text()
    file = out / SWEEP_FILE
    if file.exists() and file.read_text(encoding="utf-8") == text and (out / "sweep.html").exists():
        return
    write_pages({**sweep_pages.pages(sweep), SWEEP_FILE: text.encode()}, out)

"""Run the cells: in worker processes, each under a lock, each written whole or not at all.

A cell is done when its audit.json is there, which is renamed into place last. Killing anything at any moment loses the
cells in flight only: their locks end with their processes, and what they left half-written is removed when they are run
again. Two sweeps on one folder share the work.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privbench.errors import InputError
from privbench.record import AUDIT_FILE, write, write_aside
from privbench.registry import default_registry
from privbench.runner import prepare, run_prepared
from privbench.sweep.plan import Cell

FAILED_FILE = "failed.json"
BACKENDS = ("loky",)

Status = Literal["done", "failed", "busy"]


@dataclass(frozen=True)
class Ended:
    """How a cell ended: its record is there, it raised (the reason is kept), or another sweep is at it."""

    address: str
    status: Status


def folder_of(out: Path, address: str) -> Path:
    return out / "cells" / address


def is_done(out: Path, cell: Cell) -> bool:
    return (folder_of(out, cell.address) / AUDIT_FILE).exists()


def failure(out: Path, address: str) -> str | None:
    """Why a cell failed, or None."""
    try:
        return str(json.loads((folder_of(out, address) / FAILED_FILE).read_text(encoding="utf-8"))["reason"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder_of(out, address) / FAILED_FILE} cannot be read: {error}. Remove it.") from error


def run_cells(cells: Sequence[Cell], out: Path, *, jobs: int, retry: bool, ended: Callable[[Ended], None]) -> None:
    """Run every cell that is neither done nor, unless `retry`, failed. `ended` is told of each, as it ends.

    Cells that another sweep holds are waited for at the end: they are then done, or are run here.
    """
    missing = [cell for cell in cells if not is_done(out, cell) and (retry or failure(out, cell.address) is None)]
    busy = []
    for item in _all(missing, out, jobs, wait=False):
        if item.status == "busy":
            busy.append(item.address)
        else:
            ended(item)
    for item in _all([cell for cell in missing if cell.address in busy], out, jobs, wait=True):
        ended(item)


def _all(cells: Sequence[Cell], out: Path, jobs: int, *, wait: bool) -> Iterator[Ended]:
    """In parallel; if a worker is killed, what it left is run one by one, so that the cell at fault is known."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = {cell.address: cell for cell in cells}
    try:
        for item in _parallel(cells, out, jobs, wait):
            del left[item.address]
            yield item
    except TerminatedWorkerError:
        for cell in tuple(left.values()):
            yield _alone(cell, out, wait)


def _parallel(cells: Sequence[Cell], out: Path, jobs: int, wait: bool) -> Iterator[Ended]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor

    # One thread per worker: parallel over cells, never over kernels. A cell takes seconds: no batching.
    with warnings.catch_warnings(), parallel_config(backend="loky", inner_max_num_threads=1):
        # Where psutil is installed, loky ends a worker between two cells when it holds 300 MB more than after its
        # first, as training may, and starts a fresh one: no cell is lost, and one that is killed raises.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        yield from pool(delayed(run_cell)(cell, out, wait=wait) for cell in cells)
    if jobs > 1 and cells:
        get_reusable_executor().shutdown(wait=False)  # the workers end while the cells are judged, not after


def _alone(cell: Cell, out: Path, wait: bool) -> Ended:
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with ProcessPoolExecutor(max_workers=1) as pool:
        try:
            ended: Ended = pool.submit(run_cell, cell, out, wait=wait).result()
            return ended
        except TerminatedWorkerError:
            _keep_failure(out, cell, "its worker was killed, often for memory: make it smaller, or use --jobs 1")
            return Ended(cell.address, "failed")


def run_cell(cell: Cell, out: Path, *, wait: bool) -> Ended:
    """Run one cell in this process, unless it is done. `wait`: for another sweep that holds it; else it is "busy"."""
    from filelock import FileLock, Timeout

    folder = folder_of(out, cell.address)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=-1 if wait else 0):
            return Ended(cell.address, "done" if is_done(out, cell) else _run(cell, out, folder))
    except Timeout:
        return Ended(cell.address, "busy")
    except OSError as error:
        raise InputError(f"{folder} cannot hold a cell: {error.strerror or error}. Remove what is there.") from error


def _run(cell: Cell, out: Path, folder: Path) -> Status:
    for left in folder.glob(".partial-*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    registry = default_registry()
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as recordings:
            result = run_prepared(prepare(cell.options, registry), registry, parallel=1, folder=Path(recordings))
        if result.audit.cell != cell.address:
            raise InputError("the data or the code changed while the sweep ran; start it again.")
        write(result.audit, result.scores, {}, folder)
    except InputError as error:
        _keep_failure(out, cell, str(error))
        return "failed"
    except Exception as error:
        _keep_failure(out, cell, f"{type(error).__name__}: {error}")
        return "failed"
    (folder / FAILED_FILE).unlink(missing_ok=True)
    return "done"


def _keep_failure(out: Path, cell: Cell, reason: str) -> None:
    """A failed cell stays, with its reason, until --retry."""

    def put(aside: Path) -> list[str]:
        (aside / FAILED_FILE).write_text(json.dumps({"reason": reason}) + "\n", encoding="utf-8")
        return [FAILED_FILE]

    write_aside(folder_of(out, cell.address), put)

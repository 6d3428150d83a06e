"""Verify a sweep: every cell's record by itself, then the judgement over all cells and the pages, again from the cells.

The figure is not compared: another version of matplotlib draws other bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privbench.differences import fields
from privbench.errors import InputError, RecordError
from privbench.record import AUDIT_FILE, SWEEP_FILE
from privbench.registry import Registry
from privbench.report.sweep_pages import named, pages
from privbench.sweep.record import Row, Sweep, read_sweep
from privbench.sweep.summary import judge_again
from privbench.sweep.work import folder_of
from privbench.verify import verify

_FIGURE = re.compile(rb"<svg.*?</svg>", re.DOTALL)


@dataclass(frozen=True)
class Verified:
    """How many cells were verified, how many of these sweep.json does not hold, and a line for each that differs; then
    a line for each row of sweep.json and each page that differs.
    """

    cells: int
    outside: int
    differing: tuple[str, ...]
    files: tuple[str, ...]


def verify_sweep(out: Path, registry: Registry) -> Verified:
    """Everything that follows from the cells of a sweep's folder. Raises RecordError where there is none of them."""
    sweep = read_sweep(out)
    cells = sorted(file.parent for file in out.glob(f"cells/*/{AUDIT_FILE}"))
    if not cells:
        raise RecordError(f"{out} holds {SWEEP_FILE} and no cell, {folder_of(out, 'HASH')}: nothing can be verified.")
    differing = tuple(line for cell in cells for line in _cell(cell, registry))
    outside = {cell.name for cell in cells} - {row.cell for row in sweep.rows}
    return Verified(len(cells), len(outside), differing, tuple(_files(sweep, out, registry)))


def _cell(folder: Path, registry: Registry) -> Iterator[str]:
    """One line for a cell that differs."""
    try:
        found = verify(folder, registry)
    except (InputError, RecordError) as error:
        found = (str(error),)
    if found:
        more = f"; and {len(found) - 1} more: privbench verify {folder}" if found[1:] else ""
        yield f"{folder.name}: {found[0]}{more}"


def _files(sweep: Sweep, out: Path, registry: Registry) -> Iterator[str]:
    """What sweep.json and the pages beside it say otherwise than the cells do: a line for each row, and each page."""
    try:
        again = judge_again(sweep, out, registry)
    except (InputError, RecordError) as error:
        yield f"{SWEEP_FILE}: it cannot be judged again ({error})"
        return
    for key in ("alpha", "tests"):
        yield from fields(f"{SWEEP_FILE}: {key}", getattr(sweep, key), getattr(again, key))
    for recorded, row in zip(sweep.rows, again.rows, strict=True):
        where = f"{SWEEP_FILE}: {named(recorded)}"
        found = tuple(fields(where, _plain(recorded), _plain(row)))
        if recorded.status != row.status:
            yield f"{where}: recorded as {recorded.status}, and its cell is {row.status}"
        elif found:
            yield found[0] + (f"; and {len(found) - 1} more" if found[1:] else "")
    for name, page in pages(sweep).items():
        file = out / name
        if not name.endswith((".md", ".html")) or not file.exists():
            continue
        if _FIGURE.sub(b"", file.read_bytes()) != _FIGURE.sub(b"", page):
            yield f"{name}: not what this version of privbench renders from {SWEEP_FILE}; `privbench report` does anew"


def _plain(row: Row) -> dict[str, Any]:
    """As JSON objects alone, so that a difference is named by its path."""
    data = asdict(row)
    return {**data, **{key: dict(enumerate(data[key])) for key in ("findings", "utility")}}

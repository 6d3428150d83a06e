"""The grid's sweeps beside this file, pair by pair: both methods of a cell, seed for seed, in one metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from privbench.errors import RecordError
from privbench.stats.answers import Undefined
from privbench.stats.paired import Difference, Judged, difference, judge_cells
from privbench.sweep.record import Row, read_sweep

SPLIT, FEDAVG = "split", "fedavg"
SCHEMAS, SHARES = ("homogeneous", "moderate", "heterogeneous"), ("even", "power", "one-large")
ANLS, ACCURACY, F1, KAPPA = "ANLS, generated", "accuracy", "macro F1", "quadratic kappa"
METRICS = (ANLS, ACCURACY, F1, KAPPA)
ALPHA = 0.05

Values = tuple[Sequence[float], Sequence[float]]
"""Of split learning and of federated averaging, in the same order of seeds."""


@dataclass(frozen=True)
class Cell:
    """A metric in a cell of the grid. lost: seeds in which one of both has no value (kappa of one answer for all)."""

    values: Values
    baseline: float
    judged: Judged
    lost: int

    @property
    def means(self) -> tuple[float, float]:
        return fmean(self.values[0]), fmean(self.values[1])


Grid = Mapping[tuple[str, str], Cell]


def read_rows(folders: Mapping[str, Path]) -> dict[tuple[str, str, str], list[Row]]:
    """Rows of every sweep by method, schema and share; `RecordError` where a cell is not done. folders: by method, of
    its schemas.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for schema in SCHEMAS:
        for method, folder in folders.items():
            for row in read_sweep(folder / schema / method).rows:
                if row.status != "done":
                    raise RecordError(f"{schema}, {method}: a cell is {row.status}; run the sweep to its end.")
                found.setdefault((method, schema, row.settings["share"]), []).append(row)
    return found


def judged_grid(rows: Mapping[tuple[str, str, str], Sequence[Row]], metric: str) -> Grid:
    """All nine cells in one metric, one family under Holm."""
    values, base, lost = {}, {}, {}
    for schema in SCHEMAS:
        for share in SHARES:
            both = [_by_seed(rows[method, schema, share], metric) for method in (SPLIT, FEDAVG)]
            seeds = sorted(both[0].keys() & both[1].keys())
            values[f"{schema}, {share}"] = tuple([one[seed][0] for seed in seeds] for one in both)
            base[schema, share] = fmean(both[0][seed][1] for seed in seeds) if seeds else math.nan
            lost[schema, share] = len(rows[SPLIT, schema, share]) - len(seeds)
    judged = judge_cells(values)  # type: ignore[arg-type]
    return {
        where: Cell(values[", ".join(where)], base[where], judged[", ".join(where)], lost[where])  # type: ignore[arg-type]
        for where in base
    }


def _by_seed(rows: Sequence[Row], metric: str) -> dict[int, tuple[float, float]]:
    """Value and most frequent answer's, of the first task that a row lists: of several surveys all of them together."""
    found = {}
    for row in rows:
        first = row.utility[0]["task"]
        for item in row.utility:
            if item["task"] == first and item["metric"] == metric:
                found[row.seed] = float(item["value"]), float(item["baseline"])
    return found


def overall(grid: Grid) -> Difference | Undefined:
    """The mean over the nine cells, seed by seed: whose seeds all have a value."""
    cells = list(grid.values())
    return difference(*[[fmean(seed) for seed in zip(*(c.values[i] for c in cells), strict=True)] for i in (0, 1)])

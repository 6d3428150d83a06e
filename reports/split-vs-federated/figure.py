"""The report's figure: how far split learning is ahead in each cell, in every metric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from grid import ALPHA, Grid
from matplotlib.figure import Figure

from privbench.stats.answers import Undefined

SHOWN, NOT_SHOWN = "#D55E00", "#767676"


def draw(grids: Mapping[str, Grid], folder: Path) -> None:
    """figure.svg, a panel for each metric; the same sweeps give the same bytes."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "split-vs-federated", "font.family": "sans-serif"}):
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        panels = figure.subplots(1, len(grids), sharey=True)
        for axes, (metric, grid) in zip(panels, grids.items(), strict=True):
            for place, cell in enumerate(grid.values()):
                found = cell.judged.difference
                if isinstance(found, Undefined):
                    continue
                colour = SHOWN if cell.judged.differs(ALPHA) else NOT_SHOWN
                axes.hlines(place, found.interval.low, found.interval.high, color=colour, linewidth=1.6)
                axes.plot(found.interval.value, place, "o", color=colour, markersize=5)
            axes.axvline(0, color="#222222", linewidth=0.8)
            axes.set_title(metric, fontsize=10)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=4)
        panels[0].set_yticks(range(len(grid)), [", ".join(where) for where in grid])
        panels[0].invert_yaxis()
        figure.supxlabel(
            "split learning less FedAvg, 95% over five seeds (orange: shown under Holm; grey: may be chance)",
            fontsize=9,
        )
        figure.savefig(folder / "figure.svg", metadata={"Date": None, "Creator": None})

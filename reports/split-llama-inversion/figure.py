"""The report's figure: answers read by noise and depth, tokens read by pass of a client that moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from tables import ANSWERS, TOKENS, Groups, attacks, mean, values

from privbench.record import Audit
from privbench.report.words import short_name

# Okabe and Ito's palette: distinguishable with every common colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = (
    "nearest-token",
    "affine-token",
    "rescaled-token",
    "learned-token",
    "noise-aware-token",
    "searched-token",
    "relaxation",
)
"""One line in every panel, by its place."""
_NOISE = re.compile(r"noise=([\d.]+)")


def draw(sweeps: Mapping[str, Groups], folder: Path) -> None:
    """figure.svg, three panels; the same sweeps give the same bytes."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "split-llama-inversion", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.2, 10.6), layout="constrained")
        panels = figure.subplots(3)
        _by(panels[0], {_noise(name): audits for name, audits in sweeps["noise"].items() if _noise(name) is not None})
        panels[0].set_xlabel("noise, in root mean squares of the public table's entries (clip 1; 0: undefended)")
        _by(panels[1], {float(name): audits for name, audits in sweeps["depth"].items()})
        panels[1].set_xlabel("layers at the client")
        panels[1].set_xticks([float(name) for name in sweeps["depth"]])
        _passes(panels[2], sweeps["steps"])
        for axes in panels:
            axes.set_ylim(-0.02, 1.04)
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(folder / "figure.svg", metadata={"Date": None, "Creator": None})


def _noise(name: str) -> float | None:
    """Of an undefended run 0, of one with Gaussian noise its size."""
    found = _NOISE.search(name)
    return 0.0 if name == "none" else float(found[1]) if found else None


def _by(axes: Any, groups: Mapping[Any, Sequence[Audit]]) -> None:
    """Answers read from all passes, a line for each attack: means over seeds, and their range."""
    where = sorted(groups)
    for attack in attacks({str(x): list(audits) for x, audits in groups.items()}, ANSWERS):
        place = LINES.index(attack.removeprefix("inversion/"))
        found = {x: values(groups[x], attack, ANSWERS, True) for x in where}
        there = [x for x in where if found[x]]
        style = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4, "linewidth": 1.4}
        axes.plot(there, [mean(found[x]) for x in there], label=short_name(attack), **style)
        axes.vlines(there, [min(found[x]) for x in there], [max(found[x]) for x in there], color=style["color"])
    reply = [
        mean([f.baseline for a in groups[x] for f in a.findings if f.metric == ANSWERS and f.baseline]) for x in where
    ]
    axes.plot(where, reply, color="#767676", linewidth=0.8, label="one reply for all")
    axes.set_ylabel("answers read, all passes")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _passes(axes: Any, groups: Groups) -> None:
    """Tokens of answers that nearest-token reads of each pass by itself, and dotted of all until then, at the end."""
    for place, (name, audits) in enumerate(groups.items()):
        lines = [audit.series["inversion/nearest-token"] for audit in audits]
        x, y = lines[0].x, [mean(at) for at in zip(*(line.y for line in lines), strict=True)]
        moved = mean([(audit.inputs or {})["drift"][-1] for audit in audits])
        label = f"client's rate {name} times the server's,\nmoved by {moved:.2g} lengths of a row in the end"
        axes.plot(x, y, color=COLOURS[place], marker=MARKERS[place], markersize=4, linewidth=1.4, label=label)
        everything = mean(values(audits, "inversion/nearest-token", TOKENS, True))
        axes.plot(
            [x[-1] + 0.6], [everything], color=COLOURS[place], marker=MARKERS[place], markersize=8, fillstyle="none"
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("pass (nearest-token attack; hollow marks at the end: all passes together)")
    axes.set_ylabel("answer tokens read")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))

"""The figure: accuracy on the coins over releases, against the bounds. One SVG, readable without colour."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privbench.errors import InputError
from privbench.record import Audit, Series
from privbench.report.words import ATTACK_NAMES

# Okabe and Ito's palette: distinguishable with every common colour vision.
_ATTACKS = {"label/oracle-lr": ("#0072B2", "o"), "label/spectral": ("#D55E00", "s")}
_BOUNDS = {
    "bound g-composed": ("-", "g-composed"),
    "bound dp-cap": ("--", "dp-cap"),
    "bound nominal-curve": (":", "nominal-curve"),
}
_INK, _GREY = "#222222", "#767676"


def leakage_over_releases(audit: Audit) -> str:
    """An SVG as text, without XML prologue, to stand inside a page. The same record gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": audit.cell, "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.2, 4.4), layout="constrained")
        axes = figure.subplots()
        labels: list[tuple[float, str, str]] = []
        for name, (style, text) in _BOUNDS.items():
            if name in audit.series:
                line = audit.series[name]
                axes.plot(line.x, line.y, color=_INK, linestyle=style, linewidth=1.4)
                labels.append((line.y[-1], text, _INK))
        if "oracle, predicted" in audit.series:
            line = audit.series["oracle, predicted"]
            axes.plot(line.x, line.y, color="#0072B2", linewidth=1, linestyle=(0, (1, 1)))
        for name, line in _attack_series(audit.series).items():
            colour, marker = _ATTACKS.get(name, ("#009E73", "^"))
            if line.low is not None and line.high is not None:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(line.x, line.y, color=colour, marker=marker, markersize=3.5, linewidth=1.4)
            labels.append((line.y[-1], ATTACK_NAMES.get(name, name).removeprefix("the "), colour))
        axes.axhline(0.5, color=_GREY, linewidth=0.8)
        labels.append((0.5, "chance", _GREY))
        _label_ends(axes, labels)
        last = max((line.x[-1] for line in audit.series.values()), default=1.0)
        axes.set_xlim(1 if last > 1 else 0.5, last + 0.02 * last)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("releases of each record that the site has seen")
        axes.set_ylabel("label coins guessed right")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def bounds_over_noise(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Bounds over noise multipliers, one line per bound (and per combination of the other parameters), SVG or PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if path.suffix not in (".svg", ".png"):
        raise InputError(f"--plot writes .svg or .png, got '{path.name}'.")
    if len({row["sigma"] / row["clip"] for row in rows}) < 2:
        raise InputError("--plot needs a range of noise: --noise-multiplier start:stop:count.")
    styles = {"g": "-", "g-composed": "-", "g-as-published": "-.", "single-task": ":", "dp-cap": "--"}
    colours = {"g": "#0072B2", "g-composed": "#D55E00", "dp-cap": "#222222", "nominal-curve": "#009E73"}
    lines: dict[tuple[str, tuple[float, ...]], list[tuple[float, float]]] = {}
    for row in rows:
        rest = tuple(float(row[key]) for key in ("rho", "tasks", "moved", "releases"))
        for name, value in row["bounds"].items():
            lines.setdefault((name, rest), []).append((row["sigma"] / row["clip"], value))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privbench", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.6, 4.4), layout="constrained")
        axes = figure.subplots()
        labels = []
        for (name, _), points in lines.items():
            x, y = zip(*sorted(points), strict=True)
            colour = colours.get(name, _GREY)
            axes.plot(x, y, color=colour, linestyle=styles.get(name, "--"), linewidth=1.5)
            labels.append((y[-1], name, colour))
        _label_ends(axes, labels)
        axes.set_xlabel("noise multiplier z = sigma / C")
        axes.set_ylabel(str(rows[0]["unit"]))
        axes.spines[["top", "right"]].set_visible(False)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}.") from error


def _attack_series(series: Mapping[str, Series]) -> dict[str, Series]:
    return {name: line for name, line in series.items() if not name.startswith("bound ") and line.low is not None}


def _label_ends(axes: object, labels: list[tuple[float, str, str]]) -> None:
    """Names at the right end of their lines, pushed apart so that none overlaps another."""
    from matplotlib.axes import Axes

    if not isinstance(axes, Axes):
        raise TypeError("labels need matplotlib axes.")
    low, high = axes.get_ylim()
    gap = 0.052 * (high - low)
    place = -1.0
    for value, text, colour in sorted(labels):
        place = max(value, place + gap)
        axes.annotate(
            text,
            xy=(1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=9,
        )
    axes.set_ylim(low, max(high, place + gap / 2))

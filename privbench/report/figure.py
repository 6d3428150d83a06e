"""The figure: what was guessed and read over releases, against the bounds. One SVG, readable without colour."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privbench.errors import InputError
from privbench.record import Audit, Series
from privbench.report.words import ATTACK_NAMES, LANGUAGE_MODEL, ONE_REPLY, READ, most_read, without_cut

# Okabe and Ito's palette: distinguishable with every common colour vision.
_ATTACKS = {
    "label/oracle-lr": ("#0072B2", "o"),
    "label/spectral": ("#D55E00", "s"),
    "inversion/affine-token": ("#E69F00", "^"),
    "inversion/learned-token": ("#0072B2", "s"),
    "inversion/nearest-token": ("#CC79A7", "D"),
    "inversion/rescaled-token": ("#56B4E9", "v"),
    "inversion/noise-aware-token": ("#222222", "P"),
    "inversion/searched-token": ("#D55E00", "o"),
    "inversion/relaxation": ("#009E73", "X"),
}
_BOUNDS = {
    "bound g-composed": ("-", "g-composed"),
    "bound dp-cap": ("--", "dp-cap"),
    "bound nominal-curve": (":", "nominal-curve"),
}
_INK, _GREY = "#222222", "#767676"

_LINES = {
    "g": ("#CC79A7", "-"),
    "g-composed": (_INK, "-"),
    "g-as-published": ("#E69F00", "-."),
    "single-task": ("#56B4E9", (0, (4, 1))),
    "dp-cap": (_INK, "--"),
    "nominal-curve": (_INK, ":"),
}
"""Bounds over noise: those of `_BOUNDS` as there, the others in colours that no attack has."""
_SYMBOLS = {"clip": "C", "tasks": "K", "moved": "J", "releases": "T", "rho": "rho"}
_MOST_LINES = 24
_Label = tuple[float, str, str]
"""Where a line ends, its name and its colour."""


def leakage_over_releases(audit: Audit) -> str:
    """An SVG as text, without XML prologue, to stand inside a page: coins above, inputs below, where there are both.

    The same record gives the same bytes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    inversions = {item.attack for item in audit.findings if item.metric in READ}
    reads = {name: line for name, line in audit.series.items() if name in inversions}
    guesses = {name: line for name, line in audit.series.items() if name not in inversions}
    halves = [item for item in ((_draw_coins, guesses), (_draw_inputs, reads)) if item[1]]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": audit.cell, "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.2, 4.4 * len(halves)), layout="constrained")
        panels = figure.subplots(len(halves), squeeze=False)[:, 0]
        for axes, (draw, series) in zip(panels, halves, strict=True):
            draw(axes, series, audit)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def _draw_coins(axes: Any, series: Mapping[str, Series], audit: Audit) -> None:
    """Every attack on coins against the bounds over releases, and what the oracle's moves predict."""
    labels: list[_Label] = []
    for name, (style, text) in _BOUNDS.items():
        if name in series:
            line = series[name]
            axes.plot(line.x, line.y, color=_INK, linestyle=style, linewidth=1.4)
            labels.append((line.y[-1], text, _INK))
    if "oracle, predicted" in series:
        line = series["oracle, predicted"]
        axes.plot(line.x, line.y, color="#0072B2", linewidth=1, linestyle=(0, (1, 1)))
    _draw_attacks(axes, series, labels, (0.5, "chance"))
    axes.set_xlabel("releases of each record that the site has seen")
    axes.set_ylabel("label coins guessed right")


_SHORT = {ONE_REPLY: "one reply for all", LANGUAGE_MODEL: "language model, no cut"}


def _draw_inputs(axes: Any, series: Mapping[str, Series], audit: Audit) -> None:
    """Every inversion against the best of what takes no leak at all."""
    read = most_read(audit)
    level = (0.0, ONE_REPLY) if read is None else (read.baseline or 0.0, without_cut(read, audit))
    _draw_attacks(axes, series, [], (level[0], _SHORT[level[1]]))
    axes.set_xlabel("release, one pass of the training")
    axes.set_ylabel("answer tokens read")


def _draw_attacks(axes: Any, series: Mapping[str, Series], labels: list[_Label], no_leak: tuple[float, str]) -> None:
    """The attacks' curves with their intervals, and the level that takes no leak; every line is named at its end."""
    from matplotlib.ticker import MaxNLocator

    for name, line in _attack_series(series).items():
        colour, marker = _ATTACKS.get(name, ("#009E73", "^"))
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(line.x, line.y, color=colour, marker=marker, markersize=3.5, linewidth=1.4)
        labels.append((line.y[-1], ATTACK_NAMES.get(name, name).removeprefix("the "), colour))
    level, called = no_leak
    axes.axhline(level, color=_GREY, linewidth=0.8)
    labels.append((level, called, _GREY))
    _label_ends(axes, labels)
    last = max((line.x[-1] for line in series.values()), default=1.0)
    axes.set_xlim(1 if last > 1 else 0.5, last + 0.02 * last)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK)


def check_plot(path: Path, multipliers: Sequence[float]) -> None:
    """`InputError` where `bounds_over_noise` could not draw or write: before anything is computed."""
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"--plot writes .svg or .png, got '{path}'.")
    if len(set(multipliers)) < 2:
        raise InputError("--plot needs a range of noise: --noise-multiplier start:stop:count.")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}.")


def bounds_over_noise(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Bounds over noise multipliers, SVG or PNG: one line per bound and per other parameters that change it.

    rows: those of `privbench bounds --json`. `InputError` as in `check_plot`, and for more than 24 lines.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    check_plot(path, [row["noise_multiplier"] for row in rows])
    first = rows[0]
    varying = [key for key in _SYMBOLS if len({row[key] for row in rows}) > 1]
    lines = _lines_over_noise(rows, varying)
    if len(lines) > _MOST_LINES:
        raise InputError(f"--plot draws at most {_MOST_LINES} lines, and these ranges make {len(lines)}.")
    fixed = [f"{symbol} = {first[key]:.4g}" for key, symbol in _SYMBOLS.items() if key not in varying]
    claim = first["nominal_claim"]
    if claim is not None:
        fixed += [f"q = {claim['sample_rate']:.4g}", f"delta = {claim['delta']:g}"]
    chance = {"accuracy": 0.5, "auc": 0.5}.get(first["unit"])
    # Names stand beside the axes: long ones must not make those narrow, nor many of them short.
    width = 6.4 + 0.07 * max(len(text) for _, text, _, _ in lines)
    height = max(4.4, 0.24 * (len(lines) + 2))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privbench", "font.family": "sans-serif"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        labels = []
        for name, text, x, y in lines:
            colour, style = _LINES.get(name, (_GREY, "-"))
            axes.plot(x, y, color=colour, linestyle=style, linewidth=1.5)
            labels.append((y[-1], text, colour))
        if chance is not None:
            axes.axhline(chance, color=_GREY, linewidth=0.8)
            labels.append((chance, "chance", _GREY))
        axes.set_xlim(min(x[0] for _, _, x, _ in lines), max(x[-1] for _, _, x, _ in lines))
        _label_ends(axes, labels)
        axes.set_title(", ".join(fixed), fontsize=9, color=_INK, loc="left")
        axes.set_xlabel("noise multiplier z = sigma / C")
        axes.set_ylabel({"accuracy": "accuracy on the coin"}.get(first["unit"], first["unit"]))
        axes.spines[["top", "right"]].set_visible(False)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}.") from error


def _lines_over_noise(
    rows: Sequence[Mapping[str, Any]], varying: Sequence[str]
) -> list[tuple[str, str, tuple[float, ...], tuple[float, ...]]]:
    """(bound, label, x, y) of every line; lines that coincide are one, with all their names."""
    curves: dict[str, dict[tuple[float, ...], list[tuple[float, float]]]] = {}
    for row in rows:
        for name, value in row["bounds"].items():
            if math.isfinite(value):
                key = tuple(row[parameter] for parameter in varying)
                curves.setdefault(name, {}).setdefault(key, []).append((row["noise_multiplier"], value))
    if not curves:
        raise InputError("--plot has nothing to draw: no bound is finite over this range.")
    merged: dict[tuple[tuple[float, float], ...], tuple[str, list[str]]] = {}
    for name, by_key in curves.items():
        kept = [i for i in range(len(varying)) if _changes(by_key, i)]
        for key, points in by_key.items():
            words = ", ".join((name, *(f"{_SYMBOLS[varying[i]]} {key[i]:.4g}" for i in kept)))
            seen = merged.setdefault(_rounded(points), (name, []))[1]
            if words not in seen:
                seen.append(words)
    return [
        (name, " = ".join(seen), tuple(x for x, _ in points), tuple(y for _, y in points))
        for points, (name, seen) in merged.items()
    ]


def _changes(by_key: Mapping[tuple[float, ...], list[tuple[float, float]]], i: int) -> bool:
    """Whether the i-th parameter tells any two lines of a bound apart."""
    alike: dict[tuple[float, ...], set[tuple[tuple[float, float], ...]]] = {}
    for key, points in by_key.items():
        alike.setdefault(key[:i] + key[i + 1 :], set()).add(_rounded(points))
    return any(len(lines) > 1 for lines in alike.values())


def _rounded(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """To 9 digits: closer lines are one."""
    return tuple((float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in sorted(points))


def _attack_series(series: Mapping[str, Series]) -> dict[str, Series]:
    return {name: line for name, line in series.items() if not name.startswith("bound ") and line.low is not None}


def _label_ends(axes: object, labels: list[_Label]) -> None:
    """Names at the right end of their lines, moved apart as little as none overlaps another; a thin line leads to each
    name that was moved.
    """
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if not isinstance(axes, Axes) or not isinstance(axes.figure, Figure):
        raise TypeError("labels need the axes of a matplotlib figure.")
    ordered = sorted(labels)
    low, high = axes.get_ylim()
    # A name needs a fifth of an inch; the axes take four fifths of their share of the figure's height.
    grid = axes.get_gridspec()
    height = axes.figure.get_figheight() / (1 if grid is None else grid.nrows)
    gap = (high - low) * min(0.2 / (0.8 * height), 1 / len(ordered))
    places = _spread([value for value, _, _ in ordered], gap, low, high)
    axes.set_ylim(low, high)
    for place, (value, text, colour) in zip(places, ordered, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(
            text,
            xy=(1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(1.03, place),
            textcoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontsize=9,
            annotation_clip=False,
            arrowprops=leader if abs(place - value) > gap / 4 else None,
        )


def _spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in [low, high] at least `gap` apart, in order, nearest to ascending `values` in squares.

    Pooled adjacent violators; the limits then only clip (isotonic regression between bounds).
    """
    blocks: list[tuple[float, int]] = []
    for i, value in enumerate(values):
        mean, size = value - i * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    least, most = low + gap / 2, high - gap * (len(values) - 0.5)
    return [min(max(mean, least), most) + i * gap for i, mean in enumerate(flat)]

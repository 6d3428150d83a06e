"""A sweep's pages: sweep.md, sweep.html and the figure over noise, leakage above and utility below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from privbench.report.html import page
from privbench.report.sweep_lines import BOUNDS, ORACLE, SPECTRAL, Line, Point, lines
from privbench.report.words import number
from privbench.sweep.record import Sweep
from privbench.verdict import Verdict

_INK, _GREY = "#222222", "#767676"
# Okabe and Ito's palette, as in an audit's figure.
_MEASURED = {
    (ORACLE, "all"): ("oracle, all releases", "#0072B2", "o"),
    (SPECTRAL, "all"): ("spectral, all releases", "#D55E00", "s"),
    (ORACLE, "one"): ("oracle, one release", "#56B4E9", "^"),
}
_ALLOWED = {"g-composed": "-", "g": "-.", "nominal-curve": ":"}
_TASKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_MOST_PANELS = 4

COLUMNS = (
    "noise multiplier", "eps", "oracle, one release", "g", "oracle, all", "spectral, all", "g-composed",
    "nominal-curve", "dp-cap",
)  # fmt: skip


def headline(sweep: Sweep) -> str:
    """The sweep in a sentence."""
    exceeded, done = sweep.count(Verdict.EXCEEDED), sweep.ended("done")
    said = "nothing exceeded" if not exceeded else f"{exceeded} EXCEEDED"
    text = f"{done} of {len(sweep.rows)} cells, {sweep.tests} tests judged together: {said}, "
    text += f"{sweep.count(Verdict.WITHIN)} WITHIN, {sweep.count(Verdict.INCONCLUSIVE)} INCONCLUSIVE."
    lost = [f"{sweep.ended(status)} {status}" for status in ("failed", "missing") if sweep.ended(status)]
    return text if not lost else f"{text} Incomplete: {' and '.join(lost)}."


NOTE = (
    "Every test of every cell shares one error rate of .05 by Holm's method (less .005 for the limits of measured "
    "rhos): a cell's own record judges that cell alone. Of several seeds the mean is shown. WITHIN is never a proof of "
    "safety."
)


def rows(line: Line) -> list[tuple[str, ...]]:
    """The table of one line: a point each, by falling noise."""
    return [(*_cells(point), *(u.text() for u in point.utility.values()), _said(point)) for point in line.points]


def header(line: Line) -> tuple[str, ...]:
    tasks = dict.fromkeys(task for point in line.points for task in point.utility)
    return (*COLUMNS, *(f"AUC {task}" for task in tasks), "verdicts")


def _cells(point: Point) -> tuple[str, ...]:
    def leak(attack: str, releases: str) -> str:
        found = point.leakage.get((attack, releases))
        return "–" if found is None else found.text()

    def bound(name: str) -> str:
        return number(point.bounds[name]) if name in point.bounds else "–"

    noise = "–" if point.noise is None else f"{point.noise:.4g}"
    eps = "–" if point.eps is None else point.eps if isinstance(point.eps, str) else f"{point.eps:.3g}"
    return (
        noise, eps, leak(ORACLE, "one"), bound("g"), leak(ORACLE, "all"), leak(SPECTRAL, "all"),
        *map(bound, BOUNDS[1:]),
    )  # fmt: skip


def _said(point: Point) -> str:
    parts = [f"{count} {verdict}" for verdict, count in point.verdicts.items()]
    if point.lost:
        parts.append(f"{point.lost} cell{'s' if point.lost > 1 else ''} without a record")
    return ", ".join(parts) or "–"


def table(line: Line) -> Table:
    """For a terminal; columns that say nothing are left out."""
    head, body = header(line), rows(line)
    kept = [i for i in range(len(head)) if any(i < len(row) and row[i] != "–" for row in body)]
    result = Table(
        title=line.name, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim"
    )
    for i in kept:
        result.add_column(head[i], justify="left" if head[i] == "verdicts" else "right", overflow="fold")
    for row in body:
        result.add_row(*(row[i] for i in kept))
    return result


def markdown(sweep: Sweep) -> str:
    """The sweep as text."""
    parts = ["# Privacy sweep", "", f"**{headline(sweep)}**", "", NOTE, ""]
    for line in lines(sweep):
        head = header(line)
        parts += [f"## {line.name}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        parts += [f"| {' | '.join(row)} |" for row in rows(line)]
        parts.append("")
    lost = [row for row in sweep.rows if row.status != "done"]
    if lost:
        parts += ["## Cells without a record", ""]
        parts += [f"- {row.cell[:16]} ({row.target}, seed {row.seed}): {row.reason or 'missing'}" for row in lost]
        parts.append("")
    parts += ["![leakage and utility over noise](sweep.svg)", ""]
    return "\n".join(parts)


def html(sweep: Sweep, drawing: str | None) -> str:
    """One self-contained page."""
    return page(
        "sweep.html.j2",
        drawing,
        headline=headline(sweep),
        note=NOTE,
        tables=[(line.name, header(line), rows(line)) for line in lines(sweep)],
        lost=[row for row in sweep.rows if row.status != "done"],
    )


def figure(sweep: Sweep) -> dict[str, bytes]:
    """sweep.svg and sweep.png; nothing where no line has two noises. The same sweep gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = [line for line in lines(sweep) if sum(bool(point.noise) for point in line.points) > 1][:_MOST_PANELS]
    if not drawn:
        return {}
    useful = any(point.utility for line in drawn for point in line.points)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privbench", "font.family": "sans-serif"}):
        shape = (2 if useful else 1, len(drawn))
        size = (max(7.6, 4.6 * len(drawn)), 6.4 if useful else 4.2)
        made = Figure(figsize=size, layout="constrained")
        ratios = [3, 2] if useful else [1]
        axes = made.subplots(*shape, squeeze=False, sharex="col", sharey="row", height_ratios=ratios)
        for column, line in enumerate(drawn):
            points = [point for point in line.points if point.noise][::-1]
            _draw_leakage(axes[0, column], points)
            axes[0, column].set_title(line.name if len(drawn) > 1 else "", fontsize=10, loc="left")
            if useful:
                _draw_utility(axes[1, column], points)
            _finish(axes[-1, column], points)
        axes[0, 0].set_ylabel("label coins guessed right")
        axes[0, -1].legend(frameon=False, fontsize=8.5, loc="upper right")
        if useful:
            axes[1, 0].set_ylabel("utility: AUC on test records")
            axes[1, -1].legend(frameon=False, fontsize=8.5, loc="lower left", ncols=2)
        return {f"sweep.{kind}": _saved(made, kind) for kind in ("svg", "png")}


def _draw_leakage(axes: Any, points: Sequence[Point]) -> None:
    for bound, dash in _ALLOWED.items():
        allowed = [(p.noise, p.bounds[bound]) for p in points if bound in p.bounds]
        if allowed:
            axes.plot(*zip(*allowed, strict=True), color=_INK, linestyle=dash, linewidth=1.3, label=f"{bound} allows")
    for key, (name, colour, marker) in _MEASURED.items():
        known = [(p.noise, p.leakage[key]) for p in points if key in p.leakage]
        if known:
            x = [noise for noise, _ in known]
            y = [spread.mean for _, spread in known]
            reach = [[s.mean - s.low for _, s in known], [s.high - s.mean for _, s in known]]
            axes.errorbar(
                x, y, reach, color=colour, marker=marker, markersize=4.5, linewidth=1.2, capsize=2, label=name
            )
    axes.axhline(0.5, color=_GREY, linewidth=0.8)
    axes.annotate("chance", (0.01, 0.5), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                  color=_GREY, fontsize=8.5)  # fmt: skip
    axes.set_ylim(0.45, 1.03)


def _draw_utility(axes: Any, points: Sequence[Point]) -> None:
    tasks = dict.fromkeys(task for point in points for task in point.utility)
    for colour, task in zip(_TASKS, tasks, strict=False):
        known = [(p.noise, p.utility[task]) for p in points if task in p.utility]
        x = [noise for noise, _ in known]
        reach = [[s.mean - s.low for _, s in known], [s.high - s.mean for _, s in known]]
        axes.errorbar(x, [s.mean for _, s in known], reach, color=colour, marker="o", markersize=4, linewidth=1.2,
                      capsize=2, label=task)  # fmt: skip


def _finish(axes: Any, points: Sequence[Point]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    noises = [point.noise for point in points if point.noise]
    if max(noises) / min(noises) > 6:
        axes.set_xscale("log")
    axes.set_xticks(noises)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.set_xlabel("noise multiplier z = sigma / C")
    for each in axes.figure.axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(colors=_INK)


def _saved(made: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    made.savefig(buffer, format=kind, dpi=150, metadata={"Date": None, "Creator": None} if kind == "svg" else None)
    return buffer.getvalue()

"""A sweep's pages: sweep.md, sweep.html and the figure over noise, leakage above and utility below."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from privbench.report import sweep_utility
from privbench.report.html import page
from privbench.report.sweep_lines import BOUNDS, ORACLE, SPECTRAL, Line, Point, lines
from privbench.report.words import number
from privbench.sweep.record import Row, Sweep
from privbench.verdict import Verdict

_INK, _GREY = "#222222", "#767676"
# Okabe and Ito's palette, as in an audit's figure.
_LOOKS = {ORACLE: ("#0072B2", "o"), SPECTRAL: ("#D55E00", "s")}
_ONE = ("#56B4E9", "^")
_OTHERS = (("#009E73", "D"), ("#CC79A7", "v"), ("#E69F00", "P"), ("#F0E442", "X"))
_ALLOWED = {"g-composed": "-", "g": "-.", "nominal-curve": ":"}
_TASKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_MOST_PANELS = 4
_NOTHING = "–"

_SHORT = {ORACLE: "oracle", SPECTRAL: "spectral"}


def headline(sweep: Sweep) -> str:
    """The sweep in a sentence."""
    exceeded, judged = sweep.count(Verdict.EXCEEDED), sweep.judged
    said = f"{exceeded} EXCEEDED" if exceeded else "nothing exceeded" if judged else "nothing could be judged"
    counts = [f"{sweep.count(item)} {item}" for item in Verdict if item != Verdict.EXCEEDED and sweep.count(item)]
    text = f"{sweep.ended('done')} of {len(sweep.rows)} cells, {judged} tests judged together: "
    text += ", ".join([said, *counts]) + "."
    lost = [f"{sweep.ended(status)} {status}" for status in ("failed", "missing") if sweep.ended(status)]
    return text if not lost else f"{text} Incomplete: {' and '.join(lost)}."


def setting(sweep: Sweep) -> str:
    """What was swept, in a sentence."""
    rows, seeds = sweep.rows, sorted({row.seed for row in sweep.rows})
    parts = [f"target {_each(row.target for row in rows)}", f"data {_each(row.data for row in rows)}"]
    parts.append(f"defence {_each(row.defense for row in rows)}")
    names = dict.fromkeys(key for row in rows for key in row.settings)
    parts += [f"{name} {_each(row.settings.get(name, 'by default') for row in rows)}" for name in names]
    parts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}")
    attacks = dict.fromkeys(item.attack for row in rows for item in row.findings)
    parts.append(f"attacks {', '.join(attacks) or 'none'}")
    return "; ".join(parts) + f"; privbench {sweep.version}"


def _each(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value)) or "unknown"


NOTE = (
    "Every test of every cell shares one error rate of .05 by Holm's method (less .005 for the limits of measured "
    "rhos): a cell's own record judges that cell alone. Of several seeds the mean is shown. Marks: ✗ EXCEEDED, ✓ "
    "WITHIN (never a proof of safety), ? INCONCLUSIVE, ○ VACUOUS, ! FAILED."
)


def table_of(line: Line) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of one line, by rising noise; columns that say nothing are left out."""
    attacks = dict.fromkeys(key for point in line.points for key in point.leakage)
    tasks = dict.fromkeys(task for point in line.points for task in point.utility)
    head = (
        "noise multiplier", "eps", *(_measured(*key) for key in attacks), *BOUNDS, *tasks,
        "verdicts",
    )  # fmt: skip
    body = [_cells(point, tuple(attacks), tuple(tasks)) for point in line.points]
    kept = [i for i in range(len(head)) if any(row[i] != _NOTHING for row in body)]
    return tuple(head[i] for i in kept), [tuple(row[i] for i in kept) for row in body]


def _measured(attack: str, releases: str) -> str:
    return f"{_SHORT.get(attack, attack)}, {'one release' if releases == 'one' else 'all'}"


def _cells(point: Point, attacks: Sequence[tuple[str, str]], tasks: Sequence[str]) -> tuple[str, ...]:
    noise = _NOTHING if point.noise is None else f"{point.noise:.4g}"
    eps = _NOTHING if point.eps is None else point.eps if isinstance(point.eps, str) else f"{point.eps:.3g}"
    leaks = [point.leakage[key].text() if key in point.leakage else _NOTHING for key in attacks]
    allowed = [number(point.bounds[name]) if name in point.bounds else _NOTHING for name in BOUNDS]
    useful = [point.utility[task].text() if task in point.utility else _NOTHING for task in tasks]
    return (noise, eps, *leaks, *allowed, *useful, _said(point))


def _said(point: Point) -> str:
    parts = [f"{count} {verdict}" for verdict, count in point.verdicts.items()]
    if point.lost:
        parts.append(f"{point.lost} cell{'s' if point.lost > 1 else ''} without a record")
    return ", ".join(parts) or _NOTHING


def named(row: Row) -> str:
    """A cell by what it was, for a list of those without a record."""
    noise = f"eps {row.eps}" if row.eps is not None else f"noise multiplier {row.noise_multiplier}"
    return ", ".join([row.target, noise, *(f"{k} {v}" for k, v in row.settings.items()), f"seed {row.seed}"])


def pages(sweep: Sweep) -> dict[str, bytes]:
    """Every page of a sweep by its file name, with the figure's files where there is one."""
    figures = figure(sweep)
    drawing = figures["sweep.svg"].decode() if figures else None
    return {
        "sweep.md": markdown(sweep).encode(),
        "sweep.html": html(sweep, drawing[drawing.index("<svg") :] if drawing else None).encode(),
        **figures,
    }


def markdown(sweep: Sweep) -> str:
    """The sweep as text."""
    parts = ["# Privacy sweep", "", f"**{headline(sweep)}**", "", f"{setting(sweep)}.", "", NOTE, ""]
    for line in lines(sweep):
        head, body = table_of(line)
        parts += [f"## {line.name}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        parts += [f"| {' | '.join(row)} |" for row in body]
        parts.append("")
    lost = [row for row in sweep.rows if row.status != "done"]
    if lost:
        parts += ["## Cells without a record", ""]
        parts += [f"- {named(row)} ({row.cell[:16]}): {row.reason or 'missing'}" for row in lost] + [""]
    if sweep_utility.has_seeds(sweep):
        head, body = sweep_utility.table(sweep)
        parts += ["## Utility over seeds", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        parts += [*(f"| {' | '.join(row)} |" for row in body), "", sweep_utility.NOTE, ""]
    if _drawn(sweep):
        parts += ["![Leakage over noise](sweep.svg)", ""]
    return "\n".join(parts)


def html(sweep: Sweep, drawing: str | None) -> str:
    """One self-contained page."""
    return page(
        "sweep.html.j2",
        drawing,
        headline=headline(sweep),
        note=NOTE,
        setting=setting(sweep),
        tables=[(line.name, *table_of(line)) for line in lines(sweep)],
        useful=sweep_utility.table(sweep) if sweep_utility.has_seeds(sweep) else None,
        useful_note=sweep_utility.NOTE,
        lost=[(named(row), row.cell[:16], row.reason or "missing") for row in sweep.rows if row.status != "done"],
    )


def figure(sweep: Sweep) -> dict[str, bytes]:
    """sweep.svg and sweep.png; nothing where no line has two noises. The same sweep gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = _drawn(sweep)
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
            points = [point for point in line.points if point.noise]
            _draw_leakage(axes[0, column], points)
            axes[0, column].set_title(line.name if len(drawn) > 1 else "", fontsize=10, loc="left")
            if useful:
                _draw_utility(axes[1, column], points)
            _finish(axes[-1, column], points)
        axes[0, 0].set_ylabel("label coins guessed right")
        # Below everything: inside, some line would run under it.
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if useful:
            axes[1, 0].set_ylabel("utility on test records")
            more, names = axes[1, 0].get_legend_handles_labels()
            handles, labels = handles + more, labels + names
        made.legend(handles, labels, frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
        return {f"sweep.{kind}": _saved(made, kind) for kind in ("svg", "png")}


def _drawn(sweep: Sweep) -> list[Line]:
    """The lines that a figure can show: those with two noises."""
    return [line for line in lines(sweep) if sum(bool(point.noise) for point in line.points) > 1][:_MOST_PANELS]


def _draw_leakage(axes: Any, points: Sequence[Point]) -> None:
    for bound, dash in _ALLOWED.items():
        allowed = [(p.noise, p.bounds[bound]) for p in points if bound in p.bounds]
        if allowed:
            axes.plot(*zip(*allowed, strict=True), color=_INK, linestyle=dash, linewidth=1.3, label=f"{bound} allows")
    others = iter(_OTHERS)
    for key in dict.fromkeys(key for point in points for key in point.leakage):
        attack, releases = key
        colour, marker = _ONE if releases == "one" else _LOOKS.get(attack) or next(others, (_GREY, "o"))
        known = [(p.noise, p.leakage[key]) for p in points if key in p.leakage]
        x, y = [noise for noise, _ in known], [spread.mean for _, spread in known]
        reach = [[s.mean - s.low for _, s in known], [s.high - s.mean for _, s in known]]
        name = f"{_SHORT.get(attack, attack)}, {'one release' if releases == 'one' else 'all releases'}"
        axes.errorbar(x, y, reach, color=colour, marker=marker, markersize=4.5, linewidth=1.2, capsize=2, label=name)
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

"""`privbench bounds` and `privbench accounting`: numbers without a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import track
from rich.table import Table

from privbench import accounting, pld
from privbench.bounds.base import BoundValue, Unsupported
from privbench.cli.console import plain_console
from privbench.cli.show import print_json
from privbench.errors import InputError
from privbench.grid import (
    MOST_ACCOUNTED,
    Point,
    bounds_at,
    combinations,
    epsilons_at,
    nominal_claim,
    parse_range,
    sample_rate,
)
from privbench.mechanism import Claim
from privbench.registry import default_registry

T = TypeVar("T")
Found = Mapping[str, BoundValue | Unsupported]

_WHOLE = ("tasks", "moved", "releases", "batch", "records", "epochs", "sites")
_PARAMETERS = ("clip", "rho", "tasks", "moved", "releases")
_NOTHING = "–"


def run_bounds(given: Mapping[str, str | None], *, as_json: bool) -> None:
    """Tabulate every bound over the given ranges; draw them over noise multipliers with --plot."""
    points = _points(given)
    plot = Path(given["plot"]) if given["plot"] is not None else None
    if plot is not None:
        from privbench.report.figure import check_plot

        check_plot(plot, [point.multiplier for point in points])
    registry = default_registry()
    found = [bounds_at(point, registry) for point in _watched(points, slow=points[0].sampling is not None)]
    rows = [_row(point, values) for point, values in zip(points, found, strict=True)]
    if plot is not None:
        from privbench.report.figure import bounds_over_noise

        bounds_over_noise(rows, plot)
        typer.echo(f"wrote {plot}", err=True)
    if as_json:
        _print_json(rows)
    else:
        _print_bounds(rows, found)


def run_accounting(given: Mapping[str, str | None], *, as_json: bool) -> None:
    """Every epsilon by name, at the noise that the nominal budget asks for and at the noise that the site's does."""
    _refuse_empty(given)
    if (given["eps"] is None) == (given["noise_multiplier"] is None):
        raise InputError("give exactly one of --eps and --noise-multiplier.")
    fixed = {key: _one(key, given[key] or default) for key, default in _ACCOUNTING.items()}
    delta = _delta(fixed["delta"])
    rate = sample_rate(int(fixed["batch"]), int(fixed["records"]))
    epochs, tasks, moved, sites = (int(fixed[key]) for key in ("epochs", "tasks", "moved", "sites"))
    count = pld.steps(rate, epochs)

    def row(label: str, eps: float | None, multiplier: float) -> dict[str, Any]:
        named = epsilons_at(multiplier, delta=delta, rate=rate, epochs=epochs, tasks=tasks, moved=moved, sites=sites)
        return {"noise for": label, "eps": eps, **named}

    key = "eps" if given["eps"] is not None else "noise_multiplier"
    asked = _range(key, str(given[key]))
    _refuse_many(len(asked))
    rows = []
    for value in _watched(asked, slow=True):
        if not 0 < value < math.inf:
            raise InputError(f"--{key.replace('_', '-')} must be a finite number above 0, got {value:g}.")
        if key == "eps":
            rows.append(row("nominal", value, accounting.nominal_multiplier(value, rate, count, delta)))
            rows.append(row("site", value, accounting.site_multiplier(value, delta, tasks, moved, epochs)))
        else:
            rows.append(row("given", None, value))
    if as_json:
        _print_json(rows)
        return
    columns = tuple(rows[0])
    _print_table(columns, [[_text(item[column]) for column in columns] for item in rows], left=("noise for",))
    batch, records = int(fixed["batch"]), int(fixed["records"])
    notes = [
        f"delta {delta}, batch {batch:,} of {records:,} records (q = {rate:.4g}), {count:,} steps, {epochs} releases "
        f"of a record, K = {tasks}, J = {moved}. nominal: add/remove, Poisson, Opacus RDP; PLD: dp-accounting. site "
        f"and outsider: replacing labels, no sampling, Gaussian DP; the outsider sees {sites} encoders."
    ]
    for reason in dict.fromkeys(pld.out_of_reach(item["noise multiplier"], rate, count) for item in rows):
        if reason is not None:
            notes.append(f"PLD says nothing here: {reason}.")
    _print_notes(notes)


_ACCOUNTING = {
    "delta": "1e-5",
    "batch": "64",
    "records": "2000",
    "epochs": "20",
    "tasks": "3",
    "moved": "2",
    "sites": "3",
}


def _points(given: Mapping[str, str | None]) -> list[Point]:
    """All combinations of the given ranges, in order; `InputError` before anything is computed."""
    _refuse_empty(given)
    if (given["sigma"] is None) == (given["noise_multiplier"] is None):
        raise InputError("give exactly one of --sigma and --noise-multiplier.")
    sampling = _sampling(given)
    noise = "sigma" if given["sigma"] is not None else "noise_multiplier"
    defaults = {"clip": "1", "rho": "0", "tasks": "2", "moved": "2", "releases": "1"}
    ranges = {noise: _range(noise, str(given[noise]))}
    ranges |= {key: _range(key, given[key] or default) for key, default in defaults.items()}
    points = []
    for item in combinations(ranges):
        point = Point(
            sigma=item["sigma"] if noise == "sigma" else item[noise] * item["clip"],
            clip=item["clip"],
            rho=item["rho"],
            tasks=int(item["tasks"]),
            moved=int(item["moved"]),
            releases=int(item["releases"]),
            mechanism=given["mechanism"] or "sum",
            unit=given["unit"] or "accuracy",
            sampling=sampling,
        )
        point.describe()
        points.append(point)
    if sampling is not None:
        _refuse_many(len({(point.multiplier, point.releases) for point in points}))
    return points


def _sampling(given: Mapping[str, str | None]) -> tuple[int, int, float] | None:
    """Batch, records and delta of the nominal claim, or None where none is asked for."""
    batch, records, delta = (given[key] for key in ("batch", "records", "delta"))
    if batch is None and records is None:
        if delta is not None:
            raise InputError("--delta does nothing without --batch and --records: it is that of the nominal claim.")
        return None
    if batch is None or records is None:
        raise InputError("--batch and --records go together: give both for what a nominal claim allows, or neither.")
    sizes = int(_one("batch", batch)), int(_one("records", records))
    sample_rate(*sizes)
    return *sizes, _delta(_one("delta", delta or "1e-5"))


def _delta(value: float) -> float:
    if not 0 < value < 1:
        raise InputError(f"--delta must lie in (0, 1), got {value:g}.")
    return value


def _refuse_empty(given: Mapping[str, str | None]) -> None:
    for key, text in given.items():
        if text is not None and not text.strip():
            raise InputError(f"--{key.replace('_', '-')} is empty; leave it out for the default.")


def _refuse_many(count: int) -> None:
    if count > MOST_ACCOUNTED:
        raise InputError(
            f"these ranges ask for {count:,} accountings, some seconds each; at most {MOST_ACCOUNTED} are made at once."
        )


def _watched(items: Sequence[T], *, slow: bool) -> Iterable[T]:
    """The items, with a bar on a terminal where each may take seconds."""
    if not slow or len(items) < 2 or not sys.stderr.isatty():
        return items
    return track(items, "accounting", console=Console(stderr=True), transient=True)


def _range(key: str, text: str) -> tuple[float, ...]:
    return parse_range("--" + key.replace("_", "-"), text, whole=key in _WHOLE)


def _one(key: str, text: str) -> float:
    values = _range(key, text)
    if len(values) > 1:
        raise InputError(f"--{key} takes one number, got the range '{text[:40]}'.")
    return values[0]


def _row(point: Point, values: Found) -> dict[str, Any]:
    return {
        "sigma": point.sigma,
        "noise_multiplier": point.multiplier,
        "clip": point.clip,
        "rho": point.rho,
        "tasks": point.tasks,
        "moved": point.moved,
        "releases": point.releases,
        "mechanism": point.mechanism,
        "unit": point.unit,
        "nominal_claim": _claim(point),
        "bounds": {name: v.value for name, v in values.items() if isinstance(v, BoundValue)},
        "unsupported": {name: f"{v.part}: {v.reason}" for name, v in values.items() if isinstance(v, Unsupported)},
    }


def _claim(point: Point) -> dict[str, Any] | None:
    """The nominal claim and what it is made of; its eps is None where none is claimed."""
    if point.sampling is None:
        return None
    batch, records, delta = point.sampling
    claim = nominal_claim(point)
    return {
        "eps": claim.eps if isinstance(claim, Claim) else None,
        "delta": delta,
        "batch": batch,
        "records": records,
        "sample_rate": batch / records,
        "epochs": point.releases,
        "steps": pld.steps(batch / records, point.releases),
        "neighbours": "add-remove",
        "accountant": "rdp",
    }


def _print_bounds(rows: list[dict[str, Any]], found: Sequence[Found]) -> None:
    first, names = rows[0], list(found[0])
    shown = [key for key in _PARAMETERS if len({row[key] for row in rows}) > 1]
    claimed = first["nominal_claim"] is not None
    cells = []
    for row, values in zip(rows, found, strict=True):
        line = [_text(row[key]) for key in ("sigma", "noise_multiplier", *shown)]
        if claimed:
            line.append(_text(row["nominal_claim"]["eps"]))
        cells.append([*line, *(_bound_text(values[name]) for name in names)])
    _print_table(("sigma", "z", *shown, *(["nominal eps"] if claimed else []), *names), cells)
    fixed = [f"{key} {_text(first[key])}" for key in _PARAMETERS if key not in shown]
    notes = [f"Unit: {first['unit']}. {', '.join((*fixed, 'mechanism ' + first['mechanism']))}; z = sigma / clip."]
    if claimed:
        claim = first["nominal_claim"]
        passes = f"{claim['epochs']} epochs ({claim['steps']:,} steps)"
        if "releases" in shown:
            passes = "as many epochs as releases"
        notes.append(
            f"Nominal claim: batch {claim['batch']:,} of {claim['records']:,} records, q = {claim['sample_rate']:.4g}, "
            f"{passes}, delta {claim['delta']}; add/remove, Poisson, eps by Opacus RDP."
        )
    reasons = [item for row in rows for item in row["unsupported"].items()]
    for name, reason in dict.fromkeys(reasons):
        count = reasons.count((name, reason))
        where = "here" if count == len(rows) else f"in {count} of {len(rows)} rows"
        notes.append(f"{name} says nothing {where} ({_NOTHING}): {reason}.")
    _print_notes(notes)


def _print_table(columns: Sequence[str], cells: list[list[str]], left: Sequence[str] = ()) -> None:
    """No number is ever cut: on a narrow terminal headers fold, and then the table is wider than the terminal."""
    console = plain_console()
    for broken in (False, True):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            head = "\n".join(column.replace("-", "-\n").split(" ")) if broken else column
            table.add_column(head, justify="left" if column in left else "right", no_wrap=True)
        for line in cells:
            table.add_row(*line)
        wanted = Measurement.get(console, console.options.update_width(10_000), table).maximum
        if wanted <= console.width:
            break
    console.width = max(wanted, console.width)
    console.print(table)


def _print_notes(notes: Sequence[str]) -> None:
    console = plain_console()
    for note in notes:
        console.print(note, style="dim", markup=False)


def _print_json(rows: list[dict[str, Any]]) -> None:
    """JSON has no infinity: the text "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    print_json([plain(row) for row in rows])


def _bound_text(answer: BoundValue | Unsupported) -> str:
    if isinstance(answer, Unsupported):
        return _NOTHING
    if answer.unit != "mu" and answer.value > 0.9999 and answer.signal < math.inf:
        return ">.9999"
    return _text(answer.value)


def _text(value: Any) -> str:
    """At most 4 significant digits."""
    if value is None:
        return _NOTHING
    return f"{value:.4g}" if isinstance(value, float) else str(value)

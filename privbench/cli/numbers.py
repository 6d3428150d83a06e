"""`privbench bounds` and `privbench accounting`: numbers without a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from privbench import accounting
from privbench.bounds.base import BoundValue
from privbench.cli.console import plain_console
from privbench.cli.show import print_json
from privbench.errors import InputError
from privbench.grid import Point, bounds_at, combinations, epsilons_at, parse_range, sample_rate, steps
from privbench.options import parse_number
from privbench.registry import default_registry

_WHOLE = ("tasks", "moved", "releases", "batch", "records", "epochs", "sites")


def run_bounds(given: Mapping[str, str | None], plot: Path | None, *, as_json: bool) -> None:
    """Tabulate every bound over the given ranges; draw them over noise multipliers with --plot."""
    if (given["sigma"] is None) == (given["noise_multiplier"] is None):
        raise InputError("give exactly one of --sigma and --noise-multiplier.")
    defaults = {"clip": "1", "rho": "0", "tasks": "2", "moved": "2", "releases": "1"}
    texts = {key: given[key] or default for key, default in defaults.items()}
    noise = "sigma" if given["sigma"] is not None else "noise_multiplier"
    ranges = {noise: _range(noise, str(given[noise]))} | {key: _range(key, text) for key, text in texts.items()}
    registry = default_registry()
    rows = []
    for item in combinations(ranges):
        point = _point(item, given)
        values = bounds_at(point, registry)
        rows.append(
            {
                "sigma": point.sigma,
                "clip": point.clip,
                "rho": point.rho,
                "tasks": point.tasks,
                "moved": point.moved,
                "releases": point.releases,
                "unit": point.unit,
                "bounds": {name: v.value for name, v in values.items() if isinstance(v, BoundValue)},
                "unsupported": {n: f"{v.part}: {v.reason}" for n, v in values.items() if not isinstance(v, BoundValue)},
            }
        )
    if plot is not None:
        from privbench.report.figure import bounds_over_noise

        bounds_over_noise(rows, plot)
    if as_json:
        print_json(rows)
        return
    _print_bounds(rows)


def run_accounting(given: Mapping[str, str | None], *, as_json: bool) -> None:
    """Every epsilon by name, at the noise that the nominal budget asks for and at the noise that the site's does."""
    if (given["eps"] is None) == (given["noise_multiplier"] is None):
        raise InputError("give exactly one of --eps and --noise-multiplier.")
    fixed = {key: _one(key, given[key], default) for key, default in _ACCOUNTING.items()}
    delta = float(fixed["delta"])
    if not 0 < delta < 1:
        raise InputError(f"--delta must lie in (0, 1), got {delta:g}.")
    rate = sample_rate(int(fixed["batch"]), int(fixed["records"]))
    epochs, tasks, moved, sites = (int(fixed[key]) for key in ("epochs", "tasks", "moved", "sites"))
    count = steps(rate, epochs)

    def row(label: str, eps: float | None, multiplier: float) -> dict[str, Any]:
        named = epsilons_at(multiplier, delta=delta, rate=rate, epochs=epochs, tasks=tasks, moved=moved, sites=sites)
        return {"noise for": label, "eps": eps, **named}

    rows = []
    if given["eps"] is not None:
        for eps in _range("eps", given["eps"]):
            if not 0 < eps < math.inf:
                raise InputError(f"--eps must be a finite number above 0, got {eps:g}.")
            rows.append(row("nominal", eps, accounting.nominal_multiplier(eps, rate, count, delta)))
            rows.append(row("site", eps, accounting.site_multiplier(eps, delta, tasks, moved, epochs)))
    else:
        for multiplier in _range("noise_multiplier", str(given["noise_multiplier"])):
            if not 0 < multiplier < math.inf:
                raise InputError(f"--noise-multiplier must be a finite number above 0, got {multiplier:g}.")
            rows.append(row("given", None, multiplier))
    if as_json:
        print_json(rows)
        return
    names = ("nominal", "nominal, PLD", "replace-one, PLD", "site", "site, all labels", "outsider")
    columns = ("noise for", "eps", "noise multiplier", *names)
    table = _table(*columns)
    for item in rows:
        table.add_row(*(_text(item[column]) for column in columns))
    console = plain_console()
    console.print(table)
    console.print(
        f"delta {delta:g}, q = {rate:.4g}, {count} steps, {epochs} releases of a record, K = {tasks}, J = {moved}. "
        "nominal: add/remove, Poisson, Opacus RDP; PLD: dp-accounting. site and outsider: replacing labels, no "
        "sampling, Gaussian DP.",
        style="dim",
    )


_ACCOUNTING = {
    "delta": "1e-5",
    "batch": "64",
    "records": "2000",
    "epochs": "20",
    "tasks": "3",
    "moved": "2",
    "sites": "3",
}


def _point(item: Mapping[str, float], given: Mapping[str, str | None]) -> Point:
    clip = item["clip"]
    if not 0 < clip < math.inf:
        raise InputError(f"--clip must be a finite number above 0, got {clip:g}.")
    sigma = item["sigma"] if "sigma" in item else item["noise_multiplier"] * clip
    if not 0 <= sigma < math.inf:
        raise InputError(f"the noise must be a finite number of at least 0, got {sigma:g}.")
    sampling = None
    if given["batch"] is not None or given["records"] is not None:
        batch, records = (
            int(_one(key, given[key], default)) for key, default in (("batch", "64"), ("records", "2000"))
        )
        sampling = (batch, records, float(_one("delta", given["delta"], "1e-5")))
    return Point(
        sigma=sigma,
        clip=clip,
        rho=item["rho"],
        tasks=int(item["tasks"]),
        moved=int(item["moved"]),
        releases=int(item["releases"]),
        mechanism=given["mechanism"] or "sum",
        unit=given["unit"] or "accuracy",
        sampling=sampling,
    )


def _range(key: str, text: str) -> tuple[float, ...]:
    return parse_range("--" + key.replace("_", "-"), text, whole=key in _WHOLE)


def _one(key: str, text: str | None, default: str) -> float:
    return parse_number("--" + key.replace("_", "-"), text or default, whole=key in _WHOLE)


def _print_bounds(rows: list[dict[str, Any]]) -> None:
    parameters = ["sigma", "clip", "rho", "tasks", "moved", "releases"]
    shown = [key for key in parameters if len({row[key] for row in rows}) > 1] or ["sigma"]
    names = list(dict.fromkeys(name for row in rows for name in (*row["bounds"], *row["unsupported"])))
    table = _table(*shown, *names)
    for row in rows:
        cells = [_text(row["bounds"].get(name, "–")) for name in names]
        table.add_row(*(_text(row[key]) for key in shown), *cells)
    console = plain_console()
    console.print(table)
    fixed = ", ".join(f"{key} {_text(rows[0][key])}" for key in parameters if key not in shown)
    console.print(f"Unit: {rows[0]['unit']}. {fixed}.", style="dim")
    for name, reason in dict.fromkeys(item for row in rows for item in row["unsupported"].items()):
        console.print(f"{name} says nothing here: {reason}.", style="dim")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column == "noise for" else "right", no_wrap=True)
    return table


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

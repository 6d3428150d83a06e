"""How useful the systems of a sweep were, over seeds: a mean with Student's interval, beside what needs no training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privbench.report.sweep_lines import groups
from privbench.report.words import interval, number
from privbench.stats.answers import Undefined, over_seeds
from privbench.sweep.record import Row, Sweep

Items = Sequence[Mapping[str, Any]]

NOTE = (
    "Means over seeds: each draws its records, their split, the start and the order of training anew, so that the "
    "95% intervals (Student's t over seeds) hold all of these. A gain counts when its interval is above 0."
)


def has_seeds(sweep: Sweep) -> bool:
    """Whether some group has two seeds with utility: a spread can be shown."""
    return any(len({row.seed for row in rows if row.utility}) > 1 for rows in _systems(sweep).values())


def _systems(sweep: Sweep) -> dict[str, list[Row]]:
    """Rows that differ in their seed alone: of a group with several noises, each noise by itself."""
    found: dict[str, list[Row]] = {}
    for name, rows in groups(sweep).items():
        several = len({(row.eps, row.noise_multiplier) for row in rows}) > 1
        for row in rows:
            noise = f"eps {row.eps}" if row.noise_multiplier is None else f"noise multiplier {row.noise_multiplier:g}"
            found.setdefault(f"{name}, {noise}" if several else name, []).append(row)
    return found


def table(sweep: Sweep) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: one row per group, task and metric."""
    named = _systems(sweep)
    items = [item for rows in named.values() for row in rows for item in row.utility]
    bases = tuple(dict.fromkeys(str(item["baseline_name"]) for item in items))
    others = tuple(dict.fromkeys(name for item in items for name in item["references"]))
    head = ("system", "task", "metric", "value", *bases, *others, "gain", "seeds")
    return head, [row for name, rows in named.items() for row in _rows(name, rows, bases, others)]


def _rows(name: str, rows: Sequence[Row], bases: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, ...]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for item in row.utility:
            found.setdefault((str(item["task"]), str(item["metric"])), []).append(item)
    for (task, metric), items in found.items():
        base = [_mean([item["baseline"] for item in items if item["baseline_name"] == one]) for one in bases]
        beside = [_mean([item["references"][one] for item in items if one in item["references"]]) for one in others]
        yield (name, task, metric, _spread(items, "value"), *base, *beside, _gain(items), str(len(items)))


def over_runs(values: Sequence[float], *, share: bool = False) -> str:
    """A mean with Student's interval over seeds, which one alone has not; – without any. share: it lies in 0 .. 1."""
    if not values:
        return "–"
    spread = over_seeds(values)
    if isinstance(spread, Undefined):
        return _mean(values)
    ends = (max(spread.low, 0.0), min(spread.high, 1.0)) if share else (spread.low, spread.high)
    return f"{_mean(values)} {interval(*ends)}"


def _mean(values: Sequence[float]) -> str:
    return number(sum(values) / len(values)) if values else "–"


def _spread(items: Items, key: str) -> str:
    """Mean and interval over seeds; of one seed its own interval, over test records."""
    values = [float(item[key]) for item in items]
    spread = over_seeds(values)
    if isinstance(spread, Undefined):
        return f"{number(values[0])} {interval(items[0]['low'], items[0]['high'])}"
    return f"{number(spread.value)} {interval(spread.low, spread.high)}"


def _gain(items: Items) -> str:
    gains = [float(item["gain"]) for item in items]
    spread = over_seeds(gains)
    value, low, high = (
        (gains[0], items[0]["gain_low"], items[0]["gain_high"])
        if isinstance(spread, Undefined)
        else (spread.value, spread.low, spread.high)
    )
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"

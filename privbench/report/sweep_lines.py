"""A sweep as lines over its noise: cells that differ by their seed only are one point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from privbench.report.words import number
from privbench.sweep.record import Row, Sweep
from privbench.verdict import Verdict

ORACLE, SPECTRAL = "label/oracle-lr", "label/spectral"
BOUNDS = ("g", "g-composed", "nominal-curve", "dp-cap")


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, with the least and the largest; of one seed its own interval where it has one."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        return number(self.mean)


@dataclass(frozen=True)
class Point:
    """All finished cells at one noise of one group. `leakage` by attack and "one" or "all"; `utility` by metric and
    task, each task's first metric only.
    """

    noise: float | None
    eps: float | str | None
    seeds: int
    leakage: Mapping[tuple[str, str], Spread]
    bounds: Mapping[str, float]
    utility: Mapping[str, Spread]
    verdicts: Mapping[str, int]
    lost: int


@dataclass(frozen=True)
class Line:
    """The points of one group by rising noise. `name`: what tells it from the other groups."""

    name: str
    points: tuple[Point, ...]


def lines(sweep: Sweep) -> tuple[Line, ...]:
    """One line per group, in the order of the grid."""
    return tuple(Line(name, tuple(_points(rows))) for name, rows in groups(sweep).items())


def groups(sweep: Sweep) -> dict[str, list[Row]]:
    """Cells that differ by noise and seed only, under what tells them from the others, in the order of the grid."""
    found: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in sweep.rows:
        found.setdefault(row.group if row.status == "done" else _asked(row, sweep), []).append(row)
    names = _names(list(found))
    return {names[key]: rows for key, rows in found.items()}


def _asked(row: Row, sweep: Sweep) -> tuple[tuple[str, str], ...]:
    """The group of a cell without a record: that of a finished cell with the same target and settings, if any."""
    for other in sweep.rows:
        if other.status == "done" and (other.target, other.settings) == (row.target, row.settings):
            return other.group
    return row.group


def _names(groups: Sequence[tuple[tuple[str, str], ...]]) -> dict[tuple[tuple[str, str], ...], str]:
    """What differs between groups; the target where nothing does."""
    varying = {key for key in {k for group in groups for k, _ in group} if len({dict(g).get(key) for g in groups}) > 1}
    names = {}
    for group in groups:
        parts = [
            value if key in ("target", "data", "defence") else f"{key} {value}"
            for key, value in group
            if key in varying
        ]
        names[group] = ", ".join(parts) or dict(group)["target"]
    return names


def _points(rows: Sequence[Row]) -> Iterator[Point]:
    # A cell without a record knows only what was asked for: an eps, or a noise.
    by_noise: dict[str, list[Row]] = {}
    for row in rows:
        by_noise.setdefault(f"eps {row.eps}" if row.eps is not None else f"z {row.noise_multiplier}", []).append(row)
    for same in sorted(by_noise.values(), key=lambda same: max(row.noise_multiplier or 0.0 for row in same)):
        done = [row for row in same if row.status == "done"]
        noise = next((row.noise_multiplier for row in (*done, *same) if row.noise_multiplier is not None), None)
        yield Point(
            noise,
            same[0].eps,
            len(done),
            {key: spread for key in _measures(done) if (spread := _leakage(done, *key)) is not None},
            _bounds(done),
            _utility(done),
            _verdicts(done),
            len(same) - len(done),
        )


def _measures(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Every attack over all releases; the likelihood ratio over one as well."""
    attacks = dict.fromkeys(item.attack for row in rows for item in row.findings)
    return (ORACLE, "one"), *((attack, "all") for attack in attacks)


def _bounds(rows: Sequence[Row]) -> dict[str, float]:
    """Means over seeds: a bound that leans on a measured rho, or on a clip set from the data, differs a little."""
    found = {name: [value for row in rows if (value := row.bound(name)) is not None] for name in BOUNDS}
    return {name: fmean(values) for name, values in found.items() if values}


def _leakage(rows: Sequence[Row], attack: str, releases: str) -> Spread | None:
    found = [held for row in rows if (held := row.value(attack, "one" if releases == "one" else "all")) is not None]
    triples = [
        (h.value, h.low, h.high) for h in found if h.value is not None and h.low is not None and h.high is not None
    ]
    return _spread(triples)


def _utility(rows: Sequence[Row]) -> dict[str, Spread]:
    """Of each task its first metric, as "METRIC TASK"."""
    first: dict[str, str] = {}
    for row in rows:
        for item in row.utility:
            first.setdefault(str(item["task"]), str(item["metric"]))
    result = {}
    for task, metric in first.items():
        items = [item for row in rows for item in row.utility if (item["task"], item["metric"]) == (task, metric)]
        spread = _spread([(float(i["value"]), float(i["low"]), float(i["high"])) for i in items])
        if spread is not None:
            result[f"{metric} {task}"] = spread
    return result


def _spread(triples: Sequence[tuple[float, float, float]]) -> Spread | None:
    if not triples:
        return None
    values = [value for value, _, _ in triples]
    if len(triples) == 1:
        return Spread(*triples[0])
    return Spread(fmean(values), min(values), max(values))


def _verdicts(rows: Sequence[Row]) -> dict[str, int]:
    found = [item.verdict for row in rows for item in row.findings if item.role == "confirmatory"]
    return {verdict: found.count(verdict) for verdict in Verdict if verdict in found}

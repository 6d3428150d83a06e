"""Beside the grid: more rounds, from few respondents to many, of a survey left out, and one model for four surveys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from grid import ACCURACY, ANLS, FEDAVG, KAPPA, SPLIT

from privbench.report.sweep_utility import over_runs
from privbench.report.words import number
from privbench.sweep.record import Row, read_sweep
from privbench.targets.split_llama.respondents import NOBODYS

Items = Sequence[Mapping[str, Any]]
METHODS = (SPLIT, FEDAVG)
SURVEYS: Mapping[str, str] = {
    "wellbeing": "exhaustion",
    "campus": "low mood",
    "sleep": "tired by day",
    "social": "satisfied with life",
}
"""The invented surveys and the outcome of each."""


def efficiency(folder: Path) -> Iterator[str]:
    """Accuracy by respondents, with as many steps."""
    rows = {method: _by(read_sweep(folder / method).rows, "train") for method in METHODS}
    yield "| respondents | most frequent | logistic regression | split | FedAvg |"
    yield "|---|---|---|---|---|"
    for count in sorted(rows[SPLIT], key=int):
        found = {method: _items(rows[method][count], None) for method in METHODS}
        beside = _baselines(found[SPLIT], ("logistic regression",))
        shown = " | ".join(over_runs([item["value"] for item in found[method]], share=True) for method in METHODS)
        yield f"| {int(count):,} | {' | '.join(beside)} | {shown} |"


def more_rounds(folder: Path) -> Iterator[str]:
    """FedAvg by rounds beside split learning, on one cell of the grid."""
    rows = _by_rounds(folder)
    metrics = (ANLS, ACCURACY, KAPPA)
    yield f"| | {' | '.join(metrics)} |"
    yield f"|{'---|' * (len(metrics) + 1)}"
    for name, found in rows.items():
        values = ((metric, [item["value"] for item in _items(found, None, metric)]) for metric in metrics)
        shown = (over_runs(items, share=metric != KAPPA) for metric, items in values)
        yield f"| {name} | {' | '.join(shown)} |"


def in_short(folder: Path) -> Iterator[str]:
    """What the grid's sentences leave open."""
    means = [
        number(fmean(item["value"] for item in _items(found, None, ANLS))) for found in _by_rounds(folder).values()
    ]
    split, recipe, few, more = means
    yield "These are comparisons at as much computing. Split learning makes 500 steps in a row for it, FedAvg 50,"
    yield "and its rate was tried on one cell: at its recipe's rate it is further ahead, and with four times as many"
    yield f"rounds FedAvg has caught up (moderate, even, ANLS: split learning {split}, at its recipe's rate {recipe},"
    yield f"FedAvg {few}, with more rounds {more}). Neither method is shown to learn better as such."


def _by_rounds(folder: Path) -> dict[str, Sequence[Row]]:
    cells = {
        "split learning": ("grid", SPLIT),
        "split learning, its recipe's rate": ("recipe", SPLIT),
        "FedAvg, 10 rounds": ("grid", FEDAVG),
    }
    found: dict[str, Sequence[Row]] = {}
    for name, (part, method) in cells.items():
        rows = read_sweep(folder / part / "moderate" / method).rows
        found[name] = [row for row in rows if row.settings["share"] == "even"]
    for count, rows in _by(read_sweep(folder / "rounds" / FEDAVG).rows, "rounds").items():
        found[f"FedAvg, {count} rounds"] = rows
    return found


def transfer(folder: Path) -> Iterator[str]:
    """A survey that no client holds: what training on others brings it."""
    rows = {method: _by(read_sweep(folder / method).rows, "unseen") for method in METHODS}
    others = ("logistic regression", "0-shot prompting")
    yield "| left out | most frequent | logistic regression on its own | base, 0-shot | split | FedAvg |"
    yield "|---|---|---|---|---|---|"
    for unseen in rows[SPLIT]:
        task = f"{unseen.partition(':')[2]}, {NOBODYS}"
        found = {method: _items(rows[method][unseen], task) for method in METHODS}
        shown = " | ".join(over_runs([item["value"] for item in found[method]], share=True) for method in METHODS)
        yield f"| {unseen.replace(':', ': ')} | {' | '.join(_baselines(found[SPLIT], others))} | {shown} |"


def generalist(folder: Path) -> Iterator[str]:
    """One model for four surveys beside one for each, and beside the base that was shown examples."""
    rows = read_sweep(folder / "generalist").rows
    head = ("survey: outcome", "most frequent", "0-shot", "1-shot", "logistic regression", "its own", "one for all")
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for survey, outcome in SURVEYS.items():
        found = _items(rows, outcome)
        alone = _items(read_sweep(folder / "specialists" / survey).rows, outcome)
        beside = _baselines(found, ("0-shot prompting", "1-shot prompting", "logistic regression"))
        shown = (over_runs([item["value"] for item in items], share=True) for items in (alone, found))
        yield f"| {survey}: {outcome} | {' | '.join(beside)} | {' | '.join(shown)} |"


def _by(rows: Sequence[Row], setting: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.settings[setting], []).append(row)
    return found


def _items(rows: Sequence[Row], task: str | None, metric: str = ACCURACY) -> Items:
    """A metric of this task in every row, or of the first that it lists."""
    wanted = [(row, row.utility[0]["task"] if task is None else task) for row in rows]
    return [item for row, name in wanted for item in row.utility if item["task"] == name and item["metric"] == metric]


def _baselines(found: Items, others: Sequence[str]) -> list[str]:
    """Means of the most frequent answer and of these methods, – where the context holds no examples."""
    values = [[item["references"][name] for item in found if name in item["references"]] for name in others]
    return [number(fmean(item["baseline"] for item in found)), *(number(fmean(v)) if v else "–" for v in values)]

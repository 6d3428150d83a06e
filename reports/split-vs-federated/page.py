"""Write README.md and its figure from the sweeps and audits that stand beside it. `make split-vs-federated`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

import numpy as np
from cost import STEPS
from cost import table as table_of_costs
from figure import draw
from grid import (
    ACCURACY,
    ALPHA,
    ANLS,
    FEDAVG,
    METRICS,
    SCHEMAS,
    SHARES,
    SPLIT,
    Cell,
    Grid,
    judged_grid,
    overall,
    read_rows,
)
from leakage import leakage, verdicts
from learning import efficiency, generalist, in_short, more_rounds, transfer
from scipy import stats

from privbench.errors import RecordError
from privbench.report.words import interval, number
from privbench.stats.answers import Undefined
from privbench.stats.paired import judge_cells
from privbench.sweep.record import read_sweep

REPORTED: Mapping[tuple[str, str], tuple[float, float]] = {("homogeneous", "one-large"): (0.757, 0.765)}
"""ANLS of split learning and of FedAvg (arXiv 2609.15871); our summary of it gives this one cell and both averages."""
REPORTED_MEAN, REPORTED_AHEAD = (0.708, 0.687), 8
CHOSEN: Mapping[str, float] = {SPLIT: 1e-3, FEDAVG: 8e-3}
"""Rate of each method in the grid."""
NOT_RUN = "**Not run yet**: `make split-vs-federated` makes it."
SMALL = 0.001
CELLS, SEEDS, GRIDS = len(SCHEMAS) * len(SHARES), 5, 200


FOLDER = Path(__file__).resolve().parent


def signed(cell: Cell) -> str:
    """The difference with its interval, and the corrected p-value."""
    found = cell.judged.difference
    if isinstance(found, Undefined):
        return f"{found.reason} | –"
    inner = found.interval
    text = f"{inner.value:+.3f} [{inner.low:+.3f}, {inner.high:+.3f}]"
    return f"{text} | {p_value(cell.judged.corrected)}"


def p_value(value: float) -> str:
    return "< .001" if value < SMALL else number(value)


def table(grid: Grid, metric: str) -> Iterator[str]:
    more = metric == ANLS
    head = ("schema", "volume", "most frequent", "split", "FedAvg", "split less FedAvg", "p, Holm")
    head = (*head, "reported") if more else head
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for (schema, share), cell in grid.items():
        split, averaged = map(number, cell.means)
        told = REPORTED.get((schema, share))
        last = f" {number(told[0])}, {number(told[1])} |" if told else " – |"
        note = f" ({len(cell.values[0])} seeds)" if cell.lost else ""
        yield (
            f"| {schema} | {share} | {number(cell.baseline)} | {split} | {averaged} | {signed(cell)}{note} |"
            f"{last if more else ''}"
        )


def found_in(grid: Grid, metric: str) -> str:
    """One sentence of a metric."""
    ahead = sum(cell.means[0] > cell.means[1] for cell in grid.values())
    told = [cell for cell in grid.values() if cell.judged.differs(ALPHA)]
    first = sum(cell.means[0] > cell.means[1] for cell in told)
    whole = overall(grid) if not any(cell.lost for cell in grid.values()) else None
    text = f"{metric}: split learning is ahead in {ahead} of {CELLS} cells; "
    text += f"a difference is shown in {len(told)} of them ({first} for split, {len(told) - first} for FedAvg)."
    if whole is not None and not isinstance(whole, Undefined):
        inner = whole.interval
        text += (
            f" Over all cells {inner.value:+.3f} [{inner.low:+.3f}, {inner.high:+.3f}], "
            f"p {'' if whole.p_value < SMALL else '= '}{p_value(whole.p_value)}."
        )
    return text


def at_another_rate(other: Mapping[str, Grid]) -> Iterator[str]:
    """The grid with split learning at its recipe's rate, a line for each metric."""
    for metric, grid in other.items():
        yield f"- {found_in(grid, metric)}"
    yield ""
    yield f"| schema | volume | {' | '.join(f'{metric}: split, difference, p' for metric in (ANLS, ACCURACY))} |"
    yield "|---|---|---|---|"
    for where in other[ANLS]:
        cells = [other[metric][where] for metric in (ANLS, ACCURACY)]
        shown = (f"{number(cell.means[0])}, {signed(cell).replace(' | ', ', ')}" for cell in cells)
        yield f"| {' | '.join(where)} | {' | '.join(shown)} |"


def rates() -> Iterator[str]:
    """Accuracy by rate."""
    yield "| method | rate | most frequent | accuracy | |"
    yield "|---|---|---|---|---|"
    for method, used in CHOSEN.items():
        for row in read_sweep(FOLDER / "rates" / method).rows:
            item = next(item for item in row.utility if item["metric"] == ACCURACY)
            shown = f"{number(item['value'])} {interval(item['low'], item['high'])}"
            mark = "used" if float(row.settings["rate"]) == used else ""
            yield f"| {method} | {row.settings['rate']} | {number(item['baseline'])} | {shown} | {mark} |"


def level(pairs: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Where nothing can be learned: alarms of the test, and of two that would be wrong."""
    found = np.array([pairs[seed] for seed in sorted(pairs, key=int)])
    gaps = found[:, 0] - found[:, 1]
    alone = [judge_cells({"": (cell[:, 0].tolist(), cell[:, 1].tolist())})[""] for cell in found.reshape(-1, SEEDS, 2)]
    single = sum(item.differs(ALPHA) for item in alone)
    rng = np.random.default_rng(3)
    drawn = [found[rng.permutation(len(found))[: CELLS * SEEDS]].reshape(CELLS, SEEDS, 2) for _ in range(GRIDS)]
    ours = bare = 0
    for grid in drawn:
        cells = {str(number): (rows[:, 0].tolist(), rows[:, 1].tolist()) for number, rows in enumerate(grid)}
        ours += any(item.differs(ALPHA) for item in judge_cells(cells).values())
        bare += bool((stats.ttest_rel(grid[..., 0], grid[..., 1], axis=1).pvalue <= ALPHA).any())
    yield f"| {len(found)} runs of either method on answers that were dealt out anew | |"
    yield "|---|---|"
    for name, kappas in (("split learning", found[:, 0]), ("FedAvg", found[:, 1])):
        yield f"| kappa of {name}, mean and standard deviation | {fmean(kappas):+.3f}, {kappas.std(ddof=1):.3f} |"
    error = gaps.std(ddof=1) / len(gaps) ** 0.5
    yield f"| mean difference, and its standard error | {gaps.mean():+.4f}, {error:.4f} |"
    yield (
        f"| cells of five seeds with an alarm at 5% | {single} of {len(alone)} (at most "
        f"{int(stats.binom.isf(0.001, len(alone), ALPHA))} in all but one of a thousand) |"
    )
    yield (
        f"| grids of nine cells, drawn from the runs, with an alarm | {ours} of {GRIDS} (5% would be "
        f"{ALPHA * GRIDS:.0f}; they share runs, so that they are not independent) |"
    )
    yield f"| the same grids without Holm | {bare} of {GRIDS} |"


def made(section: Callable[[Path], Iterator[str]], folder: Path) -> list[str]:
    """A section's lines; one that says so where its sweeps are not there yet."""
    try:
        return list(section(folder))
    except RecordError:
        return [NOT_RUN]


def main() -> None:
    grids, at_recipes = (
        {metric: judged_grid(rows, metric) for metric in METRICS}
        for rows in (
            read_rows({SPLIT: FOLDER / "grid", FEDAVG: FOLDER / "grid"}),
            read_rows({SPLIT: FOLDER / "recipe", FEDAVG: FOLDER / "grid"}),
        )
    )
    draw(grids, FOLDER)
    pairs = json.loads((FOLDER / "level.json").read_text(encoding="utf-8"))
    lines = [
        "# Split learning beside federated averaging",
        "",
        *(line for metric, grid in grids.items() for line in (f"- {found_in(grid, metric)}",)),
        "",
        *made(in_short, FOLDER),
        "",
        "![Differences by cell](figure.svg)",
        "",
        "Repeated by `make split-vs-federated`: `page.py` writes this page from the records that stand beside it.",
        "",
        "## What does each party learn about one respondent?",
        "",
        "Default audits of both methods on the same 800 respondents of four clients (seed 0); the most that any attack",
        "reads, and of membership the best of several attacks, uncorrected. In split learning the server computes the",
        "losses and has the outcomes anyway. Intervals of FedAvg's answers and counts are over rounds, for one update",
        "tells of all of a round's respondents: five rounds of forty say little of another run. Accuracy: on test",
        "respondents, in brackets the most frequent answer's.",
        "",
        *leakage(FOLDER / "leakage"),
        "",
        *verdicts(FOLDER / "leakage"),
        "",
        "## The grid",
        "",
        "Ten clients, 2,000 respondents for training, 500 for testing, five levels to answer; clients hold one, two or",
        "all four invented surveys, with 10% each, by a power law, or 60% at one of them, and take turns as often as",
        "they hold respondents. Both methods make 500 batches of 8, from the same initial weights on the same shards:",
        "split learning 500 steps in turn, FedAvg 10 rounds of 5 steps on average at each client. That is as much",
        "computing, not as many steps in a row: what is shown is at this budget. What more rounds bring stands below.",
        "",
        "Five seeds: each draws respondents, shards, weights and test respondents anew, for both methods alike.",
        "Intervals: 95%, Student's t over the seeds' differences; p-values are corrected by Holm over the nine cells",
        "of a metric.",
        "",
        *(line for metric, grid in grids.items() for line in (f"### {metric}", "", *table(grid, metric), "")),
        f"Reported (single runs, another model, other surveys): ANLS {number(REPORTED_MEAN[0])} for split learning and",
        f"{number(REPORTED_MEAN[1])} for FedAvg on average, split ahead in {REPORTED_AHEAD} of 9 cells; of single",
        "cells we know the one in the table. Nothing there says how much of it is a training's chance.",
        "",
        "### Rates",
        "",
        "Each method has the rate that was best by accuracy of those tried, with another seed than the grid's",
        "(homogeneous, even; for either, less and more is worse):",
        "",
        *rates(),
        "",
        "### Split learning at its recipe's rate",
        "",
        "The rate was chosen on one cell, where clients hold one survey. With several surveys a larger one is better",
        "for split learning. At 4e-3, which its recipe has, beside the same runs of FedAvg; p-values are of this table",
        "alone, and not corrected for the one above:",
        "",
        *at_another_rate(at_recipes),
        "",
        "### More rounds",
        "",
        "FedAvg makes 50 steps in a row where split learning makes 500. With more rounds it makes more, at as many",
        "times the computing and the bytes (moderate, even; five seeds, those of the grid):",
        "",
        *made(more_rounds, FOLDER),
        "",
        "## What does it cost a client?",
        "",
        f"A whole training of the grid, at one of ten clients with equal shares: {STEPS} steps of a batch of 8 either",
        "way, at 280 tokens a respondent (512 for the larger model, bfloat16, where nothing was run). FLOPs, bytes and",
        "memory by closed form, in brackets the peak that was measured; seconds at the client by the median step on",
        "one thread. Adding up updates is left out.",
        "",
        *table_of_costs(FOLDER),
        "",
        "## Few respondents, and many",
        "",
        "Accuracy with 500 batches in any case (homogeneous, even), three seeds:",
        "",
        *made(efficiency, FOLDER / "efficiency"),
        "",
        "## A survey left out",
        "",
        "Clients hold Wellbeing at Work and Student Life; the trained model is asked about another survey, with",
        "questions and answers that nobody trained on. Accuracy, three seeds:",
        "",
        *made(transfer, FOLDER / "transfer"),
        "",
        "## One model for four surveys",
        "",
        "10,000 respondents of four institutes, each seen once by split learning, beside an institute alone with its",
        "2,500. Accuracy, three seeds, which draw respondents for either anew:",
        "",
        *made(generalist, FOLDER),
        "",
        "## Does the test keep its level?",
        "",
        *level(pairs),
        "",
    ]
    (FOLDER / "README.md").write_text("\n".join(lines), encoding="utf-8")
    sys.stderr.write(f"wrote {FOLDER / 'README.md'}\n")


if __name__ == "__main__":
    main()

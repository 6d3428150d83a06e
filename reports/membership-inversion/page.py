"""Write README.md from the sweep that stands beside it: every number is its cells'. `make reports`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import ttest_1samp

from privbench import record
from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.report.sweep_utility import over_runs
from privbench.report.words import number
from privbench.stats.holm import holm
from privbench.verdict import ALPHA

Cells = dict[float, list[Audit]]
"""Audits by eps, one per seed."""


def read(folder: Path) -> Cells:
    found: Cells = {}
    for cell in sorted((folder / "cells").iterdir()):
        audit = record.read(cell)
        found.setdefault(float(audit.manifest["config"]["resolved"]["eps"]), []).append(audit)
    return dict(sorted(found.items()))


def blind(audits: Sequence[Audit]) -> list[float]:
    """AUC of the records alone."""
    return [
        next(item.baseline for item in audit.findings if item.metric == "auc" and item.baseline is not None)
        for audit in audits
    ]


def picked(audits: Sequence[Audit], attack: str, metric: str) -> list[Finding]:
    """An attack's findings in this metric, one per seed."""
    return [item for audit in audits for item in audit.findings if (item.attack, item.metric) == (attack, metric)]


def values(audits: Sequence[Audit], attack: str, metric: str) -> list[float]:
    return [item.value for item in picked(audits, attack, metric) if item.value is not None]


def table(cells: Cells, names: dict[str, str], metric: str) -> Iterator[str]:
    yield f"| attack | adversary | {' | '.join(f'eps {eps:g}' for eps in cells)} |"
    yield f"|---|---|{'---|' * len(cells)}"
    for attack, said in names.items():
        row = [
            f"{over_runs(values(audits, attack, metric))}{ahead(audits, attack, metric)}" for audits in cells.values()
        ]
        if any(values(audits, attack, metric) for audits in cells.values()):
            asked = f", {among(cells, attack):,}" if metric == "re-identification" else ""
            yield f"| {said}{asked} | {adversary(cells, attack)} | {' | '.join(row)} |"


def ahead(audits: Sequence[Audit], attack: str, metric: str) -> str:
    """Beside what takes no cut, of the same records: its mean, and in how many seeds the attack's interval is above."""
    if metric not in ("r2", "re-identification"):
        return ""
    told = [item for item in picked(audits, attack, metric) if item.value is not None and item.baseline is not None]
    above = sum((item.low or 0.0) > (item.baseline or 0.0) for item in told)
    base = sum(item.baseline or 0.0 for item in told) / max(len(told), 1)
    return f"; without cut {number(base)}, above in {above} of {len(told)}"


def adversary(cells: Cells, attack: str) -> str:
    """Under whom the attack was run."""
    found = (item for audits in cells.values() for audit in audits for item in audit.findings if item.attack == attack)
    return next((item.threat_model for item in found), "")


def above_chance(cells: Cells) -> set[tuple[str, float]]:
    """Attacks, with eps, that tell members from others: Student's one-sided t over seeds, Holm over all of them."""
    tried = [(attack, eps) for attack in members.NAMES for eps in cells]
    p = [_p_value(values(cells[eps], attack, "auc")) for attack, eps in tried]
    return {pair for pair, decision in zip(tried, holm(p, ALPHA), strict=True) if decision.rejected}


def answer(cells: Cells) -> str:
    """Whether membership inference stays without effect, and for whom not."""
    for_whom: dict[str, set[float]] = {}
    for attack, eps in above_chance(cells):
        for_whom.setdefault(adversary(cells, attack), set()).add(eps)
    if not for_whom:
        return "**Nothing here contradicts it.** None of these attacks tells."
    said = [f"a {who} (at eps {' and '.join(f'{e:g}' for e in sorted(at))})" for who, at in sorted(for_whom.items())]
    means = {
        eps: max(sum(v) / len(v) for a in members.NAMES if (v := values(audits, a, "auc")))
        for eps, audits in cells.items()
    }
    most = ", ".join(f"{number(area)} at eps {eps:g}" for eps, area in means.items())
    return f"**It does not hold** for {' and '.join(said)}. The largest mean AUC is {most}; chance is .5."


def shown(cells: Cells) -> Iterator[str]:
    """Each attack, and at which eps it tells."""
    above = above_chance(cells)
    for attack, said in members.NAMES.items():
        at = ", ".join(f"{eps:g}" for eps in cells if (attack, eps) in above)
        result = f"above chance at eps {at}" if at else "not above chance at any of these eps"
        yield f"- {said}, {adversary(cells, attack)}: {result}"


def _p_value(areas: Sequence[float]) -> float:
    """Of so high a mean AUC over seeds where the truth is chance; 1 where a single seed was run."""
    return float(ttest_1samp(areas, 0.5, alternative="greater").pvalue) if len(areas) > 1 else 1.0


def among(cells: Cells, attack: str) -> int:
    """How many records the attack was asked about."""
    return max(item.n or 0 for item in picked(next(iter(cells.values())), attack, "re-identification"))


def change(found: Sequence[Mapping[str, Any]]) -> str:
    """Over seeds, and in how many runs the change was seen: its interval over records lies on one side of 0."""
    seen = sum(not item["low"] <= 0 <= item["high"] for item in found)
    return f"{over_runs([item['change'] for item in found])}; seen in {seen} of {len(found)}"


def harms(cells: Cells) -> Iterator[str]:
    """What an attack that acts does to the tasks' AUC: the mean change over seeds."""
    yield f"| attack, task | {' | '.join(f'eps {eps:g}' for eps in cells)} |"
    yield f"|---|{'---|' * len(cells)}"
    first = next(iter(cells.values()))[0].estimates or {}
    for attack, tasks in first["harms"].items():
        for at, item in enumerate(tasks):
            changes = [
                change([(audit.estimates or {})["harms"][attack][at] for audit in audits]) for audits in cells.values()
            ]
            yield f"| {estimates.NAMES.get(attack, attack)}, {item['task']} | {' | '.join(changes)} |"


def page(folder: Path) -> str:
    cells = read(folder / "sweep")
    seeds, tried = max(map(len, cells.values())), " and ".join(f"{eps:g}" for eps in cells)
    first = next(iter(cells.values()))[0]
    asked, measured = first.members or {}, first.estimates or {}
    lines = [
        "# Membership inference and inversion on PRISM-VFL",
        "",
        "The paper reports that membership inference stays without effect at every eps. Here, on synthetic stays, at",
        f"eps {tried}, with members and others drawn by fair coins from one source (Student's t over seeds, Holm over",
        "all attacks and eps at .05):",
        "",
        answer(cells),
        "",
        *shown(cells),
        "",
        "Not above chance means that these attacks on this model did not tell; it is no proof. What the cut",
        "says of the inputs is another matter (below).",
        "",
        f"{seeds} seeds; each draws stays, coins and training anew: 95% intervals by Student's t over seeds. "
        f"{asked.get('scored', 0):,} candidates are scored, {asked.get('references', 0)} reference models are trained.",
        "Repeated by `make reports`.",
        "",
        "## Membership: AUC (chance .5)",
        "",
        "Each interval stands by itself; the list above shares one error rate. With 4 references LiRA has 2 models on",
        "either side of a record. A classifier that sees the records and no model:",
        f"{', '.join(f'{over_runs(blind(audits))} at eps {eps:g}' for eps, audits in cells.items())}.",
        "",
        *table(cells, dict(members.NAMES), "auc"),
        "",
        "## True positive rate at 1% false alarms (chance .01)",
        "",
        *table(cells, dict(members.NAMES), "tpr@0.01"),
        "",
        "## Lower limit of eps by the one-run audit, delta 1e-5",
        "",
        *table(cells, dict(members.NAMES), "eps"),
        "",
        "## Inversion: what a server reads of site A's hourly vitals",
        "",
        f"From one activation per stay; {measured.get('known', 0):,} stays of its own it knows, and none is scored.",
        "Share of the spread explained (R2; 0 is what the mean explains), averaged over features, over seeds. Beside",
        "it the best of what takes no cut (hourly means, all other columns) on the same records, and in how many seeds",
        "the attack's interval over records lies above that: attacks without pairs work with some seeds only.",
        "",
        *table(cells, dict(estimates.NAMES), "r2"),
        "",
        "Share of stays whose estimate lies nearest to their own record, among as many as the attack was asked about",
        "(chance: one in so many):",
        "",
        *table(cells, dict(estimates.NAMES), "re-identification"),
        "",
        "What the hijacking server does to the tasks: change of their AUC beside the honest run from the same start,",
        "on stays that neither trained on, over seeds; and in how many runs it was seen (95% over stays). Steering a",
        "site and leaving out its noise are in it, and so is what one training differs from another by.",
        "",
        *harms(cells),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "README.md").write_text(page(here), encoding="utf-8")
    sys.stdout.write(f"wrote {here / 'README.md'}\n")

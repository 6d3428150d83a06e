"""Write README.md from the sweep that stands beside it: every number is its cells'. `make reports`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from privbench import record
from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.report.words import interval, number
from privbench.stats.answers import Undefined, over_seeds

Cells = dict[float, list[Audit]]
"""Audits by eps, one per seed."""


def read(folder: Path) -> Cells:
    found: Cells = {}
    for cell in sorted((folder / "cells").iterdir()):
        audit = record.read(cell)
        found.setdefault(float(audit.manifest["config"]["resolved"]["eps"]), []).append(audit)
    return dict(sorted(found.items()))


def values(audits: Sequence[Audit], attack: str, metric: str) -> list[float]:
    picked: list[Finding] = [
        item for audit in audits for item in audit.findings if (item.attack, item.metric) == (attack, metric)
    ]
    return [item.value for item in picked if item.value is not None]


def ends(found: Sequence[float]) -> tuple[float, float] | None:
    """95% by Student's t over seeds; None of a single one."""
    over = over_seeds(found)
    return None if isinstance(over, Undefined) else (over.low, over.high)


def cell(found: Sequence[float]) -> str:
    if not found:
        return "–"
    limits = ends(found)
    return f"{number(sum(found) / len(found))} {'' if limits is None else interval(*limits)}".strip()


def table(cells: Cells, names: dict[str, str], metric: str) -> Iterator[str]:
    yield f"| attack | {' | '.join(f'eps {eps:g}' for eps in cells)} |"
    yield f"|---|{'---|' * len(cells)}"
    for attack, said in names.items():
        row = [cell(values(audits, attack, metric)) for audits in cells.values()]
        if any(item != "–" for item in row):
            yield f"| {said} | {' | '.join(row)} |"


def shown(cells: Cells) -> Iterator[str]:
    """Which attacks tell members from others, at which eps: the interval over seeds lies above chance."""
    for attack, said in members.NAMES.items():
        above = [
            eps
            for eps, audits in cells.items()
            if (limits := ends(values(audits, attack, "auc"))) is not None and limits[0] > 0.5
        ]
        who = next(
            (f.threat_model for audits in cells.values() for a in audits for f in a.findings if f.attack == attack), ""
        )
        at = ", ".join(f"{eps:g}" for eps in above)
        yield f"- {said}, {who}: {f'above chance at eps {at}' if above else 'not above chance at any of these eps'}"


def page(folder: Path) -> str:
    cells = read(folder / "sweep")
    seeds = max(map(len, cells.values()))
    first = next(iter(cells.values()))[0]
    asked, measured = first.members or {}, first.estimates or {}
    lines = [
        "# Membership inference and inversion on PRISM-VFL",
        "",
        "The paper reports that membership inference stays without effect at every eps. Here, on synthetic stays, for",
        "members and others drawn by fair coins from one source:",
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
        f"From one activation per stay, with {measured.get('known', 0):,} stays of its own to learn from. Share of the",
        "spread explained (R2), averaged over features; all other columns of the same stays explain",
        f"{cell([b for audits in cells.values() for a in audits if (b := others(a)) is not None])}.",
        "",
        *table(cells, dict(estimates.NAMES), "r2"),
        "",
        f"Share of {measured.get('records', 0):,} stays whose estimate lies nearest to their own record:",
        "",
        *table(cells, dict(estimates.NAMES), "re-identification"),
        "",
    ]
    return "\n".join(lines)


def others(audit: Audit) -> float | None:
    return next((item.baseline for item in audit.findings if item.metric == "r2"), None)


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "README.md").write_text(page(here), encoding="utf-8")
    sys.stdout.write(f"wrote {here / 'README.md'}\n")

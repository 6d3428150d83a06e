"""What a report says of estimated inputs, and the figure of invented persons' true and estimated hours."""

from __future__ import annotations

import io
from collections.abc import Mapping

from privbench.record import Audit, Finding

NAMES: Mapping[str, str] = {
    "inversion/fsha": "feature-space hijacking",
    "inversion/mlp": "the perceptron",
    "inversion/optimise": "the search with a prior",
    "inversion/ridge": "ridge regression",
    "inversion/sdar": "the simulated encoder",
    "inversion/sequence": "the recurrent decoder",
    "inversion/unsplit": "the searched clone",
}
METRICS = ("r2", "r2-share", "re-identification")
_TRUE, _ESTIMATED, _INK = "#222222", "#D55E00", "#222222"


def about_numbers(finding: Finding) -> bool:
    return finding.metric in METRICS


def read(finding: Finding, measured: str, baseline: str | None) -> str:
    """What was measured, after the attack's name. measured: value with interval; baseline: from all other columns."""
    beside = "" if baseline is None else f" (from all other columns: {baseline})"
    if finding.metric == "r2":
        return f"explains {measured} of the spread of the inputs, averaged over features{beside}"
    if finding.metric == "r2-share":
        return f"explains more than half of the spread of {measured} of the features{beside}"
    chance = 0.0 if finding.chance is None else finding.chance
    return f"points {measured} of its estimates to their own record among {finding.n:,} (chance: {chance:.1g}){beside}"


def best(audit: Audit) -> Finding | None:
    """The finding with the highest mean R2."""
    found = [item for item in audit.findings if item.metric == "r2" and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def note(audit: Audit) -> str | None:
    """Whose inputs, and what the adversary learned from."""
    said = audit.estimates
    if said is None:
        return None
    return (
        f"A server estimates what {said['name'].removeprefix('input/')} measured of {said['records']:,} records from "
        f"their cut activations; it learned from {said['known']:,} other records whose inputs it knows, and none of "
        "those is scored. Only what was measured counts."
    )


def rows(audit: Audit) -> tuple[tuple[str, ...], ...]:
    """R2 of each feature by attack: a head, then a row per feature; empty where nothing was estimated."""
    said = audit.estimates
    attacks = () if said is None else tuple(said["r2"])
    if said is None or not attacks or len(said["features"]) != len(said["r2"][attacks[0]]):
        return ()
    head = ("feature", "unit", *(NAMES.get(name, name) for name in attacks))
    body = [
        (item["name"], item["unit"], *(f"{said['r2'][name][k]:.2f}" for name in attacks))
        for k, item in enumerate(said["features"])
    ]
    return (head, *body)


def figure(audit: Audit) -> str | None:
    """Invented persons, one column each, a row per feature: dots what was measured, a line what was estimated. SVG."""
    said = audit.estimates
    if said is None or not said["examples"] or not said["features"] or said["hours"] < 2:
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    people, features = said["examples"], said["features"]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": audit.cell, "font.family": "sans-serif"}):
        drawing = Figure(figsize=(10.5, 1.25 * len(features) + 0.6), layout="constrained")
        grid = drawing.subplots(len(features), len(people), sharex=True, sharey="row", squeeze=False)
        for row, feature in enumerate(features):
            for column, person in enumerate(people):
                axes = grid[row][column]
                hours = range(1, said["hours"] + 1)
                axes.plot(hours, person["estimated"][row], color=_ESTIMATED, linewidth=1.6)
                seen = [(h, v) for h, v in zip(hours, person["measured"][row], strict=True) if v is not None]
                if seen:
                    axes.plot(*zip(*seen, strict=True), ".", color=_TRUE, markersize=3.2)
                axes.spines[["top", "right"]].set_visible(False)
                axes.tick_params(labelsize=7, colors=_INK)
                if row == 0:
                    axes.set_title(f"invented person {column + 1}", fontsize=9)
            grid[row][0].set_ylabel(f"{feature['name']}\n{feature['unit']}", fontsize=7.5)
        for axes in grid[-1]:
            axes.set_xlabel("hour", fontsize=8)
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]

"""What a report says of estimated inputs, and the figure of invented persons' measured and estimated hours."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

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


def best(audit: Audit) -> Finding | None:
    """The finding with the highest mean R2."""
    found = [item for item in audit.findings if item.metric == "r2" and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def note(audit: Audit, records: str) -> str | None:
    """Whose inputs, and what the adversary learned from. records: what they are called here."""
    said = audit.estimates
    if said is None:
        return None
    return (
        f"Inversion: a server estimates what {said['name'].removeprefix('input/')} measured of {said['records']:,} "
        f"{records} from their cut activations, and knows the inputs of {said['known']:,} others. Only what was "
        "measured counts."
    )


def caption(said: Mapping[str, Any]) -> str:
    """What the figure of this record's "estimates" shows, and whose."""
    who = NAMES.get(str(said["shown"]), f"the attack {said['shown']}")
    return (
        f"Dots: what was measured of {len(said['examples'])} invented persons, which no attack knew; line: what {who} "
        "makes of their cut activations. Of the attacks that were asked about every record it explains most."
    )


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

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
_ROW, _ABOVE, _BELOW, _APART = 1.2, 0.35, 0.5, 8
"""Inches of a row, above and below all of them; hours between two people."""


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

    people, features, last = said["examples"], said["features"], said["hours"]
    starts = [column * (last + _APART) for column in range(len(people))]
    ticks = [1, round((1 + last) / 2), last] if last > 2 else [1, last]
    height = _ROW * len(features) + _ABOVE + _BELOW
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": audit.cell, "font.family": "sans-serif"}):
        drawing = Figure(figsize=(10.5, height))
        # One panel a row, people beside each other in it, and margins by hand: a tenth of the time.
        rows = drawing.subplots(len(features), 1, sharex=True, squeeze=False)[:, 0]
        drawing.subplots_adjust(left=0.09, right=0.99, top=1 - _ABOVE / height, bottom=_BELOW / height, hspace=0.28)
        for row, (axes, feature) in enumerate(zip(rows, features, strict=True)):
            for start, person in zip(starts, people, strict=True):
                hours = [start + hour for hour in range(1, last + 1)]
                axes.plot(hours, person["estimated"][row], color=_ESTIMATED, linewidth=1.6)
                seen = [(h, v) for h, v in zip(hours, person["measured"][row], strict=True) if v is not None]
                if seen:
                    axes.plot(*zip(*seen, strict=True), ".", color=_TRUE, markersize=3.2)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=7, colors=_INK)
            axes.locator_params(axis="y", nbins=4)
            axes.set_xlim(1 - _APART / 2, starts[-1] + last + _APART / 2)
            for start in starts[1:]:
                axes.axvline(start + 1 - _APART / 2, color="#cccccc", linewidth=0.8)
            axes.set_ylabel(f"{feature['name']}\n{feature['unit']}", fontsize=7.5)
        for column, start in enumerate(starts, 1):
            middle = start + (1 + last) / 2
            rows[0].text(middle, 1.08, f"invented person {column}", fontsize=9, ha="center",
                         transform=rows[0].get_xaxis_transform())  # fmt: skip
        rows[-1].set_xticks([start + hour for start in starts for hour in ticks], ticks * len(people))
        rows[-1].set_xlabel("hour", fontsize=8)
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]

"""What a report says of the trained system's utility."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privbench.record import Audit
from privbench.report.words import number, of_patients


def gain(item: Mapping[str, Any]) -> str:
    """Paired gain over frozen random encoders, with its interval."""
    return f"{item['gain']:+.3f} [{item['gain_low']:+.3f}, {item['gain_high']:+.3f}]"


def tested(audit: Audit) -> str:
    """What the utility is measured on."""
    return "test stays" if of_patients(audit) else "test records"


def note(audit: Audit) -> str:
    """What the utility table does and does not show; there must be one."""
    chance = max(abs(float(item["baseline_other_seed"]) - float(item["baseline"])) for item in audit.utility)
    text = (
        "Frozen random encoders, which learn nothing, show what the server alone achieves: it trains on clean "
        f"gradients. Another seed of them differs by up to {number(chance)}: gains of that size are a training's "
        f"chance, which the intervals (over {tested(audit)}) do not hold."
    )
    if "ENCODERS_LEARNED_NOTHING" in {flag["name"] for flag in audit.flags}:
        text += " No task gains more: this utility is no evidence that training under this noise works."
    return text

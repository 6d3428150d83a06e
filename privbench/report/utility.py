"""What a report says of the trained system's utility."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privbench.record import Audit
from privbench.report.setting import of_patients
from privbench.report.words import number


def gain(item: Mapping[str, Any]) -> str:
    """Paired gain over the baseline, with its interval."""
    return f"{item['gain']:+.3f} [{item['gain_low']:+.3f}, {item['gain_high']:+.3f}]"


def beside(audit: Audit) -> tuple[str, ...]:
    """Names of what stands beside the value: the baseline, then every reference."""
    names = dict.fromkeys(name for item in audit.utility for name in item["references"])
    return (str(audit.utility[0]["baseline_name"]), *names)


def compared(item: Mapping[str, Any], audit: Audit) -> tuple[str, ...]:
    """The values of `beside`, in its order; nothing where a method has none."""
    values = [item["baseline"], *(item["references"].get(name) for name in beside(audit)[1:])]
    return tuple("" if value is None else number(value) for value in values)


def tested(audit: Audit) -> str:
    """What the utility is measured on."""
    return "test stays" if of_patients(audit) else "test records"


def note(audit: Audit) -> str:
    """What the utility table does and does not show; there must be one."""
    if any(item["baseline_other_seed"] is None for item in audit.utility):
        base = audit.utility[0]["baseline_name"]
        text = (
            f"Gain over the {base}. Values and gains are on the same {tested(audit)}, with 95% intervals over them; "
            "one training, whose own chance the intervals do not hold."
        )
        if any(item["metric"].startswith("ANLS") for item in audit.utility):
            text += (
                " Generated: what the model says by itself; else the likeliest of the answers offered. ANLS flatters: "
                "similar wording earns credit, and an adjacent level half of it (strict: none). Read accuracy first."
            )
        return text
    chance = max(abs(float(item["baseline_other_seed"]) - float(item["baseline"])) for item in audit.utility)
    text = (
        "Frozen random encoders, which learn nothing, show what the server alone achieves: it trains on clean "
        f"gradients. Another seed of them differs by up to {number(chance)}: gains of that size are a training's "
        f"chance, which the intervals (over {tested(audit)}) do not hold."
    )
    if "ENCODERS_LEARNED_NOTHING" in {flag["name"] for flag in audit.flags}:
        text += " No task gains more: this utility is no evidence that training under this noise works."
    return text

"""What was run, in a line and in every setting; what a record of that run is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privbench.record import Audit
from privbench.report.words import over


def setting(audit: Audit) -> str:
    """What was run, in one line."""
    resolved: Mapping[str, Any] = audit.manifest["config"]["resolved"]
    noise = resolved.get("noise_multiplier")
    whom = f" ({resolved['eps_for']})" if "eps_for" in resolved else ""
    parts = [
        f"target {audit.findings[0].target}" if audit.findings else "target",
        f"data {resolved['data']}",
        *_sizes(audit),
        f"{_counted(over(audit))} of each" if (audit.secret is None) != (audit.inputs is None) else "",
        *_system(resolved),
        f"eps {resolved['eps']}{whom}" if resolved["eps"] is not None else "",
        f"noise multiplier {noise:.4g}" if noise is not None else "",
        f"seed {audit.manifest['seeds'][0]}",
    ]
    return ", ".join(part for part in parts if part)


def _system(resolved: Mapping[str, Any]) -> Iterator[str]:
    """Which model, cut where, with the labels at whom; or averaged how often."""
    tuning = resolved.get("tuning")
    if "model" in resolved:
        yield f"model {resolved['model']}"
    if isinstance(tuning, Mapping) and "rounds" in tuning:
        each = "on average over" if tuning.get("turns") == "sized" else "at each of"
        yield f"{tuning['rounds']} rounds of {tuning['local_steps']} steps {each} {tuning['clients']} clients"
    elif isinstance(tuning, Mapping):
        yield f"{tuning['k']} layers at the client, labels at the {tuning['labels']}"
    if "model" in resolved and resolved["defense"] != "none":
        yield f"defence {resolved['defense']}"


def _sizes(audit: Audit) -> Iterator[str]:
    """How many records, in how many releases where coins and inputs differ."""
    secret, inputs = audit.secret, audit.inputs
    apart = secret is not None and inputs is not None
    if secret is not None:
        yield f"{secret['records']:,} {records_called(audit)}{f' in {_counted(over(audit))}' if apart else ''}"
    if inputs is not None:
        who = f"{inputs['records']:,} respondents of {inputs['name'].removeprefix('input/')}"
        yield f"{who} in {_counted(inputs['releases'])}" if apart else who


def _counted(releases: int) -> str:
    return f"{releases} releases" if releases > 1 else "one release"


def of_patients(audit: Audit) -> bool:
    """Only PRISM's records are stays of patients; what a recording's or a drawn one's are, nobody here knows."""
    return bool(audit.findings) and audit.findings[0].target == "prism"


def records_called(audit: Audit) -> str:
    """What one record of this run is called, in the plural."""
    return "training records" if of_patients(audit) else "records"


def configuration(audit: Audit) -> tuple[tuple[str, str], ...]:
    """Every resolved setting by name, nested ones beside the others, for who wants to repeat the run."""
    rows: list[tuple[str, str]] = []
    for key, value in audit.manifest["config"]["resolved"].items():
        nested = value.items() if isinstance(value, Mapping) else [(key, value)]
        rows += [(str(name), str(item)) for name, item in nested if item is not None and item != ""]
    return tuple(rows)

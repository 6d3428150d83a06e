"""What each party learns about one respondent: audits of both methods on the same respondents, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from privbench import record
from privbench.record import Audit, Finding
from privbench.report.words import interval, number, short_name

ANSWERS, COUNTS, AUC = "answer-accuracy", "count-accuracy", "auc"
SYSTEMS: Mapping[str, str] = {
    "split": "split, labels at the server",
    "fedavg": "FedAvg, 5 steps of 8 a round",
    "one-record": "FedAvg, one respondent a round",
    "four-records": "FedAvg, four respondents a round",
    "secure-aggregation": "FedAvg, secure aggregation",
    "top-k": "FedAvg, 1% of the numbers",
    "dp-sgd": "FedAvg, DP-SGD at eps 2",
}
"""Folder and name of each audit."""


def leakage(folder: Path) -> Iterator[str]:
    """One row for each system: answers read, membership told, and what that takes."""
    head = ("system", "who", "of a respondent's answers", "one reply for all", "a round's outcomes counted")
    head = (*head, "the same counts for all", "trained on? best AUC", "accuracy")
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for name, system in SYSTEMS.items():
        if name not in audits(folder):
            yield f"| {system} | not run yet |{' – |' * (len(head) - 2)}"
            continue
        audit = record.read(folder / name)
        read, counted, told = (best(audit, metric) for metric in (ANSWERS, COUNTS, AUC))
        useful = next(item for item in audit.utility if item["metric"] == "accuracy")
        who = "server" if read is None else read.threat_model
        of_all = f"{shown(counted)} | {without(counted)} | {shown(told)}"
        learnt = f"{number(useful['value'])} ({number(useful['baseline'])})"
        yield f"| {system} | {who} | {shown(read)} | {without(read)} | {of_all} | {learnt} |"


def audits(folder: Path) -> list[str]:
    """Of `SYSTEMS` those that are there."""
    return [name for name in SYSTEMS if (folder / name / record.AUDIT_FILE).exists()]


def best(audit: Audit, metric: str) -> Finding | None:
    """The strongest attack in a metric: of several, the luckiest among them."""
    found = [item for item in audit.findings if item.metric == metric and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def shown(finding: Finding | None) -> str:
    if finding is None or finding.value is None:
        return "–"
    ends = "" if finding.low is None or finding.high is None else f" {interval(finding.low, finding.high)}"
    return f"{number(finding.value)}{ends}, {short_name(finding.attack)}"


def without(finding: Finding | None) -> str:
    """What is right without an attack."""
    return "–" if finding is None or finding.baseline is None else number(finding.baseline)


def verdicts(folder: Path) -> Iterator[str]:
    """What bounds say of membership, where one speaks."""
    for name in audits(folder):
        system = SYSTEMS[name]
        judged = [item for item in record.read(folder / name).findings if item.role == "confirmatory"]
        for verdict in sorted({item.verdict for item in judged}):
            yield f"- {system}: {sum(item.verdict == verdict for item in judged)} of {len(judged)} checks {verdict}"

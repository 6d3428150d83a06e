"""Tables beside the comparison: further metrics of each family, inputs by feature, and what acting attacks did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privbench.record import Audit, Finding
from privbench.report.families import INVERSION, MEMBERSHIP, NOTHING, TOKENS, Group, control, groups, share, silent
from privbench.report.words import measured, number, over, releases, short_name
from privbench.verdict import Verdict

Table = tuple[tuple[str, ...], ...]
"""A head, then a row of as many cells each; () where there is nothing to show."""


@dataclass(frozen=True)
class Further:
    """What the comparison leaves out of a family. notes: first why no bound speaks about it, then what it is."""

    name: str
    table: Table
    notes: tuple[str, ...]


CALLED: Mapping[str, str] = {
    "tpr@0.01": "found at .01 false alarms",
    "eps": "eps at least",
    "r2-share": "features read",
    "re-identification": "found again",
    "answer-accuracy": "answers read",
}
"""Metrics beside a family's first one, as heads name them."""
_MEANS: Mapping[str, str] = {
    "tpr@0.01": "Found at .01 false alarms: share of the members, by chance .01.",
    "r2-share": "Features read: share of them with R2 above .5.",
    "re-identification": "Found again: how often an estimate lies nearest to its own record among all asked about.",
    "answer-accuracy": "Answers read: share of whole answers, each question's answers counting the same.",
}
HARM_NOTE = (
    "AUC of each task in the honest run and in the one that an attack acted in, from one start, on records that "
    "neither was trained on; 95% over records, each task by itself. A change that is not seen may still be there; and "
    "nobody but an auditor has the honest run to compare with."
)
QUESTION_NOTE = (
    "Share of whole answers read from all releases by the attack that reads most, each different answer to a question "
    "counting the same, so that any one reply for everybody reads one over their number."
)
FEATURE_NOTE = (
    "R2 of each feature over what was measured of it (1 is exact, 0 is what the mean achieves), and in brackets the "
    "root of the mean squared error in its own unit."
)


def further(audit: Audit) -> tuple[Further, ...]:
    """Of each family whose attacks were measured in more than one metric."""
    made = {MEMBERSHIP: _membership, INVERSION: _inversion, TOKENS: _tokens}
    tables = ((group, made[group.family](group, audit)) for group in groups(audit) if group.family in made)
    return tuple(
        Further(f"{group.family.name}, further", table, _notes(group, audit)) for group, table in tables if table
    )


def by_question(audit: Audit) -> tuple[Further, ...]:
    """What the strongest inversion read of each question's answers, beside what takes no cut."""
    said = audit.inputs or {}
    asked = said.get("by_question", ())
    if not asked:
        return ()
    model = ("language model",) if "language_model" in asked[0] else ()
    body = [
        (
            item.get("text", f"question {item['question'] + 1}"),
            f"{item['answers']}",
            number(item["read"]),
            number(1 / item["answers"]),
            *(number(item["language_model"]) for _ in model),
        )
        for item in asked
    ]
    head = (
        "question",
        "different answers",
        f"read by the {short_name(said['strongest'])}",
        "one reply for all",
        *model,
    )
    return (Further("Answers by question", (head, *body), (QUESTION_NOTE,)),)


def _notes(group: Group, audit: Audit) -> tuple[str, ...]:
    """Reasons that the comparison did not give, each with the metrics that it is about; then what these are."""
    about: dict[str, dict[str, None]] = {}
    metrics = [metric for metric in group.family.metrics[1:] if _of(group, audit, metric)]
    for metric in metrics:
        for reason in silent(list(_of(group, audit, metric).values())):
            about.setdefault(reason, {}).setdefault(CALLED[metric])
    said = {reason: names for reason, names in about.items() if reason not in group.silent}
    reasons = (f"UNCOVERED ({', '.join(names)}): {reason}." for reason, names in said.items())
    means = " ".join(_MEANS[metric] for metric in metrics if metric in _MEANS)
    return (*reasons, means) if means else tuple(reasons)


def _of(group: Group, audit: Audit, metric: str) -> dict[str, Finding]:
    """Findings in this metric by attack, in the order of the comparison."""
    found = {item.attack: item for item in audit.findings if item.metric == metric and item.value is not None}
    return {row.finding.attack: found[row.finding.attack] for row in group.rows if row.finding.attack in found}


def _membership(group: Group, audit: Audit) -> Table:
    """What resolves a true positive rate, and the one-run audit's limit of eps."""
    metrics = MEMBERSHIP.metrics[1:]
    found = {CALLED[metric]: by_attack for metric in metrics if (by_attack := _of(group, audit, metric))}
    body = [
        (
            row.attack,
            *(measured(some[name]) if (name := row.finding.attack) in some else NOTHING for some in found.values()),
            f"{row.finding.canaries or 0:,}",
        )
        for row in group.rows
        if any(row.finding.attack in some for some in found.values())
    ]
    return (("attack", *found, "records scored"), *body) if body else ()


def _inversion(group: Group, audit: Audit) -> Table:
    """Features that are read, and whether an estimate finds its record, each beside what takes no cut."""
    shares, again = _of(group, audit, "r2-share"), _of(group, audit, "re-identification")
    body = [
        (
            row.attack,
            *_beside(shares.get(row.finding.attack)),
            *_beside(again.get(row.finding.attack)),
            *_among(again.get(row.finding.attack)),
        )
        for row in group.rows
        if row.finding.attack in {**shares, **again}
    ]
    head = ("attack", CALLED["r2-share"], "without cut", CALLED["re-identification"], "without cut")
    return ((*head, "chance", "among", "control"), *body) if body else ()


def _among(finding: Finding | None) -> tuple[str, str, str]:
    """Chance of finding a record again, among how many, and whether another place gives no more."""
    if finding is None or finding.chance is None or finding.n is None:
        return NOTHING, NOTHING, NOTHING
    return share(finding.chance), f"{finding.n:,}", control(finding)


def _beside(finding: Finding | None) -> tuple[str, str]:
    """A value with its interval, and its baseline."""
    if finding is None:
        return NOTHING, NOTHING
    return measured(finding), NOTHING if finding.baseline is None else number(finding.baseline)


def _tokens(group: Group, audit: Audit) -> Table:
    """Tokens and whole answers, from each number of releases."""
    total = over(audit) if audit.inputs is None else int(audit.inputs["releases"])
    whole = {(f.attack, f.releases): f for f in audit.findings if f.metric == "answer-accuracy" and f.value is not None}
    body = [
        (
            short_name(item.attack),
            releases(item, total),
            *_read(item, audit),
            *_read(whole.get((item.attack, item.releases)), audit),
            control(item),
        )
        for row in group.rows
        for item in audit.findings
        if item.attack == row.finding.attack and item.metric == "token-accuracy" and item.value is not None
    ]
    asked = ("language model",) if (audit.inputs or {}).get("prior") else ()
    columns = [(name, "one reply for all", *asked) for name in ("tokens read", CALLED["answer-accuracy"])]
    return (("attack", "from", *columns[0], *columns[1], "control"), *body) if body else ()


def _read(finding: Finding | None, audit: Audit) -> tuple[str, ...]:
    """A value, and each of what takes no cut: one reply for everybody, a language model where it was asked."""
    if audit.inputs is None or not audit.inputs.get("prior"):
        return _beside(finding)
    if finding is None:
        return NOTHING, NOTHING, NOTHING
    both = audit.inputs["without_cut"][finding.metric]
    return measured(finding), number(both["one_reply"]), number(both["language_model"])


def by_feature(audit: Audit, attacks: Sequence[str] | None = None) -> Table:
    """R2 and error of each feature by attack, the best first; these attacks only, where they are named."""
    said = audit.estimates
    if said is None or not said["r2"] or not said["features"]:
        return ()
    count = len(said["features"])
    chosen = [name for name in _ranked(audit) if attacks is None or name in attacks]
    if not chosen or any(len(said[part].get(name, ())) != count for part in ("r2", "off") for name in chosen):
        return ()
    head = ("feature", "unit", *(short_name(name) for name in chosen))
    body = [
        (
            item["name"],
            item["unit"],
            *(f"{number(said['r2'][name][k], 2)} ({_size(said['off'][name][k])})" for name in chosen),
        )
        for k, item in enumerate(said["features"])
    ]
    return (head, *body)


def _ranked(audit: Audit) -> tuple[str, ...]:
    """Attacks with an R2 of each feature, as the comparison ranks them; any other after them."""
    kept = {} if audit.estimates is None else audit.estimates["r2"]
    order = [row.finding.attack for group in groups(audit) if group.family == INVERSION for row in group.rows]
    return tuple(dict.fromkeys([*(name for name in order if name in kept), *kept]))


def best_of_each(audit: Audit) -> tuple[str, ...]:
    """The best estimation of each adversary: a narrow table's columns."""
    first: dict[str, str] = {}
    for group in groups(audit):
        if group.family == INVERSION:
            for row in group.rows:
                if row.finding.value is not None:
                    first.setdefault(row.adversary, row.finding.attack)
    return tuple(first.values())


def _size(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:,.0f}"


def harms(audit: Audit) -> Table:
    """What each attack that acted in a run did to the tasks."""
    acted: Mapping[str, Sequence[Mapping[str, Any]]] = {} if audit.estimates is None else audit.estimates["harms"]
    body = [
        (
            short_name(name),
            item["task"],
            number(item["honest"]),
            number(item["acted"]),
            f"{item['change']:+.3f} [{item['low']:+.3f}, {item['high']:+.3f}]",
            f"not in {item['n']:,} records" if item["low"] <= 0 <= item["high"] else "yes",
        )
        for name, items in acted.items()
        for item in items
    ]
    head = ("attack", "task", "honest", "acted in", "change", "seen beside it")
    return (head, *body) if body else ()


def loud(cell: str) -> bool:
    """Whether a cell says that something broke or was exceeded."""
    return any(str(verdict) in cell for verdict in (Verdict.FAILED, Verdict.EXCEEDED))

"""Audits of the sweeps beside this file, grouped by what differs in them, as rows of tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from privbench import record
from privbench.record import Audit, Finding
from privbench.report.sweep_utility import over_runs
from privbench.report.words import short_name
from privbench.stats.answers import Undefined, over_seeds

ANSWERS, TOKENS, AUC, COINS = "answer-accuracy", "token-accuracy", "auc", "accuracy"

Groups = Mapping[str, list[Audit]]
"""Audits that differ in their seed alone, by what they are."""


def read(folder: Path, name: Callable[[Audit], str]) -> Groups:
    """The cells of a sweep; the undefended ones first, then by name."""
    found: dict[str, list[Audit]] = {}
    for cell in sorted((folder / "cells").iterdir()):
        audit = record.read(cell)
        found.setdefault(name(audit), []).append(audit)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "none", _natural(item[0]))))


def _natural(text: str) -> list[tuple[float, str]]:
    """Numbers within a name by their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if number % 2 else (0.0, part) for number, part in enumerate(parts)]


def defence(audit: Audit) -> str:
    return str(audit.manifest["config"]["resolved"]["defense"])


def setting(key: str) -> Callable[[Audit], str]:
    """What --set gave this key."""
    return lambda audit: str(audit.manifest["config"]["resolved"]["tuning"][key])


def survey(audit: Audit) -> str:
    """A survey by its outcome: two outcomes of one survey are two rows."""
    data = str(audit.manifest["config"]["resolved"]["data"])
    return f"{data.partition(':')[0]}: {audit.utility[0]['task']}"


def attacks(groups: Groups, metric: str) -> tuple[str, ...]:
    """Those that were measured in this metric somewhere."""
    found = {f.attack for audits in groups.values() for audit in audits for f in measured(audit, metric)}
    return tuple(sorted(found))


def measured(audit: Audit, metric: str) -> list[Finding]:
    return [item for item in audit.findings if item.metric == metric and item.value is not None]


def picked(audit: Audit, attack: str, metric: str, last: bool) -> Finding | None:
    """An attack's finding over one release, or over all."""
    found = [item for item in measured(audit, metric) if item.attack == attack]
    return next((f for f in sorted(found, key=lambda f: f.releases, reverse=last)), None)


def values(audits: Sequence[Audit], attack: str, metric: str, last: bool) -> list[float]:
    found = [picked(audit, attack, metric, last) for audit in audits]
    return [item.value for item in found if item is not None and item.value is not None]


def one_reply(audits: Sequence[Audit], metric: str) -> str:
    """What one reply for everybody reads; a finding's baseline is that, or what a language model says where more."""
    found = []
    for audit in audits:
        said = (audit.inputs or {}).get("without_cut", {}).get(metric)
        first = next(iter(measured(audit, metric)), None)
        found += [said["one_reply"]] if said else [first.baseline] if first and first.baseline is not None else []
    return over_runs(found, share=True)


def prior(audits: Sequence[Audit], metric: str) -> str:
    """What the public base says of the answers without the cut, where it was asked."""
    said = [(audit.inputs or {}).get("without_cut", {}).get(metric) for audit in audits]
    return over_runs([item["language_model"] for item in said if item is not None], share=True)


def best(audits: Sequence[Audit], metric: str, last: bool) -> tuple[str, list[float]]:
    """The attack that reads most, by its mean over seeds, and its values."""
    found = {name: values(audits, name, metric, last) for name in attacks({"": list(audits)}, metric)}
    return max(found.items(), key=lambda item: sum(item[1]) / len(item[1]))


def alone(audits: Sequence[Audit]) -> list[list[float]]:
    """Of each pass by itself the tokens that are read by the attack that reads most of it, by its mean over seeds."""
    curves = [[audit.series[name].y for audit in audits] for name in sorted(audits[0].series)]
    passes = range(len(curves[0][0]))
    return [max(([curve[at] for curve in runs] for runs in curves), key=sum) for at in passes]


def by_pass(groups: Groups) -> Iterator[str]:
    """A row per group: `alone`."""
    rows = {name: alone(audits) for name, audits in groups.items()}
    passes = range(1, max(map(len, rows.values())) + 1)
    yield f"| defence | {' | '.join(f'pass {number}' for number in passes)} |"
    yield f"|---|{'---|' * len(passes)}"
    for name, read_of in rows.items():
        yield f"| {name} | {' | '.join(over_runs(shares, share=True) for shares in read_of)} |"


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def useful(audits: Sequence[Audit]) -> str:
    """Accuracy of the tuned model, and what the most frequent answer reaches."""
    rows = [item for audit in audits for item in audit.utility if item["metric"] == "accuracy"]
    if not rows:
        return "untuned"
    ours, base = (over_runs([row[key] for row in rows], share=True) for key in ("value", "baseline"))
    return f"{ours}, most frequent {base}"


def gains(audits: Sequence[Audit]) -> bool:
    """Whether the tuned model is better than the most frequent answer, by Student's t over seeds."""
    over = over_seeds([item["gain"] for audit in audits for item in audit.utility if item["metric"] == "accuracy"])
    return not isinstance(over, Undefined) and over.low > 0


def table(groups: Groups, what: str, metric: str, last: bool) -> Iterator[str]:
    """A row per group: every attack, the reply for all, and what the model is good for."""
    names = attacks(groups, metric)
    yield f"| {what} | {' | '.join(map(short_name, names))} | one reply for all | language model | accuracy |"
    yield f"|---|{'---|' * len(names)}---|---|---|"
    for name, audits in groups.items():
        read_of = shares(audits, names, metric, last)
        yield f"| {name} | {read_of} | {one_reply(audits, metric)} | {prior(audits, metric)} | {useful(audits)} |"


def guessed(groups: Groups, what: str, metric: str) -> Iterator[str]:
    """A row per group: every attack from all releases, beside chance .5."""
    names = attacks(groups, metric)
    yield f"| {what} | {' | '.join(map(short_name, names))} | accuracy |"
    yield f"|---|{'---|' * len(names)}---|"
    for name, audits in groups.items():
        yield f"| {name} | {shares(audits, names, metric, True)} | {useful(audits)} |"


def shares(audits: Sequence[Audit], names: Sequence[str], metric: str, last: bool) -> str:
    """Cells of these attacks."""
    return " | ".join(over_runs(values(audits, attack, metric, last), share=True) for attack in names)

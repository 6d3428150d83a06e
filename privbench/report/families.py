"""What was read, by whom: the attacks of an audit side by side, in families by what they are after.

One row per attack, with its baseline, its control and its strength. All of it stands in the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.report.words import COUNTS, READ, measured, number, over, sentence, short_name
from privbench.verdict import Verdict

HEAD = ("attack", "adversary", "value", "chance", "baseline", "control", "strength", "bound", "verdict")
NOTHING = "–"
_LOUD = (Verdict.EXCEEDED, Verdict.FAILED)


@dataclass(frozen=True)
class Family:
    """Attacks that are after the same. metrics: the first one is compared; the others say what a row's cells are."""

    name: str
    metrics: tuple[str, ...]
    measured: str
    baseline: str
    control: str
    strength: str


_BESIDE_STRONGEST = "share of the strongest attack run here (–: none lies above chance)"
_BEYOND_BASELINE = "what is read beyond the baseline, as a share of the strongest attack's (–: none lies above its own)"

LABELS = Family(
    "Label inference",
    ("accuracy",),
    "share of the label coins guessed right from {releases}. Bound: the tightest that counts, or all where none does",
    "none, for a coin depends on nothing",
    "positive: noise-free releases are read; negative: shuffled coins are not",
    "share of the oracle's d' (–: no oracle lies above chance)",
)
MEMBERSHIP = Family(
    "Membership inference",
    members.METRICS,
    "AUC, how often a member scores above a record that was left out",
    "a blind classifier, on the records alone",
    "negative: the blind classifier stays at chance",
    _BESIDE_STRONGEST,
)
INVERSION = Family(
    "Inversion of inputs",
    estimates.METRICS,
    "R2, share of the inputs' spread explained, averaged over features",
    "the best of what takes no cut: each hour's mean over records known, or a regression on all other columns",
    "negative: held against the record whose place it was asked in, it explains no more than one constant for all",
    _BEYOND_BASELINE,
)
TOKENS = Family(
    "Inversion of tokens",
    READ,
    "share of the respondents' answer tokens read",
    "the best of what takes no cut: one reply for everybody, or where it was asked a language model that is told all "
    "answers before and the true beginning of each",
    "negative: held against another respondent's answers, no more is read than by one reply",
    "not known",
)
COUNTED = Family(
    "Label counts",
    (COUNTS,),
    "share of a round's respondents whose outcomes are counted right, rounds being the units",
    "the better of two counts that are the same for every round: all outcomes as frequent, or as among all respondents",
    "negative: held against another round's, no more is counted right than by those",
    "not known",
)
FAMILIES = (LABELS, COUNTED, MEMBERSHIP, INVERSION, TOKENS)


@dataclass(frozen=True)
class Row:
    """One attack, in cells as HEAD names them. finding: whose value it is."""

    finding: Finding
    attack: str
    adversary: str
    value: str
    chance: str
    baseline: str
    control: str
    strength: str
    bound: str
    verdict: str

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in HEAD)


@dataclass(frozen=True)
class Group:
    """A family's attacks that were run or broke, the strongest first. silent: why no bound speaks about them."""

    family: Family
    rows: tuple[Row, ...]
    silent: tuple[str, ...]
    failed: tuple[str, ...]
    explained: str


def groups(audit: Audit) -> tuple[Group, ...]:
    """Families of which anything was measured, or broke."""
    found = (_group(family, audit) for family in FAMILIES)
    return tuple(group for group in found if group.rows)


def _group(family: Family, audit: Audit) -> Group:
    by_attack: dict[str, list[Finding]] = {}
    for item in audit.findings:
        if item.metric in family.metrics and item.verdict != Verdict.NOT_APPLICABLE:
            by_attack.setdefault(item.attack, []).append(item)
    rows = sorted((_row(found, family) for found in by_attack.values()), key=_place)
    leading = [row.finding for row in rows]
    mine = [item for found in by_attack.values() for item in found]
    failed = [sentence(item, audit) for item in mine if item.verdict == Verdict.FAILED and item.value is None]
    total = over(audit)
    said = family.measured.format(releases=f"all {total} releases" if total > 1 else "the one release")
    explained = f"{said}. Baseline: {family.baseline}. Control, {family.control}. Strength: {family.strength}."
    return Group(family, tuple(rows), silent(leading), tuple(dict.fromkeys(failed)), explained)


def silent(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Why no bound speaks about them, each reason once."""
    return tuple(dict.fromkeys(f.reason for f in findings if f.verdict == Verdict.UNCOVERED))


def _place(row: Row) -> tuple[bool, float]:
    """What broke before all others, then by value."""
    return row.finding.value is not None, -(row.finding.value or 0.0)


def _row(found: Sequence[Finding], family: Family) -> Row:
    """The row of one attack from all of its findings in a family."""
    same = [item for item in found if item.metric == family.metrics[0]] or list(found)
    read = [item for item in same if item.value is not None] or same
    last = max(item.releases for item in read)
    over_all = [item for item in read if item.releases == last]
    held = [item for item in over_all if item.bound is not None]
    judged = [item for item in held if item.role == "confirmatory"]
    lead = min(judged, key=_limit) if judged else over_all[0]
    others = ", ".join(dict.fromkeys(_elsewhere(found, lead)))
    return Row(
        lead,
        short_name(lead.attack),
        lead.threat_model,
        measured(lead),
        NOTHING if lead.chance is None else share(lead.chance),
        "none" if lead.baseline is None else number(lead.baseline),
        control(lead),
        _strength(lead),
        ", ".join(_bound(item) for item in ([lead] if judged else held)) or "none",
        f"{lead.verdict} ({others})" if others else str(lead.verdict),
    )


def _strength(finding: Finding) -> str:
    """How far below chance an attack lies is no strength."""
    if finding.strength is None:
        return NOTHING
    return number(finding.strength, 2) if finding.strength >= 0 else "below 0"


def _elsewhere(found: Sequence[Finding], lead: Finding) -> Iterator[str]:
    """What the row would hide: another check of the same attack that was exceeded, or broke."""
    for item in found:
        if item.verdict in _LOUD and item.verdict != lead.verdict:
            what = item.bound["name"] if item.bound is not None else item.metric
            yield f"{what}: {item.verdict}"


def _limit(finding: Finding) -> float:
    return float(finding.bound["value"]) if finding.bound is not None else 1.0


def _bound(finding: Finding) -> str:
    return "" if finding.bound is None else f"{finding.bound['name']} {number(finding.bound['value'])}"


def share(value: float) -> str:
    """.5 rather than 0.5, 0 as it is; a small one with its first two digits."""
    return f"{value:.2g}".lstrip("0") or "0"


def control(finding: Finding) -> str:
    """Both controls of a finding, where there are any."""
    held = {side: at["passed"] for side in ("positive", "negative") if (at := finding.controls.get(side))}
    if len(held) == 2 and all(held.values()):
        return "both ok"
    return ", ".join(f"{side} {'ok' if passed else 'FAILED'}" for side, passed in held.items()) or "none"

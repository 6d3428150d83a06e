"""Sentences about membership: how well records that were trained on are told from others."""

from __future__ import annotations

from collections.abc import Mapping

from privbench.record import Audit, Finding
from privbench.recording import MEMBER

NAMES: Mapping[str, str] = {
    "membership/drift": "the drift of embeddings",
    "membership/embedding": "the embedding distance",
    "membership/gradient-norm": "the norms of cut gradients",
    "membership/lira": "LiRA",
    "membership/lira-offline": "LiRA offline",
    "membership/loss": "the loss threshold",
    "membership/one-run": "the one-run audit",
    "membership/rmia": "RMIA",
    "membership/trajectory": "the loss trajectory",
}


def about_members(finding: Finding) -> bool:
    return finding.secret == MEMBER


def best(audit: Audit) -> Finding | None:
    """The finding with the highest AUC."""
    found = [item for item in audit.findings if about_members(item) and item.metric == "auc" and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def read(finding: Finding, measured: str, chance: str, blind: str | None) -> str:
    """What was measured, after the attack's name. measured: value with interval; blind: the records' own AUC."""
    if finding.metric == "auc":
        alone = f", the records alone: {blind}" if blind else ""
        return f"tells members from others with AUC {measured} (chance: {chance}{alone})"
    if finding.metric == "eps":
        return f"shows that eps is at least {measured}"
    return f"finds {measured} of the members at {chance} false alarms (chance: {chance})"


def note(audit: Audit) -> str | None:
    """Who may be a member, by which coin, and what the adversary was told."""
    asked = audit.members
    if asked is None:
        return None
    told = asked["candidates"] - asked["scored"]
    models = asked["references"]
    made = f"it trains {models} reference models on halves of them" if models else "it trains no reference models"
    return (
        f"In a run of its own a fair coin put each of {asked['candidates']:,} records in or left it out; "
        f"the adversary knows the records and {told:,} of the coins, and {made}. The other {asked['scored']:,} are "
        "guessed and scored."
    )

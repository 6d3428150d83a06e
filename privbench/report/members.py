"""What a report says of membership: how well records that were trained on are told from others."""

from __future__ import annotations

from collections.abc import Mapping

from privbench.record import Audit, Finding
from privbench.recording import MEMBER

NAMES: Mapping[str, str] = {
    "membership/cut-match": "the match at the cut",
    "membership/drift": "the drift of embeddings",
    "membership/embedding": "the embedding distance",
    "membership/fedmia": "FedMIA",
    "membership/gradient-norm": "the norms of cut gradients",
    "membership/lira": "LiRA",
    "membership/lira-offline": "LiRA offline",
    "membership/loss": "the loss threshold",
    "membership/nasr": "the white-box attack of Nasr et al.",
    "membership/one-run": "the one-run audit",
    "membership/rmia": "RMIA",
    "membership/trajectory": "the loss trajectory",
    "membership/update-cosine": "the cosine with updates",
    "membership/update-difference": "the difference of updates",
}
METRICS = ("auc", "tpr@0.01", "eps")


def about_members(finding: Finding) -> bool:
    return finding.secret == MEMBER


def best(audit: Audit) -> Finding | None:
    """The finding with the highest AUC."""
    return max(_areas(audit), key=lambda item: item.value or 0.0, default=None)


def attacks(audit: Audit) -> int:
    """How many attacks gave an AUC."""
    return len(_areas(audit))


def _areas(audit: Audit) -> list[Finding]:
    return [item for item in audit.findings if about_members(item) and item.metric == "auc" and item.value is not None]


def note(audit: Audit, records: str) -> str | None:
    """Who may be a member, by which coin, and what the adversary was told. records: what they are called here."""
    asked = audit.members
    if asked is None:
        return None
    told = asked["candidates"] - asked["scored"]
    models = asked["references"]
    made = f"trains {models} reference models on halves of them" if models else "trains no reference models"
    return (
        f"Membership: in a run of its own{_length(audit)} a fair coin put each of {asked['candidates']:,} {records} in "
        f"or left it out; an adversary knows the {records} and up to {told:,} of the coins, and {made}. The other "
        f"{asked['scored']:,} are guessed and scored."
    )


def _length(audit: Audit) -> str:
    """How long that run is, where it is shorter than the audited one."""
    tuning = audit.manifest["config"]["resolved"].get("tuning", {})
    named = (("reference_steps", "steps"), ("reference_rounds", "rounds"))
    said = [f", of {tuning[key]:,} {unit} or one pass," for key, unit in named if key in tuning]
    return said[0] if said else ""

"""The secrets that a record speaks about, against those that the target says its runs hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privbench.attack import Attack, AttackBase, Inversion
from privbench.differences import fields as differing
from privbench.estimates import Estimation
from privbench.manifest import code_version
from privbench.membership import MembershipAttack
from privbench.parts import by_kind
from privbench.record import Audit
from privbench.registry import Registry
from privbench.verify_scores import attacks_of

PARTS: Mapping[type[AttackBase], str] = {
    Attack: "secret",
    Inversion: "inputs",
    MembershipAttack: "members",
    Estimation: "estimates",
}
"""Which part of a record says whose secrets attacks of this kind are about."""


def contradictory_parts(audit: Audit, held: Mapping[str, Mapping[str, Any]], registry: Registry) -> Iterator[str]:
    """The secrets that the target says its runs hold: each there if attacked, as it is said to be, and no other."""
    attacked = {PARTS[kind] for kind, names in by_kind(attacks_of(audit), registry).items() if names}
    for part in PARTS.values():
        recorded = getattr(audit, part)
        # Token inputs are described whether attacked or not: what was held does not depend on who asks.
        if recorded is None and part in held and part in attacked:
            yield f"{part}: none is recorded, and the target's runs hold one"
        elif recorded is not None and part not in held:
            yield f"{part}: recorded, and the target's runs hold none"
        elif recorded is not None:
            # What is newer than the record is passed over; a record of this code says all of it.
            said = {k: v for k, v in held[part].items() if k in recorded or made_by_this_code(audit)}
            for key, value in said.items():
                yield from differing(f"{part}/{key}", recorded.get(key), value)


def made_by_this_code(audit: Audit) -> bool:
    return bool(audit.manifest.get("code") == code_version())

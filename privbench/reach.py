"""What attacks can reach by a configuration alone: an audit that could measure nothing does not train first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privbench.attack import Attack, AttackBase, Inversion, unmet
from privbench.errors import InputError
from privbench.estimates import Estimation
from privbench.membership import MembershipAttack
from privbench.parts import NO_COINS, NO_INPUTS, NO_MEMBERS, NO_NUMBERS, adversary
from privbench.registry import BUILT_IN, Registry
from privbench.target import Target

_SECRETS: Mapping[type[AttackBase], tuple[str, str]] = {
    Attack: ("secret", NO_COINS),
    Inversion: ("inputs", NO_INPUTS),
    Estimation: ("estimates", NO_NUMBERS),
    MembershipAttack: ("members", NO_MEMBERS),
}
"""By kind of attack the part of `Target.held` that it is about, and what is said where there is none."""


def require_measurable(
    name: str, target: Target, config: Any, resolved: Mapping[str, Any], attacks: Sequence[str], registry: Registry
) -> None:
    """`InputError` where every attack is known to have nothing to guess, or to lack what it needs; nothing is known of
    a target that does not say what its runs hold. name: the target's; resolved: `Target.describe` of the configuration.
    """
    held = target.held(config)
    if held is None or not attacks:
        return
    nested = [value for value in resolved.values() if isinstance(value, Mapping)] if name in BUILT_IN["targets"] else []
    settings = {key: value for part in nested for key, value in part.items()}
    reasons: dict[str, str] = {}
    for asked in attacks:
        made = registry.get("attacks", asked)
        needs = unmet(made.card, adversary(made, target.threats(config)))
        why = _out_of_reach(made, held) or next(iter(needs), None) or _lacks_public(made, settings)
        why = why or _lacks_senders(made, most_senders(resolved, settings, registry))
        if why is None:
            return
        reasons.setdefault(why, asked)
    said = "; ".join(f"{asked}: {why}" for why, asked in list(reasons.items())[:2])
    raise InputError(f"no attack that is asked for could measure anything here ({said}). Change --attacks, or --set.")


def _out_of_reach(attack: type[AttackBase], held: Mapping[str, Mapping[str, Any]]) -> str | None:
    part, absent = next(found for kind, found in _SECRETS.items() if issubclass(attack, kind))
    if part not in held:
        return absent
    least = attack.least_references if issubclass(attack, MembershipAttack) else 0
    references = held[part].get("references", least)
    return f"needs {least} reference models, there are {references}" if references < least else None


def most_senders(resolved: Mapping[str, Any], settings: Mapping[str, Any], registry: Registry) -> int | None:
    """Of updates that a server sees in one round; None where no rounds are averaged."""
    if "fraction" not in settings:
        return None
    defense = registry.get("defenses", str(resolved.get("defense", "none")).partition(":")[0])
    return 1 if getattr(defense, "summed", False) else max(round(settings["fraction"] * settings["clients"]), 1)


def _lacks_senders(attack: type[AttackBase], most: int | None) -> str | None:
    least = attack.least_senders if issubclass(attack, MembershipAttack) else 0
    few = most is not None and most < least
    return f"needs {least} updates in a round, and the server sees {most}" if few else None


def _lacks_public(attack: type[AttackBase], settings: Mapping[str, Any]) -> str | None:
    """Public texts, questionnaires or layers before the cut, whose numbers the settings `public`, `forms`, `k` are."""
    if not issubclass(attack, Inversion):
        return None
    texts, k, forms = settings.get("public"), settings.get("k"), settings.get("forms")
    if forms is not None and forms < attack.least_forms:
        return f"needs {attack.least_forms} or more questionnaires of the server's own, there are {forms} (--set forms)"
    if texts is not None and texts < attack.least_texts:
        return f"learns from {attack.least_texts} public texts or more, there are {texts} (--set public)"
    if k is not None and attack.searches_layers and not k:
        return "searches the layers before the cut, of which there are none at k=0"
    if k and attack.reads_noise:
        return f"reads noise on rows that no layer has mixed, and there are layers before the cut at k={k}"
    return None

"""What a record promises and with which noise: mechanisms, claims and epsilons against the manifest and each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from privbench.differences import ACCOUNTED, fields, same
from privbench.epsilons import sampling_of
from privbench.mechanism import Mechanism, NoiseUnit
from privbench.threat import Channel
from privbench.verify_parts import Parts, positive

_ACCOUNTED_AS = {
    "nominal": {("add-remove", "rdp")},
    "site": {("replace", "gdp")},
    "server": {("add-remove", "rdp"), ("add-remove", "gdp")},
    "outsider": {("add-remove", "gdp")},
}
"""Neighbours and accountant of the claims that the built-in targets make, by audience."""

_PLAIN = {"clip_unit": "task", "neighbours": "replace", "rho": None, "colluding_sites": 1, "eps": None, "labels": 2}
"""Of every mechanism that the built-in targets describe themselves."""
_SERVER_NOISED = "gaussian"
"""The one of them whose server sees noised values only: it has no other."""


def mechanisms(parts: Parts) -> Iterator[str]:
    """Noise and clip against the manifest's, for every site; what a target describes of itself has no more parts."""
    if not parts.configured:
        return
    resolved, settings = parts.resolved, parts.settings
    ratios = [float(item) for item in str(settings.get("sigma_ratio", "1")).split(":")]
    for item in parts.mechanisms:
        where = f"mechanism of {item.party}"
        if parts.own and item.channel == Channel.GRADIENTS:
            yield from _plain(where, item, parts.audit.findings[0].target)
        if item.kind == "gaussian" and item.channel == Channel.ACTIVATIONS and "cut_noise" in settings:
            yield from fields(f"{where} at the cut: sigma", item.total_sigma, float(settings["cut_noise"]))
        if item.channel != Channel.GRADIENTS or item.kind != "gaussian" or item.clip is None:
            continue
        if "clip" in settings:
            yield from fields(f"{where}: clip", item.clip, settings["clip"])
        if settings.get("noise") in get_args(NoiseUnit):
            yield from fields(f"{where}: noise", item.noise, settings["noise"])
        for what, unit in (("noise_multiplier", item.clip), ("sigma", 1.0)):
            wanted = resolved.get(what)
            if isinstance(wanted, int | float):
                found = [sigma / unit for sigma in item.sigma.values()]
                expected = [wanted * ratio for ratio in (ratios * len(found))[: len(found)]]
                if not all(map(same, found, expected)):
                    yield f"{where}: {what} is {_listed(found)}, the manifest's {_listed(expected)}"
    cut = any(item.channel == Channel.ACTIVATIONS for item in parts.mechanisms)
    if "cut_noise" in settings and cut != (positive(settings["cut_noise"]) and positive(settings.get("inputs"))):
        yield (
            f"mechanisms: {'one' if cut else 'none'} is described at the cut, and the manifest's cut_noise is "
            f"{settings['cut_noise']!r}, its inputs {settings.get('inputs')!r}"
        )
    beyond = any(item.total_sigma for item in parts.mechanisms if item.channel != Channel.GRADIENTS)
    if positive(resolved["eps"]) and not (parts.noised or beyond):
        yield f"mechanisms: no noise is described, though the manifest's eps is {resolved['eps']:g}"


def _plain(where: str, item: Mechanism, target: str) -> Iterator[str]:
    for key, value in _PLAIN.items():
        yield from fields(f"{where}: {key}", getattr(item, key), value)
    if item.kind == "gaussian":
        yield from fields(f"{where}: server_noised", item.server_noised, target == _SERVER_NOISED)


def claims(parts: Parts) -> Iterator[str]:
    """Every claim against the manifest's options and against the noise."""
    wanted = parts.resolved["eps"]
    if not parts.configured:
        first = parts.claims[0].eps if parts.claims else None
        if not same(wanted, first):
            yield f"claims: the first eps is {first!r}, the manifest's {wanted!r}"
        return
    if positive(wanted) and not parts.claims:
        yield f"claims: there are none, though the manifest promises eps {wanted:g}"
    for claim in parts.claims:
        where = f"claim for {claim.audience}"
        rows = [
            ("for", claim.audience, parts.resolved.get("eps_for")),
            ("delta", claim.delta, parts.resolved.get("delta")),
            ("epochs", claim.epochs, parts.releases),
            ("sample_rate", claim.sample_rate, parts.sample_rate),
        ]
        for key, value, expected in rows:
            if value is not None and expected is not None and not same(value, expected):
                yield f"{where}: {key} is {value!r}, and by the manifest {expected!r}"
        if wanted is not None and not same(claim.eps, wanted, ACCOUNTED):  # noise is searched for, and comes close
            yield f"{where}: eps is {claim.eps!r}, and by the manifest {wanted!r}"
        if parts.own and (claim.neighbours, claim.accountant) not in _ACCOUNTED_AS.get(claim.audience, ()):
            yield f"{where}: no built-in target claims {claim.neighbours} by {claim.accountant}"
        # Of updates, the target's own accounting stands among the epsilons, which are made again.
        of_labels = {"nominal": parts.nominal, "site": parts.site_eps}.get(claim.audience)
        spent = None if of_labels is None else of_labels(claim.delta)
        if spent is not None and not same(claim.eps, spent, ACCOUNTED):
            yield f"{where}: eps {claim.eps:g}, and the noise accounts for {spent:.6g}"


def epsilons(parts: Parts) -> Iterator[str]:
    """Every epsilon that names a claim, the nominal one or the site's, against claims and noise."""
    if len({item["name"] for item in parts.audit.epsilons}) < len(parts.audit.epsilons) and parts.configured:
        yield "epsilons: a name appears twice"
    yield from _of_claims(parts)
    entries = {str(item["name"]): item for item in parts.audit.epsilons}
    nominal, site = entries.get("nominal"), entries.get("site")
    if nominal is not None and nominal["value"] is not None:
        spent = parts.nominal(nominal["delta"])
        if spent is None or not same(nominal["value"], spent, ACCOUNTED):
            yield f"epsilons: nominal {nominal['value']:g}, and the noise accounts for {_shown(spent)}"
        if parts.own and parts.resolved.get("eps_for") == "nominal" and not parts.claims:
            yield f"epsilons: nominal {nominal['value']:g}, and no claim says so"
    if site is None and parts.own and parts.mechanism is not None:
        yield "epsilons: the site's own is missing"
    # Where --sigma fixes the noise, a target may not know sigma / C beforehand and give none; how many labels move is
    # not known of a recording whose coins nobody guessed.
    known = parts.configured or parts.audit.secret is not None
    if (
        site is not None
        and known
        and (site["value"] is not None or parts.resolved.get("noise_multiplier", 0) is not None)
    ):
        spent = parts.site_eps(site["delta"])
        if not same(site["value"], spent, ACCOUNTED):
            yield f"epsilons: site {_shown(site['value'])}, and the noise accounts for {_shown(spent)}"


def _of_claims(parts: Parts) -> Iterator[str]:
    """A recording's claims are listed as they are; those of a target stand under their audience's name."""
    if parts.configured:
        entries = {str(item["name"]): item for item in parts.audit.epsilons}
        for claim in parts.claims:
            entry = entries.get(claim.audience)
            if entry is None or not same(entry["value"], claim.eps, ACCOUNTED) or entry["delta"] != claim.delta:
                yield f"epsilons: none says {claim.audience} {claim.eps:g} at delta {claim.delta:g}, as the claim does"
        return
    keys = ("name", "value", "delta", "neighbours", "sampling", "accountant", "releases")
    listed = [[item[k] for k in keys] for item in parts.audit.epsilons if item["name"].startswith("claimed, ")]
    claimed = [
        [
            f"claimed, {c.audience}",
            c.eps,
            c.delta,
            c.neighbours,
            sampling_of(c),
            c.accountant,
            c.epochs or parts.releases,
        ]
        for c in parts.claims
    ]
    yield from fields("epsilons claimed", listed, claimed)


def _listed(values: list[float]) -> str:
    return ", ".join(dict.fromkeys(f"{value:.6g}" for value in values))


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"

"""Estimated inputs in a record: what is kept of them, what is shown, and the cut, against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from privbench.differences import fields, same
from privbench.estimated import Fit
from privbench.estimates import ActiveEstimation, Estimation
from privbench.estimating import SHOWN
from privbench.findings_estimates import FITS, fit_of
from privbench.mechanism import Mechanism, input_mechanism
from privbench.record import Audit
from privbench.registry import Registry
from privbench.verify_scores import EQUAL, ROUNDING, Scores, attacks_of, once_each

Fits = Mapping[str, Fit]
"""By what stands before the attack's name in the names of scores."""


def contradictory_estimates(audit: Audit, scores: Scores, registry: Registry) -> Iterator[str]:
    """One line for each pair of statements about estimated inputs that cannot both be true."""
    if audit.estimates is None:
        return
    said, name = audit.estimates, str(audit.estimates["name"])
    kept: dict[str, Fits] = {}
    for attack in attacks_of(audit, name):
        keys = {part: f"fit/{part}{attack}/{name}" for part in FITS}
        if keys[""] in scores:
            kept[attack] = {part: fit_of(scores[key]) for part, key in keys.items() if key in scores}
    index = scores[f"index/{name}"]
    yield from once_each(f"index/{name}", index)
    if index.max(initial=0) >= said["records"] + said["known"]:
        yield f"index/{name}: names a record beyond the {said['records'] + said['known']} that were known or scored"
    for key in ("r2", "off"):
        if set(said[key]) != set(kept):
            yield f"estimates/{key}: of {_listed(said[key])}, and scores are kept of {_listed(kept)}"
    for attack, fits in kept.items():
        made: type[Estimation] = registry.get("attacks", attack)
        yield from _shown_as_kept(said, attack, fits[""])
        yield from _possible(said, attack, fits, made.most)
    yield from _same_baselines(kept)
    yield from _examples(said, kept, registry)
    for attack in said["harms"]:
        if attack not in kept or not issubclass(registry.get("attacks", attack), ActiveEstimation):
            yield f"estimates/harms: {attack} acted in no run that it is scored on"
        yield from _harms(attack, said["harms"][attack])


def cut_and_mechanism(audit: Audit, mechanisms: tuple[Mechanism, ...]) -> Iterator[str]:
    """The linear cut that bounds speak about, against the noise that is described at it."""
    if audit.estimates is None or audit.estimates["cut"] is None:
        return
    said, cut = audit.estimates, audit.estimates["cut"]
    mechanism = input_mechanism(mechanisms, str(said["name"]).removeprefix("input/"))
    if mechanism is None or mechanism.kind != "gaussian":
        yield "estimates/cut: a noised linear cut is recorded, and no Gaussian mechanism on activations is described"
        return
    yield from fields("estimates/cut/eta", cut["eta"], mechanism.total_sigma)
    if said["hours"] != 1:
        yield f"estimates/cut: bounds speak of one hour, and {said['hours']} are recorded"
    # The trace of A^T A is that of the covariance of A x where x is white.
    if cut["normal"] and not same(sum(cut["sent"]), cut["trace"], ROUNDING):
        yield f"estimates/cut/trace: {cut['trace']:g}, and the variances sent add up to {sum(cut['sent']):g}"
    if len(cut["sent"]) > cut["entries"]:
        yield f"estimates/cut/sent: {len(cut['sent'])} directions of {cut['entries']} inputs"


def _shown_as_kept(said: Mapping[str, Any], attack: str, fit: Fit) -> Iterator[str]:
    """R2 and error by feature as the record shows them, and as they were kept."""
    for key, found in (("r2", fit.r2), ("off", fit.off)):
        shown = said[key].get(attack, ())
        if len(found) != len(shown) or not np.allclose(found, shown, rtol=ROUNDING, atol=ROUNDING):
            yield f"estimates/{key}/{attack}: not what its scores say"
    if said["features"] and len(said["features"]) != len(fit.r2):
        yield f"estimates/features: {len(said['features'])} are named, and {attack} is scored on {len(fit.r2)}"


def _possible(said: Mapping[str, Any], attack: str, fits: Fits, most: int | None) -> Iterator[str]:
    """Numbers that sums over records can have. most: how many records the attack is asked about."""
    records = said["records"] if most is None else min(most, said["records"])
    for part, fit in fits.items():
        if fit.records != records:
            yield f"fit/{part}{attack}: of {fit.records} records, and the attack is asked about {records}"
    best = fits.get("constant/")
    if best is None:
        return
    if (best.r2 < -EQUAL).any():
        yield f"fit/constant/{attack}: below what the mean of all hours explains"
    if "prior/" in fits and fits["prior/"].mean > best.mean + EQUAL:
        yield f"fit/prior/{attack}: above what any estimate reads that says the same of every record"
    if said["others"] != ("others/" in fits):
        yield f"fit/others/{attack}: {'missing' if said['others'] else 'there'}, and estimates/others says otherwise"


def _same_baselines(kept: Mapping[str, Fits]) -> Iterator[str]:
    """What takes no cut is the same for all attacks that were asked about the same records."""
    first: dict[tuple[str, int], tuple[str, Fit]] = {}
    for attack, fits in kept.items():
        for part in ("constant/", "prior/", "others/"):
            if part not in fits:
                continue
            holder, known = first.setdefault((part, fits[part].records), (attack, fits[part]))
            for key in ("r2", "spread", "error", "hit", "heaviest"):
                if not np.allclose(getattr(fits[part], key), getattr(known, key), rtol=EQUAL, atol=EQUAL):
                    yield f"fit/{part}{attack}: {key} is not that of {holder}, on the same records"


def _examples(said: Mapping[str, Any], kept: Mapping[str, Fits], registry: Registry) -> Iterator[str]:
    """The best attack that was asked about every record is the one whose estimates are drawn."""
    if (said["shown"] is None) != (not said["examples"]):
        yield "estimates/examples: there are some exactly where it is said whose estimates they are"
    if said["shown"] is None:
        return
    able = {name: fits[""].mean for name, fits in kept.items() if registry.get("attacks", name).most is None}
    if said["shown"] not in able or able[said["shown"]] < max(able.values()) - EQUAL:
        yield f"estimates/shown: {said['shown']} is not the best of {_listed(able)}"
    if len(said["examples"]) != min(SHOWN, said["records"]):
        yield f"estimates/examples: {len(said['examples'])} of {min(SHOWN, said['records'])}"
    shape = {(len(next(iter(kept.values()))[""].r2), said["hours"])} if kept else set()
    for number, item in enumerate(said["examples"]):
        for key in ("measured", "estimated"):
            if {(len(item[key]), len(row)) for row in item[key]} != shape:
                yield f"estimates/examples/{number}/{key}: not every hour of every feature"


def _harms(attack: str, items: list[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        off = abs(item["acted"] - item["honest"] - item["change"])
        areas = all(0 <= item[key] <= 1 for key in ("acted", "honest"))
        if not areas or off > ROUNDING or not item["low"] <= item["change"] <= item["high"]:
            yield f"estimates/harms/{attack}: the change of {item['task']} is not what its two runs differ by"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"

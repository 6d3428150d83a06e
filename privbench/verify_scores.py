"""The score vectors of a record: which there must be, of what shape, and what each says of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.counts import COUNTS
from privbench.estimated import Fit
from privbench.findings_estimates import FITS, LAST, fit_of
from privbench.findings_inputs import ROWS
from privbench.measure import CALIBRATION_SHARE, ORACLE
from privbench.record import Audit
from privbench.recording import MEMBER
from privbench.recovery import METRICS
from privbench.registry import Registry
from privbench.threat import Channel

Scores = Mapping[str, npt.NDArray[Any]]

_TYPES = {"index": (np.int64,), "coins": (np.uint8,)}
_SCORES = (np.float32, np.float64)

ROUNDING, _TIES, EQUAL = 1e-6, 1e-9, 1e-9
"""Of sums of scores that were each rounded to float32, as a share of their sizes; exact ties are given 1e-12; of what a
record gains against its weight.
"""


def secret_of(audit: Audit) -> str | None:
    """The name of the secret whose coins were guessed, "joint" or a task; None where the run held none."""
    return None if audit.secret is None else str(audit.secret["name"]).removeprefix("canary/")


def releases_of(audit: Audit) -> int:
    """T, by the findings about coins, or by those about inputs where there are no others."""
    counts = [finding.releases for finding in audit.findings if finding.secret.startswith("canary/")]
    return max(counts or [finding.releases for finding in audit.findings])


def attacks_of(audit: Audit, kind: str = "") -> tuple[str, ...]:
    """Every attack of the record, or on secrets of one kind ("canary/", "input/"), in order of appearance."""
    return tuple(dict.fromkeys(item.attack for item in audit.findings if item.secret.startswith(kind)))


def malformed(audit: Audit, scores: Scores, registry: Registry) -> Iterator[str]:
    """Arrays from which nothing may be counted: of another shape or type, not finite, or that no attack wrote.

    An attack's scores are one trial a record, [m]. All releases of a record, [T, m], are trials of their own only
    where the attack's card says that its success is exact per release.
    """
    shapes = _shapes(audit, registry)
    inversions = () if audit.inputs is None else attacks_of(audit, audit.inputs["name"])
    for name, line in audit.series.items():
        total = audit.inputs["releases"] if audit.inputs is not None and name in inversions else releases_of(audit)
        for axis in (line.x, line.y, line.low, line.high):
            if axis is not None and len(axis) != total:
                yield f"series {name}: has {len(axis)} points for {total} releases"
    for name in shapes:
        if name.startswith(("index/", f"coins/{MEMBER}")) and name not in scores:
            yield f"{name}: missing; it says which records were scored, or their coins"
    estimations = () if audit.estimates is None else attacks_of(audit, audit.estimates["name"])
    for attack in dict.fromkeys((*inversions, *estimations)):
        parts = ("curve/", "recovered/", *(f"fit/{part}" for part in FITS[:-1]))
        own = {name for name in shapes if name.startswith(tuple(f"{part}{attack}/" for part in parts))}
        if own & scores.keys():
            yield from (f"{name}: missing; {attack} was scored" for name in sorted(own - scores.keys()))
    for name, array in scores.items():
        kind = name.partition("/")[0]
        if name not in shapes:
            yield f"{name}: no attack of this record wrote it"
        elif array.shape != shapes[name]:
            yield f"{name}: has shape {list(array.shape)}, it must be {list(shapes[name])}"
        elif array.dtype not in _TYPES.get(kind, _SCORES):
            yield f"{name}: has type {array.dtype}"
        else:
            yield from _impossible(kind, name, array, audit)


def _impossible(kind: str, name: str, array: npt.NDArray[Any], audit: Audit) -> Iterator[str]:
    """Values that an array of this kind cannot hold."""
    if kind not in ("index", "coins") and not np.isfinite(array).all():
        yield f"{name}: {int((~np.isfinite(array)).sum())} scores are NaN or infinite"
    elif kind == "coins" and array.max(initial=0) > 1:
        yield f"{name}: a coin is {int(array.max())}; it may be 0 or 1 only"
    elif kind == "fit":
        yield from _no_fit(name, fit_of(array))
    elif kind in ("recovered", "prior") and audit.inputs is not None:
        together = any(Channel.UPDATES in threat["channels"] for threat in audit.threats)
        yield from _no_shares(name, array, int(audit.inputs["records"]), together)
    elif kind == "curve" and array.ndim == 1 and not ((array >= 0) & (array <= 1)).all():
        yield f"{name}: a share lies between 0 and 1"


def _no_fit(name: str, fit: Fit) -> Iterator[str]:
    """Why these numbers are of no estimate."""
    if not 0 <= fit.hit <= fit.records or fit.records < 1:
        yield f"{name}: {fit.hit} of {fit.records} records are found"
    if (fit.r2 > 1 + EQUAL).any() or (fit.spread <= 0).any() or fit.error < 0 or not 0 <= fit.heaviest <= 1:
        yield f"{name}: R2 is at most 1, spreads are above 0, errors at least 0, shares in 0 .. 1"


def _no_shares(name: str, sums: npt.NDArray[Any], records: int, together: bool) -> Iterator[str]:
    """Why these sums over records are no shares. together: rounds count instead, of whatever sizes."""
    *shares, squares = map(float, sums)
    if not all(0 <= share <= 1 for share in shares):
        yield f"{name}: a share lies between 0 and 1"
    if not 1 / records <= squares * (1 + EQUAL) <= 1 + ROUNDING:
        yield f"{name}: weights of {records} records that sum to 1 do not have squares that sum to {squares:.6g}"
    elif not together and name.endswith(f"/{METRICS[0]}") and not math.isclose(squares * records, 1):
        yield f"{name}: every record counts the same in {METRICS[0]}"


def _shapes(audit: Audit, registry: Registry) -> dict[str, tuple[int, ...]]:
    """Every array that the attacks of this record may have written."""
    shapes: dict[str, tuple[int, ...]] = {}
    if audit.secret is not None:
        secret, m, total = secret_of(audit), int(audit.secret["scored"]), releases_of(audit)
        shapes[f"index/{secret}"] = (m,)
        for attack in attacks_of(audit, "canary/"):
            exact = registry.get("attacks", attack).card.exact_per_release
            shapes[f"curve/{attack}/{secret}"] = (total, m)
            for over in (1, total):
                key = f"{attack}/{secret}/{over}"
                single = (total, m) if exact and over == 1 else (m,)
                shapes |= {f"scores/{key}": single, f"clean/{key}": single}
                shapes |= {f"coins/{key}": (m,), f"shuffled/{key}": (m,)}
    if audit.members is not None:
        m = int(audit.members["scored"])
        shapes |= {f"{kind}/{MEMBER}": (m,) for kind in ("index", "coins", "blind")}
        shapes |= {f"scores/{attack}/{MEMBER}/1": (m,) for attack in attacks_of(audit, MEMBER)}
    if audit.estimates is not None:
        name, features = audit.estimates["name"], len(next(iter(audit.estimates["r2"].values()), ()))
        shapes[f"index/{name}"] = (int(audit.estimates["records"]),)
        fits = [f"fit/{part}{attack}/{name}" for attack in attacks_of(audit, name) for part in FITS]
        shapes |= dict.fromkeys(fits, (2 * features + len(LAST),))
    if audit.inputs is not None:
        name, m, total = audit.inputs["name"], audit.inputs["records"], audit.inputs["releases"]
        shapes[f"index/{name}"] = (m,)
        shapes |= {f"prior/{name}/{metric}": (len(ROWS),) for metric in METRICS}
        for attack in attacks_of(audit, name):
            shapes[f"curve/{attack}/{name}"] = (total,)
            shapes |= {
                f"recovered/{attack}/{name}/{over}/{metric}": (len(ROWS),)
                for over in (1, total)
                for metric in registry.get("attacks", attack).metrics
            }
    return shapes


def contradictory(audit: Audit, scores: Scores) -> Iterator[str]:
    """Well-formed arrays that cannot have come from one audit."""
    if audit.secret is not None:
        yield from _contradictory_coins(audit, scores, int(audit.secret["records"]))
    if audit.inputs is not None:
        yield from _contradictory_inputs(audit.inputs, scores)
    if audit.members is not None:
        yield from _contradictory_members(audit.members, scores)


def once_each(name: str, index: npt.NDArray[Any]) -> Iterator[str]:
    """Records have numbers, and nobody is scored twice."""
    if len(np.unique(index)) < len(index) or index.min(initial=0) < 0:
        yield f"{name}: a record is scored twice, or has no number"


def _contradictory_members(members: Mapping[str, Any], scores: Scores) -> Iterator[str]:
    """Every record once, as many as were not told to the attacks, and the control that is said to be there."""
    if members["blind"] != (f"blind/{MEMBER}" in scores):
        yield f"blind/{MEMBER}: {'missing' if members['blind'] else 'there'}, and members/blind says otherwise"
    index, count = scores[f"index/{MEMBER}"], members["candidates"]
    yield from once_each(f"index/{MEMBER}", index)
    if members["scored"] != count - count // CALIBRATION_SHARE:
        yield f"members/scored: {members['scored']}, and an eighth of {count} candidates is told to the attacks"


def _contradictory_inputs(inputs: Mapping[str, Any], scores: Scores) -> Iterator[str]:
    """Every record is scored; what it weighs and what the most frequent answers read are no attack's to change."""
    secret = inputs["name"]
    if not np.array_equal(scores[f"index/{secret}"], np.arange(inputs["records"])):
        yield f"index/{secret}: not every record once, in order"
    yield from _contradictory_prior(inputs, scores)
    yield from _contradictory_questions(inputs, scores)
    first: dict[str, tuple[str, npt.NDArray[Any]]] = {}
    for name, rows in scores.items():
        if not name.startswith(("recovered/", "prior/")):
            continue
        metric, given = name.rpartition("/")[2], rows[[ROWS.index("baseline"), ROWS.index("squares")]]
        holder, known = first.setdefault(metric, (name, given))
        if not np.allclose(given, known, rtol=ROUNDING, atol=0):
            yield f"{name}: the baseline and the weights are not those of {holder}"
    for name, curve in scores.items():
        if name.startswith("curve/") and name.endswith(f"/{secret}") and len(curve) == 1:
            said = f"recovered/{name.removeprefix('curve/')}/1/"
            said += METRICS[0] if said + METRICS[0] in scores else COUNTS
            if abs(float(scores[said][ROWS.index("value")]) - float(curve[0])) > ROUNDING:
                yield f"{name}: not what {said} adds up to, and there is one release"


def _contradictory_prior(inputs: Mapping[str, Any], scores: Scores) -> Iterator[str]:
    """What takes no cut is there in every metric or in none, and is what the record's own words say."""
    names = {metric: f"prior/{inputs['name']}/{metric}" for metric in METRICS}
    for name in names.values():
        if inputs.get("prior", False) != (name in scores):
            yield f"{name}: {'missing' if inputs.get('prior') else 'there'}, and inputs/prior says otherwise"
    summed = {
        metric: {"one_reply": at[ROWS.index("baseline")], "language_model": at[ROWS.index("value")]}
        for metric, name in names.items()
        if (at := scores.get(name)) is not None
    }
    said = inputs.get("without_cut", {})
    for metric in summed.keys() | said.keys():
        if {key: float(value) for key, value in summed.get(metric, {}).items()} != said.get(metric):
            yield f"inputs/without_cut/{metric}: not what {names.get(metric, 'any array')} says"


def _contradictory_questions(inputs: Mapping[str, Any], scores: Scores) -> Iterator[str]:
    """Question by question no more and no less was read than in all, by the attack that reads most."""
    if "by_question" not in inputs:  # older than this
        return
    said, attack, metric = inputs["by_question"], inputs.get("strongest"), METRICS[1]
    end = f"/{inputs['name']}/{inputs['releases']}/{metric}"
    sums = {n.removeprefix("recovered/").removesuffix(end): rows for n, rows in scores.items() if n.endswith(end)}
    if not sums and not said:
        return
    if not said or attack not in sums:
        yield "inputs/by_question: there is some exactly where an inversion ran, and of one that did"
        return
    value, baseline = (float(sums[attack][ROWS.index(row)]) for row in ("value", "baseline"))
    if any(float(rows[0]) > value for rows in sums.values()):
        yield f"inputs/strongest: {attack} is not the attack that read most answers"
    prior = scores.get(f"prior/{inputs['name']}/{metric}")
    told = {
        "read": (value, [item["read"] for item in said]),
        "answers": (baseline, [1 / item["answers"] for item in said]),
        "language_model": (
            0.0 if prior is None else float(prior[ROWS.index("value")]),
            [item.get("language_model", 0.0) for item in said],
        ),
    }
    for key, (whole, parts) in told.items():
        if abs(fmean(parts) - whole) > EQUAL:
            yield f"inputs/by_question/{key}: {fmean(parts):.6g} on average, and the scores say {whole:.6g}"


def _contradictory_coins(audit: Audit, scores: Scores, records: int) -> Iterator[str]:
    secret, total = secret_of(audit), releases_of(audit)
    index = scores[f"index/{secret}"]
    if len(np.unique(index)) < len(index):
        yield f"index/{secret}: a record is scored twice"
    if index.min() < 0 or index.max() >= records:
        yield f"index/{secret}: names a record outside 0 .. {records - 1}"
    coins = [(name, array) for name, array in scores.items() if name.startswith("coins/") and f"/{secret}/" in name]
    for name, array in coins[1:]:
        if (array != coins[0][1]).any():
            yield f"{name}: the coins are not those of {coins[0][0]}, and every attack guesses the same ones"
    for attack in attacks_of(audit, "canary/"):
        key = f"{attack}/{secret}"
        curve, last, single = (
            scores.get(name) for name in (f"curve/{key}", f"scores/{key}/{total}", f"scores/{key}/1")
        )
        if curve is None:
            continue
        if total > 1 and last is not None and not np.array_equal(curve[-1], last):
            yield f"scores/{key}/{total}: not the last row of curve/{key}"
        # Independent releases: the accumulated log likelihood ratio is the sum of each release's own.
        if attack == ORACLE and single is not None and not _adds_up(single, curve):
            yield f"curve/{key}: not the running sum of scores/{key}/1"


def _adds_up(single: npt.NDArray[Any], curve: npt.NDArray[Any]) -> bool:
    ratios = single.astype(np.float64)
    allowed = ROUNDING * np.cumsum(np.abs(ratios), axis=0) + _TIES
    return bool((np.abs(np.cumsum(ratios, axis=0) - curve) <= allowed).all())

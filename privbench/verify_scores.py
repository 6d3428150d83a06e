"""The score vectors of a record: which there must be, of what shape, and what each says of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.measure import ORACLE
from privbench.record import Audit
from privbench.registry import Registry

Scores = Mapping[str, npt.NDArray[Any]]

_TYPES = {"index": (np.int64,), "coins": (np.uint8,)}
_SCORES = (np.float32, np.float64)

_ROUNDING, _TIES = 1e-6, 1e-9
"""Of sums of scores that were each rounded to float32, as a share of their sizes; exact ties are given 1e-12."""


def secret_of(audit: Audit) -> str:
    """The secret's own name: "joint" or a task."""
    return str(audit.secret["name"]).removeprefix("canary/")


def releases_of(audit: Audit) -> int:
    """T, by the findings."""
    return max(finding.releases for finding in audit.findings)


def attacks_of(audit: Audit) -> tuple[str, ...]:
    """Every attack of the record, in order of appearance."""
    return tuple(dict.fromkeys(finding.attack for finding in audit.findings))


def malformed(audit: Audit, scores: Scores, registry: Registry) -> Iterator[str]:
    """Arrays from which nothing may be counted: of another shape or type, not finite, or that no attack wrote.

    An attack's scores are one trial a record, [m]. All releases of a record, [T, m], are trials of their own only
    where the attack's card says that its success is exact per release.
    """
    secret, m, total = secret_of(audit), int(audit.secret["scored"]), releases_of(audit)
    shapes: dict[str, tuple[int, ...]] = {f"index/{secret}": (m,)}
    for attack in attacks_of(audit):
        exact = registry.get("attacks", attack).card.exact_per_release
        shapes[f"curve/{attack}/{secret}"] = (total, m)
        for over in (1, total):
            key = f"{attack}/{secret}/{over}"
            single = (total, m) if exact and over == 1 else (m,)
            shapes |= {f"scores/{key}": single, f"clean/{key}": single, f"coins/{key}": (m,), f"shuffled/{key}": (m,)}
    for name, line in audit.series.items():
        for axis in (line.x, line.y, line.low, line.high):
            if axis is not None and len(axis) != total:
                yield f"series {name}: has {len(axis)} points for {total} releases"
    if f"index/{secret}" not in scores:
        yield f"index/{secret}: missing; it says which records were scored"
    for name, array in scores.items():
        kind = name.partition("/")[0]
        if name not in shapes:
            yield f"{name}: no attack of this record wrote it"
        elif array.shape != shapes[name]:
            yield f"{name}: has shape {list(array.shape)}, it must be {list(shapes[name])}"
        elif array.dtype not in _TYPES.get(kind, _SCORES):
            yield f"{name}: has type {array.dtype}"
        elif kind not in ("index", "coins") and not np.isfinite(array).all():
            yield f"{name}: {int((~np.isfinite(array)).sum())} scores are NaN or infinite"
        elif kind == "coins" and array.max(initial=0) > 1:
            yield f"{name}: a coin is {int(array.max())}; it may be 0 or 1 only"


def contradictory(audit: Audit, scores: Scores) -> Iterator[str]:
    """Well-formed arrays that cannot have come from one audit."""
    secret, total = secret_of(audit), releases_of(audit)
    index, records = scores[f"index/{secret}"], int(audit.secret["records"])
    if len(np.unique(index)) < len(index):
        yield f"index/{secret}: a record is scored twice"
    if index.min() < 0 or index.max() >= records:
        yield f"index/{secret}: names a record outside 0 .. {records - 1}"
    coins = [(name, array) for name, array in scores.items() if name.startswith("coins/")]
    for name, array in coins[1:]:
        if (array != coins[0][1]).any():
            yield f"{name}: the coins are not those of {coins[0][0]}, and every attack guesses the same ones"
    for attack in attacks_of(audit):
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
    allowed = _ROUNDING * np.cumsum(np.abs(ratios), axis=0) + _TIES
    return bool((np.abs(np.cumsum(ratios, axis=0) - curve) <= allowed).all())

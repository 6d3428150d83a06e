"""The curves of a record and the score vectors that they, and every finding, can be recomputed from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.bounds.base import BoundValue, Unsupported
from privbench.measure import Attacked
from privbench.record import Series
from privbench.stats import binomial


def series(attacked: Attacked, values: Iterable[BoundValue | Unsupported]) -> dict[str, Series]:
    """Accuracy over releases per attack, what the moves predict, and the bounds along the same axis."""
    steps = tuple(float(t) for t in range(1, attacked.releases + 1))
    curves = {}
    for name, outcome in attacked.outcomes.items():
        coins = outcome.all.coins
        right = ((outcome.curve > 0) == (coins == 1)).sum(axis=1)
        ends = [binomial.clopper_pearson(int(count), len(coins)) for count in right]
        curves[name] = Series(
            steps,
            tuple(float(count) / len(coins) for count in right),
            tuple(low for low, _ in ends),
            tuple(high for _, high in ends),
        )
    if attacked.prediction is not None:
        curves["oracle, predicted"] = Series(steps, attacked.prediction.accumulated)
    for value in {item.name: item for item in values if isinstance(item, BoundValue)}.values():
        if value.name == "g-composed":
            one = value.signal / math.sqrt(attacked.releases)
            y = tuple(1.0 if math.isinf(one) else NormalDist().cdf(one * math.sqrt(t)) for t in steps)
        else:
            y = tuple(value.value for _ in steps)
        curves[f"bound {value.name}"] = Series(steps, y)
    return curves


def score_vectors(attacked: Attacked) -> dict[str, npt.NDArray[Any]]:
    """scores/, coins/, clean/, shuffled/ + ATTACK/SECRET/RELEASES, curve/ATTACK/SECRET and index/SECRET (records)."""
    secret = attacked.secret
    arrays: dict[str, npt.NDArray[Any]] = {f"index/{secret}": attacked.scored}
    for name, outcome in attacked.outcomes.items():
        by_releases = {1: outcome.one}
        if attacked.releases > 1:
            by_releases[attacked.releases] = outcome.all
        for releases, scored in by_releases.items():
            key = f"{name}/{secret}/{releases}"
            arrays[f"scores/{key}"] = scored.scores
            arrays[f"coins/{key}"] = scored.coins
            arrays[f"shuffled/{key}"] = scored.shuffled
            if scored.clean is not None:
                arrays[f"clean/{key}"] = scored.clean
        arrays[f"curve/{name}/{secret}"] = outcome.curve
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

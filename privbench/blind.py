"""A classifier that sees the records and no model: it tells members from others only where they were not drawn alike.

Published membership attacks have been credited with the difference between an old and a new half of a data set.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, Scores
from privbench.recording import Secrets

_FOLDS = 5


def blind_scores(
    secrets: Secrets, candidates: Index, coins: npt.NDArray[np.uint8], scored: Index, rng: np.random.Generator
) -> Scores | None:
    """Out-of-fold log odds that the `scored` records [m] are members, from features alone; None without features.

    candidates, coins [n]: all whose membership is known to the scorer. Each fold's model saw the other folds.
    """
    features = summaries(secrets, candidates)
    if features is None or coins.min() == coins.max():
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier

    odds = np.zeros(len(candidates))
    for held in np.array_split(rng.permutation(len(candidates)), _FOLDS):
        rest = np.setdiff1d(np.arange(len(candidates)), held)
        model = HistGradientBoostingClassifier(
            max_iter=60,
            random_state=int(rng.integers(2**31)),
            early_stopping=False,
            class_weight="balanced",  # else a fold's odds lean against its own share of members
        )
        odds[held] = model.fit(features[rest], coins[rest]).decision_function(features[held])
    found: Scores = odds[np.searchsorted(candidates, scored)].astype(np.float32)
    return found


def summaries(secrets: Secrets, rows: Index, but: str | None = None) -> npt.NDArray[np.float64] | None:
    """Features per record [n, F]: natural labels as they are; of each series of inputs the mean, the spread, the first
    and the last. `but`: a party that is left out. None where no inputs are recorded.
    """
    columns = [np.asarray(secrets.arrays[name])[rows].reshape(len(rows), -1) for name in secrets.natural_labels]
    sites = [site for site in secrets.measured if site != but]
    for site in sites:
        values = np.asarray(secrets.arrays[f"inputs/{site}"])[rows]
        hourly = values.reshape(len(rows), -1, values.shape[-1])
        columns += [hourly.mean(axis=1), hourly.std(axis=1), hourly[:, 0], hourly[:, -1]]
    return np.concatenate(columns, axis=1).astype(np.float64) if sites else None

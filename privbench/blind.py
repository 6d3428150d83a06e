"""A classifier that sees the records and no model: it tells members from others only where they were not drawn alike.

Published membership attacks have been credited with the difference between an old and a new half of a data set.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privbench.attack import Index, Scores
from privbench.estimates import Floats, Mask, told_of, with_means
from privbench.recording import Secrets

_FOLDS = 5


def blind_scores(
    secrets: Secrets, candidates: Index, coins: npt.NDArray[np.uint8], scored: Index, rng: np.random.Generator
) -> Scores | None:
    """Out-of-fold log odds that the `scored` records [m] are members, from features alone; None without features.

    candidates, coins [n]: all whose membership is known to the scorer. Each fold's model saw the other folds.
    """
    if not (secrets.measured or coded(secrets)) or coins.min() == coins.max():
        return None
    features = summaries(secrets, candidates)
    from sklearn.ensemble import HistGradientBoostingClassifier

    odds = np.zeros(len(candidates))
    for held in np.array_split(rng.permutation(len(candidates)), _FOLDS):
        rest = np.setdiff1d(np.arange(len(candidates)), held)
        model = HistGradientBoostingClassifier(
            max_iter=60,
            max_bins=32,  # a step of a shift is coarse; with weights, most of the time goes into finding bins
            random_state=int(rng.integers(2**31)),
            min_samples_leaf=min(20, max(len(rest) // 8, 1)),  # with the usual 20, few records could not be split
            early_stopping=False,
            class_weight="balanced",  # else a fold's odds lean against its own share of members
        )
        odds[held] = model.fit(features[rest], coins[rest]).decision_function(features[held])
    # Where nothing was learned folds differ by rounding alone, which is no order of records.
    found: Scores = odds.round(9)[np.searchsorted(candidates, scored)].astype(np.float32)
    return found


def summaries(secrets: Secrets, rows: Index, but: str | None = None) -> npt.NDArray[np.float64]:
    """Features per record [n, F]: natural labels and codes as they are; of each feature of a series what was measured:
    the mean, the spread, the first and the last value, and the share of hours. `but`: a party that is left out.
    """
    whole = (*secrets.natural_labels, *coded(secrets))
    columns = [np.asarray(secrets.arrays[name])[rows].reshape(len(rows), -1) for name in whole]
    for site in secrets.measured:
        if site != but:
            values, observed = told_of(secrets.arrays, f"inputs/{site}")
            columns += _of_series(with_means(values[rows], observed[rows]), observed[rows])
    found: npt.NDArray[np.float64] = np.concatenate([np.empty((len(rows), 0)), *columns], axis=1)
    return found


def coded(secrets: Secrets) -> tuple[str, ...]:
    """Arrays of answers as numbers."""
    return tuple(sorted(name for name in secrets.arrays if name.endswith("/codes")))


def _of_series(filled: Floats, observed: Mask) -> list[Floats]:
    """Five summaries [n, F] of series [n, H, F]; of one that was never measured, those of the feature's mean."""
    ever, count = observed.any(axis=1), np.maximum(observed.sum(axis=1), 1)
    mean = np.where(ever, (filled * observed).sum(axis=1) / count, filled[:, 0])
    spread = np.sqrt((((filled - mean[:, None]) ** 2) * observed).sum(axis=1) / count)
    last = observed.shape[1] - 1 - observed[:, ::-1].argmax(axis=1)
    ends = [np.take_along_axis(filled, at[:, None], axis=1)[:, 0] for at in (observed.argmax(axis=1), last)]
    return [mean, spread, *ends, observed.mean(axis=1)]

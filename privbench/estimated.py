"""Score estimated inputs against the secrets: R2 of each feature, and whether an estimate points to its own record.

Only what was measured counts. R2 is one minus the squared error over the spread around the scored records' own mean:
0 is what the mean alone achieves, and below 0 an estimate is worse than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.attack import Index
from privbench.estimates import Floats, Mask, mean_of

METRICS = ("r2", "r2-share", "re-identification")
GOOD = 0.5
"""R2 above which a feature counts as read in "r2-share"."""
_Z = 1.959963984540054
_ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Fit:
    """One reconstruction, as sums over records: what a record adds would tell of it.

    r2, spread [F]: of each feature, and its standard deviation in its own unit; error: of the mean R2 over records;
    hit: records whose estimate lies nearest to their own inputs. records: how many were scored. heaviest: the share of
    one record in the variance that `error` is the root of.
    """

    r2: Floats
    spread: Floats
    error: float
    hit: int
    records: int
    heaviest: float

    @property
    def mean(self) -> float:
        return float(self.r2.mean())

    @property
    def off(self) -> Floats:
        """Root of the mean squared error [F], in the features' units."""
        found: Floats = self.spread * np.sqrt(np.maximum(1 - self.r2, 0))
        return found

    def interval(self) -> tuple[float, float]:
        """Two-sided 95% of the mean R2, by the records' influence on it and the normal law of a mean over records.

        Seen in simulations of 30 to 400 records: 93 to 96% where inputs are normal (from 64 on), 86 to 94% where they
        have the tails of Student's t with 3 or 5 degrees of freedom; `heaviest` says where few records decide.
        """
        return self.mean - _Z * self.error, min(self.mean + _Z * self.error, 1.0)


@dataclass(frozen=True)
class Measured:
    """Inputs of the scored records: values [m, H, F] in the features' units, observed [m, H, F].

    A feature that does not vary among what was measured cannot be scored and is left out.
    """

    values: Floats
    observed: Mask

    @property
    def scored(self) -> npt.NDArray[np.int64]:
        """The features that vary, by number."""
        return np.flatnonzero(self._spread() > 0)

    def take(self, rows: Index) -> Measured:
        """These records only."""
        return Measured(self.values[rows], self.observed[rows])

    def fit(self, estimate: Floats) -> Fit:
        """An estimate [m, H, F] of these inputs."""
        use = self.scored
        wrong = ((estimate - self.values) ** 2 * self.observed).sum(axis=1)[:, use]
        apart = ((self.values - self._mean()) ** 2 * self.observed).sum(axis=1)[:, use]
        total = apart.sum(axis=0)
        r2 = 1 - wrong.sum(axis=0) / total
        # A ratio's influence: what a record adds to the error less its share by the spread that it adds.
        influence = ((wrong - (1 - r2) * apart) / total).mean(axis=1)
        m, squares = len(influence), influence**2
        error = float(np.sqrt(m / (m - 1) * squares.sum())) if m > 1 else float("inf")
        heaviest = float(squares.max() / squares.sum()) if squares.any() else 0.0
        return Fit(r2, np.sqrt(self._spread()[use]), error, self._nearest_is_own(estimate), m, heaviest)

    def constant(self) -> Fit:
        """The best estimate that says the same of every record, hour by hour: the scored records' own means."""
        return self.fit(np.broadcast_to(self.hourly(), self.values.shape))

    def hourly(self) -> Floats:
        """Mean [H, F] of what was measured in each hour; over all hours where nothing was."""
        count = self.observed.sum(axis=0)
        means = (self.values * self.observed).sum(axis=0) / np.maximum(count, 1)
        found: Floats = np.where(count > 0, means, self._mean())
        return found

    def _nearest_is_own(self, estimate: Floats) -> int:
        """Records whose own inputs are nearest to their estimate among all scored, each feature in its own spread."""
        flat = (len(self.values), -1)
        scale = np.sqrt(np.where(self._spread() > 0, self._spread(), np.inf))
        truth, mask = ((self.values - self._mean()) / scale * self.observed).reshape(flat), self.observed.reshape(flat)
        seen = mask.astype(np.float64)
        count, own = np.maximum(seen.sum(axis=1), 1), (truth**2).sum(axis=1)
        hits = 0
        for start in range(0, len(truth), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            guess = ((estimate[rows] - self._mean()) / scale).reshape(-1, truth.shape[1])
            far = ((guess**2) @ seen.T - 2 * guess @ truth.T + own) / count
            far[:, ~mask.any(axis=1)] = np.inf  # of whom nothing was measured is near to nobody
            hits += int((far.argmin(axis=1) == np.arange(start, start + len(guess))).sum())
        return hits

    def _mean(self) -> Floats:
        return mean_of(self.values, self.observed)

    def _spread(self) -> Floats:
        """Variance [F] of what was measured."""
        return mean_of((self.values - self._mean()) ** 2, self.observed)

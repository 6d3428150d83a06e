"""Spectral label inference: what a curious site reads from its own releases without the model.

It knows the defence's noise, its own labels, which records carry coins, and the coins of a few that are not scored.

The coin moves every record's gradient along nearly the same direction, one way or the other. Averaged over
releases, that direction is the top component of the covariance; a mixture of two Gaussians with the known noise
variance splits the records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

from privbench.attack import Attack, AttackCard, Guess, Index, Stream, View
from privbench.threat import Channel, Knowledge

Array = npt.NDArray[np.float64]

_RECORDS_PER_COMPONENT = 20


@dataclass(frozen=True)
class Spectral(Attack):
    """Top component of the averaged releases, then expectation-maximisation with known isotropic variance.

    Without noise there is no variance to know: the components' common covariance is fitted too, which takes out what
    varies for other reasons than the coin. The site first removes what its own labels explain (least squares). The
    sign comes from the hints, which are never scored. Component and mixture are fitted on hints and candidates
    together, without any secret.
    """

    iterations: int = 200

    card = AttackCard(
        name="label/spectral",
        summary="top component of the averaged releases, split by a two-Gaussian mixture; sign from hints",
        paper="Sun, Yang, Yao, Wang 2022 (spectral attack on embeddings), here on cut gradients",
        deviates="noise variance known from the mechanism; own-task labels removed; coins are fair, so weights are 1/2",
        channels=(Channel.GRADIENTS,),
        knowledge=(Knowledge.MECHANISM, Knowledge.HINTS),
        cost="O(T N d^2)",
        confirmatory=("dp-cap", "nominal-curve"),
    )

    def lacks(self, view: View) -> str | None:
        return None if view.streams else f"needs releases of gradients to {view.threat.holder}, which were not recorded"

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        rows = np.concatenate([view.hints.index, view.candidates])
        streams, hints, own = view.streams, view.hints.secrets, self._own_labels(view, rows)
        clips = view.mechanism is not None and view.mechanism.clip is not None
        variance = _variance(streams)
        total, count = np.zeros((len(rows), 1)), np.zeros(len(rows))
        single, accumulated = [], []
        for release in range(len(streams[0].released)):
            x, seen = _read(streams, release, rows), view.seen(release, rows)
            x = x if clips else _clipped_at_median(x)
            total, count = total + x * seen[:, None], count + seen
            # A record that was not released has nothing to show there.
            single.append(self._scores(x, own, variance, hints) * seen[len(hints) :])
            each = np.maximum(count, 1.0)
            accumulated.append(self._scores(total / each[:, None], own, variance / float(each.mean()), hints))
        return Guess(np.stack(single), np.stack(accumulated))

    def _own_labels(self, view: View, rows: Index) -> Array:
        """The labels that the site holds itself, of all records, with a constant: [n, 1 + labels]."""
        prefix = f"auxiliary/{view.threat.holder}/labels/"
        held = [] if "auxiliary/index" in view.arrays else [n for n in view.arrays if n.startswith(prefix)]
        columns = [np.asarray(view.arrays[name])[rows].reshape(len(rows), -1) for name in held]
        return np.hstack([np.ones((len(rows), 1)), *columns]).astype(np.float64)

    def _scores(self, x: Array, own: Array, variance: float, hints: npt.NDArray[np.int64]) -> Array:
        """Log likelihood ratio of the two components for the candidates, signed by the hints."""
        centred = x - own @ linalg.lstsq(own, x)[0]
        _, vectors = linalg.eigh(centred.T @ centred)
        ratio = _mixture_ratio(centred @ vectors[:, -1], variance, self.iterations)
        if variance == 0:
            # As many components as the records can support: a split of few records in many dimensions fits anything.
            kept = max(1, min(centred.shape[1], len(centred) // _RECORDS_PER_COMPONENT))
            ratio = _fitted_ratio(centred @ vectors[:, -kept:], ratio > 0, self.iterations)
        agreement = ratio[: len(hints)] @ (2.0 * hints - 1.0)
        return ratio[len(hints) :] * (1.0 if agreement >= 0 else -1.0)


def _variance(streams: tuple[Stream, ...]) -> float:
    """Variance of the noise in what `_read` returns: 1 where streams were brought to one scale."""
    return streams[0].sigma ** 2 if len(streams) == 1 else 0.0 if _noiseless(streams) else 1.0


def _noiseless(streams: tuple[Stream, ...]) -> bool:
    return any(stream.sigma == 0 for stream in streams)


def _read(streams: tuple[Stream, ...], release: int, rows: Index) -> Array:
    """One release of these records, [n, d]; streams side by side, each in units of its noise where all have some."""
    scales = [1.0 if len(streams) == 1 or _noiseless(streams) else stream.sigma for stream in streams]
    parts = [
        np.asarray(stream.released[release])[rows].astype(np.float64) / scale
        for stream, scale in zip(streams, scales, strict=True)
    ]
    return np.hstack(parts)


def _clipped_at_median(release: Array) -> Array:
    """Where the defence does not clip, a few large gradients would own the top component: the attack clips them."""
    norms = np.linalg.norm(release, axis=1, keepdims=True)
    return np.asarray(release * np.minimum(1.0, np.median(norms) / np.maximum(norms, np.finfo(float).tiny)))


def _mixture_ratio(x: Array, variance: float, iterations: int) -> Array:
    """Log likelihood ratio of two equally likely Gaussians with one variance: known, or fitted when 0."""
    total = float(x.var())
    if total == 0:
        return np.zeros_like(x)
    spread = float(np.sqrt(max(total - variance, 1e-3 * total)))
    means = np.array([x.mean() - spread, x.mean() + spread])
    width = variance if variance > 0 else 0.25 * total
    for _ in range(iterations):
        ratio = (means[1] - means[0]) * (x - means.mean()) / width
        upper = 1 / (1 + np.exp(-np.clip(ratio, -500, 500)))
        new = np.array([np.average(x, weights=1 - upper + 1e-12), np.average(x, weights=upper + 1e-12)])
        if variance == 0:
            within = (1 - upper) * (x - new[0]) ** 2 + upper * (x - new[1]) ** 2
            width = max(float(within.mean()), 1e-6 * total)
        moved = float(np.abs(new - means).max())
        means = new
        if moved < 1e-9 * np.sqrt(total):
            break
    return np.asarray((means[1] - means[0]) * (x - means.mean()) / width)


def _fitted_ratio(x: Array, upper: npt.NDArray[np.bool_], iterations: int) -> Array:
    """Log likelihood ratio [n] of two Gaussians with a fitted common covariance, from a first split of x [n, k]."""
    scores = np.where(upper, 1.0, -1.0)
    for _ in range(iterations):
        if upper.all() or not upper.any():
            return scores
        means = np.stack([x[~upper].mean(axis=0), x[upper].mean(axis=0)])
        within = x - means[upper.astype(int)]
        covariance = within.T @ within / len(x)
        # Without any spread inside the halves the total spread keeps the direction finite.
        ridge = (0.01 * np.trace(covariance) + 1e-9 * x.var(axis=0).sum()) / len(covariance) + np.finfo(float).tiny
        direction = linalg.solve(covariance + ridge * np.eye(len(covariance)), means[1] - means[0], assume_a="pos")
        scores = np.asarray((x - means.mean(axis=0)) @ direction)
        if ((scores > 0) == upper).all():
            break
        upper = scores > 0
    return scores

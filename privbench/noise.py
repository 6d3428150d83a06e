"""Is the noise what the mechanism declares? Scale, release by release, and independence over releases and sites.

The auditor holds the releases before and after the noise, so no statistics about leakage are needed: noise that is
missing in one pass, too small, given to some records only, or drawn twice from one seed shows in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from privbench.attack import stream_sigma
from privbench.mechanism import Mechanism, gradient_mechanism
from privbench.recording import Oracle, Transcript
from privbench.tensors import Blocks

FloatArray = npt.NDArray[Any]

LIMIT = 6.0
"""Standard errors beyond which a flag is raised: one false flag in 10^5 audits, over all releases and pairs."""
_FEWEST_ENTRIES = 2_000
"""Numbers that two releases must share for their correlation to be looked at."""
_TILE_BYTES = 8 << 20
"""Releases held at once, twice: memory is that of two tiles, however many releases there are."""


@dataclass(frozen=True)
class NoiseCheck:
    """Largest deviations from the declared noise, in standard errors.

    scale        of a release's noise variance from the declared one
    correlation  between the noises of two releases or sites from 0
    records      of the noise summed over a release's records from what independent draws give: one draw used for
                 many records, or the same draws in every batch, adds up instead of cancelling
    """

    scale: float
    correlation: float
    records: float
    releases: int
    sites: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_noise(transcript: Transcript, oracle: Oracle, mechanisms: Sequence[Mechanism]) -> NoiseCheck | None:
    """Compare every site whose noise-free releases were recorded with its mechanism; None where there is none.

    Records that were not released at some time count for nothing there.
    """
    streams = _streams(transcript, oracle, mechanisms)
    if not streams:
        return None
    scale, together, deviations = 0.0, 0.0, []
    for stream in streams:
        for release in range(len(stream.released)):
            noise, count = stream.noise(release), int(stream.seen[release].sum())
            variance = float((noise**2).sum(dtype=np.float64)) / max(noise.shape[1] * count, 1)
            deviations.append(math.sqrt(variance))
            if count:
                freedom = noise.shape[1] * count
                scale = max(scale, *(_errors(freedom * variance, freedom, side) for side in (-1, 1)))
                summed = float((noise.sum(axis=0, dtype=np.float64) ** 2).sum() / count)
                together = max(together, _errors(summed, noise.shape[1], 1))
    worst = _largest_correlation(streams, np.array(deviations))
    return NoiseCheck(scale, worst, together, len(streams[0].released), len({stream.site for stream in streams}))


def _errors(squares: float, freedom: int, side: int) -> float:
    """How rare a sum of so many squared standard normals is, above or below, as standard errors of a normal."""
    tail = special.chdtrc(freedom, squares) if side > 0 else special.chdtr(freedom, squares)
    return float(-special.ndtri(max(tail, np.finfo(float).tiny)))


@dataclass(frozen=True)
class _Stream:
    """The releases of one site, or of one of its tasks, with and without noise of the declared sigma."""

    site: str
    released: Blocks
    clean: Blocks
    seen: FloatArray
    sigma: float

    def noise(self, release: int) -> FloatArray:
        """[N, d], in units of sigma; 0 for a record that was not released."""
        difference = np.asarray(self.released[release]).astype(np.float32) - np.asarray(self.clean[release])
        there = self.seen[release][:, None] > 0
        return np.asarray(np.where(there, difference / np.float32(self.sigma), 0.0), np.float32)


def _streams(transcript: Transcript, oracle: Oracle, mechanisms: Sequence[Mechanism]) -> list[_Stream]:
    found = []
    for name, clean in oracle.arrays.items():
        parts = name.split("/")
        if parts[3] != "clean":
            continue
        site, released = parts[2], "/".join(("gradients", parts[2], *parts[4:]))
        mechanism = gradient_mechanism(tuple(mechanisms), site)
        sigma = stream_sigma(mechanism, released) if mechanism is not None else 0.0
        if sigma > 0 and released in transcript.arrays:
            array, mask = transcript.arrays[released], f"gradients/{site}/seen"
            seen = transcript.array(mask) if mask in transcript.arrays else np.ones(array.shape[:2])
            found.append(_Stream(site, array, clean, seen.astype(np.float32), sigma))
    return found


def _largest_correlation(streams: Sequence[_Stream], deviations: FloatArray) -> float:
    """Largest |correlation| between the noises of two releases, in standard errors over the records that both released.

    Tile by tile; streams of unequal width are cut alike.
    """
    releases = [(stream, release) for stream in streams for release in range(len(stream.released))]
    width = min(int(stream.released.shape[2]) for stream in streams)
    length = min(math.prod(stream.released.shape[1:]) for stream in streams)
    tile = max(1, _TILE_BYTES // (4 * length))

    def read(start: int) -> tuple[FloatArray, FloatArray]:
        part = releases[start : start + tile]
        noise = [stream.noise(release).ravel()[:length] for stream, release in part]
        return np.stack(noise), np.stack([stream.seen[release] for stream, release in part])

    worst = 0.0
    for start in range(0, len(releases), tile):
        left, left_seen = read(start)
        for other in range(start, len(releases), tile):
            right, right_seen = (left, left_seen) if other == start else read(other)
            scale = np.outer(deviations[start : start + tile], deviations[other : other + tile])
            scale *= np.sqrt(width * (left_seen @ right_seen.T))
            # A product of few draws has tails far above a normal's.
            enough = width * (left_seen @ right_seen.T) >= _FEWEST_ENTRIES
            errors = np.divide(left @ right.T, scale, out=np.zeros_like(scale), where=enough & (scale > 0))
            if other == start:
                np.fill_diagonal(errors, 0.0)
            worst = max(worst, float(np.abs(errors).max(initial=0.0)))
    return worst

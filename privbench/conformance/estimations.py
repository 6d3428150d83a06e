"""Checks of an estimation: what it may touch, how much of a linear cut it must read, what it may not read."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Hints, Index, NotApplicable, View, view_of
from privbench.conformance.base import ERRORS, Check, ConformanceError, Result, blanks, global_generators, run_checks
from privbench.errors import InputError, PrivbenchError
from privbench.estimated import Fit, Measured
from privbench.estimates import Estimation, Floats
from privbench.recording import Secrets, Transcript
from privbench.tensors import Blocks
from privbench.threat import Channel, Knowledge, ThreatModel, server_with_patients

Make = Callable[[], Estimation]

SITE = "A"
SENT, INDEX, TOLD = f"activations/{SITE}", "auxiliary/index", f"auxiliary/server/inputs/{SITE}"
RECORDS, KNOWN, HOURS, INPUTS, WIDTH = 240, 160, 2, 3, 8
STANDS = 3
"""Recordings over which an R2 is averaged, where its sampling error matters."""
SHARE = 0.5
"""Of what the best estimate explains at noise 1, an estimation explains at least so much."""
NOTHING = 0.03
"""R2 that may come about by chance. An estimate that is independent of the inputs explains at most its squared
correlation with them: the mean of nine such, of 160 values each, lies above once in 500,000.
"""
UNEVEN = (1.0, 0.05, 0.3)
"""Inputs that are easy, all but impossible and hard to read: at noise .2 they are explained to .96, .06 and .69."""
SCALE, SHIFT = np.array([0.5, 1_000.0, 3.0]), np.array([20.0, -5_000.0, 7.0])
"""Other units of the inputs, and other zeros: the input that cannot be read has the largest."""
_UNITS = 0.02
"""Of an input's spread: what 32-bit rounding may move its estimates by, on average, in the course of a training."""


@dataclass(frozen=True)
class EstimationStand:
    """A recording of a linear cut, with the inputs [N, H, F] that only the check knows. `threat` sees everything."""

    transcript: Transcript
    inputs: Floats
    threat: ThreatModel

    @property
    def asked(self) -> Index:
        """The records whose inputs nobody told."""
        return np.setdiff1d(np.arange(RECORDS), self.transcript.array(INDEX))

    def view(self, threat: ThreatModel | None = None, candidates: Index | None = None) -> View:
        rows = self.asked if candidates is None else candidates
        return view_of(
            threat or self.threat, self.transcript, secret=SITE, moved=(), candidates=rows, hints=Hints.none()
        )

    def fit(self, estimate: Floats) -> Fit:
        """R2 of estimates [m, H, F] of the asked records."""
        values = self.inputs[self.asked]
        return Measured(values, np.ones(values.shape, np.bool_)).fit(estimate)

    def stored(self, folder: Path) -> EstimationStand:
        """The same in files, the scorer's secrets beside the recording, as an audit keeps them."""
        path = folder / Transcript.file_name()
        self.transcript.save(path)
        Secrets({f"inputs/{SITE}": self.inputs.astype(np.float32)}).save(folder / Secrets.file_name())
        return replace(self, transcript=Transcript.load(path))


def estimation_stand(
    seed: int,
    noise: float = 1.0,
    *,
    gains: tuple[float, ...] = (1.0,) * INPUTS,
    gaps: float = 0.0,
    silent: bool = False,
) -> EstimationStand:
    """Draw a recording. x ~ N(0, I) goes in, Q (g x) + s n comes out, the columns of Q orthonormal: the best estimate
    explains g^2 / (g^2 + s^2) of each input. gains: g of each input; noise: s; gaps: share of the known inputs that
    were not measured; silent: everybody sends the same.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((RECORDS, HOURS, INPUTS))
    frame, _ = np.linalg.qr(rng.standard_normal((WIDTH, HOURS * INPUTS)))
    sent = (x * gains).reshape(RECORDS, -1) @ frame.T + noise * rng.standard_normal((RECORDS, WIDTH))
    if silent:
        sent = np.broadcast_to(sent[0], sent.shape)
    known = np.sort(rng.choice(RECORDS, KNOWN, replace=False))
    arrays: dict[str, npt.NDArray[Any]] = {
        SENT: sent[None].astype(np.float32),
        INDEX: known,
        TOLD: x[known].astype(np.float32),
    }
    if gaps:
        arrays[f"{TOLD}/observed"] = (rng.random(x[known].shape) >= gaps).astype(np.uint8)
    threat = replace(server_with_patients(), channels=frozenset(Channel), knowledge=frozenset(Knowledge))
    return EstimationStand(Transcript(arrays), x, threat)


def check_estimation(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run ESTIMATION_CHECKS on estimations that `make` builds (the class itself, where it needs no arguments)."""
    if isinstance(make, Estimation):
        raise ConformanceError(
            "check_estimation takes what makes one: pass the class, or a function without arguments."
        )
    return run_checks(ESTIMATION_CHECKS, make, expected or {})


def _estimate(estimation: Estimation, view: View, seed: int = 0) -> Floats:
    result = estimation(view, np.random.default_rng(seed))
    if isinstance(result, NotApplicable):
        raise PrivbenchError(f"not applicable to a full view of a cut and of known records: {result.reason}")
    return result


def _explained(make: Make, first: int, noise: float = 1.0, *, silent: bool = False) -> float:
    """Mean R2 over STANDS recordings in files, drawn from `first` on; NaN where an estimate is not finite."""
    found = []
    for seed in range(first, first + STANDS):
        with tempfile.TemporaryDirectory(prefix="privbench-") as folder:
            here = estimation_stand(seed, noise, silent=silent).stored(Path(folder))
            estimate = _estimate(make(), here.view(), seed)
        found.append(here.fit(estimate).mean if np.isfinite(estimate).all() else math.nan)
    return float(np.mean(found))


def _moved(plain: Floats, other: Floats) -> float:
    """Share of the estimates that differ by more than rounding; the inputs' spread is 1."""
    return float((~np.isclose(other, plain, rtol=1e-3, atol=1e-3)).mean())


def _with(view: View, arrays: Mapping[str, Blocks]) -> View:
    """The same view with other arrays in place of its own."""
    return replace(view, arrays={**view.arrays, **arrays})


def _deterministic(make: Make) -> str | None:
    view = estimation_stand(1).view()
    first, second = (_estimate(make(), view, 7) for _ in range(2))
    return None if np.array_equal(first, second) else "two runs with one seed differ"


def _global_generators(make: Make) -> str | None:
    view, before = estimation_stand(2).view(), global_generators()
    _estimate(make(), view)
    return None if global_generators() == before else "a global random generator was used"


def _view_untouched(make: Make) -> str | None:
    view = estimation_stand(3, gaps=0.2).view()
    shown: dict[str, Blocks] = {name: np.array(array) for name, array in view.arrays.items()}
    watched = shown | {"candidates": view.candidates}
    before = {name: np.array(array) for name, array in watched.items()}
    _estimate(make(), replace(view, arrays=shown))
    changed = [name for name, array in watched.items() if not np.array_equal(np.asarray(array), before[name])]
    return f"changed what it was shown: {', '.join(changed)}" if changed else None


def _equivariant(make: Make) -> str | None:
    """The same records in other rows, asked for in another order: the same estimates, but for rounding."""
    view, rng = estimation_stand(4).view(), np.random.default_rng(4)
    rows, asked = rng.permutation(RECORDS), rng.permutation(len(view.candidates))
    place = np.argsort(rows)
    turned = _with(view, {SENT: view.array(SENT)[:, rows], INDEX: place[np.asarray(view.array(INDEX))]})
    plain = _estimate(make(), view)[asked]
    moved = _estimate(make(), replace(turned, candidates=place[view.candidates[asked]]))
    off = _moved(plain, moved)
    return f"with the records in another order, {off:.1%} of the estimates change" if off else None


def _units(make: Make) -> str | None:
    """Feature by feature: how one input is estimated does not depend on the unit of another."""
    view = estimation_stand(5, 0.2, gains=UNEVEN).view()
    told = np.asarray(view.array(TOLD), np.float64) * SCALE + SHIFT
    plain, other = _estimate(make(), view), _estimate(make(), _with(view, {TOLD: told.astype(np.float32)}))
    off = np.sqrt((((other - SHIFT) / SCALE - plain) ** 2).mean(axis=(0, 1)))
    worst = int(off.argmax())
    return (
        None
        if off[worst] <= _UNITS
        else f"with the inputs in other units, estimates of input {worst + 1} move by {off[worst]:.2f} of its spread"
    )


def _refuses(make: Make) -> str | None:
    here = estimation_stand(6)
    for channel in (Channel.ACTIVATIONS, Channel.AUXILIARY):
        blind = replace(here.threat, channels=here.threat.channels - {channel})
        result = make()(here.view(blind), np.random.default_rng(0))
        if not isinstance(result, NotApplicable):
            return f"ran for an adversary who does not see the {channel}"
        if str(channel) not in result.reason:
            return f"its reason does not name the {channel} that it needs: '{result.reason}'"
    return None


def _absent_records(make: Make) -> str | None:
    """Every channel is seen, and nothing was recorded in one of them."""
    view = estimation_stand(7).view()
    for name in (SENT, INDEX, TOLD):
        less = {key: array for key, array in view.arrays.items() if key != name}
        result = make()(replace(view, arrays=less), np.random.default_rng(0))
        if not isinstance(result, NotApplicable):
            return f"ran without '{name}'"
        if name not in result.reason:
            return f"its reason does not name '{name}', which is missing: '{result.reason}'"
    return None


def _overlap(make: Make) -> str | None:
    here = estimation_stand(8)
    try:
        make()(here.view(candidates=np.arange(RECORDS)), np.random.default_rng(0))
    except InputError:
        return None
    return "estimated records whose inputs it was told"


def _unobserved(make: Make) -> str | None:
    view = estimation_stand(9, gaps=0.3).view()
    told, seen = np.asarray(view.array(TOLD)), np.asarray(view.array(f"{TOLD}/observed"))
    junk = np.where(seen == 1, told, np.float32(-9_999))
    off = _moved(*(_estimate(make(), shown) for shown in (view, _with(view, {TOLD: junk}))))
    return f"where nothing was measured, other values change {off:.1%} of the estimates" if off else None


def _silent(make: Make) -> str | None:
    found = _explained(make, 10, silent=True)
    if math.isnan(found):
        return "its estimates are not finite where everybody sends the same"
    return None if found <= NOTHING else f"explains {found:.3f} of the inputs where everybody sends the same"


def _closed_form(make: Make) -> str | None:
    found = _explained(make, 20)
    return None if found <= 0.5 + _slack() else f"explains {found:.3f} of the inputs where at most .5 can be"


def _reads(make: Make) -> str | None:
    found = _explained(make, 30)
    return None if found >= SHARE * 0.5 else f"explains {found:.3f} of the inputs where .5 can be"


def _noise_hides(make: Make) -> str | None:
    found = {noise: _explained(make, 40, noise) for noise in (0.5, 1.0, 2.0)}
    for quiet, loud in ((0.5, 1.0), (1.0, 2.0)):
        if not found[loud] <= found[quiet] + math.sqrt(2) * _slack():
            return f"explains {found[quiet]:.3f} at noise {quiet:g}, {found[loud]:.3f} at noise {loud:g}"
    return None


def _slack() -> float:
    """Of a mean R2 over STANDS recordings. The standard error of the best estimate's, 2 (1 - R2) sqrt(R2 / n) of n
    normal inputs, is largest at R2 = 1/3.
    """
    n = STANDS * (RECORDS - KNOWN) * HOURS * INPUTS
    return ERRORS * 2 * (2 / 3) * math.sqrt(1 / 3 / n)


ESTIMATION_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, what it needs and costs", lambda make: blanks(make().card)),
    Check("deterministic", "one seed, the same estimates", _deterministic),
    Check("global generators", "no global random generator is used", _global_generators),
    Check("view untouched", "what it is shown stays as it was", _view_untouched),
    Check("permutation", "a record's estimate does not depend on its place", _equivariant),
    Check("units", "each input is estimated in its own unit, whatever that is", _units),
    Check("absent channel", "without one of its channels it refuses, and names it", _refuses),
    Check("absent records", "without something to learn from or to read it refuses, and names it", _absent_records),
    Check("overlap", "who is known is never estimated", _overlap),
    Check("unobserved", "what was not measured carries no meaning", _unobserved),
    Check("silent", "nothing is read where everybody sends the same, and estimates stay finite", _silent),
    Check("closed form", "no more is read of a linear cut than can be", _closed_form),
    Check("reads", f"at least {SHARE:g} of what can be read of a linear cut is", _reads),
    Check("more noise", "more noise never raises leakage", _noise_hides),
)

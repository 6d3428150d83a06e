"""Checks of an estimation: what it may touch, how much of a linear cut it must read, what it may not read."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privbench.attack import NotApplicable, View
from privbench.conformance.acting import ACTIVE_CHECKS
from privbench.conformance.base import ERRORS, Check, ConformanceError, Result, blanks, global_generators, run_checks
from privbench.conformance.cuts import (
    BIAS,
    HOURS,
    INDEX,
    INPUTS,
    KNOWN,
    LABELS,
    MODEL,
    RECORDS,
    SENT,
    STEPS,
    TOLD,
    WEIGHT,
    EstimationStand,
    Make,
    estimation_stand,
)
from privbench.errors import InputError, PrivbenchError
from privbench.estimates import ActiveEstimation, Estimation, Floats
from privbench.tensors import Blocks
from privbench.threat import Channel, Knowledge

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
SCALE, SHIFT = np.array([0.5, 1_024.0, 4.0]), np.array([40.0, -5.0, 2.0])
"""Other units of the inputs, and other zeros in those that they have. The input that cannot be read has the largest
unit. Powers of two, and whole numbers: nothing is rounded.
"""
_ROUNDING = 0.02
"""Of an input's spread: what 32-bit rounding may move its estimates by, on average, in the course of a training."""


def check_estimation(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run ESTIMATION_CHECKS on estimations that `make` builds (the class itself, where it needs no arguments), and
    ACTIVE_CHECKS on one that acts in a run; what it estimates from is then a run in which it acted.
    """
    if isinstance(make, Estimation):
        raise ConformanceError(
            "check_estimation takes what makes one: pass the class, or a function without arguments."
        )
    acting = ACTIVE_CHECKS if isinstance(make(), ActiveEstimation) else ()
    return run_checks((*ESTIMATION_CHECKS, *acting), make, expected or {})


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
            attack = make()
            here = estimation_stand(seed, noise, silent=silent, attack=attack, steps=STEPS).stored(Path(folder))
            estimate = _estimate(attack, here.view(), seed)
        found.append(here.fit(estimate).mean if np.isfinite(estimate).all() else math.nan)
    return float(np.mean(found))


def _moved(plain: Floats, other: Floats) -> float:
    """Share of the estimates that differ by more than rounding; the inputs' spread is 1."""
    return float((~np.isclose(other, plain, rtol=1e-3, atol=1e-3)).mean())


def _with(view: View, arrays: Mapping[str, Blocks]) -> View:
    """The same view with other arrays in place of its own."""
    return replace(view, arrays={**view.arrays, **arrays})


def _deterministic(make: Make) -> str | None:
    view = estimation_stand(1, attack=make()).view()
    first, second = (_estimate(make(), view, 7) for _ in range(2))
    return None if np.array_equal(first, second) else "two runs with one seed differ"


def _global_generators(make: Make) -> str | None:
    view, before = estimation_stand(2, attack=make()).view(), global_generators()
    _estimate(make(), view)
    return None if global_generators() == before else "a global random generator was used"


def _view_untouched(make: Make) -> str | None:
    view = estimation_stand(3, gaps=0.2, attack=make()).view()
    shown: dict[str, Blocks] = {name: np.array(array) for name, array in view.arrays.items()}
    watched = shown | {"candidates": view.candidates}
    before = {name: np.array(array) for name, array in watched.items()}
    _estimate(make(), replace(view, arrays=shown))
    changed = [name for name, array in watched.items() if not np.array_equal(np.asarray(array), before[name])]
    return f"changed what it was shown: {', '.join(changed)}" if changed else None


def _equivariant(make: Make) -> str | None:
    """The same records in other rows, asked for in another order: the same estimates, but for rounding."""
    view, rng = estimation_stand(4, attack=make()).view(), np.random.default_rng(4)
    rows, asked = rng.permutation(RECORDS), rng.permutation(len(view.candidates))
    place = np.argsort(rows)
    index = place[np.asarray(view.array(INDEX))]
    turned = _with(view, {SENT: view.array(SENT)[:, rows], LABELS: view.array(LABELS)[rows], INDEX: index})
    plain = _estimate(make(), view)[asked]
    moved = _estimate(make(), replace(turned, candidates=place[view.candidates[asked]]))
    off = _moved(plain, moved)
    return f"with the records in another order, {off:.1%} of the estimates change" if off else None


def _units(make: Make) -> str | None:
    """Feature by feature: how one input is estimated does not depend on the unit of another."""
    return _moves_with(make, SCALE, np.zeros(INPUTS), "units")


def _zeros(make: Make) -> str | None:
    return _moves_with(make, np.ones(INPUTS), SHIFT, "zeros")


def _moves_with(make: Make, scale: Floats, shift: Floats, what: str) -> str | None:
    """The inputs as scale * x + shift, and the encoder that makes the same activations of them."""
    view = estimation_stand(5, 0.2, gains=UNEVEN, attack=make()).view()
    told, weight = (np.asarray(view.array(name), np.float64) for name in (TOLD, WEIGHT))
    weight = weight / np.tile(scale, HOURS)
    other = {TOLD: told * scale + shift, WEIGHT: weight, BIAS: -weight @ np.tile(shift, HOURS)}
    turned = _with(view, {name: values.astype(np.float32) for name, values in other.items()})
    plain, moved = _estimate(make(), view), (_estimate(make(), turned) - shift) / scale
    off = np.sqrt(((moved - plain) ** 2).mean(axis=(0, 1)))
    worst = int(off.argmax())
    said = f"with the inputs in other {what}, estimates of input {worst + 1} move by {off[worst]:.2f} of its spread"
    return None if off[worst] <= _ROUNDING else said


def _refuses(make: Make) -> str | None:
    attack = make()
    here, card = estimation_stand(6, attack=attack), attack.card
    for channel in sorted({Channel.ACTIVATIONS, Channel.AUXILIARY, *card.channels}):
        problem = _without(attack, here, str(channel), channels=here.threat.channels - {channel})
        if problem:
            return problem
    for item in card.knowledge:
        problem = _without(attack, here, str(item), knowledge=here.threat.knowledge - {item})
        if problem:
            return problem
    return None


def _without(attack: Estimation, here: EstimationStand, missing: str, **less: Any) -> str | None:
    """What is wrong with what the attack says to an adversary that has less."""
    result = attack(here.view(replace(here.threat, **less)), np.random.default_rng(0))
    if not isinstance(result, NotApplicable):
        return f"ran for an adversary without the {missing}"
    return None if missing in result.reason else f"its reason does not name the {missing}: '{result.reason}'"


def _absent_records(make: Make) -> str | None:
    """Every channel is seen, and nothing was recorded in one of them."""
    attack = make()
    view = estimation_stand(7, attack=attack).view()
    model = (WEIGHT,) if Knowledge.MODEL in attack.card.knowledge else ()
    for name in (SENT, INDEX, TOLD, *model):
        less = {key: array for key, array in view.arrays.items() if key != name}
        result = attack(replace(view, arrays=less), np.random.default_rng(0))
        if not isinstance(result, NotApplicable):
            return f"ran without '{name}'"
        named = MODEL if name == WEIGHT else name
        if named not in result.reason:
            return f"its reason does not name '{named}', which is missing: '{result.reason}'"
    return None


def _overlap(make: Make) -> str | None:
    attack = make()
    here = estimation_stand(8, attack=attack)
    try:
        attack(here.view(candidates=np.arange(RECORDS)), np.random.default_rng(0))
    except InputError:
        return None
    return "estimated records whose inputs it was told"


def _unobserved(make: Make) -> str | None:
    view = estimation_stand(9, gaps=0.3, attack=make()).view()
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
    """An estimate that is worse than the mean tells nothing."""
    found = {noise: max(_explained(make, 40, noise), 0.0) for noise in (0.5, 1.0, 2.0)}
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
    Check("zeros", "each input is estimated wherever its zero lies", _zeros),
    Check("absent channel", "without a channel or knowledge that it needs it refuses, and names it", _refuses),
    Check("absent records", "without something to learn from or to read it refuses, and names it", _absent_records),
    Check("overlap", "who is known is never estimated", _overlap),
    Check("unobserved", "what was not measured carries no meaning", _unobserved),
    Check("silent", "nothing is read where everybody sends the same, and estimates stay finite", _silent),
    Check("closed form", "no more is read of a linear cut than can be", _closed_form),
    Check("reads", f"at least {SHARE:g} of what can be read of a linear cut is", _reads),
    Check("more noise", "more noise never raises leakage", _noise_hides),
)

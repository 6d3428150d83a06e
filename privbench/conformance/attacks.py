"""Checks of an attack: what it may touch, what it must find, what it may not find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from privbench.attack import Attack, NotApplicable
from privbench.conformance.base import (
    ERRORS,
    Check,
    ConformanceError,
    Result,
    blanks,
    global_generators,
    run_checks,
    standard_error,
)
from privbench.conformance.stand import HINTS, guess, stand
from privbench.tensors import Blocks

Make = Callable[[], Attack]


def check_attack(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run ATTACK_CHECKS on attacks that `make` builds (the class itself, where it needs no arguments)."""
    if isinstance(make, Attack):
        raise ConformanceError(
            "check_attack takes what makes an attack: pass the class, or a function without arguments."
        )
    return run_checks(ATTACK_CHECKS, make, expected or {})


def _deterministic(make: Make) -> str | None:
    with stand(1, 2.0) as here:
        first, second = (guess(make(), here.view(), 7) for _ in range(2))
        same = np.array_equal(first.single, second.single) and np.array_equal(first.accumulated, second.accumulated)
    return None if same else "two runs with one seed differ"


def _global_generators(make: Make) -> str | None:
    with stand(2, 2.0) as here:
        view, before = here.view(), global_generators()
        guess(make(), view)
        return None if global_generators() == before else "a global random generator was used"


def _view_untouched(make: Make) -> str | None:
    with stand(3, 2.0) as here:
        view = here.view()
        copies: dict[str, Blocks] = {name: np.array(array) for name, array in view.arrays.items()}
        view = replace(view, arrays=copies)
        before = {name: np.array(array) for name, array in copies.items()}
        index, hints = view.candidates.copy(), view.hints.secrets.copy()
        guess(make(), view)
        changed = [name for name, array in copies.items() if not np.array_equal(np.asarray(array), before[name])]
        if not np.array_equal(index, view.candidates) or not np.array_equal(hints, view.hints.secrets):
            changed.append("candidates or hints")
    return f"changed what it was shown: {', '.join(changed)}" if changed else None


def _equivariant(make: Make) -> str | None:
    with stand(4, 0.5) as here:
        view = here.view()
        order = np.random.default_rng(4).permutation(len(view.candidates))
        plain = guess(make(), view)
        moved = guess(make(), replace(view, candidates=view.candidates[order]))
        agree = float(((plain.accumulated[-1][order] > 0) == (moved.accumulated[-1] > 0)).mean())
    return None if agree == 1 else f"asked for the same records in another order, {1 - agree:.1%} of the guesses change"


def _refuses(make: Make) -> str | None:
    with stand(5, 2.0) as here:
        blind = replace(here.threat, channels=frozenset())
        result = make()(here.view(blind), np.random.default_rng(0))
    if not isinstance(result, NotApplicable):
        return "ran for an adversary who sees no channel"
    named = any(str(channel) in result.reason for channel in make().card.channels)
    return None if named else f"its reason names no channel that it needs: '{result.reason}'"


def _constant(make: Make) -> str | None:
    """Nothing leaks: gain next to nothing. 10 seeds of one release each: 5,360 fair guesses."""
    right = []
    for seed in range(10):
        with stand(10 + seed, 1.0, signal=0, releases=1) as here:
            right.append(here.right(guess(make(), here.view(), seed)))
    n = len(right) * (600 - HINTS)
    off = abs(float(np.mean(right)) - 0.5)
    allowed = ERRORS * standard_error(0.5, n)
    return None if off <= allowed else f"reads {np.mean(right):.3f} of the coins where nothing leaks"


def _identity(make: Make) -> str | None:
    with stand(20, 0.0) as here:
        right = here.right(guess(make(), here.view()))
    return None if right >= 0.9 else f"reads {right:.3f} of the coins where the releases show them without noise"


def _bounded(make: Make) -> str | None:
    """Gaussian target at s known: no attack reads more than Phi(sqrt(T) s); 6 seeds of 536 guesses."""
    right, limit = [], NormalDist().cdf(2 * np.sqrt(1.5) / 4)  # T = 4, K = J = 2, rho = .5, sigma = 4 C
    for seed in range(6):
        with stand(30 + seed, 4.0) as here:
            right.append(here.right(guess(make(), here.view(), seed)))
    allowed = limit + ERRORS * standard_error(limit, len(right) * (600 - HINTS))
    found = float(np.mean(right))
    return None if found <= allowed else f"reads {found:.3f} of the coins where the mechanism allows {limit:.3f}"


def _noise_hides(make: Make) -> str | None:
    """Noise added later, after which the attack knows the larger sigma, never helps."""
    quiet: list[float] = []
    loud: list[float] = []
    for seed in range(4):
        for sigma, found in ((1.0, quiet), (8.0, loud)):
            with stand(40 + seed, sigma) as here:
                found.append(here.right(guess(make(), here.view(), seed)))
    slack = ERRORS * standard_error(0.5, len(quiet) * (600 - HINTS)) * np.sqrt(2)
    less, more = float(np.mean(loud)), float(np.mean(quiet))
    return None if less <= more + slack else f"reads {more:.3f} of the coins at sigma C, {less:.3f} at 8 C"


def _more_helps(make: Make) -> str | None:
    """Sixteen releases never show less than the first of them."""
    one, all_of_them = [], []
    for seed in range(4):
        with stand(50 + seed, 3.0, releases=16) as here:
            found = guess(make(), here.view(), seed)
            one.append(here.right(found, 0))
            all_of_them.append(here.right(found))
    slack = ERRORS * standard_error(0.5, len(one) * (600 - HINTS)) * np.sqrt(2)
    first, last = float(np.mean(one)), float(np.mean(all_of_them))
    return (
        None if last >= first - slack else f"reads {first:.3f} of the coins from one release, {last:.3f} from sixteen"
    )


def _one_release(make: Make) -> str | None:
    """`single` is what one release shows: it reads what is shown without noise, and no more than one release allows."""
    limit = NormalDist().cdf(np.sqrt(1.5) / 2)  # K = J = 2, rho = .5, sigma = 2 C
    with stand(80, 0.0) as here:
        clear = float(((guess(make(), here.view()).single > 0) == (here.coins[HINTS:] == 1)).mean())
    right = []
    for seed in range(6):
        with stand(81 + seed, 2.0, releases=9) as here:
            single = guess(make(), here.view(), seed).single
            if len(single) != 9:
                return f"answers with {len(single)} rows where there are 9 releases"
            right.append(float(((single[4] > 0) == (here.coins[HINTS:] == 1)).mean()))
    allowed = limit + ERRORS * standard_error(limit, len(right) * (600 - HINTS))
    if clear < 0.9:
        return f"reads {clear:.3f} of the coins from single releases that show them without noise"
    found = float(np.mean(right))
    return None if found <= allowed else f"`single` reads {found:.3f} of the coins; one release allows {limit:.3f}"


def _causal(make: Make) -> str | None:
    """Row t of `single` depends on release t alone, of `accumulated` on the releases up to it."""
    with stand(90, 1.0, releases=6) as here:
        view = here.view()
        first = np.asarray(view.array("gradients/A"))
        later = first.copy()
        later[3:] += np.random.default_rng(90).standard_normal(later[3:].shape).astype(later.dtype)
        before, after = (guess(make(), replace(view, arrays={**view.arrays, "gradients/A": a})) for a in (first, later))
        if not np.array_equal(before.accumulated[:3], after.accumulated[:3]):
            return "`accumulated` uses releases that are yet to come"
        earlier = first.copy()
        earlier[:3] = later[3:]
        other = guess(make(), replace(view, arrays={**view.arrays, "gradients/A": earlier}))
    return None if np.array_equal(before.single[3:], other.single[3:]) else "`single` uses other releases than its own"


def _optimal(make: Make) -> str | None:
    """An attack that calls its releases exact trials reaches the mechanism's Phi: unequal noises, apart, unseen."""
    if not make().card.exact_per_release:
        return None
    shapes: tuple[dict[str, Any], ...] = (
        {"noise": "separate", "sigma_ratio": "1:3"},
        {"seen": 0.5},
        {"sigma_ratio": "1:2", "moved": 1, "tasks": 2},
    )
    # sqrt(T J (1 + (J - 1) rho) / sum sigma^2) of each, over as many releases as a record had.
    signals = (np.sqrt(1 / 9 + 1 / 81), np.sqrt(3 / 18), np.sqrt(1 / 45))
    for settings, signal in zip(shapes, signals, strict=True):
        right, expected = [], []
        for seed in range(4):
            with stand(100 + seed, 3.0, **settings) as here:
                counts = here.run.transcript.array("gradients/A/seen").sum(axis=0)[HINTS:]
                expected.append(float(np.mean([NormalDist().cdf(signal * np.sqrt(count)) for count in counts])))
                right.append(here.right(guess(make(), here.view(), seed)))
        short = float(np.mean(expected)) - float(np.mean(right))
        if short > ERRORS * standard_error(float(np.mean(expected)), 4 * (600 - HINTS)):
            return f"reads {np.mean(right):.3f} of the coins, the optimal test {np.mean(expected):.3f} ({settings})"
    return None


def _unit_free(make: Make) -> str | None:
    """Gradients, clip and noise in a unit a thousand times larger: the same guesses, but for rounding."""
    with stand(60, 1.0) as here, stand(60, 1000.0, clip=1000.0, gain=4000.0) as large:
        one, other = guess(make(), here.view()), guess(make(), large.view())
        agree = float(((one.accumulated[-1] > 0) == (other.accumulated[-1] > 0)).mean())
    return None if agree >= 0.99 else f"in another unit of the gradient {1 - agree:.1%} of the guesses change"


def _sign(make: Make) -> str | None:
    """The sign may come from the hints alone: with opposite hints no more coins are read right than by chance."""
    with stand(70, 0.5) as here:
        straight, flipped = here.right(guess(make(), here.view())), here.right(guess(make(), here.view(flipped=True)))
        knows = bool({"model", "inputs", "base"} & set(map(str, make().card.knowledge)))
    if knows or straight < 0.6:
        return None  # it computes the sign itself, or reads too little for its sign to show
    return None if flipped < 0.5 else f"reads {flipped:.3f} of the coins with every hint turned round"


ATTACK_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, what it needs and costs", lambda make: blanks(make().card)),
    Check("deterministic", "one seed, one guess", _deterministic),
    Check("global generators", "no global random generator is used", _global_generators),
    Check("view untouched", "what it is shown stays as it was", _view_untouched),
    Check("permutation", "a record's guess does not depend on its place", _equivariant),
    Check("absent channel", "without its channel it refuses, and names it", _refuses),
    Check("constant", "nothing is found where nothing leaks", _constant),
    Check("identity", "what is shown without noise is read, with the right sign", _identity),
    Check("bound", "no more is read than the mechanism allows", _bounded),
    Check("more noise", "noise added later never raises leakage", _noise_hides),
    Check("richer view", "more releases never lower it", _more_helps),
    Check("one release", "one release is read, and no more than it shows", _one_release),
    Check("causal", "a row knows its own releases only", _causal),
    Check("optimal", "what calls itself exact reaches the mechanism's own rate", _optimal),
    Check("scale", "the unit of the gradient plays no part", _unit_free),
    Check("sign", "the sign comes from hints, or from knowledge that the card names", _sign),
)

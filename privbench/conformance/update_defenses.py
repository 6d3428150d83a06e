"""Checks of a defence on updates: what it does is what it says, vector by vector, draw by draw.

A release of a vector is what comes out where it is the one record's gradient in a step, the one client's update in a
round: through the step, what is sent, and what the server adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privbench.conformance.base import ERRORS, Check, Result, global_generators, run_checks, unsaid
from privbench.defenses.base import Course, UpdateDefense
from privbench.mechanism import Mechanism
from privbench.threat import Channel

Make = Callable[[], UpdateDefense]

_SIZE = 16
_DRAWS = 4_000
_DELTA = 1e-5
_COURSE = Course(rounds=10, steps=20, rate=0.1)


def check_update_defense(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run UPDATE_DEFENSE_CHECKS on the defence that `make` builds."""
    return run_checks(UPDATE_DEFENSE_CHECKS, make, expected or {})


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _vector(seed: int = 1, size: int = _SIZE) -> Tensor:
    return torch.randn(size, generator=_seeded(seed))


def _released(defense: UpdateDefense, vector: Tensor, generator: torch.Generator) -> Tensor:
    step = defense.gradient([vector], torch.zeros_like(vector), generator)
    return defense.released(defense.sent(step, generator), 1, generator)


def _many(make: Make, vector: Tensor, seed: int) -> Tensor:
    """[_DRAWS, P] releases of one vector, in float64."""
    defense, generator = make(), _seeded(seed)
    return torch.stack([_released(defense, vector, generator) for _ in range(_DRAWS)]).double()


def _card(make: Make) -> str | None:
    return unsaid(make().card, "name", "summary", "paper", "channel", "guarantee")


def _described(make: Make) -> str | None:
    mechanism = make().mechanism()
    if mechanism.channel not in (Channel.UPDATES, Channel.OUTPUTS):
        return f"describes {mechanism.channel}, not updates or what is made of them"
    if Mechanism.from_json(mechanism.to_json()) != mechanism:
        return "its description does not survive JSON"
    return None


def _promised(make: Make) -> str | None:
    """Who promises something describes noise, claims an eps, and claims no protection from who sees clean updates."""
    defense, mechanism = make(), make().mechanism()
    claim = defense.claim(_COURSE, _DELTA)
    if (defense.card.guarantee == "formal") != (claim is not None):
        return f"is {defense.card.guarantee} and claims {'nothing' if claim is None else 'an eps'}"
    if claim is None:
        return None
    if not mechanism.total_sigma or mechanism.clip is None:
        return "claims an eps without a clip and noise"
    if claim.audience == "server" and mechanism.channel != Channel.UPDATES:
        return "claims to protect from the server, which sees the updates before the noise"
    return None


def _accounted(make: Make) -> str | None:
    """More rounds cost more, and the noise that is found for an eps is accounted for with it."""
    defense = make()
    claim = defense.claim(_COURSE, _DELTA)
    if claim is None:
        return None
    longer = defense.claim(Course(40, 80, _COURSE.rate), _DELTA)
    if longer is None or not longer.eps > claim.eps * 1.2:
        return "four times as many rounds cost no more"
    again = defense.at(2.0, _DELTA, _COURSE).claim(_COURSE, _DELTA)
    if again is None or abs(again.eps / 2.0 - 1) > 1e-3:
        return f"sets its noise for eps 2 and claims {'none' if again is None else f'{again.eps:.4g}'}"
    return None


def _shapes(make: Make) -> str | None:
    for vector in (_vector(), torch.zeros(_SIZE), _vector(size=1)):
        found = _released(make(), vector, _seeded(1))
        if found.shape != vector.shape or found.dtype != vector.dtype:
            return f"returns {list(found.shape)} of {found.dtype} for {list(vector.shape)}"
        if not bool(found.isfinite().all()):
            return "sends what is not finite"
    return None


def _generators(make: Make) -> str | None:
    before = global_generators()
    _released(make(), _vector(), _seeded(1))
    return None if global_generators() == before else "a global random generator was used"


def _deterministic(make: Make) -> str | None:
    one, two = (_released(make(), _vector(), _seeded(3)) for _ in range(2))
    return None if torch.equal(one, two) else "one generator, two results"


def _untouched(make: Make) -> str | None:
    vector = _vector()
    _released(make(), vector, _seeded(1))
    return None if torch.equal(vector, _vector()) else "changes what it is given"


def _clip(make: Make) -> str | None:
    """Of what is released of a long vector without its noise, in the mean over draws; and of one that is not finite."""
    clip = make().mechanism().clip
    if clip is None:
        return None
    for scale in (1e-3, 1.0, 100.0, torch.inf):
        drawn = _many(make, _vector() * clip * scale, 4)
        error = float(drawn.std(dim=0).norm()) / len(drawn) ** 0.5
        found = float(drawn.mean(dim=0).norm())
        if not found <= clip + ERRORS * error + 1e-6:
            return f"releases a norm of {found:.3g} and declares {clip:.3g}"
    return None


def _scale(make: Make) -> str | None:
    """The variance of what is drawn around a vector, against the declared one, where one is declared."""
    mechanism = make().mechanism()
    if mechanism.kind == "none":
        return None
    drawn, declared = _many(make, _vector(), 5), mechanism.total_sigma**2
    off = abs(float(drawn.var(dim=0).mean()) / declared - 1) / (2 / drawn.numel()) ** 0.5
    return None if off <= ERRORS else f"declares a variance of {declared:.3g}, draws {float(drawn.var()):.3g}"


def _independent(make: Make) -> str | None:
    """What two releases, and two numbers of one, are off their mean by is uncorrelated."""
    drawn = _many(make, _vector(), 6)
    off = drawn - drawn.mean(dim=0)
    for name, a, b in (("releases", off[:-1], off[1:]), ("numbers", off[:, :-1], off[:, 1:])):
        scale = float((a.square().mean() * b.square().mean()).sqrt())
        if scale > 1e-9 and abs(float((a * b).mean())) / scale * a.numel() ** 0.5 > ERRORS:
            return f"what is drawn for two {name} is correlated"
    return None


def _per_record(make: Make) -> str | None:
    """In a step, what one record's gradient adds is bounded whatever the others are: by the declared clip."""
    defense, clip = make(), make().mechanism().clip
    if not defense.per_record or clip is None:
        return None
    others, nothing = [10 * clip * _vector(seed) for seed in range(2, 6)], torch.zeros(_SIZE)
    without = defense.gradient(others, nothing, _seeded(7))
    added = float((defense.gradient([*others, 50 * clip * _vector()], nothing, _seeded(7)) - without).norm())
    return None if added <= clip * (1 + 1e-4) else f"one record adds {added:.3g} to a step, and {clip:.3g} is declared"


UPDATE_DEFENSE_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, and what it guarantees", _card),
    Check("description", "its mechanism is about updates and survives JSON", _described),
    Check("promise", "who promises something adds noise, and not behind the back of whom it protects from", _promised),
    Check("accounting", "more rounds cost more, and an eps that is asked for is the one that is claimed", _accounted),
    Check("shapes", "as many numbers leave as came, all finite", _shapes),
    Check("global generators", "no global random generator is used", _generators),
    Check("deterministic", "one generator, one result", _deterministic),
    Check("input untouched", "what it is given stays as it is", _untouched),
    Check("clip", "no release is longer than the clip that it declares, but for its noise", _clip),
    Check("scale", "its noise has the variance that it declares", _scale),
    Check("independence", "releases and numbers draw independently", _independent),
    Check("per record", "one record moves a step by the declared clip at most", _per_record),
)

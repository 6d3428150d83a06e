"""Checks of a defence: what it does is what it says, record by record, draw by draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privbench.conformance.base import ERRORS, Check, Result, global_generators, run_checks, unsaid
from privbench.defenses.base import Defense
from privbench.mechanism import Mechanism

Make = Callable[[], Defense]

_SIGMA = {"a": 1.0, "b": 2.0}


def check_defense(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run DEFENSE_CHECKS on the defence that `make` builds."""
    return run_checks(DEFENSE_CHECKS, make, expected or {})


def _gradients() -> Tensor:
    return torch.randn((64, 8), generator=torch.Generator().manual_seed(5)) * torch.logspace(-2, 2, 64)[:, None]


def _draw(make: Make, seed: int, release: int = 0, shape: tuple[int, int] = (2_000, 32)) -> Tensor:
    return make().noise(shape, _SIGMA, release, torch.Generator().manual_seed(seed))


def _card(make: Make) -> str | None:
    return unsaid(make().card, "name", "summary", "paper", "channel", "guarantee")


def _described(make: Make) -> str | None:
    mechanism = make().mechanism("A", 1.5, _SIGMA)
    if mechanism.party != "A":
        return f"describes party {mechanism.party} where A was asked"
    if Mechanism.from_json(mechanism.to_json()) != mechanism:
        return "its description does not survive JSON"
    if make().clips and mechanism.clip != 1.5:
        return f"clips to 1.5 and declares {mechanism.clip}"
    return None


def _generators(make: Make) -> str | None:
    before = global_generators()
    _draw(make, 1)
    make().bounded(_gradients(), 1.0)
    return None if global_generators() == before else "a global random generator was used"


def _deterministic(make: Make) -> str | None:
    return None if torch.equal(_draw(make, 3), _draw(make, 3)) else "one generator, two noises"


def _clip(make: Make) -> str | None:
    if not make().clips:
        return None
    norms = make().bounded(_gradients(), 1.0).norm(dim=1)
    largest = float(norms.max())
    return None if largest <= 1 + 1e-5 else f"lets a gradient of norm {largest:.3f} through a clip of 1"


def _per_record(make: Make) -> str | None:
    gradients = _gradients()
    together = make().bounded(gradients, 1.0)
    alone = torch.cat([make().bounded(row, 1.0) for row in torch.split(gradients, 1)])
    off = float((together - alone).abs().max())
    return None if off <= 1e-5 else f"a record's gradient changes by {off:.3g} with the others in its batch"


def _untouched(make: Make) -> str | None:
    gradients = _gradients()
    before = gradients.clone()
    make().bounded(gradients, 1.0)
    return None if torch.equal(before, gradients) else "changes the gradients that it is given"


def _scale(make: Make) -> str | None:
    declared = make().mechanism("A", 1.0, _SIGMA).total_sigma ** 2
    drawn = _draw(make, 7)
    variance = float((drawn.double() ** 2).mean())
    if declared == 0:
        return None if variance == 0 else f"declares no noise and draws a variance of {variance:.3f}"
    off = abs(variance / declared - 1) / (2 / drawn.numel()) ** 0.5
    return None if off <= ERRORS else f"declares a variance of {declared:.3f} and draws {variance:.3f}"


def _independent(make: Make) -> str | None:
    """Draws of two releases, and of two records, are uncorrelated."""
    generator = torch.Generator().manual_seed(9)
    first, second = (make().noise((2_000, 32), _SIGMA, release, generator).double() for release in (0, 1))
    if float(first.abs().max()) == 0:
        return None  # no noise: what the scale says of it is another check
    pairs = {"two releases": (first, second), "two records": (first[:1_000], first[1_000:])}
    for name, (a, b) in pairs.items():
        scale = float((a**2).mean().sqrt() * (b**2).mean().sqrt())
        off = abs(float((a * b).mean())) / max(scale, 1e-30) * a.numel() ** 0.5
        if off > ERRORS:
            return f"the noise of {name} is correlated ({off:.0f} standard errors)"
    return None


DEFENSE_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, and what it guarantees", _card),
    Check("description", "its mechanism is complete and survives JSON", _described),
    Check("global generators", "no global random generator is used", _generators),
    Check("deterministic", "one generator, one noise", _deterministic),
    Check("clip", "no gradient is longer than the clip that it declares", _clip),
    Check("per record", "a record's gradient does not depend on its batch", _per_record),
    Check("input untouched", "gradients it is given stay as they are", _untouched),
    Check("scale", "its noise has the variance that it declares", _scale),
    Check("independence", "its noise is independent over releases and records", _independent),
)

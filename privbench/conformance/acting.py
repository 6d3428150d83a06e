"""Checks of an attack that acts in a run: what its adversary sends, where, and when it may estimate at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import NotApplicable, View
from privbench.conformance.base import Check, ConformanceError, global_generators
from privbench.conformance.client import SITE
from privbench.conformance.cuts import BRIEF, Drawn, Make, drawn, estimation_stand
from privbench.estimates import ActiveEstimation
from privbench.target import ActiveAdversary
from privbench.threat import Behaviour, Channel

Values = npt.NDArray[Any]

_STRAY = (Channel.UPDATES, Channel.OUTPUTS)
"""What may pass a server in other systems, and says nothing of a cut."""
_ROUNDING = 1e-3


class _Watch(ActiveAdversary):
    """Stands before an adversary: notes what it sends to SITE, and what is wrong with its answers.

    stray: channels of which it should know nothing, and in which other arrays pass beside all that does.
    """

    def __init__(self, adversary: ActiveAdversary, stray: tuple[Channel, ...] = ()) -> None:
        self.party = adversary.party
        self._adversary, self._stray = adversary, stray
        self.sent: list[Values] = []
        self.misfit = self.elsewhere = self.changed = self.altered = ""

    def begin(self, own: Mapping[str, Values]) -> None:
        before = {name: values.copy() for name, values in own.items()}
        self._adversary.begin(own)
        self._require_same(before, own)

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: Values) -> None:
        before = {"record numbers": records.copy(), f"{channel} of {name}": received.copy()}
        self._adversary.receive(channel, name, records, received)
        self._require_same(before, {"record numbers": records, f"{channel} of {name}": received})
        for other in self._stray:
            self._adversary.receive(other, name, records, np.ones_like(received))

    def send(self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: Values) -> Values:
        for other in self._stray:
            if not np.array_equal(self._adversary.send(other, name, records, np.ones_like(sent)), np.ones_like(sent)):
                self.altered = f"replaces {other} of {name}"
        before = {"record numbers": records.copy(), f"{channel} to {name}": sent.copy()}
        given = self._adversary.send(channel, name, records, sent)
        self._require_same(before, {"record numbers": records, f"{channel} to {name}": sent})
        if given.shape != sent.shape or given.dtype != sent.dtype:
            self.misfit = f"sends {given.dtype} {list(given.shape)} in place of {sent.dtype} {list(sent.shape)}"
        elif not np.isfinite(given).all():
            self.misfit = "sends numbers that are not finite"
        if name == SITE:
            self.sent.append(np.array(given))
        elif not np.array_equal(given, before[f"{channel} to {name}"]):
            self.elsewhere = f"replaces the {channel} to site {name}"
        return given

    def kept(self) -> Mapping[str, Values]:
        return self._adversary.kept()

    def _require_same(self, before: Mapping[str, Values], after: Mapping[str, Values]) -> None:
        changed = [name for name, values in before.items() if not np.array_equal(values, after[name])]
        self.changed = self.changed or ", ".join(changed)


def _made(make: Make) -> ActiveEstimation:
    attack = make()
    if not isinstance(attack, ActiveEstimation):
        raise ConformanceError(f"{type(attack).__name__} acts in no run: it is no ActiveEstimation.")
    return attack


def _watched(attack: ActiveEstimation, made: Drawn, seed: int, stray: tuple[Channel, ...] = ()) -> _Watch:
    """A training under the attack's adversary, as seen from outside."""
    watch = _Watch(attack.adversary(np.random.default_rng(seed)), stray)
    made.client(BRIEF).run(watch, np.random.default_rng(seed))
    return watch


def _alike(make: Make) -> str | None:
    attack, made = _made(make), drawn(50, 1.0)
    first, second = (_watched(attack, made, 7) for _ in range(2))
    if not all(np.array_equal(one, other) for one, other in zip(first.sent, second.sent, strict=True)):
        return "two runs with one seed are sent different gradients"
    kept, other = first.kept(), second.kept()
    differ = [name for name in {**kept, **other} if not np.array_equal(kept.get(name, ()), other.get(name, ()))]
    return f"two runs with one seed keep different {', '.join(differ)}" if differ else None


def _in_form(make: Make) -> str | None:
    return _watched(_made(make), drawn(51, 1.0), 0).misfit or None


def _at_one_site(make: Make) -> str | None:
    return _watched(_made(make), drawn(52, 1.0), 0).elsewhere or None


def _on_its_channels(make: Make) -> str | None:
    attack, made = _made(make), drawn(53, 1.0)
    plain, stray = (_watched(attack, made, 0, shown) for shown in ((), _STRAY))
    if stray.altered:
        return stray.altered
    pairs = zip(plain.sent, stray.sent, strict=True)
    moved = not all(np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING) for one, other in pairs)
    return f"{' and '.join(_STRAY)} move what it sends" if moved else None


def _generators(make: Make) -> str | None:
    attack, made, before = _made(make), drawn(54, 1.0), global_generators()
    _watched(attack, made, 0)
    return None if global_generators() == before else "a global random generator was used in the run"


def _untouched(make: Make) -> str | None:
    changed = _watched(_made(make), drawn(55, 1.0, gaps=0.2), 0).changed
    return f"changed what it was shown in the run: {changed}" if changed else None


def _own_run(make: Make) -> str | None:
    attack = _made(make)
    view = estimation_stand(56, attack=attack).view()
    other = {name: values for name, values in view.arrays.items() if not name.startswith("adversary/")}
    return _says_why(attack, replace(view, arrays=other), "on a run in which it took no part")


def _curious(make: Make) -> str | None:
    attack = _made(make)
    if attack.card.behaviour is not Behaviour.MALICIOUS:
        return f"acts in a run, and its card says that its party is {attack.card.behaviour}"
    here = estimation_stand(57, attack=attack)
    return _says_why(
        attack, here.view(replace(here.threat, behaviour=Behaviour.CURIOUS)), "for a party that only looks on"
    )


def _says_why(attack: ActiveEstimation, view: View, where: str) -> str | None:
    result = attack(view, np.random.default_rng(0))
    if not isinstance(result, NotApplicable):
        return f"ran {where}"
    return None if result.reason else f"refuses {where}, and does not say why"


ACTIVE_CHECKS: tuple[Check[Make], ...] = (
    Check("acts alike", "one seed, the same gradients, and the same is kept", _alike),
    Check("acts in form", "what it sends has the shape and type of what it replaces, and is finite", _in_form),
    Check("acts at one site", "what goes to other sites is left as it is", _at_one_site),
    Check(
        "acts on its channels", "what passes in other channels is left as it is, and moves nothing", _on_its_channels
    ),
    Check("acts by its generator", "no global random generator is used in the run", _generators),
    Check("acts untouching", "what it is shown in the run stays as it was", _untouched),
    Check("own run", "it refuses where it took no part in the run", _own_run),
    Check("curious party", "it refuses for a party that only looks on, and its card says so", _curious),
)

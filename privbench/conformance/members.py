"""Checks of a membership attack: what it may touch, what it must tell apart, what it may not."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.attack import Hints, Index, NotApplicable, Scores, View, view_of
from privbench.conformance.base import ERRORS, Check, ConformanceError, Result, blanks, global_generators, run_checks
from privbench.errors import PrivbenchError
from privbench.membership import MembershipAttack
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.references import balanced_halves
from privbench.stats.auc import auc
from privbench.tensors import Blocks
from privbench.threat import Channel, Knowledge, ThreatModel, server_with_patients

Make = Callable[[], MembershipAttack]
Arrays = dict[str, npt.NDArray[Any]]

TASK, SITE, CLIENTS, BLOCKS = "ill", "A", ("client-1", "client-2", "client-3"), ("bottom", "top")
RECORDS, POPULATION, HINTS, REFERENCES = 600, 200, 100, 16
CHECKPOINTS, WIDTH, LENGTH, PARAMETERS, FEW = 3, 8, 3, 200, 4
"""FEW: the stand's first so many references are halves of their own, as are the next."""


@dataclass(frozen=True)
class MemberStand:
    """A recording in every channel that tells of membership, with the coins that only the check knows.

    coins uint8 [records + population], 0 in the population. `threat` sees everything and knows everything.
    """

    transcript: Transcript
    coins: npt.NDArray[np.uint8]
    threat: ThreatModel
    records: int
    hints: int

    @property
    def scored(self) -> Index:
        return np.arange(self.hints, self.records)

    def view(self, threat: ThreatModel | None = None, *, flipped: bool = False) -> View:
        """Of all records but the hints and the population; `flipped` hints say the opposite of every coin."""
        told = self.coins[: self.hints].astype(np.int64)
        return view_of(
            threat or self.threat,
            self.transcript,
            secret=MEMBER,
            moved=(),
            candidates=self.scored,
            hints=Hints(np.arange(self.hints), 1 - told if flipped else told),
        )

    def auc(self, scores: Scores) -> float:
        """How well scores [m] tell the members among the scored records."""
        return auc(scores, self.coins[self.scored]).value

    def stored(self, folder: Path) -> MemberStand:
        """The same in files, the scorer's secrets beside the recording, as an audit keeps them."""
        path = folder / Transcript.file_name()
        self.transcript.save(path)
        Secrets({MEMBER: self.coins}).save(folder / Secrets.file_name())
        return replace(self, transcript=Transcript.load(path))


def member_stand(
    seed: int,
    gain: float = 1.0,
    *,
    records: int = RECORDS,
    population: int = POPULATION,
    references: int = REFERENCES,
    hints: int = HINTS,
) -> MemberStand:
    """Draw a recording. Logit of the true answer: N(1.5, 1.5^2) per record, plus `gain` |N(.6, .5^2)| where the model
    was trained on it, plus N(0, .7^2); the cut's embeddings and gradients move by `gain`, too. 0: nothing leaks.
    """
    rng = np.random.default_rng(seed)
    n = records + population
    coins = np.zeros(n, np.uint8)
    coins[:records] = rng.integers(0, 2, records)
    member = np.zeros((references, n), np.uint8)
    for start in range(0, references, FEW):
        rows = member[start : start + FEW, :records]
        rows[:] = balanced_halves(rng, len(rows), records)
    trained = np.linspace(0, 1, CHECKPOINTS)[:, None] * coins
    hard, gains, labels = rng.normal(1.5, 1.5, n), gain * np.abs(rng.normal(0.6, 0.5, n)), rng.integers(0, 2, n)

    def logits(seen: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """[..., n, 1] of models that were trained on `seen` [..., n]."""
        right = hard + gains * seen + rng.normal(0, 0.7, seen.shape)
        return np.asarray((right * (2 * labels - 1))[..., None], np.float32)

    arrays: Arrays = {
        f"outputs/{TASK}": logits(coins),
        f"outputs/{TASK}/labels": labels[:, None],
        f"checkpoints/outputs/{TASK}": logits(trained),
        **_cut(rng, trained, gain),
        **_sequences(rng.spawn(1)[0], coins, gain),
        **_updates(rng.spawn(1)[0], coins, gain),
    }
    if population:
        arrays["outputs/population"] = (np.arange(n) >= records).astype(np.uint8)
    if references:
        arrays |= {f"reference/outputs/{TASK}": logits(member), "reference/member": member}
    threat = replace(server_with_patients(), channels=frozenset(Channel), knowledge=frozenset(Knowledge))
    return MemberStand(Transcript(arrays), coins, threat, records, hints)


def _cut(rng: np.random.Generator, trained: npt.NDArray[Any], gain: float) -> Arrays:
    """Embeddings that training moves in one direction, and gradients that it makes smaller; trained [T, n]."""
    direction = np.full(WIDTH, WIDTH**-0.5)
    noise = rng.standard_normal((*trained.shape, WIDTH)).cumsum(axis=0)
    embeddings = (noise + 2 * gain * trained[..., None] * direction).astype(np.float32)
    norms = np.exp(rng.normal(0, 0.5, trained.shape) - gain * trained)
    return {
        f"activations/{SITE}": embeddings[-1:],
        f"checkpoints/activations/{SITE}": embeddings,
        f"checkpoints/gradients/{SITE}": norms.astype(np.float32),
    }


def _sequences(rng: np.random.Generator, coins: npt.NDArray[np.uint8], gain: float) -> Arrays:
    """What a public base makes of every record, and what came from the members in an order of its own."""
    asked = rng.standard_normal((len(coins), LENGTH, WIDTH))
    came = asked[rng.permutation(np.flatnonzero(coins))]
    received = gain * came + rng.standard_normal(came.shape)
    return {
        "asked/activations": asked.astype(np.float32),
        "asked/mask": np.ones(asked.shape[:2], np.uint8),
        "received/activations": received.astype(np.float32),
        "received/mask": np.ones(received.shape[:2], np.uint8),
    }


def _updates(rng: np.random.Generator, coins: npt.NDArray[np.uint8], gain: float) -> Arrays:
    """Updates of clients, of whom the last sends in the first round alone: downhill the gradients of the members that
    it holds, `gain` times, and noise as large as their sum. The parameters are two blocks of one size; losses are those
    of the states before.
    """
    rounds, size = CHECKPOINTS, PARAMETERS
    gradients = rng.standard_normal((rounds, len(coins), size))
    arrays: Arrays = _by_block("asked/squares", gradients**2)
    holder = rng.integers(0, len(CLIENTS), len(coins))
    for number, client in enumerate(CLIENTS):
        held = coins * (holder == number)
        mask = (np.arange(rounds) < (1 if client == CLIENTS[-1] else rounds)).astype(np.uint8)
        noise = rng.standard_normal((rounds, size)) * np.sqrt(held.sum())
        update = mask[:, None] * (noise - gain * np.einsum("n,rnd->rd", held, gradients))
        arrays |= _by_block(f"asked/products/{client}", update[:, None] * gradients)
        arrays |= _by_block(f"updates/{client}/squares", update**2)
        arrays[f"updates/{client}/mask"] = mask
    trained = np.linspace(0, 1, rounds, endpoint=False)[:, None] * coins
    arrays["asked/losses"] = np.exp(rng.normal(0, 0.5, trained.shape) - gain * trained)
    return arrays


def _by_block(name: str, terms: npt.NDArray[np.float64]) -> Arrays:
    """Sums of [..., P], and of each half of P."""
    halves = np.split(terms, 2, axis=-1)
    parts = {f"{name}/{block}": half.sum(axis=-1) for block, half in zip(BLOCKS, halves, strict=True)}
    return {name: terms.sum(axis=-1), **parts}


def check_membership(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run MEMBERSHIP_CHECKS on attacks that `make` builds (the class itself, where it needs no arguments)."""
    if isinstance(make, MembershipAttack):
        raise ConformanceError(
            "check_membership takes what makes one: pass the class, or a function without arguments."
        )
    return run_checks(MEMBERSHIP_CHECKS, make, expected or {})


def _score(attack: MembershipAttack, view: View, seed: int = 0) -> Scores:
    result = attack(view, np.random.default_rng(seed))
    if isinstance(result, NotApplicable):
        raise PrivbenchError(f"not applicable to a full view of a model and its references: {result.reason}")
    return result


def _deterministic(make: Make) -> str | None:
    view = member_stand(1).view()
    first, second = (_score(make(), view, 7) for _ in range(2))
    return None if np.array_equal(first, second) else "two runs with one seed differ"


def _global_generators(make: Make) -> str | None:
    view, before = member_stand(2).view(), global_generators()
    _score(make(), view)
    return None if global_generators() == before else "a global random generator was used"


def _view_untouched(make: Make) -> str | None:
    view = member_stand(3).view()
    shown: dict[str, Blocks] = {name: np.array(array) for name, array in view.arrays.items()}
    told = {"candidates": view.candidates, "hints": view.hints.index, "their coins": view.hints.secrets}
    before = {name: np.array(array) for name, array in (shown | told).items()}
    _score(make(), replace(view, arrays=shown))
    changed = [name for name, array in (shown | told).items() if not np.array_equal(np.asarray(array), before[name])]
    return f"changed what it was shown: {', '.join(changed)}" if changed else None


def _equivariant(make: Make) -> str | None:
    """The same records in other rows, asked for in another order: the same scores, but for rounding."""
    here, rng = member_stand(4), np.random.default_rng(4)
    view = here.view()
    rows, asked = rng.permutation(len(here.coins)), rng.permutation(len(view.candidates))
    place = np.argsort(rows)
    turned: dict[str, Blocks] = {
        name: np.take(np.asarray(array), rows, axis=array.shape.index(len(rows)))
        for name, array in view.arrays.items()
        if len(rows) in array.shape
    }
    # In an order of its own, which is turned, too.
    turned |= {name: np.asarray(array)[::-1] for name, array in view.arrays.items() if name.startswith("received/")}
    turned |= {name: array for name, array in view.arrays.items() if name not in turned}
    hints = Hints(place[view.hints.index], view.hints.secrets)
    plain = _score(make(), view)[asked]
    moved = _score(make(), replace(view, arrays=turned, candidates=place[view.candidates[asked]], hints=hints))
    off = ~np.isclose(moved, plain, rtol=1e-3, atol=1e-3 * float(plain.std()))
    return f"with the records in another order, {off.mean():.1%} of the scores change" if off.any() else None


def _refuses(make: Make) -> str | None:
    here = member_stand(5)
    result = make()(here.view(replace(here.threat, channels=frozenset())), np.random.default_rng(0))
    if not isinstance(result, NotApplicable):
        return "ran for an adversary who sees no channel"
    named = any(str(channel) in result.reason for channel in make().card.channels)
    return None if named else f"its reason names no channel that it needs: '{result.reason}'"


def _finite(make: Make) -> str | None:
    """Also of a model so sure, rightly or wrongly, that its probabilities round to 1 and to 0."""
    view = member_stand(6).view()
    sure: dict[str, Blocks] = {
        name: np.asarray(array) * np.float32(40) if name.endswith(f"outputs/{TASK}") else array
        for name, array in view.arrays.items()
    }
    for shown in (view, replace(view, arrays=sure)):
        scores = _score(make(), shown)
        if scores.shape != view.candidates.shape:
            return f"scores are {list(scores.shape)} for {len(view.candidates)} records"
        if not np.isfinite(scores).all():
            return f"{int((~np.isfinite(scores)).sum())} of {len(scores)} scores are not finite"
    return None


def _constant(make: Make) -> str | None:
    """Nothing leaks: members are told from others by chance alone. 8 seeds of 500 fair coins."""
    found = []
    for seed in range(8):
        with tempfile.TemporaryDirectory(prefix="privbench-") as folder:
            here = member_stand(10 + seed, 0.0).stored(Path(folder))
            found.append(here.auc(_score(make(), here.view(), seed)))
    mean = float(np.mean(found))
    return None if abs(mean - 0.5) <= _slack(8) else f"tells members at AUC {mean:.3f} where nothing leaks"


def _planted(make: Make) -> str | None:
    here = member_stand(20, 4.0)
    found = here.auc(_score(make(), here.view()))
    return None if found >= 0.6 else f"tells members at AUC {found:.3f} where every channel shows them"


def _hints(make: Make) -> str | None:
    """Coins that a card does not ask for are not used, however they come into the view."""
    if Knowledge.HINTS in make().card.knowledge:
        return None
    here = member_stand(30, 4.0)
    straight, turned = (_score(make(), here.view(flipped=flipped)) for flipped in (False, True))
    return None if np.array_equal(straight, turned) else "uses hints, and its card does not name them"


def _richer(make: Make) -> str | None:
    """Sixteen reference models never show less than the first four of them."""
    few, many = [], []
    for seed in range(4):
        here = member_stand(40 + seed)
        view = here.view()
        fewer: dict[str, Blocks] = {
            name: array[:FEW] if name.startswith("reference/") else array for name, array in view.arrays.items()
        }
        less = make()(replace(view, arrays=fewer), np.random.default_rng(seed))
        if isinstance(less, NotApplicable):
            return None  # it needs more of them
        few.append(here.auc(less))
        many.append(here.auc(_score(make(), view, seed)))
    first, last = float(np.mean(few)), float(np.mean(many))
    slack = _slack(4) * math.sqrt(2)
    return None if last >= first - slack else f"AUC {first:.3f} with four references, {last:.3f} with sixteen"


def _slack(seeds: int) -> float:
    """Of a mean AUC over stands: Mann and Whitney's standard error, 1 / sqrt(3 m) for m fair coins."""
    return ERRORS / math.sqrt(3 * seeds * (RECORDS - HINTS))


MEMBERSHIP_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, what it needs and costs", lambda make: blanks(make().card)),
    Check("deterministic", "one seed, the same scores", _deterministic),
    Check("global generators", "no global random generator is used", _global_generators),
    Check("view untouched", "what it is shown stays as it was", _view_untouched),
    Check("permutation", "a record's score does not depend on its place", _equivariant),
    Check("absent channel", "without its channel it refuses, and names it", _refuses),
    Check("finite", "one finite score per record, of a sure model too", _finite),
    Check("constant", "members are not told apart where nothing leaks", _constant),
    Check("planted", "members are told apart where every channel shows them, with the right sign", _planted),
    Check("hints", "coins of other records are used by those alone whose card names them", _hints),
    Check("richer view", "more reference models never lower it", _richer),
)

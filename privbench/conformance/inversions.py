"""Checks of an inversion: what it may touch, what it must read, what it may not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy

from privbench.attack import Hints, Index, Inversion, NotApplicable, Reconstruction, View, view_of
from privbench.conformance.base import ERRORS, Check, ConformanceError, Result, blanks, global_generators, run_checks
from privbench.conformance.update_stand import drawn_updates
from privbench.errors import PrivbenchError
from privbench.mechanism import Mechanism
from privbench.recording import Transcript
from privbench.recovery import METRICS, Recovered, Truth
from privbench.tensors import Blocks
from privbench.threat import Channel, ThreatModel, server_below_labels, server_with_updates
from privbench.trunks import EPS, PREFIX, ROTARY

Make = Callable[[], Inversion]

VICTIM = "client-1"
VOCABULARY, WIDTH, RECORDS, LENGTH, QUESTIONS, TEXTS = 300, 24, 150, 30, 5, 60
_QUIET = 0.05
"""Noise that is described where none is drawn: sizes above 0 alone are mechanisms."""


@dataclass(frozen=True)
class TokenStand:
    """Records of a public template with one of three answers of two tokens to each question, as rows of a public table
    plus noise. The last answer ends each record, and gradients of a server's outputs before its tokens may come up.
    `threat` sees and knows what a curious server does. metric: by which it is scored.
    """

    transcript: Transcript
    truth: Truth
    threat: ThreatModel
    metric: str = METRICS[0]

    def view(self, threat: ThreatModel | None = None) -> View:
        rows = np.arange(RECORDS)
        return view_of(
            threat or self.threat, self.transcript, secret=VICTIM, moved=(), candidates=rows, hints=Hints.none()
        )

    def read(self, guess: Index) -> Recovered:
        """A reconstruction [m, L], by its metric."""
        return self.truth.score(guess, self.metric, np.roll(np.arange(RECORDS), 1))


def token_stand(
    seed: int, noise: float = 0.0, releases: int = 3, *, silent: bool = False, upward: bool = True
) -> TokenStand:
    """Draw a recording, with public texts of random tokens as rows of the table. noise: its standard deviation in units
    of an activation's or a gradient's; silent: only zeros are sent; upward: gradients come up.
    """
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    options = rng.choice(VOCABULARY, (QUESTIONS, 3, 2), replace=False)
    tokens = np.tile(rng.integers(0, VOCABULARY, LENGTH), (RECORDS, 1))
    answers = np.full((RECORDS, LENGTH), -1)
    places = np.sort([*rng.choice(LENGTH // 2 - 1, QUESTIONS - 1, replace=False) * 2, LENGTH - 2])
    for question, place in enumerate(places):
        chosen = rng.integers(0, 3, RECORDS)
        tokens[:, place : place + 2] = options[question, chosen]
        answers[:, place : place + 2] = question
    sent = table[tokens] + noise * rng.standard_normal((releases, RECORDS, LENGTH, WIDTH)).astype(np.float32)
    texts = rng.integers(0, VOCABULARY, (TEXTS, LENGTH))
    arrays: dict[str, npt.NDArray[np.generic]] = {
        f"activations/{VICTIM}": np.zeros_like(sent) if silent else sent.astype(np.float32),
        f"activations/{VICTIM}/mask": np.ones((RECORDS, LENGTH), np.uint8),
        "public/embedding": table,
        "public/tokens": texts,
        "public/activations": table[texts],
        **_layer_without_effect(rng),
    }
    if upward:
        arrays |= _upward(tokens[:, -2:], table, releases, noise, rng, silent)
    described = Mechanism(Channel.ACTIVATIONS, VICTIM, "gaussian", noise="once", sigma={"cut": max(noise, _QUIET)})
    transcript = Transcript(arrays, {"mechanisms": [described.to_json()]})
    return TokenStand(transcript, Truth(tokens, answers), server_below_labels())


def stand_of(make: Make, seed: int, noise: float = 0.0, releases: int = 3, *, silent: bool = False) -> TokenStand:
    """The stand of the channel that the inversion's card names: a round of updates for each record, or activations."""
    if Channel.UPDATES not in make().card.channels:
        return token_stand(seed, noise, releases, silent=silent)
    drawn = drawn_updates(seed, VICTIM, RECORDS, VOCABULARY, QUESTIONS, noise, silent)
    return TokenStand(*drawn, server_with_updates(), make().metrics[0])


def _upward(
    said: Index, table: npt.NDArray[np.float32], releases: int, noise: float, rng: np.random.Generator, silent: bool
) -> dict[str, npt.NDArray[np.generic]]:
    """Random outputs before these tokens [N, A], and their gradients through the table as head, each of length 1."""
    shape = (releases, *said.shape, table.shape[1])
    outputs = rng.standard_normal(shape).astype(np.float32)
    given = torch.from_numpy(outputs).requires_grad_()
    logits = given / given.square().mean(dim=3, keepdim=True).sqrt() @ torch.from_numpy(table).T
    losses = cross_entropy(logits.flatten(0, 2), torch.from_numpy(np.tile(said, (releases, 1, 1))).flatten())
    (found,) = torch.autograd.grad(losses, given)
    gradients = found.numpy() / np.linalg.norm(found.numpy(), axis=3, keepdims=True)
    gradients += noise * rng.standard_normal(shape) / np.sqrt(shape[3])
    gradients *= not silent
    return {
        "activations/server": outputs,
        "activations/server/mask": np.ones(said.shape, np.uint8),
        "gradients/server": gradients.reshape(releases, len(said), -1),
        "public/norm": np.ones(shape[3], np.float32),
    }


def _layer_without_effect(rng: np.random.Generator) -> dict[str, npt.NDArray[np.generic]]:
    """The public layer before a cut that sends rows as they are: what it adds is multiplied by 0."""
    square, long = (WIDTH, WIDTH), (2 * WIDTH, WIDTH)
    drawn = {f"self_attn.{name}_proj.weight": rng.standard_normal(square) for name in "qkv"}
    drawn |= {f"mlp.{name}_proj.weight": rng.standard_normal(long) for name in ("gate", "up")}
    fixed = {"self_attn.o_proj.weight": np.zeros(square), "mlp.down_proj.weight": np.zeros(long[::-1])}
    fixed |= {f"{name}_layernorm.weight": np.ones(WIDTH) for name in ("input", "post_attention")}
    arrays = {f"{PREFIX}0.{name}": values.astype(np.float32) for name, values in (drawn | fixed).items()}
    turns = np.ones(WIDTH // 4, np.float32)
    return {**arrays, f"{PREFIX}{ROTARY}": turns, f"{PREFIX}{EPS}": np.full(1, 1e-5, np.float32)}


def check_inversion(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run INVERSION_CHECKS on inversions that `make` builds (the class itself, where it needs no arguments)."""
    if isinstance(make, Inversion):
        raise ConformanceError("check_inversion takes what makes one: pass the class, or a function without arguments.")
    return run_checks(INVERSION_CHECKS, make, expected or {})


def _invert(inversion: Inversion, view: View, seed: int = 0) -> Reconstruction:
    result = inversion(view, np.random.default_rng(seed))
    if isinstance(result, NotApplicable):
        raise PrivbenchError(f"not applicable to a full view of its channel: {result.reason}")
    return result


def _deterministic(make: Make) -> str | None:
    view = stand_of(make, 1, 1.0).view()
    first, second = (_invert(make(), view, 7) for _ in range(2))
    same = np.array_equal(first.single, second.single) and np.array_equal(first.accumulated, second.accumulated)
    return None if same else "two runs with one seed differ"


def _global_generators(make: Make) -> str | None:
    view, before = stand_of(make, 2, 1.0).view(), global_generators()
    _invert(make(), view)
    return None if global_generators() == before else "a global random generator was used"


def _view_untouched(make: Make) -> str | None:
    view = stand_of(make, 3, 1.0).view()
    copies: dict[str, Blocks] = {name: np.array(array) for name, array in view.arrays.items()}
    before = {name: np.array(array) for name, array in copies.items()}
    _invert(make(), replace(view, arrays=copies))
    changed = [name for name, array in copies.items() if not np.array_equal(np.asarray(array), before[name])]
    return f"changed what it was shown: {', '.join(changed)}" if changed else None


def _equivariant(make: Make) -> str | None:
    view = stand_of(make, 4, 0.5).view()
    order = np.random.default_rng(4).permutation(RECORDS)
    plain, moved = _invert(make(), view), _invert(make(), replace(view, candidates=view.candidates[order]))
    agree = float((plain.accumulated[-1][order] == moved.accumulated[-1]).mean())
    return None if agree == 1 else f"asked for the same records in another order, {1 - agree:.1%} of the tokens change"


def _refuses(make: Make) -> str | None:
    here = stand_of(make, 5)
    result = make()(here.view(replace(here.threat, channels=frozenset())), np.random.default_rng(0))
    if not isinstance(result, NotApplicable):
        return "ran for an adversary who sees no channel"
    named = any(str(channel) in result.reason for channel in make().card.channels)
    return None if named else f"its reason names no channel that it needs: '{result.reason}'"


def _identity(make: Make) -> str | None:
    here = stand_of(make, 6)
    found = _invert(make(), here.view())
    read = min(here.read(guess).value for guess in (*found.single, *found.accumulated))
    return None if read >= 0.9 else f"reads {read:.3f} of the answers where nothing hides them"


def _constant(make: Make) -> str | None:
    here = stand_of(make, 7, silent=True)
    found = here.read(_invert(make(), here.view()).accumulated[-1])
    low, _ = found.interval()
    return None if low <= found.baseline else f"reads {found.value:.3f} of the answers where nothing is sent"


def _noise_hides(make: Make) -> str | None:
    quiet, loud = (float(np.mean([_final(make, 10 + seed, noise).value for seed in range(3)])) for noise in (1.0, 2.5))
    return None if loud <= quiet + _slack(3) else f"reads {quiet:.3f} at noise 1, {loud:.3f} at noise 2.5"


def _more_helps(make: Make) -> str | None:
    first, last = [], []
    for seed in range(3):
        here = stand_of(make, 20 + seed, 2.0, releases=8)
        found = _invert(make(), here.view(), seed)
        first.append(here.read(found.accumulated[0]).value)
        last.append(here.read(found.accumulated[-1]).value)
    one, all_of_them = float(np.mean(first)), float(np.mean(last))
    return None if all_of_them >= one - _slack(3) else f"reads {one:.3f} from one release, {all_of_them:.3f} from eight"


def _causal(make: Make) -> str | None:
    """Row t of `single` depends on release t alone, of `accumulated` on the releases up to it."""
    view = stand_of(make, 30, 1.0, releases=4).view()
    name = f"activations/{VICTIM}"
    if name not in view.arrays:
        return _causal_over_rounds(make)
    first = np.asarray(view.array(name))
    later, earlier = first.copy(), first.copy()
    noise = np.random.default_rng(30).standard_normal(first.shape).astype(first.dtype) * 3
    later[2:] += noise[2:]
    earlier[:2] += noise[:2]
    plain, after, before = (
        _invert(make(), replace(view, arrays={**view.arrays, name: array})) for array in (first, later, earlier)
    )
    if not np.array_equal(plain.accumulated[:2], after.accumulated[:2]):
        return "`accumulated` uses releases that are yet to come"
    return None if np.array_equal(plain.single[2:], before.single[2:]) else "`single` uses other releases than its own"


def _causal_over_rounds(make: Make) -> str | None:
    """A record's reading depends on no update that was sent after its round."""
    view, name = stand_of(make, 30).view(), f"updates/{VICTIM}"
    later = np.array(view.array(name))
    later[RECORDS // 2 :] = np.random.default_rng(30).standard_normal(later[RECORDS // 2 :].shape)
    plain, after = (_invert(make(), shown) for shown in (view, replace(view, arrays={**view.arrays, name: later})))
    same = np.array_equal(plain.accumulated[:, : RECORDS // 2], after.accumulated[:, : RECORDS // 2])
    return None if same else "reads a record by updates that are yet to come"


def _final(make: Make, seed: int, noise: float) -> Recovered:
    here = stand_of(make, seed, noise)
    return here.read(_invert(make(), here.view(), seed).accumulated[-1])


def _slack(runs: int) -> float:
    """Of a difference of two means over `runs` stands, by the records' own spread of at most 1/2."""
    return ERRORS * float(np.sqrt(2 / (runs * RECORDS))) / 2


INVERSION_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, what it needs and costs", lambda make: blanks(make().card)),
    Check("deterministic", "one seed, one reconstruction", _deterministic),
    Check("global generators", "no global random generator is used", _global_generators),
    Check("view untouched", "what it is shown stays as it was", _view_untouched),
    Check("permutation", "a record's reconstruction does not depend on its place", _equivariant),
    Check("absent channel", "without its channel it refuses, and names it", _refuses),
    Check("identity", "public rows that are sent as they are are read", _identity),
    Check("constant", "nothing is read where nothing is sent", _constant),
    Check("more noise", "more noise never raises leakage", _noise_hides),
    Check("richer view", "more releases never lower it", _more_helps),
    Check("causal", "a row knows its own releases only", _causal),
)

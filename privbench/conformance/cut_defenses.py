"""Checks of a defence on what a party sends up: what it does is what it says, token by token, draw by draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privbench.conformance.base import ERRORS, Check, Result, global_generators, run_checks, unsaid
from privbench.defenses.base import CutDefense
from privbench.mechanism import Mechanism

Make = Callable[[], CutDefense]

_VOCABULARY, _WIDTH = 300, 8
_PARTY = "client-1"


def check_cut_defense(make: Make, expected: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Run CUT_DEFENSE_CHECKS on the defence that `make` builds."""
    return run_checks(CUT_DEFENSE_CHECKS, make, expected or {})


def _table() -> Tensor:
    """Rows that lie close to each other, for their norms, so that small moves already change a token."""
    return 0.3 + 0.02 * torch.randn((_VOCABULARY, _WIDTH), generator=torch.Generator().manual_seed(1))


def _ids() -> Tensor:
    return torch.randint(0, _VOCABULARY, (40, 25), generator=torch.Generator().manual_seed(2))


def _activations() -> Tensor:
    """[40, 25, d], of norms from a hundredth to a hundred times those of the table's rows."""
    sizes = torch.logspace(-2, 2, 1_000).view(40, 25, 1)
    return torch.randn((40, 25, _WIDTH), generator=torch.Generator().manual_seed(3)) * 0.3 * sizes


def _through(make: Make, seed: int) -> tuple[Tensor, Tensor]:
    """Both steps, with one generator."""
    defense, table, generator = make(), _table(), torch.Generator().manual_seed(seed)
    return defense.tokens(_ids(), table, generator), defense.sent(_activations(), table, generator)


def _card(make: Make) -> str | None:
    return unsaid(make().card, "name", "summary", "paper", "channel", "guarantee")


def _described(make: Make) -> str | None:
    mechanism = make().mechanism(_PARTY, _table())
    if (mechanism.party, mechanism.channel) != (_PARTY, make().card.channel):
        return f"describes {mechanism.channel} of {mechanism.party}, not {make().card.channel} of {_PARTY}"
    if Mechanism.from_json(mechanism.to_json()) != mechanism:
        return "its description does not survive JSON"
    if make().card.guarantee == "formal" and mechanism.kind == "none":
        return "promises something and describes no mechanism"
    return None


def _shapes(make: Make) -> str | None:
    ids, sent = _through(make, 1)
    if ids.shape != _ids().shape or ids.dtype != torch.int64 or sent.shape != _activations().shape:
        return f"returns {list(ids.shape)} tokens of {ids.dtype} and activations {list(sent.shape)}"
    if ids.min() < 0 or ids.max() >= _VOCABULARY:
        return f"returns token {int(ids.max())} of {_VOCABULARY}"
    return None if bool(sent.isfinite().all()) else "sends what is not finite"


def _generators(make: Make) -> str | None:
    before = global_generators()
    _through(make, 1)
    return None if global_generators() == before else "a global random generator was used"


def _deterministic(make: Make) -> str | None:
    same = all(torch.equal(a, b) for a, b in zip(_through(make, 3), _through(make, 3), strict=True))
    return None if same else "one generator, two results"


def _untouched(make: Make) -> str | None:
    ids, activations, table = _ids(), _activations(), _table()
    kept = ids.clone(), activations.clone(), table.clone()
    generator = torch.Generator().manual_seed(1)
    make().tokens(ids, table, generator)
    make().sent(activations, table, generator)
    same = all(torch.equal(a, b) for a, b in zip(kept, (ids, activations, table), strict=True))
    return None if same else "changes what it is given"


def _clip(make: Make) -> str | None:
    """Of what is sent without its noise: in the mean over draws."""
    clip = make().mechanism(_PARTY, _table()).clip
    if clip is None:
        return None
    longest = _activations().flatten(0, 1)[-1:].repeat(4_000, 1)
    mean = make().sent(longest, _table(), torch.Generator().manual_seed(4)).double()
    error = float(mean.std(dim=0).norm()) / len(mean) ** 0.5
    found = float(mean.mean(dim=0).norm())
    return None if found <= clip + ERRORS * error + 1e-6 else f"sends a norm of {found:.3g} and declares {clip:.3g}"


def _scale(make: Make) -> str | None:
    """The variance of what is drawn around a fixed activation, against the declared one."""
    declared = make().mechanism(_PARTY, _table()).total_sigma ** 2
    fixed = _activations()[0, :1].repeat(8_000, 1)
    drawn = make().sent(fixed, _table(), torch.Generator().manual_seed(5)).double()
    variance = float(drawn.var(dim=0).mean())
    if declared == 0:
        return None if variance <= 1e-12 else f"declares no noise and draws a variance of {variance:.3g}"
    off = abs(variance / declared - 1) / (2 / drawn.numel()) ** 0.5
    return None if off <= ERRORS else f"declares a variance of {declared:.3g} and draws {variance:.3g}"


def _own_draws(make: Make) -> str | None:
    """Two tokens of a record, and two releases, draw independently: noise on activations, and whether a token stays.

    Tokens are sent two at a time, so that what those of one call share shows over calls.
    """
    generator = torch.Generator().manual_seed(6)
    same = _activations()[0, :1].repeat(2, 4_000, 1)
    releases = [make().sent(same, _table(), generator).double() for _ in range(2)]
    drawn = [item - item.mean(dim=(0, 1)) for item in releases]
    ids, table, defense = _ids()[:1, :2], _table(), make()
    stays = torch.cat([defense.tokens(ids, table, generator) == ids for _ in range(3_000)]).double()
    pairs = {
        "two tokens' noise": (drawn[0][0], drawn[0][1]),
        "two releases' noise": (drawn[0], drawn[1]),
        "two tokens' replacement": (stays[:, 0], stays[:, 1]),
        "two releases' replacement": (stays[:-1, 0], stays[1:, 0]),
    }
    for name, (a, b) in pairs.items():
        a, b = a - a.mean(), b - b.mean()  # noqa: PLW2901
        scale = float((a.square().mean() * b.square().mean()).sqrt())
        if scale > 1e-9 and abs(float((a * b).mean())) / scale * a.numel() ** 0.5 > ERRORS:
            return f"{name} {'are' if 'noise' not in name else 'is'} correlated"
    return None


def _per_token(make: Make) -> str | None:
    """Of two batches that differ in one token, with the same draws, the others leave alike."""
    table, ids, activations = _table(), _ids(), _activations()
    other, moved = ids.clone(), activations.clone()
    other[0, 0], moved[0, 0] = (int(ids[0, 0]) + 1) % _VOCABULARY, 1e3 * (activations[0, 0] + 1)
    results = []
    for tokens, sent in ((ids, activations), (other, moved)):
        generator = torch.Generator().manual_seed(7)
        results.append((make().tokens(tokens, table, generator), make().sent(sent, table, generator)))
    for before, after in zip(*results, strict=True):
        rest = (before != after).flatten(2).any(dim=2) if before.ndim == 3 else before != after
        rest[0, 0] = False
        if rest.any():
            return f"{int(rest.sum())} other tokens leave differently when one is another"
    return None


def _penalised(make: Make) -> str | None:
    """What a client adds to its loss reaches its activations, and depends on them."""
    table, ids = _table(), _ids()[:1]
    noise = torch.randn((*ids.shape, _WIDTH), generator=torch.Generator().manual_seed(8))
    sent = (table[ids] + 0.01 * noise).requires_grad_()
    added = make().penalty(ids, sent, ids >= 0, table, torch.Generator().manual_seed(9))
    if added is None:
        return "trains with nothing and changes nothing" if _idle(make) else None
    if added.ndim or not bool(added.isfinite()):
        return f"adds {list(added.shape)} to the loss, not one finite number"
    (gradient,) = torch.autograd.grad(added, sent, allow_unused=True)
    if gradient is None or not bool(gradient.isfinite().all()) or not bool((gradient != 0).any()):
        return "what it adds to the loss has no gradient, or one that is not finite"
    return None


def _idle(make: Make) -> bool:
    """Whether tokens and activations leave as they came."""
    ids, sent = _through(make, 1)
    return torch.equal(ids, _ids()) and torch.equal(sent, _activations())


CUT_DEFENSE_CHECKS: tuple[Check[Make], ...] = (
    Check("card", "the card says what it is, whose, and what it guarantees", _card),
    Check("description", "its mechanism is complete and survives JSON", _described),
    Check("shapes", "as many tokens and activations leave as came, all finite", _shapes),
    Check("global generators", "no global random generator is used", _generators),
    Check("deterministic", "one generator, one result", _deterministic),
    Check("input untouched", "what it is given stays as it is", _untouched),
    Check("clip", "no activation is longer than the clip that it declares", _clip),
    Check("scale", "its noise has the variance that it declares", _scale),
    Check("independence", "tokens and releases draw independently", _own_draws),
    Check("training", "what it adds to a client's loss moves what is sent; else it changes a message", _penalised),
    Check("per token", "what one token is changes no other", _per_token),
)

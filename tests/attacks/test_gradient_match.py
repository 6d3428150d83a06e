"""Gradient matching against autograd, at its limits and at chance; the length of an answer; broken ones are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn.functional import cross_entropy

from privbench.attack import Attack, Guess, Hints, NotApplicable, View, view_of
from privbench.attacks.label.answer_length import AnswerLength
from privbench.attacks.label.gradient_match import GradientMatch, GradientMatchPerturbed
from privbench.attacks.label.output_gradients import Readout, cosines
from privbench.conformance import ATTACK_CHECKS
from privbench.recording import Transcript
from privbench.threat import server_below_labels

Array = npt.NDArray[np.float64]
SERVER = server_below_labels()
EQUAL, UNEQUAL = np.array([[3, 5, 7], [4, 5, 7]]), np.array([[3, 7, -1], [4, 5, 7]])
"""Two answers that differ in their first token, and two of which one is shorter."""
WIDTH, VOCABULARY = 12, 30


@dataclass(frozen=True)
class Base:
    """A public norm and head, and the gradients that autograd finds behind them."""

    norm: torch.Tensor
    head: torch.Tensor

    @classmethod
    def of(cls, rng: np.random.Generator, width: int = WIDTH) -> Base:
        norm, head = 1 + 0.3 * rng.standard_normal(width), rng.standard_normal((VOCABULARY, width))
        return cls(torch.from_numpy(norm), torch.from_numpy(head))

    @property
    def readout(self) -> Readout:
        return Readout(self.norm.numpy(), self.head.numpy())

    def gradients(self, outputs: Array, tokens: npt.NDArray[np.int64]) -> Array:
        """Of the mean cross-entropy with respect to outputs [n, d]."""
        given = torch.from_numpy(outputs).requires_grad_()
        normed = self.norm * given / given.square().mean(dim=1, keepdim=True).sqrt()
        cross_entropy(normed @ self.head.T, torch.from_numpy(tokens)).backward()  # type: ignore[no-untyped-call]
        return np.asarray(given.grad)


def recorded(
    seed: int, records: int = 200, releases: int = 2, answers: Any = EQUAL, told: Any = None, base: Base | None = None,
    factor: Callable[[Array], Array] = lambda gradients: gradients, sure: float = 0.0,
) -> tuple[View, npt.NDArray[np.int64]]:  # fmt: skip
    """A view of a U-shape whose head is the base's, and the coins. told: coins that set the answers in their place;
    factor: what is done to gradients [n, d] on the way; sure: how far each output points to its token already.
    """
    rng = np.random.default_rng(seed)
    base = base or Base.of(rng)
    coins = rng.integers(0, 2, records)
    labels = answers[coins if told is None else told]
    there = labels >= 0
    outputs = rng.standard_normal((releases, *labels.shape, len(base.norm))) + sure * base.head.numpy()[labels]
    gradients = np.zeros_like(outputs)
    for release in range(releases):
        gradients[release][there] = factor(base.gradients(outputs[release][there], labels[there]))
    outputs[:, ~there] = 0
    transcript = Transcript(
        {
            "gradients/server": gradients.reshape(releases, records, -1).astype(np.float32),
            "activations/server": outputs.astype(np.float32),
            "activations/server/mask": there.astype(np.uint8),
            "public/head": base.head.numpy().astype(np.float32),
            "public/norm": base.norm.numpy().astype(np.float32),
            "public/labels/joint": answers,
        }
    )
    rows = np.arange(records)
    return view_of(SERVER, transcript, secret="joint", moved=("outcome",), candidates=rows, hints=Hints.none()), coins


def guessed(attack: Attack, view: View, seed: int = 0) -> Guess:
    found = attack(view, np.random.default_rng(seed))
    assert isinstance(found, Guess)
    return found


def right(scores: Any, coins: npt.NDArray[np.int64]) -> float:
    return float(((scores > 0) == (coins == 1)).mean())


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_the_closed_form_is_what_autograd_finds(size: float) -> None:
    """Of every token of the vocabulary, but for a positive factor: cosines of 1, to rounding."""
    rng = np.random.default_rng(1)
    base, outputs = Base.of(rng), size * rng.standard_normal((5, WIDTH))
    tokens = np.tile(np.arange(VOCABULARY), (5, 1))
    expected = base.readout.gradients(outputs, tokens)
    for token in range(VOCABULARY):
        found = base.gradients(outputs, tokens[:, token])
        assert cosines(found, expected[:, [token]]) == pytest.approx(1.0, abs=1e-9)


def test_a_sure_model_gives_its_label_away_as_well() -> None:
    """A gradient of less than a thousandth of the head's entries keeps its direction."""
    view, coins = recorded(3, sure=20.0)
    assert float(np.abs(np.asarray(view.array("gradients/server"))).max()) < 1e-3
    assert right(guessed(GradientMatch(), view).single, coins) == 1.0


@pytest.mark.parametrize("answers", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_a_head_that_stays_the_public_one_gives_every_coin_away(answers: Any) -> None:
    view, coins = recorded(4, answers=answers)
    found = guessed(GradientMatch(), view)
    assert right(found.single, coins) == 1.0
    assert np.allclose(found.accumulated[-1], found.single.sum(axis=0), atol=1e-6)


def test_gradients_of_other_coins_tell_nothing() -> None:
    """3,000 fair guesses: off by 4 standard errors once in 16,000."""
    told = np.random.default_rng(5).integers(0, 2, 3_000)
    view, coins = recorded(6, records=3_000, releases=1, told=told)
    found = right(guessed(GradientMatch(), view).single, coins)
    assert abs(found - 0.5) < 4 * math.sqrt(0.25 / 3_000)


def test_no_factor_matters() -> None:
    """Batch size and clips act on each gradient as a positive factor."""
    rng = np.random.default_rng(7)
    plain, _ = recorded(8)
    view, _ = recorded(8, factor=lambda rows: rows * np.exp(rng.standard_normal((len(rows), 1))))
    assert np.allclose(guessed(GradientMatch(), view).single, guessed(GradientMatch(), plain).single, atol=1e-5)


@pytest.mark.parametrize("width", [1, WIDTH])
def test_gradients_that_are_zero_are_fair_coins(width: int) -> None:
    """A norm over one number passes no gradient on, a client that sends zeros neither: 2,000 fair guesses."""
    base = Base.of(np.random.default_rng(9), width)
    view, coins = recorded(10, records=2_000, releases=1, base=base, factor=np.zeros_like)
    found = guessed(GradientMatch(), view)
    assert np.isfinite(found.single).all()
    assert abs(right(found.single, coins) - 0.5) < 4 * math.sqrt(0.25 / 2_000)


def test_answers_that_are_the_same_are_fair_coins() -> None:
    view, coins = recorded(11, records=2_000, releases=1, answers=EQUAL[[0, 0]])
    assert abs(right(guessed(GradientMatch(), view).single, coins) - 0.5) < 4 * math.sqrt(0.25 / 2_000)


def test_a_head_that_is_known_less_well_reads_less() -> None:
    """Without noise it is the exact one; with a thousand times the head in noise the direction is any, the same for
    all records: over 40 heads the mean share is 1/2 within 4 standard errors, of at most .5 each.
    """
    view, coins = recorded(12)
    exact = guessed(GradientMatch(), view)
    assert np.array_equal(guessed(GradientMatchPerturbed(noise=0.0), view).single, exact.single)
    shares = [right(guessed(GradientMatchPerturbed(noise=1e3), view, seed).single, coins) for seed in range(40)]
    assert abs(float(np.mean(shares)) - 0.5) < 4 * 0.5 / math.sqrt(40)
    rough = [right(guessed(GradientMatchPerturbed(noise=1.0), view, seed).single, coins) for seed in range(40)]
    assert float(np.mean(rough)) > 0.75


def test_the_length_of_an_answer_tells_what_gradients_need_not() -> None:
    """Whole where lengths differ; 2,000 fair guesses where they do not."""
    view, coins = recorded(13, answers=UNEQUAL)
    silent = {name: array for name, array in view.arrays.items() if not name.startswith("gradients")}
    assert right(guessed(AnswerLength(), replace(view, arrays=silent)).single, coins) == 1.0
    view, coins = recorded(14, records=2_000, releases=1)
    assert abs(right(guessed(AnswerLength(), view).single, coins) - 0.5) < 4 * math.sqrt(0.25 / 2_000)


def without(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("gradients/server"), "needs 'gradients/server', which was not recorded"),
        (without("activations/server"), "needs 'activations/server', which was not recorded"),
        (without("activations/server/mask"), "needs 'activations/server/mask', which was not recorded"),
        (without("public/norm"), "needs 'public/norm', which was not recorded"),
        (without("public/head"), "needs 'public/embedding', which was not recorded"),
        (without("public/labels/joint"), "needs 'public/labels/joint', the tokens of the answers that the coin"),
        (lambda arrays: {**arrays, "public/labels/joint": EQUAL[[0, 1, 1]]}, "has 3 answers, a coin has two"),
        (lambda arrays: {**arrays, "gradients/server": np.ones((2, 200, 5))}, "are not of outputs [2, 200, 3, 12]"),
        (lambda arrays: {**arrays, "activations/server/mask": np.ones((200, 2))}, "it must be [200, 3]"),
        (lambda arrays: {**arrays, "public/norm": np.ones(5)}, "the base's norm is [5], its head [30, 12]"),
    ],
)
def test_what_it_cannot_read_is_said(change: Callable[[Mapping[str, Any]], dict[str, Any]], said: str) -> None:
    view, _ = recorded(15)
    refused = GradientMatch()(replace(view, arrays=change(view.arrays)), np.random.default_rng(0))
    assert isinstance(refused, NotApplicable)
    assert said in refused.reason


def test_a_server_that_holds_the_labels_is_not_asked() -> None:
    """Where no gradient comes up, the channel is missing, and the refusal names it."""
    view, _ = recorded(16)
    below = replace(view, threat=replace(SERVER, channels=SERVER.channels - {"gradients"}))
    refused = GradientMatch()(below, np.random.default_rng(0))
    assert isinstance(refused, NotApplicable)
    assert refused.reason == "needs the channel gradients, which curious server told of the defence does not see"


class Signless(GradientMatch):
    """Takes a gradient against the expected one for one along it."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(np.abs(found.single), np.abs(found.accumulated))


class Turned(GradientMatch):
    """Takes the answer that the loss moves away from."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(-found.single, -found.accumulated)


class Hasty(GradientMatch):
    """Scores each release by all of them."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(found.single, np.repeat(found.accumulated[-1:], len(found.single), axis=0))


class Drowning(GradientMatch):
    """Draws its head anew from the machine's own entropy."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        return GradientMatchPerturbed(noise=4.0).run(view, np.random.default_rng())


@pytest.mark.parametrize(
    ("broken", "check"),
    [(Signless, "identity"), (Turned, "identity"), (Hasty, "causal"), (Drowning, "deterministic")],
)
def test_a_broken_one_is_caught(broken: type[Attack], check: str) -> None:
    found = next(item for item in ATTACK_CHECKS if item.name == check)
    assert found.run(GradientMatch) is None
    assert found.run(broken)

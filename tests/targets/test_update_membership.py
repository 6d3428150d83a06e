"""Attacks on updates where a LLaMA is averaged in earnest: members whom each update was trained on, and people of whom
none was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from test_rounds import PARTS, STEP, Run, people, whole
from torch import Tensor

from privbench.attack import Hints, NotApplicable, view_of
from privbench.attacks.membership.fedmia import FedMia
from privbench.attacks.membership.nasr import Nasr
from privbench.attacks.membership.update_cosine import UpdateCosine
from privbench.defenses.updates import UpdateGaussian, bounded
from privbench.findings import Header
from privbench.findings_members import assemble_members
from privbench.membership import Exposed, Membership, MembershipAttack
from privbench.record import Finding
from privbench.recording import MEMBER, Transcript
from privbench.registry import default_registry
from privbench.stats.auc import auc
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.defending import called
from privbench.targets.fedavg.gradients import blocks_of
from privbench.targets.fedavg.membership import Compared
from privbench.targets.fedavg.rounds import federate
from privbench.targets.split_llama.adapters import load_state, state
from privbench.targets.split_llama.tune import Shard, batch_of
from privbench.threat import server_told_of_members, server_with_updates_and_candidates

HELD, ROUNDS, TOLD = (8,) * 5, 3, 20
TRAINED = sum(HELD)
Coins = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Game:
    """What the server holds of an averaging over `TRAINED` respondents; it asks about them and twice as many others."""

    transcript: Transcript

    def area(self, attack: MembershipAttack, asked: Sequence[int], coins: Coins, seed: int = 0) -> float:
        """AUC against coins of those asked about [n], of whom the adversary is told a part that is not scored."""
        order = np.random.default_rng(seed).permutation(len(asked))
        told, rest = np.sort(order[:TOLD]), np.sort(order[TOLD:])
        rows = np.asarray(asked)
        view = view_of(
            server_told_of_members(), self.transcript, secret=MEMBER, moved=(), candidates=rows[rest],
            hints=Hints(rows[told], coins[told].astype(np.int64)),
        )  # fmt: skip
        found = attack(view, np.random.default_rng(seed))
        assert not isinstance(found, NotApplicable)
        return auc(found, coins[rest]).value


@cache
def game() -> Game:
    """Batches hold all of a client's respondents: each is in every update of its client."""
    run = Run(HELD, rounds=ROUNDS, dtype=torch.float32, batch=max(HELD), local_steps=2)
    asked = people(TRAINED) + people(2 * TRAINED, seed=1)
    compared = Compared(
        whole(torch.float32), asked, [called(client) for client in range(len(HELD))], range(ROUNDS), len(asked)
    )
    for done in run.rounds:
        compared.add(done, lambda stage, share: None)
    at_the_end = whole(torch.float32)
    load_state(at_the_end, run.end)
    losses = np.array([float(at_the_end.learn(batch_of([item]))[0]) for item in asked])
    sure = np.stack([-np.log(np.expm1(losses)), np.zeros(len(asked))], axis=1)  # its cross-entropy is the loss
    outputs: dict[str, npt.NDArray[Any]] = {
        "outputs/outcome": sure.astype(np.float32),
        "outputs/outcome/labels": np.zeros(len(asked), np.int64),
    }
    return Game(Transcript(compared.arrays | outputs))


@pytest.mark.parametrize("attack", [UpdateCosine(), FedMia(), Nasr()], ids=["cosine", "fedmia", "nasr"])
def test_members_of_a_client_are_told_by_its_updates(attack: MembershipAttack) -> None:
    """Positive control: eight respondents of tokens drawn at random make up an update."""
    everybody = range(2 * TRAINED)
    assert game().area(attack, everybody, (np.arange(2 * TRAINED) < TRAINED).astype(np.uint8)) > 0.95


@pytest.mark.parametrize("attack", [UpdateCosine(), FedMia(), Nasr()], ids=["cosine", "fedmia", "nasr"])
def test_people_of_whom_none_was_trained_on_are_not_told_apart(attack: MembershipAttack) -> None:
    """Negative control: coins that put nobody in. Scores and coins are independent: within 4 standard errors of 40
    tosses, each 1 / sqrt(3 * 60), if all are of one game.
    """
    others = range(TRAINED, 3 * TRAINED)
    areas = []
    for seed in range(40):
        coins = np.random.default_rng(seed).integers(0, 2, len(others)).astype(np.uint8)
        areas.append(game().area(attack, others, coins, seed))
    assert abs(np.mean(areas) - 0.5) < 4 / np.sqrt(3 * 40 * (len(others) - TOLD))


def test_blocks_are_parts_of_the_model_and_add_up() -> None:
    values = state(whole())
    blocks = blocks_of(values)
    assert list(blocks) == ["embed_tokens", "projection", "layer-0", "layer-1"]
    assert [part.stop for part in blocks.values()][:-1] == [part.start for part in blocks.values()][1:]
    for block, part in blocks.items():
        named = [item.numel() for name, item in values.items() if block.replace("-", "s.") in name]
        assert part.stop - part.start == sum(named) > 0
    arrays = game().transcript.arrays
    for name in ("asked/squares", "asked/products/client-2", "updates/client-3/squares"):
        parts = [np.asarray(arrays[f"{name}/{block}"]) for block in blocks]
        assert np.sum(parts, axis=0) == pytest.approx(np.asarray(arrays[name]), rel=1e-12)
        assert all(np.any(part) for part in parts)


# A claim about records, held against one training of the target's own rounds


@dataclass(frozen=True)
class NoNoise(UpdateGaussian):
    """Claims what its noise would give, and leaves the noise away."""

    def sent(self, update: Tensor, generator: torch.Generator) -> Tensor:
        return bounded(update, self.clip)


def guessed(kind: type[UpdateGaussian], seed: int) -> Finding:
    """One averaging of those whom fair coins put in, of 80, under a claim of eps 1; the guesses of update-cosine."""
    rng = np.random.default_rng(seed)
    pool, coins = people(2 * TRAINED, seed=seed), rng.integers(0, 2, 2 * TRAINED).astype(np.uint8)
    held = [tuple(pool[row] for row in part) for part in np.array_split(rng.permutation(np.flatnonzero(coins)), 5)]
    largest = max(map(len, held))
    tuning = FedTuning(**{**STEP, **PARTS, "clients": 5, "local_steps": 2, "rounds": ROUNDS, "batch": largest})
    course = tuning.course(ROUNDS)
    defense = kind(clip=0.5).at(1.0, 1e-5, course)
    compared = Compared(whole(torch.float32), pool, [called(client) for client in range(5)], range(ROUNDS), len(pool))
    shards = tuple(map(Shard, held))
    for done in federate(whole(torch.float32), shards, tuning, ROUNDS, rng, lambda stage, share: None, defense):
        compared.add(done, lambda stage, share: None)
    threat, everybody = server_with_updates_and_candidates(), np.arange(len(pool))
    view = view_of(
        threat, Transcript(compared.arrays), secret=MEMBER, moved=(), candidates=everybody, hints=Hints.none()
    )
    scores = UpdateCosine()(view, rng)
    assert not isinstance(scores, NotApplicable)
    claim = defense.claim(course, 1e-5)
    assert claim.eps == pytest.approx(1.0, rel=1e-4)
    exposed = {UpdateCosine.card.name: Exposed(UpdateCosine.card, threat, scores)}
    asked = Membership(exposed, {}, everybody, coins, None, len(pool), 0, claim)
    judged = assemble_members(Header("fedavg", 0, "none", None), asked, default_registry())
    (found,) = [item for item in judged.findings if item.metric == "guesses"]
    return found


def test_a_claim_without_its_noise_is_exceeded() -> None:
    """Positive control of dp-members: 16 guesses about one training; eps 1 lets 73% be right."""
    assert [guessed(NoNoise, seed).verdict for seed in range(2)] == ["EXCEEDED"] * 2


def test_a_claim_with_its_noise_is_not() -> None:
    """The noise of eps 1 makes guesses tosses: 15 or 16 of 16 right ones, which alone exceed, come once in 3,800."""
    assert {guessed(UpdateGaussian, seed).verdict for seed in range(2)} == {"INCONCLUSIVE"}

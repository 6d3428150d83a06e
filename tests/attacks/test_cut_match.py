"""The match at the cut: the posterior of its model, exact where nothing hides a record, blind to what others sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from privbench.attack import Hints, NotApplicable, Scores, view_of
from privbench.attacks.membership.cut_match import CutMatch
from privbench.recording import MEMBER, Transcript
from privbench.stats.auc import auc
from privbench.threat import Channel, ThreatModel, curious_server, server_with_candidates

WIDTH, WORDS, LONGEST = 6, 30, 40
"""LONGEST: more tokens than are read at once."""


@dataclass(frozen=True)
class Sent:
    """Questionnaires [N] as rows of a table, half of them sent in an order of their own; coins [N]: whose."""

    arrays: dict[str, npt.NDArray[Any]]
    coins: npt.NDArray[np.uint8]

    def scores(self, **changed: npt.NDArray[Any]) -> Scores:
        found = self.ask(server_with_candidates(), **changed)
        assert not isinstance(found, NotApplicable), found
        return found

    def ask(self, threat: ThreatModel, **changed: npt.NDArray[Any]) -> Scores | NotApplicable:
        arrays = self.arrays | {name.replace("_", "/"): array for name, array in changed.items()}
        everybody = np.arange(len(arrays.get("asked/mask", self.coins)))
        view = view_of(threat, Transcript(arrays), secret=MEMBER, moved=(), candidates=everybody, hints=Hints.none())
        return CutMatch()(view, np.random.default_rng(0))

    def area(self, scores: Scores) -> float:
        return auc(scores, self.coins).value


def sent(
    seed: int, records: int = 60, *, noise: float = 0.0, strangers: bool = False, lengths: tuple[int, ...] = (LONGEST,)
) -> Sent:
    """A template of every other token, answers between. strangers: what was received came from other people."""
    rng = np.random.default_rng(seed)
    table, template = rng.standard_normal((WORDS, WIDTH)), rng.integers(0, WORDS, LONGEST)

    def people(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        tokens = np.where(np.arange(LONGEST) % 2, rng.integers(0, WORDS, (count, LONGEST)), template)
        return tokens, (np.arange(LONGEST) < rng.choice(lengths, count)[:, None]).astype(np.uint8)

    tokens, mask = people(records)
    coins = rng.integers(0, 2, records).astype(np.uint8)
    came, there = people(int(coins.sum())) if strangers else (tokens[coins == 1], mask[coins == 1])
    order = rng.permutation(len(came))
    activations = table[came[order]] + noise * rng.standard_normal((*came.shape, WIDTH))
    arrays = {
        "asked/activations": table[tokens] * mask[..., None],
        "asked/mask": mask,
        "received/activations": activations * there[order][..., None],
        "received/mask": there[order],
    }
    kept = {name: values.astype(np.float32 if "activations" in name else np.uint8) for name, values in arrays.items()}
    return Sent(kept, coins)


@dataclass(frozen=True)
class World:
    """As the attack assumes it: of 150 sequences each is a stranger's with a known chance, else that of one of 100
    records, any as likely; half of it, and normal errors.
    """

    sent: Sent
    errors: float
    strangers: float

    @classmethod
    def drawn(cls, seed: int, *, errors: float, strangers: float) -> World:
        rng = np.random.default_rng(seed)
        asked, others = rng.standard_normal((2, 150, LONGEST, WIDTH))
        source, strange = rng.integers(0, 100, 150), rng.random(150) < strangers
        clean = np.where(strange[:, None, None], others, asked[source])
        rows = {"asked": asked[:100], "received": 0.5 * clean + errors * rng.standard_normal(clean.shape)}
        arrays: dict[str, npt.NDArray[Any]] = {f"{side}/activations": a.astype(np.float32) for side, a in rows.items()}
        masks = {f"{side}/mask": np.ones(a.shape[:2], np.uint8) for side, a in rows.items()}
        coins = np.isin(np.arange(100), source[~strange]).astype(np.uint8)
        return cls(Sent(arrays | masks, coins), errors, strangers)

    def bayes(self) -> npt.NDArray[np.float64]:
        """The chance of each record [100], from what is true of this world, by plain sums and products."""
        asked, received = (
            self.sent.arrays[f"{side}/activations"].astype(np.float64).reshape(-1, LONGEST * WIDTH)
            for side in ("asked", "received")
        )
        narrow, wide = self.errors**2, self.errors**2 + 0.25
        unsent = np.ones(100)
        for row in received:
            known = np.exp(-((row - 0.5 * asked) ** 2 - row**2).sum(axis=1) / 2 / narrow) * (1 - self.strangers) / 100
            other = np.exp(row @ row / 2 * (1 / narrow - 1 / wide)) * (narrow / wide) ** (len(row) / 2) * self.strangers
            unsent *= 1 - known / (known.sum() + other)
        found: npt.NDArray[np.float64] = 1 - unsent
        return found


@pytest.mark.parametrize("strangers", [0.0, 0.3])
def test_it_ranks_as_bayes_does_who_is_told_what_it_fits(strangers: float) -> None:
    """Mean AUC over ten worlds, short of the best that there is by less than .03."""
    worlds = [World.drawn(seed, errors=2.5, strangers=strangers) for seed in range(10)]
    best = np.mean([world.sent.area(world.bayes().astype(np.float32)) for world in worlds])
    assert 0.8 < best < 0.95
    assert np.mean([world.sent.area(world.sent.scores()) for world in worlds]) > best - 0.03


def test_its_chances_come_true() -> None:
    """Of records that it gives a chance of p a share of p was sent: in every fifth of chances over 60 worlds the share
    lies within 4 standard errors of the mean chance (it errs 3 times in 10,000); and the mean distance from Bayes'
    chance is .02.
    """
    worlds = [World.drawn(seed, errors=2.0, strangers=0.0) for seed in range(60)]
    chances = np.concatenate([1 / (1 + np.exp(-world.sent.scores().astype(np.float64))) for world in worlds])
    coins = np.concatenate([world.sent.coins for world in worlds])
    assert np.abs(chances - np.concatenate([world.bayes() for world in worlds])).mean() < 0.03
    for fifth in range(5):
        which = np.minimum((5 * chances).astype(int), 4) == fifth
        spread = np.sqrt((chances[which] * (1 - chances[which])).sum())
        assert which.sum() > 50
        assert abs((coins[which] - chances[which]).sum()) < 4 * spread


def test_strangers_are_told_from_records() -> None:
    """Nearly free of errors: who was sent is told although a third of all sequences is nobody's who is asked about."""
    world = World.drawn(0, errors=0.1, strangers=0.3).sent
    assert ((world.scores() > 0) == (world.coins == 1)).all()


@pytest.mark.parametrize("records", [2, 3])
@pytest.mark.parametrize("noise", [0.0, 1.0, 1e6])
def test_a_few_records_are_scored_too(records: int, noise: float) -> None:
    """Also where one sequence came, and of a length that nobody else has: finite, which the base class sees to."""
    drawn = [sent(seed, records, noise=noise, lengths=(20, LONGEST)) for seed in range(20)]
    assert all(len(here.scores()) == records for here in drawn if here.coins.any())


def test_who_was_sent_is_told_without_an_error() -> None:
    """Distinct questionnaires, no noise: the odds are for every member, and against any other."""
    here = sent(1)
    scores = here.scores()
    assert here.area(scores) == 1
    assert (scores[here.coins == 1] > 0).all()
    assert (scores[here.coins == 0] < 0).all()


def test_a_shift_by_position_and_a_scale_of_the_release_change_nothing() -> None:
    """What a tuning moves alike for everybody is no obstacle."""
    here = sent(2, noise=0.5)
    drift = np.random.default_rng(0).standard_normal((LONGEST, WIDTH))
    moved = (0.3 * here.arrays["received/activations"] + drift).astype(np.float32)
    np.testing.assert_allclose(here.scores(received_activations=moved), here.scores(), rtol=1e-5)


def test_the_order_in_which_it_came_says_nothing() -> None:
    here = sent(3, noise=1.0, lengths=(30, LONGEST))
    order = np.random.default_rng(0).permutation(len(here.arrays["received/mask"]))
    turned = {f"received_{name}": here.arrays[f"received/{name}"][order] for name in ("activations", "mask")}
    np.testing.assert_allclose(here.scores(**turned), here.scores(), rtol=1e-4)


def test_what_other_people_sent_tells_nothing() -> None:
    """60 draws of 100 candidates by fair coins: the mean AUC lies within 4 of Mann and Whitney's standard errors of
    1/2. It errs 6 times in 100,000.
    """
    draws = [sent(seed, 100, strangers=True, lengths=(30, 35, LONGEST)) for seed in range(60)]
    found = [here.area(here.scores()) for here in draws]
    assert abs(np.mean(found) - 0.5) < 4 / np.sqrt(3 * 100 * len(draws))


def test_noise_hides_members_by_degrees() -> None:
    """Mean AUC over ten draws: none, twice a token's own spread, and forty times."""
    areas = [
        np.mean([here.area(here.scores()) for here in (sent(seed, noise=noise) for seed in range(10))])
        for noise in (0.0, 3.0, 40.0)
    ]
    assert areas[0] == 1
    assert areas[0] > areas[1] > areas[2]
    assert areas[2] < 0.6


def test_two_who_answered_all_alike_cannot_be_told_apart() -> None:
    """One of them was sent: both score 0, between those who surely were and those who surely were not."""
    here = sent(4)
    inside, outside = (int(np.flatnonzero(here.coins == coin)[0]) for coin in (1, 0))
    asked = here.arrays["asked/activations"].copy()
    asked[outside] = asked[inside]
    scores = here.scores(asked_activations=asked)
    assert scores[[inside, outside]] == pytest.approx([0, 0], abs=1e-6)
    others = np.delete(np.arange(len(scores)), [inside, outside])
    assert (np.sign(scores[others]) == 2.0 * here.coins[others] - 1).all()


def test_a_length_that_nobody_sent_was_not_sent() -> None:
    """And one that a single record has, and a sequence, is that record's: lengths are not hidden."""
    here = sent(5, noise=20.0, lengths=(30,))
    inside, outside = (int(np.flatnonzero(here.coins == coin)[0]) for coin in (1, 0))
    asked, received = here.arrays["asked/mask"].copy(), here.arrays["received/mask"].copy()
    asked[[inside, outside]] = np.arange(LONGEST) < np.array([[20], [25]])
    received[0] = np.arange(LONGEST) < 20
    scores = here.scores(asked_mask=asked, received_mask=received)
    assert scores.argmax() == inside
    assert scores.argmin() == outside


def test_it_refuses_whom_it_does_not_suit() -> None:
    here = sent(6)
    reasons = []
    blind = replace(server_with_candidates(), channels=frozenset({Channel.OUTPUTS}))
    for threat in (curious_server(), blind):
        found = here.ask(threat)
        assert isinstance(found, NotApplicable)
        reasons.append(found.reason)
    assert reasons[0] == "needs to know the candidates, which curious server does not"
    assert reasons[1].startswith("needs the channel activations")
    for missing in ("received/mask", "asked/activations"):
        left = Sent({name: array for name, array in here.arrays.items() if name != missing}, here.coins)
        found = left.ask(server_with_candidates())
        assert isinstance(found, NotApplicable)
        assert found.reason == f"needs '{missing}', which was not recorded"


def test_alone_nobody_can_be_compared() -> None:
    here = sent(7)
    alone = {f"asked_{name}": here.arrays[f"asked/{name}"][:1] for name in ("activations", "mask")}
    found = here.ask(server_with_candidates(), **alone)
    assert isinstance(found, NotApplicable)
    assert found.reason == "needs two records to compare, and 1 is recorded"


def test_a_server_without_the_candidates_is_not_shown_them() -> None:
    here = sent(8)
    seen = {
        threat: set(
            view_of(
                threat, Transcript(here.arrays), secret=MEMBER, moved=(), candidates=np.arange(2), hints=Hints.none()
            ).arrays
        )
        for threat in (curious_server(), server_with_candidates())
    }
    assert seen[curious_server()] == {"received/activations", "received/mask"}
    assert seen[server_with_candidates()] == set(here.arrays)

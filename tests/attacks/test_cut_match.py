"""The match at the cut: equal to its definition, exact where nothing hides a record, blind to what others sent."""

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


def naive(here: Sent) -> npt.NDArray[np.float64]:
    """Pair by pair, token by token: the best margin of a correlation over every other record's."""

    def centred(side: str) -> list[npt.NDArray[np.float64]]:
        rows, mask = (here.arrays[f"{side}/{name}"].astype(np.float64) for name in ("activations", "mask"))
        lengths = mask.sum(axis=1).astype(int)
        usual = [rows[lengths > at, at].mean(axis=0) if (lengths > at).any() else 0 for at in range(rows.shape[1])]
        return [np.stack([row[at] - usual[at] for at in range(n)]) for row, n in zip(rows, lengths, strict=True)]

    ours, theirs = centred("asked"), centred("received")
    alike = np.full((len(ours), len(theirs)), -1.0)
    for i, one in enumerate(ours):
        for j, other in enumerate(theirs):
            if len(one) == len(other):
                alike[i, j] = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    return np.array(
        [max(alike[i, j] - np.delete(alike[:, j], i).max() for j in range(len(theirs))) for i in range(len(ours))]
    )


@pytest.mark.parametrize("lengths", [(LONGEST,), (17, 18, 33, LONGEST)], ids=str)
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_it_is_the_margin_of_the_likeliest_sequence(noise: float, lengths: tuple[int, ...]) -> None:
    here = sent(0, noise=noise, lengths=lengths)
    np.testing.assert_allclose(here.scores(), naive(here), atol=1e-5)


def test_who_was_sent_is_told_without_an_error() -> None:
    """Distinct questionnaires, no noise: a member's margin is positive, any other's is negative."""
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
    np.testing.assert_allclose(here.scores(received_activations=moved), here.scores(), atol=1e-5)


def test_the_order_in_which_it_came_says_nothing() -> None:
    here = sent(3, noise=1.0, lengths=(30, LONGEST))
    order = np.random.default_rng(0).permutation(len(here.arrays["received/mask"]))
    turned = {f"received_{name}": here.arrays[f"received/{name}"][order] for name in ("activations", "mask")}
    np.testing.assert_allclose(here.scores(**turned), here.scores(), atol=1e-5)


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

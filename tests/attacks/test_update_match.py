"""Update match and label counts: real rounds of one, four, eight and more respondents, noise in their place, counts by
closed forms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tiny_rounds import configured, material

from privbench.attack import Hints, NotApplicable, Reconstruction, View, view_of
from privbench.attacks.inversion.forms import UpdateInversion
from privbench.attacks.inversion.tries import Tries
from privbench.attacks.inversion.update_match import UpdateMatch
from privbench.attacks.label.update_counts import UpdateCounts, counted
from privbench.counts import COUNTS, apportioned, by_constant, in_common, likeliest
from privbench.recording import Transcript
from privbench.recovery import Truth
from privbench.targets.fedavg.matching import Matched
from privbench.targets.fedavg.reading import Reading
from privbench.targets.fedavg.rounds import Institute, Order, Round, Whole
from privbench.targets.fedavg.tape import UpdateTape, Watched
from privbench.targets.split_llama.adapters import state
from privbench.targets.split_llama.system import shards_of, untuned
from privbench.threat import server_with_updates

VICTIM = "client-1"
Index = npt.NDArray[np.int64]


@cache
def reading() -> Reading:
    made = material()
    return Reading.of(made, shards_of(made.train, made.holder, 1), None)


def outcome(row: int) -> int:
    """The outcome's answer of a respondent, as a number."""
    form, label = reading().form, reading().held[row].label[:-1]
    return [option[: len(label)] for option in form.options[-1]].index(label)


def recorded(steps: int, rounds: tuple[tuple[int, ...], ...], forms: int, noise: int = 0) -> tuple[Transcript, Truth]:
    """Rounds of these respondents, so many steps each, of one client whose optimiser stays with it. noise: with it as
    seed it sends numbers that were drawn, as large as its own.
    """
    batch = len(rounds[0]) // steps
    tuning = configured(
        batch=str(batch), local_steps=str(steps), rounds=str(len(rounds)), forms=str(forms), warmup="0"
    ).tuning
    model = Whole(*untuned(material().base.model, tuning, np.random.default_rng(0)))
    shard = shards_of(material().train, material().holder, 1)[0]
    client, start, watched = Institute(model, shard, tuning, 400), state(model), Watched(VICTIM, {0: 0})
    matched = Matched(model, reading().form, watched, tuning, np.random.default_rng(1))
    generator = torch.Generator().manual_seed(noise)
    with UpdateTape(
        start, [len(shard.samples)], len(rounds), None, reading().public(False), watched, matched.arrays
    ) as tape:
        for number, rows in enumerate(rounds):
            batches = tuple(rows[at : at + batch] for at in range(0, len(rows), batch))
            sent = client.train(start, Order(number * steps, batches, True))
            if noise:
                drawn = {
                    name: part.std() * torch.randn(part.shape, generator=generator)
                    for name, part in sent.update.items()
                }
                sent = replace(sent, update=drawn)
            done = Round(number, start, {0: sent}, {})
            matched.add(done, tape.put(done), lambda stage, share: None)
        transcript = tape.finish({})
    secrets = reading().secrets(tape.shown)
    where = np.repeat(np.arange(len(rounds)), list(map(len, rounds)))
    return transcript, Truth(secrets[f"inputs/{VICTIM}"], secrets[f"inputs/{VICTIM}/answers"], where)


def view(made: Transcript) -> View:
    shown = int(made.array(f"updates/{VICTIM}/shown").sum())
    return view_of(
        server_with_updates(), made, secret=VICTIM, moved=(), candidates=np.arange(shown), hints=Hints.none()
    )


def read(attack: UpdateInversion, made: Transcript) -> Index:
    found = attack(view(made), np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    return found.accumulated[-1]


def outcomes(tokens: Index) -> list[int]:
    """By number, as they stand in the last slot of each row."""
    form = reading().form
    slots = [tuple(row[row >= 0].tolist()) for row in tokens[:, -form.width :]]
    return [form.options[-1].index(said) for said in slots]


def test_of_one_respondent_answers_are_read() -> None:
    """Every outcome, and of all answers more than chance: one in the number of a question's answers, .27 on average.
    Questionnaires held against noise read no more than that, by four standard errors of 30 answers, .32.
    """
    rows = (0, 1)
    made, truth = recorded(1, tuple((row,) for row in rows), 70)
    found = read(UpdateMatch(), made)
    assert outcomes(found) == list(map(outcome, rows))
    assert outcomes(read(UpdateCounts(), made)) == list(map(outcome, rows))
    said, given_ = truth.said(found), truth.said(truth.tokens)
    right = np.mean([said[i][q] == given_[i][q] for i in range(2) for q in given_[i]])
    assert right > 0.4
    drawn, _ = recorded(1, tuple((row,) for row in rows), 20, noise=1)
    blind = truth.said(read(UpdateMatch(), drawn))
    assert np.mean([blind[i][q] == given_[i][q] for i in range(2) for q in given_[i]]) < 0.27 + 0.32


def alike(answer: int, count: int) -> tuple[int, ...]:
    """Respondents who all gave this outcome."""
    rows = [row for row in range(len(reading().held)) if outcome(row) == answer]
    return tuple(rows[:count])


@pytest.mark.parametrize(
    ("steps", "count", "forms", "apart"),
    [(1, 4, 40, 1.0), (1, 8, 24, 0.5), (2, 16, 24, 0.2)],
    ids=["4", "8", "2 x 8"],
)
def test_rounds_of_one_outcome_are_told_apart(steps: int, count: int, forms: int, apart: float) -> None:
    """Whose respondents all say yes, and all no. Of four all are counted right. Of several steps of Adam less is left
    than rounds of practice show, so that counts are drawn to the middle.
    """
    yes = []
    for answer in (0, 1):
        made, truth = recorded(steps, (alike(answer, count),), forms)
        guess = read(UpdateCounts(), made)
        yes.append(outcomes(guess).count(1))
        score = truth.score(guess, COUNTS, np.roll(np.arange(count), 1))
        assert score.value == outcomes(guess).count(answer) / count
        assert (score.squares, score.n) == (1.0, count)
        if count == 4:
            assert Counter(outcomes(read(UpdateMatch(), made))) == Counter(outcomes(guess))
    assert yes[1] - yes[0] >= apart * count


def test_noise_in_place_of_updates_counts_no_outcome() -> None:
    """Signs that were drawn say of a round of one outcome what they say of one of the other, within three of eight."""
    found = [outcomes(read(UpdateCounts(), recorded(1, (alike(k, 8),), 24, noise=k + 1)[0])).count(1) for k in (0, 1)]
    assert abs(found[1] - found[0]) <= 3


def test_of_more_than_a_try_holds_all_get_the_best_one() -> None:
    made, _ = recorded(1, (alike(0, 8),), 10)
    found = read(UpdateMatch(), made)
    assert found.shape[0] == 8
    assert (found == found[0]).all()


# Counts by closed forms


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.integers(0, 50))
@settings(max_examples=80, deadline=None)
def test_apportioned_counts_sum_and_are_near(parts: list[float], whole: int) -> None:
    shares = np.array(parts) / sum(parts)
    counts = apportioned(shares, whole)
    assert counts.sum() == whole
    assert (np.abs(counts - shares * whole) < 1 + 1e-9).all()


def test_counts_are_scored_by_what_rounds_have_in_common() -> None:
    """Two rounds, of 3 and 1: (yes, yes, no), (no)."""
    truth, rounds = ["yes", "yes", "no", "no"], np.array([0, 0, 0, 1])
    assert in_common(truth, ["no", "no", "no", "no"], rounds).tolist() == [1, 1]
    assert in_common(truth, ["no", "yes", "yes", "yes"], rounds).tolist() == [3, 0]
    # Halves: 2 and 1 of one answer in the first round, 1 in the second; the first answer gets the odd one.
    assert by_constant(truth, rounds) == 3
    assert by_constant(["a"] * 4, rounds) == 4


@pytest.mark.parametrize(("share", "whole"), [(0.74, 2), (0.82, 3), (0.86, 4), (0.5, 4), (0.6, 1)])
def test_no_constant_counts_have_more_in_common_on_average(share: float, whole: int) -> None:
    """Every pair of counts of two answers, with the exact distribution of a round. The majority for everybody beats
    largest remainders where one answer is much more frequent.
    """
    here = np.arange(whole + 1)
    chances = stats.binom.pmf(here, whole, share)
    expected = [float(chances @ (np.minimum(here, c) + np.minimum(whole - here, whole - c))) for c in here]
    first, second = likeliest(np.array([share, 1 - share]), whole)
    assert first + second == whole
    assert expected[first] == pytest.approx(max(expected))


def test_of_a_share_of_three_quarters_everybody_gave_that_answer() -> None:
    assert likeliest(np.array([0.76, 0.24]), 2).tolist() == [2, 0]
    assert apportioned(np.array([0.76, 0.24]), 2).tolist() == [2, 0]
    assert likeliest(np.array([0.74, 0.26]), 2).tolist() == [2, 0]
    assert apportioned(np.array([0.74, 0.26]), 2).tolist() == [1, 1]


def test_of_more_respondents_than_a_try_has_all_get_the_best_single_one() -> None:
    """A round that a Poisson draw made larger than expected: tries of two, of which the first place alone is filled."""
    drawn = np.full((1, 3, 2, 3), -1)
    drawn[0, :, 0] = [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
    tries = Tries(np.zeros((3, 2, 1), np.int64), drawn, np.array([[0.1, 0.9, 0.3]]))
    assert tries.best(0, 3).tolist() == [[1, 1, 0]] * 3
    assert tries.best(0, 2).tolist() == [[-1, -1, -1]] * 2  # no try has two
    assert tries.best(0, 1).tolist() == [[1, 1, 0]]


def test_a_score_of_counts_by_hand() -> None:
    answers = np.tile([0, 1], (4, 1))
    truth = Truth(np.array([[5, 1], [6, 1], [5, 2], [6, 2]]), answers, np.array([0, 0, 0, 1]))
    score = truth.score(np.array([[-1, 1], [-1, 2], [-1, 2], [-1, 2]]), COUNTS, np.array([1, 2, 3, 0]))
    assert (score.value, score.squares, score.records, score.n) == (0.75, 10 / 16, 4, 4)
    assert score.shuffled == 0.25
    low, high = score.interval()
    assert low == 0
    assert high == 1
    with pytest.raises(ValueError, match="no rounds are known"):
        replace(truth, rounds=None).score(truth.tokens, COUNTS, np.arange(4))


def test_a_regression_on_practice_reads_counts_that_move_agreements() -> None:
    """Agreements that are linear in counts give these back; those that are noise give every answer the same share."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(20, [1 / 3] * 3, 200).astype(np.float64)
    mixing = rng.standard_normal((3, 3))
    assert counted(counts @ mixing, counts, np.array([12.0, 5, 3]) @ mixing) == pytest.approx(
        [0.6, 0.25, 0.15], abs=0.03
    )
    off = [counted(rng.standard_normal((200, 3)), counts, rng.standard_normal(3)) for _ in range(20)]
    assert np.abs(np.mean(off, axis=0) - 1 / 3).max() < 0.05


# What they need


def small() -> Transcript:
    """Two rounds of one respondent each, made up."""
    options = np.array([[[3], [4]], [[5], [6]]])
    arrays: dict[str, npt.NDArray[Any]] = {
        f"updates/{VICTIM}": np.ones((2, 4), np.float32),
        f"updates/{VICTIM}/shown": np.ones(2, np.int64),
        "public/form/template": np.array([1, -1, -1]),
        "public/form/options": options,
        "read/drawn": np.array([[[[0, 1]], [[1, 1]]], [[[0, 0]], [[-1, -1]]]]),
        f"read/matches/{VICTIM}": np.array([[0.1, 0.5], [-0.5, 0.0]]),
        "read/practice/held": np.zeros((2, 1, 2), np.int64),
        "read/practice/matches": np.zeros((2, 1, 2)),
    }
    return Transcript(arrays, {"parameters": [["w", [4]]]})


def test_the_best_try_is_read_and_never_one_that_was_not_made() -> None:
    assert read(UpdateMatch(), small()).tolist() == [[4, 6], [3, 5]]
    assert read(UpdateCounts(), small()).tolist() == [[-1, 6], [-1, 5]]


def test_where_nothing_was_tried_nothing_is_said() -> None:
    made = small()
    arrays = {name: np.array(array) for name, array in made.arrays.items()}
    arrays["read/drawn"][:] = -1
    assert (read(UpdateMatch(), Transcript(arrays, {"parameters": [["w", [4]]]})) == -1).all()


@pytest.mark.parametrize("attack", [UpdateMatch(), UpdateCounts()], ids=["match", "counts"])
def test_without_the_servers_questionnaires_they_say_so(attack: UpdateInversion) -> None:
    arrays = {name: np.array(array) for name, array in small().arrays.items() if not name.startswith("read/")}
    refused = attack(view(Transcript(arrays, {"parameters": [["w", [4]]]})), np.random.default_rng(0))
    why = "needs 'read/drawn', of questionnaires that the server fills in itself (--set forms=100)"
    assert refused == NotApplicable(why)


def test_counts_need_rounds_of_practice() -> None:
    arrays = {name: np.array(array) for name, array in small().arrays.items() if "practice" not in name}
    seen = view(Transcript(arrays, {"parameters": [["w", [4]]]}))
    assert UpdateMatch().refusal(seen) is None
    refused = UpdateCounts().refusal(seen)
    assert refused is not None
    assert "needs 'read/practice/held'" in refused.reason

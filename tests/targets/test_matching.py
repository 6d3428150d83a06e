"""Questionnaires of the server: what is new in an update, by closed forms and real clients, and the search for it."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_rounds import configured, material, rounds

from privbench.targets.fedavg.defending import called
from privbench.targets.fedavg.form import Form
from privbench.targets.fedavg.gradients import Gradients, blocks_of, wide
from privbench.targets.fedavg.matching import Matched
from privbench.targets.fedavg.reading import Reading
from privbench.targets.fedavg.rounds import Round, Whole
from privbench.targets.fedavg.searching import News, Search, agreement
from privbench.targets.fedavg.tape import Watched
from privbench.targets.split_llama.adapters import state
from privbench.targets.split_llama.system import shards_of, untuned
from privbench.targets.split_llama.tokens import Encoded
from privbench.targets.split_llama.tune import batch_of, pace

ONE: dict[str, str] = {"batch": "1", "local_steps": "1", "rounds": "4"}
FOUR: dict[str, str] = {"batch": "4", "local_steps": "1", "rounds": "4"}
SEVERAL: dict[str, str] = {"batch": "8", "local_steps": "3", "rounds": "3"}
Index = npt.NDArray[np.int64]


@cache
def reading() -> Reading:
    made = material()
    return Reading.of(made, shards_of(made.train, made.holder, 1), None)


def whole() -> Whole:
    return Whole(*untuned(material().base.model, configured(**ONE).tuning, np.random.default_rng(0)))


def chosen(form: Form, item: Encoded) -> Index:
    """A respondent's options by number."""
    tokens, _ = form.slots([item])
    slots = [tuple(row[row >= 0].tolist()) for row in tokens.reshape(len(form.options), form.width)]
    return np.array([options.index(said) for options, said in zip(form.options, slots, strict=True)])


def trained_on(settings: dict[str, str], number: int) -> list[Encoded]:
    made = rounds(**settings)
    return [made.samples[row] for row in sorted(made.done[number].taken[0].rows)]


def test_a_filled_in_questionnaire_is_the_respondents() -> None:
    form = reading().form
    for item in reading().held[:20]:
        assert item.lost == 0
        made = form.record(chosen(form, item))
        assert (made.prompt, made.answers, made.label) == (item.prompt, item.answers, item.label)


# What is new in an update


@given(st.lists(st.floats(-3, 3).filter(lambda g: abs(g) > 1e-3), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_signs_of_gradients_are_told_from_adams_updates(gradients: list[float]) -> None:
    """Adam by hand, one step a round: exact as long as |c'| is at most 3.5."""
    tuning = configured(**ONE, warmup="3").tuning
    news = News(tuning, 1)
    m = v = 0.0
    for number, g in enumerate(gradients[: tuning.rounds]):
        before = m / np.sqrt(v) if v else 0.0
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        moved = m / (1 - 0.9 ** (number + 1)) / np.sqrt(v / (1 - 0.999 ** (number + 1)))
        update = -pace(number, 3, tuning.rounds) * 4e-3 * moved
        state_ = {"x.lora_embedding_A": torch.tensor([[0.0, 1.0]]), "w": torch.tensor([update], dtype=torch.float64)}
        signs, _ = news.of(state_, number)
        if abs(before) <= 3.5:
            assert signs[-1] == np.sign(g)


def right_signs(settings: dict[str, str], number: int) -> dict[str, float]:
    """Share of the signs of a round's true gradient that its updates tell, by block, of numbers that are not 0."""
    made, tuning, gradients = rounds(**settings), configured(**settings).tuning, Gradients(whole())
    news = News(tuning, tuning.local_steps)
    for done in made.done[: number + 1]:
        signs, _ = news.of(done.taken[0].update, done.number)
    gradients.at(made.done[number].start)
    truth = torch.stack([gradients.of(item)[1] for item in trained_on(settings, number)]).sum(dim=0).sign()
    found = {}
    for name, part in blocks_of(made.done[0].start).items():
        moved = truth[part] != 0
        found[name] = float((signs[part][moved] == truth[part][moved]).double().mean())
    return found


@pytest.mark.parametrize("settings", [ONE, FOUR], ids=["1", "4"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_real_clients_signs_are_told(settings: dict[str, str], number: int) -> None:
    found = right_signs(settings, number)
    assert min(share for name, share in found.items() if name != "readout") > 0.97
    assert found["readout"] > 0.6


def test_of_several_steps_most_signs_are_told() -> None:
    found = right_signs(SEVERAL, 0)
    assert 0.55 < min(found.values()) < 0.97


# How well signs agree, and the search


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_agreement_is_what_counting_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.integers(-1, 2, (3, 20)), rng.integers(-1, 2, (4, 20))
    found = agreement(torch.from_numpy(left), torch.from_numpy(right)).numpy()
    for a, one in enumerate(left):
        for b, other in enumerate(right):
            either = [(x, y) for x, y in zip(one, other, strict=True) if x or y]
            naive = sum(int(x * y) for x, y in either) / max(len(either), 1)
            assert found[a, b] == pytest.approx(naive, abs=1e-6)


def by_hand(seed: int, truth: Index, noise: bool) -> Search:
    """Every option of six questions of four moves numbers of its own."""
    rng = np.random.default_rng(seed)
    moves = torch.from_numpy(rng.standard_normal((6, 4, 400)))

    def of(drawn: Index) -> torch.Tensor:
        return torch.stack([moves[q, k] for q, k in enumerate(drawn)]).sum(dim=0)

    total = torch.stack([of(row) for row in truth]).sum(dim=0)
    signs = torch.from_numpy(rng.standard_normal(400)).sign() if noise else total.sign()
    return Search([range(4)] * 6, of, signs, rng)


@pytest.mark.parametrize(("size", "budget"), [(1, 60), (3, 900)])
def test_the_search_ends_at_the_truth(size: int, budget: int) -> None:
    for seed in range(5):
        truth = np.random.default_rng(100 + seed).integers(0, 4, (size, 6))
        tried = list(by_hand(seed, truth, noise=False).sets(size, budget))
        assert len(tried) <= budget
        best = max(tried, key=lambda item: item.match)
        assert best.match > 0.99
        assert all(sorted(best.drawn[:, q]) == sorted(truth[:, q]) for q in range(6))


def test_the_search_finds_nothing_in_noise() -> None:
    """Of 300 questionnaires the best agrees by chance alone: the standard error of 400 signs is .05."""
    for seed in range(5):
        truth = np.random.default_rng(100 + seed).integers(0, 4, (1, 6))
        tried = list(by_hand(seed, truth, noise=True).sets(1, 300))
        assert 280 < len(tried) <= 300
        assert max(item.match for item in tried) < 0.5


def test_a_budget_below_a_set_tries_nothing() -> None:
    assert not list(by_hand(0, np.zeros((3, 6), np.int64), noise=False).sets(3, 2))


# Real rounds


def matched(
    settings: dict[str, str], forms: int, made: tuple[Round, ...], shown: int
) -> dict[str, npt.NDArray[np.generic]]:
    tuning = configured(**settings, forms=str(forms)).tuning
    found = Matched(whole(), reading().form, Watched(called(0), {0: 0}), tuning, np.random.default_rng(0))
    for done in made:
        found.add(done, shown, lambda stage, share: None)
    return found.arrays


def test_the_true_questionnaire_of_a_real_round_agrees_and_others_do_not() -> None:
    for number in (0, 2):
        made, gradients, form = rounds(**ONE), Gradients(whole()), reading().form
        news = News(configured(**ONE).tuning, 1)
        for done in made.done[: number + 1]:
            signs, _ = news.of(done.taken[0].update, done.number)
        gradients.at(made.done[number].start)
        kept = slice(0, blocks_of(state(whole()))["readout"].start)
        truth, rng = chosen(form, trained_on(ONE, number)[0]), np.random.default_rng(number)

        def match(drawn: Index) -> float:
            of = gradients.of(form.record(drawn))[1][kept]  # noqa: B023
            return float(agreement(of.sign()[None], signs[kept][None]))  # noqa: B023

        assert match(truth) > 0.97
        others = [np.array([rng.integers(len(options)) for options in form.options]) for _ in range(5)]
        assert max(map(match, others)) < 0.9


def test_one_respondents_outcome_is_read_and_more_signs_agree_with_every_kept_change() -> None:
    made = rounds(**ONE).done
    found = matched(ONE, 50, made, 1)
    drawn, matches = found["read/drawn"], found[f"read/matches/{called(0)}"]
    assert drawn.shape == (4, 50, 1, len(reading().form.options))
    for number in range(4):
        truth = chosen(reading().form, trained_on(ONE, number)[0])
        best = drawn[number, int(np.argmax(matches[number])), 0]
        assert best[-1] == truth[-1]
        assert np.max(matches[number]) > matches[number][0]


def test_rounds_in_which_nobody_is_shown_need_no_gradient() -> None:
    found = matched(ONE, 10, rounds(**ONE).done, 0)
    assert (found["read/drawn"] == -1).all()
    assert not found[f"read/matches/{called(0)}"].any()
    assert not matched(ONE, 0, rounds(**ONE).done, 1)


def test_of_many_respondents_single_questionnaires_and_rounds_of_them_are_compared() -> None:
    found = matched(SEVERAL, 8, rounds(**SEVERAL).done[:1], 24)
    assert found["read/drawn"].shape[:3] == (3, 8, 1)
    assert sorted(found["read/drawn"][0, :, 0, -1]) == [0, 0, 0, 0, 1, 1, 1, 1]
    held = found["read/practice/held"]
    assert (held[0].sum(axis=1) == 24).all()
    assert not held[1:].any()
    outcome = np.asarray(found["read/drawn"][0, :, 0, -1])
    ones = (held[0] * outcome).sum(axis=1)
    assert abs(ones.mean() - 12) < 4 * np.sqrt(6 / len(ones))


def test_gradients_are_the_models_own() -> None:
    model, item = whole(), reading().held[0]
    gradients = Gradients(model)
    gradients.at(state(model))
    loss, found = gradients.of(item)
    model.zero_grad(set_to_none=True)
    losses = model.learn(batch_of([item]))
    assert loss == pytest.approx(float(losses[0]))
    assert torch.equal(found, wide(p.grad for p in model.parameters() if p.grad is not None))

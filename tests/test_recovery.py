"""What counts as read: answers only, by a naive twin and by cases whose result is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench.attack import Index
from privbench.recovery import METRICS, Truth

# Two questions of one and two tokens in a template of zeros.
ANSWERS = np.array([[-1, 0, -1, 1, 1]] * 4)
TOKENS = np.array([[0, 7, 0, 5, 6], [0, 7, 0, 5, 8], [0, 7, 0, 5, 6], [0, 9, 0, 4, 4]])
OTHER = np.array([1, 2, 3, 0])


def truth() -> Truth:
    return Truth(TOKENS, ANSWERS)


def naive_token_accuracy(guess: Index) -> float:
    shares = []
    for row in range(len(TOKENS)):
        places = [at for at in range(TOKENS.shape[1]) if ANSWERS[row, at] >= 0]
        shares.append(sum(int(guess[row, at] == TOKENS[row, at]) for at in places) / len(places))
    return sum(shares) / len(shares)


def naive_answer_accuracy(guess: Index) -> float:
    by_question = []
    for question in (0, 1):
        spans = [tuple(TOKENS[row][ANSWERS[row] == question]) for row in range(len(TOKENS))]
        read = [tuple(guess[row][ANSWERS[row] == question]) for row in range(len(TOKENS))]
        recalls = []
        for answer in set(spans):
            rows = [row for row, span in enumerate(spans) if span == answer]
            recalls.append(sum(read[row] == answer for row in rows) / len(rows))
        by_question.append(sum(recalls) / len(recalls))
    return sum(by_question) / 2


@given(st.lists(st.sampled_from([0, 4, 5, 6, 7, 8, 9]), min_size=20, max_size=20))
def test_both_metrics_are_their_naive_twins(tokens: list[int]) -> None:
    guess = np.array(tokens).reshape(4, 5)
    assert truth().score(guess, "token-accuracy", OTHER).value == pytest.approx(naive_token_accuracy(guess))
    assert truth().score(guess, "answer-accuracy", OTHER).value == pytest.approx(naive_answer_accuracy(guess))


@pytest.mark.parametrize("metric", METRICS)
def test_the_truth_reads_all_and_the_template_alone_nothing(metric: str) -> None:
    assert truth().score(TOKENS, metric, OTHER).value == pytest.approx(1)
    assert truth().score(np.where(ANSWERS < 0, TOKENS, -1), metric, OTHER).value == 0


def test_what_one_update_tells_of_several_is_right_together() -> None:
    """Two rounds, of three records and of one: the interval is that of two units, for one reply goes to all of them."""
    apart = replace(truth(), rounds=np.array([0, 0, 0, 1]))
    assert apart.score(TOKENS, "token-accuracy", OTHER).squares == pytest.approx((3 / 4) ** 2 + (1 / 4) ** 2)
    alone, together = (item.score(TOKENS, "answer-accuracy", OTHER) for item in (truth(), apart))
    assert (alone.value, alone.baseline) == (together.value, together.baseline)
    assert together.squares > alone.squares
    assert replace(truth(), rounds=np.arange(4)).score(TOKENS, "answer-accuracy", OTHER).squares == alone.squares


def test_squares_are_those_of_what_each_record_can_add() -> None:
    # Question 0: three say 7, one 9; question 1: two say (5, 6), one (5, 8), one (4, 4).
    weights = np.array([1 / 12 + 1 / 12, 1 / 12 + 1 / 6, 1 / 12 + 1 / 12, 1 / 4 + 1 / 6])
    assert weights.sum() == pytest.approx(1)
    assert truth().score(TOKENS, "answer-accuracy", OTHER).squares == pytest.approx((weights**2).sum())
    assert truth().score(TOKENS, "token-accuracy", OTHER).squares == pytest.approx(1 / 4)


def test_the_baseline_is_the_best_reply_that_says_the_same_of_everyone() -> None:
    # Question 0: 7 is right for three of four. Question 1: 5 at its first place for three, 6 at its second for two.
    shares = [3 / 3, 2 / 3, 3 / 3, 0 / 3]
    assert truth().score(TOKENS, "token-accuracy", OTHER).baseline == pytest.approx(np.mean(shares))
    assert truth().score(TOKENS, "answer-accuracy", OTHER).baseline == pytest.approx((1 / 2 + 1 / 3) / 2)


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=2, max_size=6), st.data())
def test_no_constant_reply_reads_more_tokens_than_the_baseline(answers: list[list[int]], data: st.DataObject) -> None:
    """Answers of unequal lengths, which share tokens: a mode of whole answers would read less."""
    tokens, places = np.full((len(answers), 3), -1), np.full((len(answers), 3), -1)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer)], places[row, : len(answer)] = answer, 0
    known = Truth(tokens, places)
    reply = np.tile(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)), (len(answers), 1))
    order = np.roll(np.arange(len(answers)), 1)
    found = known.score(reply, "token-accuracy", order)
    assert found.value <= found.baseline + 1e-12
    # Of all pairings together, another's answers read no more than that either.
    pairs = [
        known.score(tokens, "token-accuracy", np.full(len(answers), other)).shuffled for other in range(len(answers))
    ]
    assert np.mean(pairs) <= found.baseline + 1e-12


def test_shuffled_compares_each_record_with_another_ones_answers() -> None:
    # Row i is compared with the answers read of row OTHER[i].
    assert truth().score(TOKENS, "token-accuracy", OTHER).shuffled == pytest.approx(np.mean([2 / 3, 2 / 3, 0, 0]))


def test_counts_are_of_tokens_and_of_answers() -> None:
    assert truth().score(TOKENS, "token-accuracy", OTHER).n == 12
    assert truth().score(TOKENS, "answer-accuracy", OTHER).n == 8


def test_answers_of_another_length_are_not_lined_up_with_the_wrong_question() -> None:
    tokens, places = np.array([[1, 2, 3, -1], [1, 2, 2, 3]]), np.array([[0, 1, 1, -1], [0, 0, 1, 1]])
    found = Truth(tokens, places).score(tokens, "token-accuracy", np.array([1, 0]))
    # Record 0: "1" against (1, 2); "2 3" against (2, 3). Record 1: (1, 2) against "1"; (2, 3) against "2 3".
    assert found.shuffled == pytest.approx(np.mean([3 / 3, 3 / 4]))


def test_question_by_question_by_hand() -> None:
    """Question 0: 7, 7, 7, 9, all 7 is read, a half of the two answers; question 1: of three answers one is read."""
    guess = np.array([[0, 7, 0, 5, 6]] * 4)
    assert [(item.question, item.answers, item.read) for item in truth().by_question(guess)] == [
        (0, 2, 0.5),
        (1, 3, pytest.approx(1 / 3)),
    ]


@given(st.integers(0, 2**32 - 1))
def test_the_mean_over_questions_is_the_whole(seed: int) -> None:
    """Of records that answer some of the questions, at other places each."""
    rng = np.random.default_rng(seed)
    answers, tokens = rng.integers(-1, 4, (12, 9)), rng.integers(0, 3, (12, 9))
    answers[:, 0] = 0
    made = Truth(tokens, np.sort(answers, axis=1))
    guess = np.where(rng.random(tokens.shape) < 0.6, tokens, 5)
    asked = made.by_question(guess)
    found = made.score(guess, METRICS[1], rng.permutation(12))
    assert sum(item.read for item in asked) / len(asked) == pytest.approx(found.value)
    assert sum(1 / item.answers for item in asked) / len(asked) == pytest.approx(found.baseline)

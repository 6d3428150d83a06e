"""What a split model answers: naive sums beside the batched ones, wrong words counted, and every number's baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_llama import CONTEXT, word_tokenizer

from privbench.data.surveys.samples import samples
from privbench.data.surveys.schema import Outcome, Question
from privbench.data.surveys.synthetic import synthetic
from privbench.stats import answers as metrics
from privbench.target import Utility
from privbench.targets.split_llama import answering
from privbench.targets.split_llama.answering import Answers, answer, utilities
from privbench.targets.split_llama.halves import Client, Server, split
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.targets.split_llama.tokens import Encoded, Encoder

SHAPE = Shape(vocabulary=900, width=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=False)
ENCODER = Encoder(word_tokenizer(), CONTEXT)
SURVEY = synthetic(np.random.default_rng(4), 21)
EXHAUSTION = SURVEY.schema.outcome("exhaustion")
LEVELS = EXHAUSTION.question.answers
OFFERED = ("no", "yes", "often", "always", "very severe")
"""Most are one token: an untrained model finds long options unlikely."""


@pytest.fixture(scope="module")
def people() -> tuple[Encoded, ...]:
    """Some without their last questions: prompts of different lengths."""
    cut = (replace(item, features=item.features[: 14 - n % 3]) for n, item in enumerate(samples(SURVEY, EXHAUSTION)))
    return ENCODER.encode_all(cut, LEVELS)


@pytest.fixture(scope="module")
def halves() -> tuple[Client, Server]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        base = random_llama(SHAPE, SHAPE.layers)
    for weight in base.parameters():
        if weight.ndim == 2:
            weight.mul_(20)  # answers that depend on the prompt
    return split(base, torch.Generator().manual_seed(0), rank=4, bottleneck=8)


def logits(halves: tuple[Client, Server], ids: Sequence[int]) -> torch.Tensor:
    """Of the next token, at every place: the base alone, since adapters start as the identity."""
    client, server = halves
    table = client.embed_tokens(torch.tensor([ids]))
    places = torch.arange(len(ids))[None]
    layout = answering.collate([ids], [[[0]]]).prompt.layout
    hidden = server.trunk(table, replace(layout, position=places))
    assert server.readout is not None
    return torch.log_softmax(server.readout.logits(hidden[0]), dim=-1)


def test_the_choice_is_the_largest_sum_over_all_tokens(
    halves: tuple[Client, Server], people: tuple[Encoded, ...]
) -> None:
    """One prompt and one option at a time, token by token."""
    shares: list[float] = []
    found = answer(*halves, [item.prompt for item in people], OFFERED, ENCODER, shares.append)
    sums = np.zeros((len(people), len(OFFERED)))
    with torch.inference_mode():
        for row, item in enumerate(people):
            for place, level in enumerate(OFFERED):
                said = ENCODER.answer(level)
                likely = logits(halves, (*item.prompt, *said))
                start = len(item.prompt) - 1
                sums[row, place] = sum(float(likely[start + n, token]) for n, token in enumerate(said))
    assert found.chosen == tuple(OFFERED[place] for place in sums.argmax(1))
    assert len({len(ENCODER.answer(level)) for level in OFFERED}) > 1
    assert len(set(found.chosen)) > 1
    assert shares == pytest.approx([16 / 21, 1.0])


def test_what_is_said_is_the_likeliest_token_again_and_again(
    halves: tuple[Client, Server], people: tuple[Encoded, ...]
) -> None:
    found = answer(*halves, [item.prompt for item in people], LEVELS, ENCODER)
    limit = ENCODER.room(LEVELS) + 1
    with torch.inference_mode():
        for row in (0, 1, 20):
            said: list[int] = []
            while len(said) < limit:
                token = int(logits(halves, (*people[row].prompt, *said))[-1].argmax())
                if token == ENCODER.end:
                    break
                said.append(token)
            assert found.generated[row] == ENCODER.text(said)
    silent = answer(*halves, [item.prompt for item in people], LEVELS, ENCODER, speaks=False)
    assert silent.chosen == found.chosen
    assert not any(silent.generated)


# Metrics


TRUTH = ["none", "mild", "moderate", "severe", "very severe", "mild", "mild", "none"]
CHOSEN = ["none", "mild", "mild", "severe", "severe", "none", "mild", "none"]
SPOKEN = ["none", "Mild ", "moderately", "", "a lot", "mild", "nothing", "none"]
MAJORITY = ["mild"] * 8
OTHERS = {"logistic regression": ["none", *MAJORITY[1:]], "0-shot prompting": ["severe"] * 8}


def rows(
    truth: Sequence[str] = TRUTH, chosen: Sequence[str] = CHOSEN, outcome: Outcome = EXHAUSTION
) -> dict[str, Utility]:
    said = Answers(tuple(chosen), tuple(SPOKEN))
    made = utilities(outcome, truth, said, MAJORITY, OTHERS, np.random.default_rng(0))
    return {item.metric: item for item in made}


def test_every_number_stands_beside_the_most_frequent_answer_and_other_methods() -> None:
    found = rows()
    assert list(found) == [
        "accuracy", "macro F1", "quadratic kappa", "accuracy, generated", "ANLS, generated", "ANLS strict, generated",
    ]  # fmt: skip
    for item in found.values():
        assert (item.task, item.n, item.split) == ("exhaustion", 8, "test")
        assert (item.baseline_name, item.baseline_other_seed) == ("most frequent answer", None)
        assert item.low <= item.value <= item.high
        assert item.gain == pytest.approx(item.value - item.baseline)
        assert item.gain_low <= item.gain <= item.gain_high
        assert list(item.references) == list(OTHERS)


def test_values_are_those_of_the_metrics_alone() -> None:
    found, rng = rows(), np.random.default_rng
    assert found["accuracy"].value == 5 / 8
    assert found["accuracy"].baseline == 3 / 8
    assert found["accuracy"].references == {"logistic regression": 4 / 8, "0-shot prompting": 1 / 8}
    by_hand: dict[str, Callable[[Sequence[str]], float]] = {
        "macro F1": lambda said: metrics.macro_f1(TRUTH, said, LEVELS, rng(0)).value,
        "quadratic kappa": lambda said: metrics.quadratic_kappa(TRUTH, said, LEVELS, rng(0)).value,  # type: ignore[union-attr]
        "ANLS, generated": lambda said: metrics.anls(TRUTH, said, LEVELS, rng(0)).lenient.value,
        "ANLS strict, generated": lambda said: metrics.anls(TRUTH, said, LEVELS, rng(0)).strict.value,
    }
    for name, value in by_hand.items():
        ours = SPOKEN if "generated" in name else CHOSEN
        assert found[name].value == pytest.approx(value(ours))
        assert found[name].baseline == pytest.approx(value(MAJORITY))
        assert found[name].references == pytest.approx({other: value(said) for other, said in OTHERS.items()})


def test_generated_words_that_are_no_option_are_wrong_and_counted() -> None:
    found = rows()["accuracy, generated"]
    assert (found.value, found.n) == (4 / 8, 8)  # "Mild " is mild; "moderately", "", "a lot", "nothing" are wrong


def test_kappa_and_adjacent_levels_are_for_ordinal_outcomes_only() -> None:
    helped = Outcome("help", Question("help", "help", "ordinal", ("mild", "none")))
    truth, chosen = ["none", "mild"] * 4, ["none"] * 8
    found = rows(truth, chosen, helped)
    assert "quadratic kappa" not in found
    assert found["ANLS, generated"].value == found["ANLS strict, generated"].value
    assert rows()["ANLS, generated"].baseline > rows()["ANLS strict, generated"].baseline  # mild is next to none


def test_a_kappa_that_has_no_value_is_left_out() -> None:
    """All truths and answers on one level: no row of ours, and where only another method is, none of its."""
    same = ["mild"] * 8
    assert "quadratic kappa" not in rows(same, same)
    found = rows(same, ["none", *same[1:]])["quadratic kappa"]
    assert found.value == 0
    assert list(found.references) == ["logistic regression", "0-shot prompting"]
    others = {"all mild": same, "0-shot prompting": ["severe"] * 8}
    said = Answers(("none", *same[1:]), tuple(SPOKEN))
    made = utilities(EXHAUSTION, same, said, MAJORITY, others, np.random.default_rng(0))
    assert [list(item.references) for item in made if item.metric == "quadratic kappa"] == [["0-shot prompting"]]

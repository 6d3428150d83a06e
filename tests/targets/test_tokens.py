"""Respondents as tokens: pieces join to the text, every answer's place is exact, nothing is cut inside a question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_llama import CONTEXT, word_tokenizer
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from privbench.data.surveys.samples import Sample, samples
from privbench.data.surveys.synthetic import SURVEYS, synthetic
from privbench.errors import InputError
from privbench.targets.split_llama.tokens import TEMPLATE, Encoded, Encoder, lost

ENCODER = Encoder(word_tokenizer(), CONTEXT)
ROOM = 6


def drawn(name: str, count: int = 12, outcome: str | None = None) -> tuple[list[Sample], tuple[str, ...]]:
    survey = synthetic(np.random.default_rng(5), count, survey=name)
    asked = survey.schema.outcome(outcome)
    return list(samples(survey, asked)), asked.question.answers


def spoken(tokens: Sequence[int]) -> str:
    return str(word_tokenizer().decode(list(tokens)))


def said(encoded: Encoded, number: int) -> str:
    """What the tokens that are marked with a question's number say."""
    return spoken([t for t, q in zip(encoded.prompt, encoded.answers, strict=True) if q == number])


@pytest.mark.parametrize("name", SURVEYS)
def test_pieces_join_to_the_whole_text_and_answers_are_where_they_are_said(name: str) -> None:
    people, options = drawn(name)
    for sample, encoded in zip(people, ENCODER.encode_all(people, options), strict=True):
        assert spoken(encoded.prompt) == sample.prompt
        assert encoded.prompt == tuple(word_tokenizer()(sample.prompt).input_ids)
        assert spoken(encoded.label) == f" {sample.answer}</s>"
        assert encoded.label[-1] == ENCODER.end
        assert [said(encoded, number).strip() for number in range(len(sample.features))] == [
            answer for _, answer, _ in sample.features
        ]
        assert (
            said(encoded, TEMPLATE)
            == sample.header + "".join(text.rstrip() + end for text, _, end in sample.features) + sample.question
        )
        assert spoken(encoded.prompt[: encoded.head]) == sample.header.rstrip("\n")
        assert encoded.lost == 0


@given(st.data())
def test_longer_samples_lose_whole_last_questions(data: st.DataObject) -> None:
    """At every context: the first questions as they were, the outcome's question still there, room for the answer."""
    sample = drawn("sleep")[0][data.draw(st.integers(0, 11))]
    whole = ENCODER.encode(sample, ROOM)
    fewest = len(Encoder(word_tokenizer(), CONTEXT).encode(shortened(sample, 1), ROOM).prompt) + ROOM
    context = data.draw(st.integers(fewest, len(whole.prompt) + ROOM))
    cut = Encoder(word_tokenizer(), context).encode(sample, ROOM)
    kept = len(sample.features) - cut.lost
    assert cut == replace_lost(ENCODER.encode(shortened(sample, kept), ROOM), cut.lost)
    assert len(cut.prompt) + ROOM <= context
    if cut.lost:  # one more would not have fitted
        assert len(ENCODER.encode(shortened(sample, kept + 1), ROOM).prompt) + ROOM > context


def shortened(sample: Sample, kept: int) -> Sample:
    return Sample(sample.header, sample.features[:kept], sample.question, sample.answer)


def replace_lost(encoded: Encoded, lost: int) -> Encoded:
    return Encoded(encoded.prompt, encoded.answers, encoded.label, encoded.head, lost)


def test_what_was_lost_is_counted() -> None:
    people, options = drawn("wellbeing")
    whole = ENCODER.encode_all(people, options)
    assert lost(whole) == (0, 0)
    longest = max(len(item.prompt) for item in whole)
    cut = Encoder(word_tokenizer(), longest).encode_all(people, options)
    assert lost(cut) == (sum(len(item.prompt) + 2 > longest for item in whole), max(item.lost for item in cut))
    assert lost(cut)[0] > 0
    assert lost([]) == (0, 0)


def test_the_longest_option_always_fits() -> None:
    """All options leave the same room, whatever the respondent's own answer: it must not be told by what was cut."""
    people, options = drawn("wellbeing", outcome="exhaustion")
    room = ENCODER.room(options)
    assert room == max(len(ENCODER.answer(option)) for option in options) > len(ENCODER.answer("none"))
    context = len(ENCODER.encode(people[0], room).prompt) + room - 1
    assert all(
        len(item.prompt) + room <= context for item in Encoder(word_tokenizer(), context).encode_all(people, options)
    )


def test_a_context_without_room_for_one_answer_is_refused() -> None:
    sample = drawn("wellbeing")[0][0]
    needed = len(ENCODER.encode(shortened(sample, 1), ROOM).prompt) + ROOM
    assert Encoder(word_tokenizer(), needed).encode(sample, ROOM).lost == len(sample.features) - 1
    with pytest.raises(InputError, match=rf"a context of {needed - 1} tokens cannot hold the header \(\d+ tokens\)"):
        Encoder(word_tokenizer(), needed - 1).encode(sample, ROOM)


def test_few_shot_shows_answered_samples_under_one_header() -> None:
    people, options = drawn("campus")
    coded = Encoder(word_tokenizer(), 4 * CONTEXT).encode_all(people, options)
    assert ENCODER.few_shot([], coded[0], ROOM) == coded[0].prompt
    prompt = Encoder(word_tokenizer(), 4 * CONTEXT).few_shot(coded[1:3], coded[0], ROOM)
    body = [sample.prompt.removeprefix(sample.header) for sample in people]
    shots = "".join(f"{body[i]} {people[i].answer}\n\n" for i in (1, 2))
    assert spoken(prompt) == people[0].header + shots + body[0]
    needed = len(prompt) + ROOM
    assert Encoder(word_tokenizer(), needed).few_shot(coded[1:3], coded[0], ROOM) == prompt
    with pytest.raises(InputError, match=f"2 shots need {needed} tokens, the context has {needed - 1}: use fewer"):
        Encoder(word_tokenizer(), needed - 1).few_shot(coded[1:3], coded[0], ROOM)


def test_what_was_generated_is_read_without_blanks_and_ends() -> None:
    for text in ("very severe", "no", "Has someone to talk to"):
        assert ENCODER.text(ENCODER.answer(text)) == text


def test_an_answer_that_spells_the_end_is_text() -> None:
    sample = Sample("Survey: X\n---\n", (("said: ", "yes</s>no", "\n"),), "Question: a (b)\nAnswer:", "b")
    encoded = ENCODER.encode(sample, ROOM)
    assert ENCODER.end not in encoded.prompt
    assert said(encoded, 0) == " yes</s>no"


def sentence_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Words with a blank in front of the first one and a start token, as the first LLaMA's tokenizer has them."""
    pieces = pre_tokenizers.Metaspace(prepend_scheme="first")
    words = dict.fromkeys(word for text in texts for word, _ in pieces.pre_tokenize_str(text))
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *words])}, unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pieces, decoders.Metaspace(prepend_scheme="first")
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def test_a_tokenizer_with_a_start_token_says_it_once() -> None:
    people, options = drawn("social", 3)
    parts = [part for s in people for text, answer, _ in s.features for part in (f"\n{text.rstrip()}", f" {answer}")]
    more = [people[0].header.rstrip("\n"), f"\n{people[0].question}", *(f" {option}" for option in options)]
    tokenizer = sentence_tokenizer([*parts, *more])
    encoded = Encoder(tokenizer, CONTEXT).encode_all(people, options)
    assert all(item.prompt[0] == 1 and item.prompt.count(1) == 1 and 1 not in item.label for item in encoded)
    assert all(0 not in item.prompt + item.label for item in encoded)
    for sample, item in zip(people, encoded, strict=True):
        for number, (_, answer, _) in enumerate(sample.features):
            tokens = [t for t, q in zip(item.prompt, item.answers, strict=True) if q == number]
            assert str(tokenizer.decode(tokens)).strip() == answer


def test_a_tokenizer_without_an_end_is_refused() -> None:
    made = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(InputError, match=r"names no end token \(eos_token\)"):
        Encoder(PreTrainedTokenizerFast(tokenizer_object=made), CONTEXT)

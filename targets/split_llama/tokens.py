"""Respondents as token ids: which token is whose answer, and what happens to a sample that does not fit.

A sample is tokenised in pieces (header, line end and question, answer), so that the place of every answer is exact. The
pieces break where the tokenizers of LLaMA models break a text anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privbench.data.surveys.samples import Sample
from privbench.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATE = -1


@dataclass(frozen=True)
class Encoded:
    """One respondent. prompt: token ids; answers: for each of them the number of the question that it answers, or
    TEMPLATE; label: the outcome's answer with the end token; head: tokens of the header; lost: questions that did not
    fit.
    """

    prompt: tuple[int, ...]
    answers: tuple[int, ...]
    label: tuple[int, ...]
    head: int
    lost: int

    def sent(self, labels: bool) -> tuple[int, ...]:
        """What a client puts in: the prompt, and the answer behind it where it holds the labels."""
        return self.prompt + self.label if labels else self.prompt


class Encoder:
    """Samples to token ids within a context of so many tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, context: int) -> None:
        end = tokenizer.eos_token_id
        if not isinstance(end, int):
            raise InputError("the model's tokenizer names no end token (eos_token); the end of an answer needs one.")
        self._tokenizer, self._context, self.end = tokenizer, context, end
        self._pieces: dict[str, tuple[int, ...]] = {}
        first = tokenizer("").input_ids
        self._start = tuple(token for token in first if token != end)

    def answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer to the outcome's question, its end included."""
        return (*self.said(text), self.end)

    def said(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer as it stands in a sample; the blank before it belongs to its first token."""
        return self._piece(f" {text}")

    def text(self, tokens: Sequence[int]) -> str:
        """What was generated, without the blank in front."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def vocabulary(self, tokens: int) -> list[bytes]:
        """The text of each of so many tokens by itself, in UTF-8."""
        return [str(self._tokenizer.decode([token])).encode() for token in range(tokens)]

    def encode(self, sample: Sample, room: int) -> Encoded:
        """A sample whose prompt leaves `room` tokens for the answer. Questions that do not fit are left out whole, the
        last ones first, and counted; `InputError` when not even one fits.
        """
        head = (*self._start, *self._piece(sample.header.removesuffix("\n")))
        tail = self._piece(f"\n{sample.question}")
        left = self._context - room - len(head) - len(tail)
        prompt, answers = list(head), [TEMPLATE] * len(head)
        kept = 0
        for number, (question, answer, _) in enumerate(sample.features):
            before, said = self._piece(f"\n{question.rstrip()}"), self.said(answer)
            left -= len(before) + len(said)
            if left < 0:
                break
            prompt += [*before, *said]
            answers += [*[TEMPLATE] * len(before), *[number] * len(said)]
            kept += 1
        if not kept:
            raise InputError(
                f"a context of {self._context} tokens cannot hold the header ({len(head)} tokens), one answer and the "
                "outcome's question; use a model with a longer context, or a schema with fewer questions."
            )
        prompt += tail
        answers += [TEMPLATE] * len(tail)
        label, gone = self.answer(sample.answer), len(sample.features) - kept
        return Encoded(tuple(prompt), tuple(answers), label, len(head), gone)

    def encode_all(self, samples: Iterable[Sample], options: Sequence[str]) -> tuple[Encoded, ...]:
        """Every sample, with room for the longest of the options."""
        room = self.room(options)
        return tuple(self.encode(sample, room) for sample in samples)

    def room(self, options: Sequence[str]) -> int:
        """Tokens of the longest option, its end included."""
        return max(len(self.answer(option)) for option in options)

    def few_shot(self, shots: Sequence[Encoded], asked: Encoded, room: int) -> tuple[int, ...]:
        """A prompt that shows answered samples, a blank line after each, before the one that is asked, the header once;
        `InputError` when the context cannot hold it and an answer of `room` tokens.
        """
        tokens = list(asked.prompt[: asked.head])
        for shot in shots:
            tokens += [*shot.prompt[shot.head :], *shot.label[:-1], *self._piece("\n")]
        tokens += asked.prompt[asked.head :]
        if len(tokens) + room > self._context:
            raise InputError(
                f"{len(shots)} shots need {len(tokens) + room} tokens, the context has {self._context}: use fewer."
            )
        return tuple(tokens)

    def _piece(self, text: str) -> tuple[int, ...]:
        if text not in self._pieces:
            # An answer that spells a special token, such as "</s>", is text like any other.
            made = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
            self._pieces[text] = tuple(made.input_ids)
        return self._pieces[text]


def lost(samples: Sequence[Encoded]) -> tuple[int, int]:
    """How many samples lost questions, and the most that one lost."""
    return sum(item.lost > 0 for item in samples), max((item.lost for item in samples), default=0)

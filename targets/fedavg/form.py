"""The questionnaire of a survey as everybody knows it: its text without answers, and what may be answered, as tokens.

What a server of updates is asked to read are answers, each in a slot of its own: a record holds no template, and how
long another answer was moves nothing. Slots are spelled so that no answer begins another: one that another continues
is closed by the end token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.data.surveys.schema import MISSING, Question
from privbench.targets.split_llama.material import Asked
from privbench.targets.split_llama.tokens import TEMPLATE, Encoded, Encoder

Tokens = tuple[int, ...]
_NONE = -1
_MOST_NUMBERS = 500
"""Numbers that may answer a question, beyond which they are not listed."""


@dataclass(frozen=True)
class Form:
    """template: the tokens of a sample, -1 where an answer stands, question after question, the outcome's last.
    options: of each question the tokens of what may be answered; width: places of a slot; end: closes an answer.
    """

    template: Tokens
    options: tuple[tuple[Tokens, ...], ...]
    width: int
    end: int

    @classmethod
    def of(cls, asked: Asked, held: Sequence[Encoded], encoder: Encoder) -> Form:
        """Of a survey, of whose respondents `held` are trained on. A number without known limits lists no answer but
        the missing one.
        """
        people = asked.people
        questions = people.splits.train.inputs(people.outcome)
        spelled = [tuple(encoder.said(text) for text in (*_answers(item), MISSING)) for item in questions]
        spelled.append(tuple(encoder.said(text) for text in asked.options))
        whole = min(held, key=lambda item: item.lost)
        longest = max(len(said) for item in held for said in _given(item, len(questions)).values())
        width = max(longest, *(len(said) for options in spelled for said in options)) + 1
        bare = cls(_without_answers(whole), tuple(spelled), width, encoder.end)
        return cls(bare.template, tuple(tuple(map(bare.closed, (q,) * len(o), o)) for q, o in enumerate(spelled)),
                   width, encoder.end)  # fmt: skip

    def closed(self, question: int, answer: Tokens) -> Tokens:
        """As it stands in its slot: with the end where another answer to that question continues it."""
        continued = any(len(o) > len(answer) and o[: len(answer)] == answer for o in self.options[question])
        return (*answer, self.end) if continued and answer[-1:] != (self.end,) else answer

    def slots(self, records: Sequence[Encoded]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Answers of these records as tokens [N, L] and their questions [N, L], -1 where nothing stands."""
        shape = len(records), len(self.options) * self.width
        tokens, answers = np.full(shape, _NONE, np.int64), np.full(shape, TEMPLATE, np.int64)
        for row, item in enumerate(records):
            for question, said in _given(item, len(self.options) - 1).items():
                closed, start = self.closed(question, said), question * self.width
                tokens[row, start : start + len(closed)] = closed
                answers[row, start : start + len(closed)] = question
        return tokens, answers

    def record(self, drawn: Sequence[int] | npt.NDArray[np.int64]) -> Encoded:
        """The questionnaire with these options filled in, one number for each question."""
        said = [options[k] for options, k in zip(self.options, drawn, strict=True)]
        *given, outcome = (option[:-1] if option[-1:] == (self.end,) else option for option in said)
        prompt, answers, question = list[int](), list[int](), 0
        for token in self.template[:-1]:
            piece = given[question] if token == _NONE else (token,)
            prompt += piece
            answers += [question if token == _NONE else TEMPLATE] * len(piece)
            question += token == _NONE
        return Encoded(tuple(prompt), tuple(answers), (*outcome, self.end), 0, 0)

    @property
    def arrays(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """As they are recorded: public/form/template [F] and public/form/options [Q, K, A], -1 behind an answer."""
        most = max(map(len, self.options))
        options = np.full((len(self.options), most, self.width), _NONE, np.int64)
        for question, answers in enumerate(self.options):
            for number, said in enumerate(answers):
                options[question, number, : len(said)] = said
        return {"public/form/template": np.array(self.template, np.int64), "public/form/options": options}


def _answers(question: Question) -> tuple[str, ...]:
    """What may be answered, in words."""
    if question.kind != "number" or question.low is None or question.high is None:
        return question.answers
    unit = 10**question.decimals
    numbers = range(round(question.low * unit), round(question.high * unit) + 1)
    return tuple(f"{n / unit:.{question.decimals}f}" for n in numbers) if len(numbers) <= _MOST_NUMBERS else ()


def _given(item: Encoded, outcome: int) -> dict[int, Tokens]:
    """Answers by question, the outcome's last and without its end."""
    found: dict[int, Tokens] = {}
    for token, question in zip(item.prompt, item.answers, strict=True):
        if question != TEMPLATE:
            found[question] = (*found.get(question, ()), token)
    return {**found, outcome: item.label[:-1]}


def _without_answers(item: Encoded) -> Tokens:
    """One -1 for each answer, and one for the outcome's behind the prompt."""
    found, before = list[int](), TEMPLATE
    for token, question in zip(item.prompt, item.answers, strict=True):
        if question == TEMPLATE:
            found.append(token)
        elif question != before:
            found.append(_NONE)
        before = question
    return *found, _NONE

"""What is recorded of one tuning: the audited client's cut activations, pass after pass over its respondents.

A release is one whole pass: each of its respondents sent once. One pass is held in memory; a finished one goes to the
recording, which is a file where the run has a folder. The last pass, when the steps end within it, is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from privbench.growing import Growing
from privbench.recording import Secrets, Transcript
from privbench.targets.split_llama.batches import PADDING
from privbench.targets.split_llama.halves import Cut
from privbench.targets.split_llama.public import PublicText
from privbench.targets.split_llama.tokens import TEMPLATE, Encoded
from privbench.targets.split_llama.upward import Upward
from privbench.tensors import RELEASE_TYPES, Spec

NONE = -1


class Tape:
    """activations/CLIENT [T, N, L, d] with its mask, and what is public: the embedding table, and where there are
    texts, their tokens, what the base makes of them and its layers that do. words: of each token its text.

    sent: what the client puts in for each of its first N respondents (prompts, and answers where it holds the labels).
    upward: what else crosses where the client holds them, if it is recorded.
    """

    def __init__(
        self, client: str, sent: Sequence[Encoded], passes: int, table: Tensor, words: Sequence[bytes] | None = None,
        *, labels: bool, dtype: str, folder: Path | None, public: PublicText | None = None,
        upward: Upward | None = None,
    ) -> None:  # fmt: skip
        self.upward = upward
        self._client, self._passes, self._table, self._public = client, passes, table, public
        self._words = None if words is None else spelled(words)
        rows = [item.sent(labels) for item in sent]
        questions = max(max(item.answers) for item in sent) + 1
        # The end of an answer is no answer.
        asked = [(questions,) * (len(item.label) - 1) + (TEMPLATE,) for item in sent]
        places = [item.answers + said if labels else item.answers for item, said in zip(sent, asked, strict=True)]
        self._tokens, self._answers = padded(rows, NONE), padded(places, TEMPLATE)
        self._mask = (self._tokens != NONE).astype(np.uint8)
        shape = (*self._tokens.shape, table.shape[1])
        self._now = np.zeros(shape, np.float32)
        self._type = RELEASE_TYPES[dtype]
        layout: dict[str, Spec] = {
            self._name: (self._type, (passes, *shape)),
            f"{self._name}/mask": (self._mask.dtype, self._mask.shape),
            "public/embedding": (self._type, tuple(table.shape)),
        }
        if self._words is not None:
            layout["public/vocabulary"] = (self._words.dtype, self._words.shape)
        if public is not None:
            layout["public/tokens"] = (np.dtype(np.int64), public.shape[:2])
            layout["public/activations"] = (self._type, public.shape)
            layout |= {name: (self._type, values.shape) for name, values in public.trunk.items()}
        if upward is not None:
            layout |= upward.layout
        self._transcript = Growing(Transcript, layout, folder)

    @property
    def _name(self) -> str:
        return f"activations/{self._client}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transcript.__exit__(kind, error, trace)

    def release(self, rows: Sequence[int], cut: Cut) -> None:
        """What left the client for these of its respondents; those beyond the first N are not recorded."""
        for sent, row in zip(sequences(cut), rows, strict=True):
            if row < len(self._now):
                self._now[row, : len(sent)] = sent

    def end_pass(self, number: int) -> None:
        """Hand a whole pass over to the recording."""
        if number < self._passes:
            self._transcript.put(self._name, self._now.astype(self._type), number)
            if self.upward is not None:
                self.upward.end_pass(number, self._transcript)

    def finish(self, metadata: Mapping[str, Any] | None = None) -> tuple[Transcript, Secrets]:
        """The recording with this metadata, and the secrets behind it, once every pass has ended."""
        self._transcript.put(f"{self._name}/mask", self._mask)
        self._transcript.put("public/embedding", self._table.float().numpy().astype(self._type))
        if self._words is not None:
            self._transcript.put("public/vocabulary", self._words)
        if self._public is not None:
            self._transcript.put("public/tokens", padded(self._public.texts, NONE))
            for row, made in enumerate(self._public.activations()):
                self._transcript.put("public/activations", made.astype(self._type), row)
            for name, values in self._public.trunk.items():
                self._transcript.put(name, values.astype(self._type))
        if self.upward is not None:
            self.upward.finish(self._transcript)
        secrets = {f"inputs/{self._client}": self._tokens, f"inputs/{self._client}/answers": self._answers}
        return self._transcript.finish(metadata or {}), Secrets(secrets)


def sequences(cut: Cut) -> Iterator[npt.NDArray[np.float32]]:
    """Of each record of a batch what left for it [l, d], without padding."""
    for sent, segment in zip(cut.activations, cut.layout.segment, strict=True):
        yield sent[segment != PADDING].float().numpy()


def spelled(words: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    """Texts as one array [V, W], zeros behind each."""
    table = np.zeros((len(words), max(map(len, words))), np.uint8)
    for row, word in zip(table, words, strict=True):
        row[: len(word)] = np.frombuffer(word, np.uint8)
    return table


def padded(rows: Sequence[Sequence[int]], filler: int) -> npt.NDArray[np.int64]:
    """Rows of numbers as one array [N, L], filled up at the right."""
    table = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def disk_bytes(
    respondents: int,
    length: int,
    passes: int,
    shape: tuple[int, int],
    dtype: str,
    public: tuple[int, int] = (0, 0),
    trunk: int = 0,
) -> int:
    """Of a recording, at most: activations of the longest samples, the table [V, d], and of public texts [A, L] the
    activations and 8 bytes a token; trunk: parameters of the public layers before the cut.
    """
    vocabulary, width = shape
    size: Any = RELEASE_TYPES[dtype].itemsize
    texts = public[0] * public[1]
    return int(size * (width * (passes * respondents * length + vocabulary + texts) + trunk) + 8 * texts)

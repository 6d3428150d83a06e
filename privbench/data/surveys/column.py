"""One column of a survey whose schema is inferred: its answers, and who gave them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

ALIKE = 0.9  # share of a column's distinct answers that make it one of dates, addresses, codes
OPTIONS = 12  # distinct answers of an ordinary question
REPEATED = 0.2  # distinct answers per row or person, up to which they are those of a question
WORDY = 0.5  # the same, above which they are everybody's own
_FEW_ROWS = 20  # with fewer rows nothing follows from all values being different

FILLING = re.compile(
    r"a|an|and|any|are|as|at|be|been|by|can|did|do|does|ever|for|from|had|has|have|how|i|if|in|is|it|me|my|of|on|or|our|"
    r"that|the|their|they|this|to|was|were|what|when|which|who|will|with|would|you|your"
)
"""Words of a header that say nothing of what it asks."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Column:
    """A column's answers by what two spellings share (`table.key`), with their rows and people; missing ones are left
    out.
    """

    name: str
    counts: Counter[str]
    codes: dict[str, str]
    people: Counter[str] = field(default_factory=Counter)

    @property
    def given(self) -> int:
        return self.counts.total()

    @property
    def distinct(self) -> bool:
        return self.given >= _FEW_ROWS and len(self.counts) == self.given

    def mostly(self, pattern: re.Pattern[str]) -> bool:
        return sum(bool(pattern.fullmatch(answer)) for answer in self.counts) >= ALIKE * len(self.counts)


def apart(header: str) -> str:
    """A header in lower case, with blanks where words of it were written together, as inCamelCase."""
    return _CAMEL.sub(" ", header).lower()


def spaced(header: str) -> str:
    """A header in lower-case words."""
    return " ".join(re.sub(r"[^\w'&/+-]|_", " ", apart(header)).split())


def unbracketed(header: str) -> str:
    """A header without what stands in brackets."""
    return re.sub(r"\([^)]*\)", " ", header)

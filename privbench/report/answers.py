"""What a report shows of invented respondents: their answers beside what an attack read, right or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from privbench.record import Audit
from privbench.report.words import MARKS, short_name
from privbench.verdict import Verdict

RIGHT, WRONG = MARKS[Verdict.WITHIN], MARKS[Verdict.EXCEEDED]
TITLE = "What the server reads of invented respondents"
_LONGEST = 40


@dataclass(frozen=True)
class Cell:
    """An answer, and what was read in its place. Pages mark what is right by `mark` and by a colour, for those who see
    no colours.
    """

    answer: str
    read: str

    @property
    def right(self) -> bool:
        return self.answer == self.read

    @property
    def mark(self) -> str:
        """A reading is a harm: the mark of what is read right is that of what went wrong."""
        return WRONG if self.right else RIGHT

    @property
    def text(self) -> str:
        return self.answer if self.right else f"{self.answer} (read: {_short(self.read) or 'nothing'})"


@dataclass(frozen=True)
class Respondents:
    """A row per question, a column per respondent. rows: the question and its cells; None where it was not asked."""

    caption: str
    people: int
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def respondents(audit: Audit) -> Respondents | None:
    """None where nothing is shown: real respondents, or nothing read."""
    said = audit.inputs
    people = [] if said is None else said.get("examples", [])
    if said is None or not people:
        return None
    questions = list(dict.fromkeys(item["question"] for person in people for item in person))
    tables = [{item["question"]: item for item in person} for person in people]
    rows = []
    for question in questions:
        found = [table.get(question) for table in tables]
        cells = tuple(None if item is None else Cell(item["answer"], item["read"]) for item in found)
        rows.append((_short(question), cells))
    every = [cell for _, cells in rows for cell in cells if cell is not None]
    right = sum(cell.right for cell in every)
    caption = (
        f"{len(people)} invented respondents. Their answers never left {said['name'].removeprefix('input/')}; {WRONG} "
        f"marks what the {short_name(str(said['shown']))} read right in what did, {RIGHT} what it did not: "
        f"{right:,} of {len(every):,} answers are read. The same reply for all of them would be right in up to "
        f"{_by_one_reply(rows):,}."
    )
    return Respondents(caption, len(people), tuple(rows))


def _by_one_reply(rows: Sequence[tuple[str, Sequence[Cell | None]]]) -> int:
    """How many of these answers are the most frequent one to their question."""
    given = (Counter(cell.answer for cell in cells if cell is not None) for _, cells in rows)
    return sum(max(counts.values()) for counts in given)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

"""Columns that say who a person is or where to find one: by how their answers look, and by what their header asks.

A header counts only as a whole ("your first name", never "the name of your employer's programme"), and not where its
answers are those of an ordinary question ("phone": yes or no).
"""

from __future__ import annotations

import re

from privbench.data.surveys.column import FILLING, OPTIONS, REPEATED, WORDY, Column, apart, spaced, unbracketed

_DAY = r"(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}\.? [a-z]{3,9}\.?,? \d{2,4}|[a-z]{3,9}\.? \d{1,2},? \d{2,4})"
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)? ?(am|pm)?( ?(z|utc|gmt|[a-z]{2,4}|[+-]\d{2}:?\d{2}))*"
_DATE = re.compile(rf"{_DAY}([t ,]+{_CLOCK})?|{_CLOCK}")
_TIMED = re.compile(rf"{_DAY}[t ,]+{_CLOCK}")
_ADDRESS = re.compile(r"\S+@\S+\.\S+|(\d{1,3}\.){3}\d{1,3}|https?://\S+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PHONE = re.compile(
    r"(?=(\D*\d){7,18}\D*$)"  # so many digits
    r"(?!\d{1,8}$)(?!\d*\.\d*$)"  # no count, amount or measurement
    r"\+?\(?\d[\d ()./-]*( ?(x|ext\.?) ?\d{1,5})?"
)
_CODED = re.compile(r"\S*\d\S*")
_LONG = re.compile(r"\d{3}")
_IDENTIFIER = re.compile(
    r"(^|\b|_)(ids?|uuid|guid|respondent|participant|subject|user|person|token|email|ip|#)(\b|_|$)"
)
_POLITE = re.compile("could|enter|full|give|its|optional|please|provide|state|tell|type|us|we|what's|write")
_WHOSE = (
    "respondent|participant|subject|patient|student|employee|worker|customer|client|member|person|contact|emergency|"
    "home|house|work|office|business|private|personal|current|own|preferred|primary|secondary|main|other|alternative|"
    "first|last"
)
_WHAT = "|".join(
    (
        "((first|last|middle|family|given|maiden|second|nick|user|sur|fore) ?)?names?|initials",
        "e-? ?mails?( ?address)?|((tele|cell|mobile) ?)?phone|tel|mobile|cell|fax|emergency contact|contact details",
        "((ip|mac|street|mail|mailing|post|postal) ?)?address(es)?|ip|street|(post|postal|zip|pin) ?codes?|zip",
        "birth ?dates?|dates? birth|birthday|dob",
        "(respondent|participant|subject|patient|student|employee|member|account|card|id|insurance|contact) number",
        "social security|ssn|national insurance|passport|driving licen[cs]e|driver's licen[cs]e|medical record|iban",
    )
)
_ONE = rf"(({_WHOSE})('?s)? )*({_WHAT})( (number|no|nr|line))?( ?\d{{1,2}})?"
_ASKED = re.compile(rf"({_ONE} )*{_ONE}")
"""A whole header, without the words that fill it."""


def comes_back(column: Column) -> bool:
    """Whether these are times, or people's numbers, that come back often: the survey was blown up from fewer people."""
    few = OPTIONS < len(column.counts) <= REPEATED * column.given
    return few and (column.mostly(_TIMED) or (_numbers_people(column.name) and column.mostly(_CODED)))


def identifies(column: Column) -> str | None:
    """Why a column that has answers identifies a person, None where nothing says so."""
    if column.mostly(_ADDRESS):
        return "addresses: identify a person"
    if column.mostly(_DATE):
        return "dates or times: identify a person"
    if len(column.people) > WORDY * column.people.total() and column.mostly(_PHONE):
        return "telephone numbers: identify a person"
    if _asks_who(column.name) and not _ordinary(column):
        return "by its header a name, an address, a number or a date of birth: identifies a person"
    if column.distinct and _numbers_people(column.name):
        return "different in every row: identifies a person"
    return None


def _numbers_people(header: str) -> bool:
    return bool(_IDENTIFIER.search(apart(header)))


def _asks_who(header: str) -> bool:
    words = re.split("[ /&+]+", spaced(unbracketed(header)))
    asked = [word for word in words if not (FILLING.fullmatch(word) or _POLITE.fullmatch(word))]
    return bool(_ASKED.fullmatch(" ".join(asked)))


def _ordinary(column: Column) -> bool:
    """Whether the answers are a few that many people share, and none holds a number as long as a postcode's."""
    few = len(column.people) <= min(OPTIONS, REPEATED * column.people.total())
    return few and not any(_LONG.search(answer) for answer in column.people)

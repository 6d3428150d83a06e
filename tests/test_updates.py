"""Recordings of updates: what fits together, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from privbench.attack import Hints, view_of
from privbench.errors import InputError
from privbench.recording import MEMBER, Transcript
from privbench.threat import curious_outsider, server_with_candidates, server_with_updates_and_candidates
from privbench.updates import senders

Arrays = dict[str, npt.NDArray[Any]]
NAMED = [["embedding", [2, 3]], ["bias", [1]]]


def arrays() -> Arrays:
    """Two clients, three rounds, seven numbers; the second sends nothing in the second round."""
    rng = np.random.default_rng(0)
    made: Arrays = {"public/global": rng.standard_normal(7).astype(np.float32)}
    for number, client in enumerate(("a", "b")):
        made[f"updates/{client}"] = rng.standard_normal((3, 7)).astype(np.float32)
        made[f"updates/{client}/mask"] = np.array([1, 1 - number, 1], np.uint8)
        made[f"updates/{client}"] *= made[f"updates/{client}/mask"][:, None]
    return made


def test_a_recording_of_updates() -> None:
    made = Transcript(arrays(), {"parameters": NAMED, "samples": {"a": 5, "b": 2}, "missed": {"b": {"refused": [2]}}})
    assert senders(made.arrays) == ("a", "b")
    shown = {"updates/a/shown": np.array([2, 0, 1]), "updates/b/shown": np.array([2, 0, 1])}
    assert senders(Transcript(arrays() | shown).arrays) == ("a", "b")
    assert Transcript(arrays()).metadata["schema"] == "privbench/transcript/1"


def lengthened(made: Arrays) -> None:
    made["updates/b"] = np.zeros((3, 8), np.float32)


def fewer(made: Arrays) -> None:
    made["public/global"] = made["public/global"][:6]


def unmasked(made: Arrays) -> None:
    made["updates/b"][1, 2] = 1


def unlike(made: Arrays) -> None:
    made["updates/a/squares"] = np.ones(2)


def single(made: Arrays) -> None:
    made["asked/squares"] = np.ones((3, 4), np.float32)


def without_updates(made: Arrays) -> None:
    made["updates/a/shown"] = np.array([1, 0, 1])
    del made["updates/a"]


def negative(made: Arrays) -> None:
    made["updates/a/shown"] = np.array([1, -1, 1])


def unsent(made: Arrays) -> None:
    made["updates/b/shown"] = np.array([2, 3, 0])


@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        (lengthened, {}, r"'updates/b' has P updates = 8 where"),
        (fewer, {}, r"has P updates = 7 where 'public/global' has 6"),
        (unmasked, {}, r"'updates/b' holds an update in round 1, and its mask says that none was sent"),
        (unlike, {}, r"'updates/a/squares' has R updates = 2 where"),
        (single, {}, r"'asked/squares' has type float32; allowed: float64"),
        (
            without_updates,
            {},
            r"'updates/a/shown' says of how many records .*; it needs that array and counts of 0 and",
        ),
        (negative, {}, r"'updates/a/shown' says of how many records .*; it needs that array and counts of 0 and above"),
        (unsent, {}, r"'updates/b/shown' asks about 3 records of round 1, in which by 'updates/b/mask' nothing was"),
        (None, {"parameters": NAMED[:1]}, r"'parameters' in the metadata counts 6 numbers, an update has 7"),
        (None, {"parameters": "all"}, r"'parameters' in the metadata must be a list of \[name, shape\]"),
        (None, {"samples": {"c": 3}}, r"'samples' in the metadata names 'c', of whom there are no updates"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: Callable[[Arrays], None] | None, metadata: dict[str, Any], message: str
) -> None:
    made = arrays()
    if change is not None:
        change(made)
    with pytest.raises(InputError, match=message):
        Transcript(made, metadata)


def test_who_sees_what_of_updates() -> None:
    """Gradients at the state of a round are for whoever sees the rounds and holds the records."""
    named = ("losses", "squares", "squares/bias", "products/a", "products/a/bias")
    made = arrays() | {f"asked/{name}": np.ones((3, 4)) for name in named}
    transcript, full = Transcript(made), server_with_updates_and_candidates()

    def seen(threat: Any) -> set[str]:
        view = view_of(threat, transcript, secret=MEMBER, moved=(), candidates=np.arange(4), hints=Hints.none())
        return set(view.arrays)

    assert seen(full) == set(made)
    assert seen(replace(full, channels=frozenset())) == {"public/global"}
    assert seen(server_with_candidates()) == {"public/global"}
    assert seen(curious_outsider()) == set()


def filled_in() -> Arrays:
    """Three rounds, two tries of one questionnaire of two questions, of three answers and of two."""
    options = np.array([[[3], [4], [5]], [[6], [7], [-1]]])
    return arrays() | {
        "updates/a/shown": np.ones(3, np.int64),
        "public/form/template": np.array([1, -1, -1]),
        "public/form/options": options,
        "read/drawn": np.tile(np.array([[[2, 1]], [[-1, -1]]]), (3, 1, 1, 1)),
        "read/matches/a": np.zeros((3, 2)),
        "read/practice/held": np.zeros((3, 4, 2), np.int64),
        "read/practice/matches": np.zeros((3, 4, 2)),
    }


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("read/matches/a", None, None),
        ("read/drawn", None, r"'read/[a-z/]*' needs 'read/drawn', which is not there"),
        ("public/form/options", None, r"'read/drawn' needs 'public/form/options', which is not there"),
        ("updates/a/shown", None, r"'read/matches/a' needs 'updates/a/shown', which is not there"),
        (
            "read/drawn",
            np.full((3, 2, 1, 2), 2),
            r"option 2 of question 1, which 'public/form/options' does not",
        ),
        ("read/drawn", np.full((3, 2, 1, 2), -2), r"fills in option -2 of question 0"),
        ("read/drawn", np.zeros((3, 2, 1, 3), np.int64), r"has Q form = 3 where|has Q form = 2 where"),
        ("read/matches/a", np.full((3, 2), 1.5), r"'read/matches/a' is an agreement of signs, from -1 to 1"),
        ("read/matches/a", np.zeros((3, 3)), r"D read = "),
    ],
)
def test_what_a_server_filled_in_has_to_fit(name: str, values: npt.NDArray[Any] | None, message: str | None) -> None:
    made = filled_in()
    Transcript(made)
    if values is None:
        del made[name]
    else:
        made[name] = values
    if message is None:
        Transcript(made)
        return
    with pytest.raises(InputError, match=message):
        Transcript(made)


def test_who_sees_what_a_server_filled_in() -> None:
    transcript = Transcript(filled_in())
    for threat, seen in ((server_with_updates_and_candidates(), True), (server_with_candidates(), False)):
        view = view_of(threat, transcript, secret="a", moved=(), candidates=np.arange(3), hints=Hints.none())
        assert ("read/drawn" in view.arrays) == seen

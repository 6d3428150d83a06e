"""What an adversary that acts does to the tasks: closed cases, what is left out, and whether the interval covers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from privbench.harm import Harm, harms
from privbench.recording import Secrets, Transcript
from privbench.target import TargetRun

Array = npt.NDArray[Any]


def run(**arrays: Array | None) -> TargetRun:
    """A run with these outputs; task_labels stands for outputs/task/labels."""
    named = {f"outputs/{name.replace('_', '/')}": array for name, array in arrays.items() if array is not None}
    floats = {name: array.astype(np.float32) for name, array in named.items() if array.dtype.kind == "f"}
    return TargetRun(
        transcript=Transcript({"auxiliary/index": np.arange(2), **named, **floats}),
        oracle=None,
        secrets=Secrets({"member": np.array([0, 1], np.uint8)}),
        utility=(),
        diagnostics={},
        fingerprint="",
    )


LABELS = np.array([1, 0, 1, 0, 1, 0])[:, None]
RIGHT = LABELS.astype(np.float64)
PEOPLE = np.array([0, 0, 1, 1, 1, 1], np.uint8)
"""The first two records were trained on."""


def test_a_training_turned_round_loses_everything() -> None:
    honest = run(population=PEOPLE, ihm=RIGHT, ihm_labels=LABELS)
    (found,) = harms(honest, run(population=PEOPLE, ihm=-RIGHT, ihm_labels=LABELS))
    assert (found.task, found.honest, found.acted, found.change, found.n) == ("ihm", 1.0, 0.0, -1.0, 4)
    assert found.low == -1.0
    assert found.high < 1.0


def test_a_training_left_alone_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (300, 1))
    honest = run(population=np.ones(300, np.uint8), t=(labels + rng.standard_normal((300, 1))), t_labels=labels)
    (found,) = harms(honest, honest)
    assert found.change == 0.0
    assert found.honest == found.acted
    assert -0.1 < found.low < 0 < found.high < 0.1


def test_only_who_was_not_trained_on_counts() -> None:
    """On the two that were trained on, the acted run is right; on the others it says nothing."""
    acted = np.where(PEOPLE[:, None] == 1, 0.0, RIGHT)
    (found,) = harms(
        run(population=PEOPLE, ihm=RIGHT, ihm_labels=LABELS), run(population=PEOPLE, ihm=acted, ihm_labels=LABELS)
    )
    assert (found.acted, found.change) == (0.5, -0.5)


def test_several_labels_are_averaged_as_pairs() -> None:
    """Two columns: one forgotten, one kept, and one with a single class, which has no AUC."""
    labels = np.column_stack([LABELS[:, 0], 1 - LABELS[:, 0], np.ones(6, np.int64)])
    acted = labels * np.array([0.0, 1.0, 1.0])
    (found,) = harms(
        run(population=PEOPLE, p=labels.astype(np.float64), p_labels=labels),
        run(population=PEOPLE, p=acted, p_labels=labels),
    )
    assert (found.honest, found.acted, found.change) == (1.0, 0.75, -0.25)


def test_tasks_come_in_order_and_as_json() -> None:
    arrays: dict[str, Array] = {"population": PEOPLE}
    for task in ("b", "a"):
        arrays |= {task: RIGHT, f"{task}_labels": LABELS}
    found = harms(run(**arrays), run(**arrays))
    assert [item.task for item in found] == ["a", "b"]
    assert [Harm(**item.to_json()) for item in found] == list(found)


WHOLE: dict[str, Array | None] = {"population": PEOPLE, "ihm": RIGHT, "ihm_labels": LABELS}


@pytest.mark.parametrize(
    "less",
    [
        {"population": None},
        {"population": np.zeros(6, np.uint8)},
        {"ihm": None},
        {"ihm_labels": None},
        {"ihm_labels": np.ones((6, 1), np.int64)},
        {"ihm_labels": np.array([0, 1, 2, 1, 0, 2])[:, None]},
        {"ihm_labels": np.array([-1, 0, 1, -1, 1, 0])[:, None]},
        {"ihm": np.column_stack([RIGHT, RIGHT])},
    ],
    ids=["population", "nobody", "outputs", "labels", "one class", "classes", "unknown labels", "logits of classes"],
)
def test_without_an_auc_there_is_no_harm(less: dict[str, Array | None]) -> None:
    assert harms(run(**WHOLE), run(**WHOLE)) != ()
    assert harms(run(**(WHOLE | less)), run(**WHOLE)) == ()


def test_what_the_acted_run_did_not_record_is_left_out() -> None:
    acted = replace(run(**WHOLE), transcript=Transcript({"outputs/population": PEOPLE}))
    assert harms(run(**WHOLE), acted) == ()


def test_the_interval_covers_the_change() -> None:
    """200 populations of 300 records whose scores are two binormal ones of correlation .8, AUC .80 and .72: of 95%
    intervals at least 180 cover the true change; fewer happens once in 1,000, at a coverage of .95.
    """
    rng = np.random.default_rng(5)
    shifts = np.array([stats.norm.ppf(0.8), stats.norm.ppf(0.72)]) * 2**0.5
    covered, widths, alone = 0, [], []
    for _ in range(200):
        labels = (rng.random((300, 1)) < 0.3).astype(np.int64)
        scores = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 300) + labels * shifts
        honest, acted = (
            run(population=np.ones(300, np.uint8), t=scores[:, k : k + 1], t_labels=labels) for k in range(2)
        )
        (found,) = harms(honest, acted)
        covered += found.low <= -0.08 <= found.high
        widths.append(found.high - found.low)
        alone.append(found.change)
    assert covered >= 180
    assert np.mean(alone) == pytest.approx(-0.08, abs=4 * np.std(alone) / 200**0.5)
    assert np.mean(widths) < 1.5 * 2 * 1.96 * np.std(alone)

"""Losses from logits and true answers: the sums written out, logits that saturate, and what is wrong is named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from privbench.errors import InputError
from privbench.losses import population, record_losses, references, scaled_logits, tasks_of
from privbench.recording import Transcript

Arrays = dict[str, npt.NDArray[Any]]
PREFIXES = ("outputs", "checkpoints/outputs", "reference/outputs")

seeded = settings(derandomize=True, deadline=None, max_examples=40)


def drawn(seed: int, n: int = 6, models: int = 3, spread: float = 3.0) -> Arrays:
    """One task of four classes, one of three yes-or-no labels and one of a single label, under every model."""
    rng = np.random.default_rng(seed)
    labels = {"kind": rng.integers(0, 4, n), "many": rng.integers(0, 2, (n, 3)), "one": rng.integers(0, 2, (n, 1))}
    arrays: Arrays = {f"outputs/{task}/labels": values for task, values in labels.items()}
    for task, width in (("kind", 4), ("many", 3), ("one", 1)):
        for prefix in PREFIXES:
            shape = (n, width) if prefix == "outputs" else (models, n, width)
            arrays[f"{prefix}/{task}"] = (spread * rng.standard_normal(shape)).astype(np.float32)
    return arrays


def by_hand(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """One record's loss in one task, from the definitions."""
    values = [float(value) for value in logits]
    if labels.ndim == 0:
        return math.log(sum(math.exp(value) for value in values)) - values[int(labels)]
    shares = [1 / (1 + math.exp(-value)) for value in values]
    return -sum(math.log(p if y == 1 else 1 - p) for p, y in zip(shares, labels, strict=True)) / len(shares)


@seeded
@given(st.integers(0, 10_000), st.sampled_from(PREFIXES))
def test_a_loss_is_the_sum_over_tasks_of_their_cross_entropy(seed: int, prefix: str) -> None:
    arrays = drawn(seed)
    logits = {task: np.atleast_3d(arrays[f"{prefix}/{task}"].T).T for task in tasks_of(arrays)}
    expected = [
        [sum(by_hand(logits[task][model, n], arrays[f"outputs/{task}/labels"][n]) for task in logits) for n in range(6)]
        for model in range(len(logits["one"]))
    ]
    found = record_losses(arrays, prefix)
    assert found == pytest.approx(np.array(expected[0] if prefix == "outputs" else expected), rel=1e-9)
    assert found.dtype == np.float64


@pytest.mark.parametrize(
    ("logits", "labels", "loss"),
    [
        ([1_000, 0, 0, 0], 0, 0),
        ([-1_000, 0, 0, 0], 0, 1_000 + math.log(3)),
        ([-1_000, -1_000, 1_000, 1_000], 1, 2_000 + math.log(2)),
        ([-1_000, 1_000, -1_000], [0, 1, 0], 0),
        ([-1_000, 1_000, -1_000], [0, 0, 1], 2_000 / 3),
        ([1_000], [1], 0),
        ([-1_000], [1], 1_000),
    ],
)
def test_logits_that_saturate(logits: list[float], labels: Any, loss: float) -> None:
    """A probability is 0 or 1 in any arithmetic; the loss is the margin, or next to nothing and above it."""
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        (found,) = record_losses({"outputs/a": np.array([logits]), "outputs/a/labels": np.array([labels])})
    assert found == pytest.approx(loss, rel=1e-12, abs=1e-9)
    assert found > 0


def test_two_classes_are_one_yes_or_no_label() -> None:
    """Softmax over (0, v) is the sigmoid of v."""
    v, y = np.linspace(-20, 20, 41), np.arange(41) % 2
    classes = record_losses({"outputs/a": np.stack([np.zeros(41), v], axis=1), "outputs/a/labels": y})
    label = record_losses({"outputs/a": v[:, None], "outputs/a/labels": y[:, None]})
    assert classes == pytest.approx(label, rel=1e-12)


def test_a_constant_added_to_every_class_changes_nothing() -> None:
    arrays = drawn(1)
    shifted = {**arrays, "outputs/kind": arrays["outputs/kind"].astype(np.float64) + 300}
    assert record_losses(shifted) == pytest.approx(record_losses(arrays), rel=1e-9)


def test_a_task_without_true_answers_does_not_count() -> None:
    arrays = drawn(2)
    alone = {name: array for name, array in arrays.items() if name.startswith("outputs/one")}
    unknown = {**alone, "outputs/other": arrays["outputs/many"], "outputs/population": np.ones(6, np.uint8)}
    assert tasks_of(unknown) == ("one",)
    assert np.array_equal(record_losses(unknown), record_losses(alone))


def test_what_comes_from_a_file_is_the_same(tmp_path: Path) -> None:
    transcript = Transcript({**drawn(3), "reference/member": np.eye(3, 6, dtype=np.uint8)})
    transcript.save(tmp_path / "transcript.safetensors")
    again = Transcript.load(tmp_path / "transcript.safetensors")
    for prefix in PREFIXES:
        assert np.array_equal(record_losses(again.arrays, prefix), record_losses(transcript.arrays, prefix))
    before, after = references(transcript.arrays), references(again.arrays)
    assert before is not None
    assert after is not None
    assert np.array_equal(after.losses, before.losses)
    assert np.array_equal(after.member, before.member)


# References and population


def test_references_are_their_losses_and_whom_they_were_trained_on() -> None:
    arrays = drawn(4)
    assert references(arrays) is None
    member = np.array([[1, 0, 0, 1, 1, 0]] * 3, np.uint8)
    made = references({**arrays, "reference/member": member})
    assert made is not None
    assert np.array_equal(made.losses, record_losses(arrays, "reference/outputs"))
    assert made.member.dtype == np.bool_
    assert np.array_equal(made.member, member == 1)


def test_the_population_is_who_is_marked() -> None:
    assert population({}).tolist() == []
    assert population({"outputs/population": np.array([0, 1, 1, 0, 1], np.uint8)}).tolist() == [1, 2, 4]
    assert population({"outputs/population": np.zeros(3, np.uint8)}).tolist() == []


# Scaled logits


@seeded
@given(st.floats(1e-9, 30))
def test_scaled_logits_are_log_odds(loss: float) -> None:
    p = math.exp(-loss)
    # 1 - p by expm1: the difference itself has lost its digits where p is near 1.
    assert scaled_logits(np.array([loss]))[0] == pytest.approx(math.log(p) - math.log(-math.expm1(-loss)), rel=1e-9)


def test_scaled_logits_fall_as_the_loss_grows() -> None:
    losses = np.geomspace(1e-12, 600, 2_000)
    assert (np.diff(scaled_logits(losses)) < 0).all()


def test_the_surest_record_has_a_finite_scaled_logit() -> None:
    arrays = {"outputs/a": np.array([[1e6], [40.0], [0.0]]), "outputs/a/labels": np.ones((3, 1), int)}
    found = scaled_logits(record_losses(arrays))
    assert np.isfinite(found).all()
    assert found[2] == pytest.approx(special.logit(0.5), abs=1e-12)


# Errors


def test_without_any_true_answers() -> None:
    with pytest.raises(InputError, match="no 'outputs/TASK/labels' is recorded"):
        record_losses({"outputs/a": np.zeros((3, 2))})


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_task_that_is_missing_elsewhere_is_counted(prefix: str) -> None:
    arrays = drawn(5)
    del arrays[f"{prefix}/many"]
    with pytest.raises(InputError, match=f"'{prefix}/TASK' is recorded for 2 of 3 tasks; record it for all"):
        record_losses(arrays, prefix)


@pytest.mark.parametrize(
    ("logits", "labels", "said"),
    [
        ((3, 4), [0, 1, 4], r"'outputs/a/labels' is \[3\] with values 0 to 4; logits of \[3, 4\]"),
        ((3, 4), [0, -1, 3], r"'outputs/a/labels' is \[3\] with values -1 to 3"),
        ((3, 4), [0, 1], r"'outputs/a/labels' is \[2\] with values 0 to 1; logits of \[3, 4\]"),
        ((3, 4), [[0, 1], [1, 1], [0, 0]], r"'outputs/a/labels' is \[3, 2\]"),
        ((3, 1), [[0], [1], [2]], r"'outputs/a/labels' is \[3, 1\] with values 0 to 2"),
        ((3, 2), [[[0]], [[1]], [[1]]], r"'outputs/a/labels' is \[3, 1, 1\]"),
    ],
)
def test_answers_that_do_not_fit_are_named(logits: tuple[int, ...], labels: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        record_losses({"outputs/a": np.zeros(logits), "outputs/a/labels": np.array(labels)})
    assert "need one class per record, or 0 and 1 for each of their columns" in str(error.value)

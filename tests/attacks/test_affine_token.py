"""Affine token: a naive twin of its fit, cuts that hide the table from nearest token and not from it, clips undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privbench.attack import Reconstruction, View
from privbench.attacks.inversion.affine_token import Affine, AffineToken, RescaledToken
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.conformance.inversions import RECORDS, VICTIM, WIDTH, TokenStand, token_stand

NAME = f"activations/{VICTIM}"


def run(attack: NearestToken | AffineToken, view: View) -> Reconstruction:
    result = attack(view, np.random.default_rng(0))
    assert isinstance(result, Reconstruction)
    return result


def sending(stand: TokenStand, sent: Any) -> View:
    return replace(stand.view(), arrays={**stand.view().arrays, NAME: np.asarray(sent, np.float32)})


def mixing(seed: int, size: float) -> np.ndarray:
    """The identity and, of this size, a random matrix that keeps lengths on average."""
    drawn = np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
    return np.eye(WIDTH) + size * drawn


def clipped(sent: np.ndarray, share: float) -> np.ndarray:
    """To this share of the median norm."""
    norms = np.linalg.norm(sent, axis=-1, keepdims=True)
    return sent * np.minimum(1, share * np.median(norms) / norms)


@pytest.mark.parametrize("stiffness", [1e-9, 3.0])
def test_the_fit_is_its_naive_twin(stiffness: float) -> None:
    """Least squares over means of matches, with a row of its own for each penalised number."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((40, 6)).astype(np.float32)
    rows = rng.integers(0, 30, 200)
    sent = rng.standard_normal((200, 6)).astype(np.float32)
    start = Affine(rng.standard_normal((6, 6)), rng.standard_normal(6))
    seen, counts = np.unique(rows, return_counts=True)
    means = np.stack([sent[rows == row].mean(axis=0, dtype=np.float64) for row in seen])
    weights = np.sqrt(counts) / np.sqrt(counts).sum()
    given = table[seen].astype(np.float64)
    centred = given - weights @ given
    penalty = stiffness * (weights[:, None] * centred**2).sum() / 6
    left = means - given @ start.matrix - start.shift
    design = np.vstack([np.sqrt(weights)[:, None] * np.hstack([centred, np.ones((len(seen), 1))]),
                        np.sqrt(penalty) * np.eye(6, 7)])  # fmt: skip
    wanted = np.vstack([np.sqrt(weights)[:, None] * left, np.zeros((6, 6))])
    turn = np.linalg.lstsq(design, wanted, rcond=None)[0]
    found = start.fitted(sent, rows, table, stiffness)
    assert np.allclose(found.matrix, start.matrix + turn[:6], atol=1e-8)
    assert np.allclose(found.shift, start.shift + turn[6] - (weights @ given) @ turn[:6], atol=1e-8)


def test_right_matches_give_the_map() -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal((60, 8)).astype(np.float32)
    matrix, shift, rows = rng.standard_normal((8, 8)), rng.standard_normal(8), rng.integers(0, 60, 500)
    found = Affine.identity(8).fitted((table[rows] @ matrix + shift).astype(np.float32), rows, table, 1e-12)
    assert np.allclose(found.matrix, matrix, atol=1e-4)
    assert np.allclose(found.shift, shift, atol=1e-4)


def test_one_token_alone_leaves_the_map() -> None:
    """Where nothing but zeros is sent, for one."""
    table = np.ones((3, 4), np.float32)
    found = Affine.identity(4).fitted(np.zeros((5, 4), np.float32), np.zeros(5, np.int64), table, 3.0)
    assert np.array_equal(found.matrix, np.eye(4))
    assert np.array_equal(found.of(table[:1]), np.zeros((1, 4)))


def test_a_map_that_cannot_move_makes_it_nearest_token() -> None:
    view = token_stand(3, 1.5).view()
    plain, stiff = run(NearestToken(), view), run(AffineToken(iterations=0), view)
    assert np.array_equal(plain.single, stiff.single)
    one = replace(view, arrays={**view.arrays, NAME: np.asarray(view.array(NAME))[:1]})
    assert np.array_equal(run(AffineToken(iterations=0), one).accumulated, run(NearestToken(), one).accumulated)


@pytest.mark.parametrize("attack", [AffineToken(), RescaledToken()], ids=lambda attack: attack.card.name)
def test_a_shift_and_a_mixing_are_undone(attack: AffineToken) -> None:
    """On average over ten stands."""
    plain, undone = [], []
    for seed in range(10):
        here = token_stand(seed, releases=1)
        shift = 0.5 * np.random.default_rng(seed).standard_normal(WIDTH)
        view = sending(here, np.asarray(here.view().array(NAME)) @ mixing(seed, 1.0) + shift)
        plain.append(here.read(run(NearestToken(), view).single[0]).value)
        undone.append(here.read(run(attack, view).single[0]).value)
    assert np.mean(plain) < 0.85
    assert np.mean(undone) > 0.9


@pytest.mark.parametrize("attack", [AffineToken(), RescaledToken()], ids=lambda attack: attack.card.name)
def test_a_map_is_followed_from_release_to_release(attack: AffineToken) -> None:
    """From the identity to a map that no single release gives away."""
    here = token_stand(4, releases=1)
    rows = np.asarray(here.view().array(NAME))[0]
    found = run(attack, sending(here, np.stack([rows @ mixing(4, size) for size in (0, 1, 2, 4)])))
    assert here.read(found.single[-1]).value < 0.5
    assert here.read(found.accumulated[-1]).value > 0.99


def test_a_map_that_is_followed_averages_noise() -> None:
    """Where the first release alone is not read, later ones help only whoever follows the map."""
    here = token_stand(4, releases=1)
    rows = np.asarray(here.view().array(NAME))[0]
    moved = np.stack([rows @ mixing(4, size) for size in (0, 1, 2, 4)])
    noise = 0.5 * moved.std() * np.random.default_rng(4).standard_normal(moved.shape)
    view = sending(here, (moved + noise).astype(np.float32))
    followed, plain = (here.read(run(attack, view).accumulated[-1]).value for attack in (AffineToken(), NearestToken()))
    assert followed > 0.95
    assert plain < followed - 0.1


@pytest.mark.parametrize(("share", "plain"), [(0.5, 0.95), (0.01, 0.4)])
def test_a_clip_alone_is_undone_by_rescaling(share: float, plain: float) -> None:
    here = token_stand(5)
    view = sending(here, clipped(np.asarray(here.view().array(NAME)), share))
    found = run(RescaledToken(), view)
    assert min(here.read(guess).value for guess in (*found.single, *found.accumulated)) == pytest.approx(1)
    assert here.read(run(NearestToken(), view).single[0]).value < plain


def test_what_was_not_sent_is_not_said() -> None:
    here = token_stand(6)
    mask = np.ones((RECORDS, 30), np.uint8)
    mask[:, 20:] = 0
    found = run(AffineToken(), replace(here.view(), arrays={**here.view().arrays, f"{NAME}/mask": mask}))
    for tokens in (found.single, found.accumulated):
        assert (tokens[:, :, 20:] == -1).all()
        assert (tokens[:, :, :20] >= 0).all()

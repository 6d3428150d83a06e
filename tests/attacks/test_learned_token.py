"""Learned token: what is learned from public pairs alone, which inverter is chosen, and views it cannot work on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privbench.attack import NotApplicable, Reconstruction, View
from privbench.attacks.inversion.inverters import Pairs, inverter, standard
from privbench.attacks.inversion.learned_token import LearnedToken
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.conformance.inversions import RECORDS, VICTIM, VOCABULARY, WIDTH, token_stand
from privbench.stats.shares import share_interval

NAME = f"activations/{VICTIM}"
PUBLIC = "public/activations"


def run(view: View) -> Reconstruction:
    result = LearnedToken()(view, np.random.default_rng(0))
    assert isinstance(result, Reconstruction)
    return result


def with_arrays(view: View, arrays: dict[str, Any]) -> View:
    return replace(view, arrays={**view.arrays, **arrays})


def test_a_rotated_base_is_learned() -> None:
    """Which nearest token cannot read; shifts and stretches of the victim's own release change little."""
    here = token_stand(1)
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    sent, public = (np.asarray(here.view().array(name)) @ turn for name in (NAME, PUBLIC))
    for moved in (sent, 3 * sent + rng.standard_normal(WIDTH)):
        view = with_arrays(here.view(), {NAME: moved.astype(np.float32), PUBLIC: public.astype(np.float32)})
        found = run(view)
        assert min(here.read(guess).value for guess in (*found.single, *found.accumulated)) > 0.95
        plain = NearestToken()(view, rng)
        assert isinstance(plain, Reconstruction)
        assert here.read(plain.single[0]).value < 0.2


def test_the_linear_inverter_is_its_naive_twin() -> None:
    """Least squares with an intercept on the first four fifths of the texts; the ridge is as good as none."""
    rng = np.random.default_rng(2)
    table = rng.standard_normal((50, 6)).astype(np.float32)
    tokens = rng.integers(0, 50, (40, 12))
    tokens[::3, 9:] = -1
    made = (table[tokens] @ np.linalg.qr(rng.standard_normal((6, 6)))[0] * np.arange(1, 7)).astype(np.float32)
    found = inverter(Pairs.of(tokens, made, table), np.random.default_rng(0))
    assert (found.kind, found.learned, found.held) == ("linear", 1.0, 1.0)
    units = standard(made[tokens >= 0]).astype(np.float64)
    used = (tokens >= 0)[:32].sum()
    design = np.column_stack([units[:used], np.ones(used)])
    twin = np.linalg.lstsq(design, table[tokens[:32][tokens[:32] >= 0]], rcond=None)[0]
    assert np.allclose(found.rows(units.astype(np.float32)), units @ twin[:-1] + twin[-1], atol=1e-3)


def test_where_tokens_mix_with_those_before_the_recurrent_one_is_chosen() -> None:
    """A sum of each row and the one before it: no linear map takes it apart, whoever reads in order can. And what is
    read of texts that were held back is not beyond the learned ones' share by more than its interval.
    """
    rng = np.random.default_rng(3)
    table = rng.standard_normal((60, 12)).astype(np.float32)
    tokens = rng.integers(0, 60, (600, 20))
    rows = table[tokens]
    made = rows + np.pad(rows, [(0, 0), (1, 0), (0, 0)])[:, :-1]
    pairs = Pairs.of(tokens, made, table)
    found = inverter(pairs, np.random.default_rng(0))
    linear = inverter(Pairs.of(tokens, rows, table), np.random.default_rng(0))
    assert (found.kind, linear.kind) == ("GRU", "linear")
    learned, held = pairs.halves
    there = held.tokens >= 0
    nearest = ((linear.rows(held.units)[there][:, None] - table) ** 2).sum(axis=2).argmin(axis=1)
    assert found.held > 0.9 > (nearest == held.tokens[there]).mean()
    assert found.learned <= share_interval(found.held, len(held.tokens), 1 / len(held.tokens))[1]
    assert len(learned.tokens) == 480


def test_one_seed_one_inverter() -> None:
    rng = np.random.default_rng(4)
    table = rng.standard_normal((30, 8)).astype(np.float32)
    tokens = rng.integers(0, 30, (50, 10))
    pairs = Pairs.of(tokens, np.tanh(3 * table[tokens] + np.roll(table[tokens], 1, axis=1)), table)
    asked = rng.standard_normal((3, 10, 8)).astype(np.float32)
    first, again = (inverter(pairs, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first.rows(asked), again.rows(asked))


def test_standard_units_of_what_does_not_vary() -> None:
    assert np.array_equal(standard(np.full((4, 2), 7, np.float32)), np.zeros((4, 2)))


def test_what_was_not_sent_is_not_said() -> None:
    here = token_stand(6)
    mask = np.ones((RECORDS, 30), np.uint8)
    mask[:, 20:] = 0
    found = run(with_arrays(here.view(), {f"{NAME}/mask": mask}))
    for tokens in (found.single, found.accumulated):
        assert (tokens[:, :, 20:] == -1).all()
        assert (tokens[:, :, :20] >= 0).all()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({PUBLIC: np.zeros((60, 30, 7), np.float32)}, "public activations are [60, 30, 7], the victim's are 24 wide"),
        ({"public/tokens": np.full((60, 30), VOCABULARY)}, "hold token 300, the public table has 300 rows"),
        ({PUBLIC: np.zeros((4, 30, WIDTH)), "public/tokens": np.zeros((4, 30), int)}, "4 public texts are too few"),
    ],
)
def test_it_says_what_does_not_fit(arrays: dict[str, Any], said: str) -> None:
    result = LearnedToken()(with_arrays(token_stand(7).view(), arrays), np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    assert said in result.reason


@pytest.mark.parametrize("gone", [NAME, "public/embedding", PUBLIC, "public/tokens"])
def test_it_says_what_is_missing(gone: str) -> None:
    view = token_stand(8).view()
    bare = {name: array for name, array in view.arrays.items() if name != gone}
    result = LearnedToken()(replace(view, arrays=bare), np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    assert "the transcript holds no" in result.reason

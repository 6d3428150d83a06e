"""Nearest token: a naive twin, noise of known size, deeper cuts, and views it cannot work on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import special

from privbench.attack import NotApplicable, Reconstruction, View
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.conformance.inversions import RECORDS, VICTIM, token_stand
from privbench.threat import Knowledge

RNG = np.random.default_rng(0)


def run(view: View, attack: NearestToken | None = None) -> Reconstruction:
    result = (attack or NearestToken())(view, RNG)
    assert isinstance(result, Reconstruction)
    return result


def with_arrays(view: View, **arrays: Any) -> View:
    named = {name.replace("_", "/"): array for name, array in arrays.items()}
    return replace(view, arrays={**view.arrays, **named})


def test_it_is_its_naive_twin() -> None:
    view = token_stand(1, 1.5, releases=2).view()
    sent = np.asarray(view.array(f"activations/{VICTIM}"), np.float64)
    table = np.asarray(view.array("public/embedding"), np.float64)

    def nearest(h: np.ndarray) -> np.ndarray:
        return ((h[:, :, None, :] - table) ** 2).sum(-1).argmin(-1)

    found = run(view)
    for t in range(2):
        assert np.array_equal(found.single[t][:20], nearest(sent[t][:20]))
    read = nearest(sent[0])
    one, two = (1 / ((sent[t] - table[read]) ** 2).sum(-1).mean() for t in range(2))
    mean = (one * sent[0] + two * sent[1]) / (one + two)
    assert np.array_equal(found.accumulated[1][:20], nearest(mean[:20]))


def test_a_client_that_moved_away_hides_nothing_that_it_sent_before() -> None:
    """A release of another scale counts by what it still shows: a plain mean of both would be read as the second."""
    here = token_stand(6, releases=1)
    rows = np.asarray(here.view().array(f"activations/{VICTIM}"))[0]
    turned = 8 * rows @ np.linalg.qr(np.random.default_rng(6).standard_normal((rows.shape[2],) * 2))[0]
    arrays = {**here.view().arrays, f"activations/{VICTIM}": np.stack([rows, turned]).astype(np.float32)}
    found = run(replace(here.view(), arrays=arrays))
    assert here.read(found.single[1]).value < 0.3
    assert here.read(found.accumulated[1]).value > 0.99


def test_noise_of_one_size_is_averaged_as_by_a_plain_mean() -> None:
    """Of noise alone the plain mean is the best reader; the weighted one reads as much, to one hundredth."""
    here = token_stand(7, 3.0, releases=8)
    view = here.view()
    sent, table = (np.asarray(view.array(name), np.float32) for name in (f"activations/{VICTIM}", "public/embedding"))
    plain = np.stack([(((row[:, None] - table) ** 2).sum(-1)).argmin(-1) for row in sent.mean(0)])
    weighted = here.read(run(view).accumulated[-1]).value
    assert 0.5 < weighted < 0.99
    assert abs(weighted - here.read(plain).value) < 0.01


def test_blocks_change_nothing() -> None:
    view = token_stand(2, 2.0).view()
    whole, parts = run(view), run(view, NearestToken(rows=7, vocabulary=11))
    assert np.array_equal(whole.single, parts.single)
    assert np.array_equal(whole.accumulated, parts.accumulated)


def test_repeated_activations_are_looked_up_once_and_read_alike() -> None:
    """Also where two different activations look the same to what finds repetitions."""
    view = token_stand(5, 1.0).view()
    once = np.asarray(view.array(f"activations/{VICTIM}"))
    mark = np.cos(np.float32(1.0))
    twice = np.concatenate([once, once, once], axis=2)
    arrays = {f"activations/{VICTIM}": twice, "public/embedding": view.array("public/embedding")}
    found = run(replace(view, arrays=arrays))
    assert np.array_equal(found.single, np.concatenate([run(view).single] * 3, axis=2))
    alike = np.tile(np.array([[mark, 0.0], [0.0, 1.0]], np.float32), (RECORDS, 50, 1))[None]
    table = np.array([[0.0, 1.0], [mark, 0.0]], np.float32)
    arrays = {f"activations/{VICTIM}": alike, "public/embedding": table}
    assert np.array_equal(run(replace(view, arrays=arrays)).single[0], np.tile([1, 0], (RECORDS, 50)))


def test_two_rows_under_noise_are_told_apart_at_the_rate_of_their_distance() -> None:
    """P(right) = Phi(|e1 - e0| / (2 sigma)); 40,000 tokens, 4 standard errors."""
    rng = np.random.default_rng(3)
    table = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    tokens = rng.integers(0, 2, (RECORDS, 267))
    sent = (table[tokens] + 4 * rng.standard_normal((RECORDS, 267, 2))).astype(np.float32)[None]
    view = token_stand(3).view()
    arrays = {f"activations/{VICTIM}": sent, "public/embedding": table}
    right = (run(replace(view, arrays=arrays)).single[0] == tokens).mean()
    expected = special.ndtr(5 / 8)
    assert abs(right - expected) < 4 * math.sqrt(expected * (1 - expected) / tokens.size)


def test_what_was_not_sent_is_not_said() -> None:
    here = token_stand(4)
    mask = np.ones((RECORDS, 30), np.uint8)
    mask[:, 20:] = 0
    found = run(replace(here.view(), arrays={**here.view().arrays, f"activations/{VICTIM}/mask": mask}))
    assert (found.single[:, :, 20:] == -1).all()
    assert (found.single[:, :, :20] >= 0).all()


def test_a_rotated_cut_stops_it() -> None:
    """Nearest neighbour is no proof of safety: a linear map hides every row from it and hides nothing."""
    here = token_stand(5)
    rotation = np.linalg.qr(np.random.default_rng(5).standard_normal((24, 24)))[0].astype(np.float32)
    name = f"activations/{VICTIM}"
    turned = replace(here.view(), arrays={**here.view().arrays, name: np.asarray(here.view().array(name)) @ rotation})
    assert here.read(run(here.view()).single[0]).value == pytest.approx(1)
    assert here.read(run(turned).single[0]).value < 0.1


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({f"activations/{VICTIM}": np.zeros((3, RECORDS, 8), np.float32)}, "no token activations"),
        ({"public/embedding": np.zeros((5, 7), np.float32)}, "are 24 wide"),
    ],
)
def test_it_says_what_a_view_lacks(arrays: dict[str, Any], said: str) -> None:
    view = token_stand(6).view()
    result = NearestToken()(replace(view, arrays={**view.arrays, **arrays}), RNG)
    assert isinstance(result, NotApplicable)
    assert said in result.reason


def test_it_needs_the_public_table() -> None:
    here = token_stand(7)
    bare = {name: array for name, array in here.view().arrays.items() if name != "public/embedding"}
    result = NearestToken()(replace(here.view(), arrays=bare), RNG)
    assert isinstance(result, NotApplicable)
    assert "no public embedding table" in result.reason


def test_who_does_not_know_the_base_does_not_see_its_table() -> None:
    here = token_stand(8)
    ignorant = replace(here.threat, knowledge=frozenset({Knowledge.MECHANISM}))
    view = here.view(ignorant)
    assert "public/embedding" not in view.arrays
    result = NearestToken()(view, RNG)
    assert isinstance(result, NotApplicable)
    assert "needs to know the base" in result.reason

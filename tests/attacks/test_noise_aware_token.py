"""The reader that knows the noise: its chain by naive twins, its readings beside a look-up's, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from privbench.attack import NotApplicable, Reconstruction, View
from privbench.attacks.inversion.chains import Chain
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.attacks.inversion.noise_aware_token import NoiseAwareToken, _clipped
from privbench.conformance.inversions import VICTIM, TokenStand, token_stand
from privbench.mechanism import Mechanism

WORDS = 5
TEXTS = np.array([[0, 1, 0, 1, -1], [1, 1, 2, -1, -1], [0, 2, 0, 1, 3]])


def smoothed(first: int, second: int) -> float:
    """Witten and Bell's share of `second` after `first`, counted one by one."""
    pairs = [(a, b) for text in TEXTS for a, b in pairwise(text) if min(a, b) >= 0]
    singles = [token for text in TEXTS for token in text if token >= 0]
    alone = (singles.count(second) + len(set(singles)) / WORDS) / (len(singles) + len(set(singles)))
    after = [b for a, b in pairs if a == first]
    kinds = max(len(set(after)), 1)
    return (after.count(second) + kinds * alone) / (len(after) + kinds)


def test_shares_after_a_token_are_those_of_their_naive_twin_and_sum_to_1() -> None:
    chain, everything = Chain.of([TEXTS], WORDS), np.arange(WORDS)[None]
    found = chain._following(everything, everything)[0]
    twin = [[smoothed(a, b) for b in range(WORDS)] for a in range(WORDS)]
    np.testing.assert_allclose(found, twin, rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert chain.shares.sum() == pytest.approx(1)


def test_marginals_are_those_of_all_paths() -> None:
    """Three places of three candidates each: 27 paths, one by one."""
    chain, rng = Chain.of([TEXTS], WORDS), np.random.default_rng(0)
    likely = np.stack([rng.permuted(np.arange(WORDS))[:3] for _ in range(3)])[None]
    fit = rng.normal(size=(1, 3, 3)).astype(np.float32) * 3
    total = np.zeros((3, 3))
    for path in product(range(3), repeat=3):
        tokens = [int(likely[0, place, at]) for place, at in enumerate(path)]
        weight = float(chain.shares[tokens[0]]) * np.exp(sum(fit[0, place, at] for place, at in enumerate(path)))
        weight *= smoothed(tokens[0], tokens[1]) * smoothed(tokens[1], tokens[2])
        for place, at in enumerate(path):
            total[place, at] += weight
    expected = total / total.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chain.marginals(likely, fit)[0], expected, rtol=1e-4, atol=1e-6)


def test_a_clip_shortens_and_keeps_directions() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], np.float32)
    np.testing.assert_allclose(_clipped(rows, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6)
    assert _clipped(rows, None) is rows


def read(attack: NoiseAwareToken | NearestToken, here: TokenStand) -> float:
    found = attack(here.view(), np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    return here.read(found.accumulated[-1]).value


def test_behind_noise_it_reads_more_than_a_look_up() -> None:
    """On every one of five stands, whose records share a template and options: by chance alone once in 32."""
    for seed in range(5):
        here = token_stand(seed, 2.5)
        assert read(NoiseAwareToken(), here) > read(NearestToken(), here)


def test_another_size_of_noise_than_was_drawn_reads_less() -> None:
    """Told of a tenth of the noise it trusts what it receives, and takes the nearest row."""
    here = token_stand(1, 3.0)
    (described,) = here.transcript.mechanisms
    wrong = replace(described, sigma={"cut": 0.3})
    view = replace(here.view(), mechanisms=(wrong,))
    found = NoiseAwareToken()(view, np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    assert read(NoiseAwareToken(), here) > here.read(found.accumulated[-1]).value


def described(kind: str, **sizes: float) -> tuple[Mechanism, ...]:
    sigma = {"cut": 1.0} if kind == "gaussian" else {}
    return (Mechanism("activations", VICTIM, kind, sigma=sigma, **sizes),)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanisms", [(), described("none", clip=1.0), described("d-chi", eps=2.0)])
def test_without_described_noise_it_has_nothing_to_go_by(mechanisms: tuple[Mechanism, ...]) -> None:
    view = replace(token_stand(0).view(), mechanisms=mechanisms)
    found = NoiseAwareToken()(view, np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert found.reason == f"no Gaussian noise is described on what {VICTIM} sends"


def moved(view: View) -> View:
    name = "public/activations"
    made = np.asarray(view.array(name))
    return replace(view, arrays={**view.arrays, name: made + 0.1 * made[:, ::-1]})


def test_behind_layers_it_is_no_use() -> None:
    found = NoiseAwareToken()(moved(token_stand(0).view()), np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert found.reason.startswith("behind layers")

"""What the attacks behind public layers share: what they leave unread, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from layer_stand import base, read, stand

from privbench.attack import NotApplicable
from privbench.attacks.inversion.behind_layers import BehindLayers
from privbench.attacks.inversion.bottoms import Bottom
from privbench.attacks.inversion.relaxation import Relaxation
from privbench.attacks.inversion.searched_token import SearchedToken
from privbench.trunks import PREFIX

BOTH = pytest.mark.parametrize("attack", [SearchedToken(), Relaxation()], ids=lambda attack: attack.card.name)


@BOTH
def test_padding_stays_unread(attack: BehindLayers) -> None:
    view, tokens = stand(2, releases=2)
    found = read(attack, view)
    for guess in (*found.single, *found.accumulated):
        assert ((guess == -1) == (tokens < 0)).all()


@BOTH
@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (PREFIX, "no public layers before the cut"),
        ("public/tokens", "no public texts"),
        (f"{PREFIX}rotary", "the public layers lack"),
    ],
)
def test_what_it_lacks_is_said(attack: BehindLayers, left_out: str, said: str) -> None:
    view, _ = stand(0)
    kept = {name: array for name, array in view.arrays.items() if not name.startswith(left_out)}
    found = attack(replace(view, arrays=kept), np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert said in found.reason


@BOTH
def test_where_there_is_nothing_to_read_or_to_choose_from_it_says_so(attack: BehindLayers) -> None:
    view, _ = stand(0)
    unsent = {"activations/c/mask": np.zeros_like(view.array("activations/c/mask"))}
    alone = {"public/embedding": view.array("public/embedding")[:1], "public/tokens": np.zeros((150, 20), np.int64)}
    for arrays, said in ((unsent, "c sent no token"), (alone, "has one row")):
        found = attack(replace(view, arrays={**view.arrays, **arrays}), np.random.default_rng(0))
        assert isinstance(found, NotApplicable)
        assert said in found.reason


def test_records_of_any_length_are_what_the_layers_make_of_them() -> None:
    """Where a record ends does not change what stands before."""
    view, tokens = stand(4)
    table = base().model.embed_tokens.weight.detach().numpy()
    made, there = Bottom.of(view, table).made(tokens), tokens >= 0
    np.testing.assert_allclose(made[there], np.asarray(view.array("activations/c"))[0][there], rtol=1e-4, atol=1e-4)

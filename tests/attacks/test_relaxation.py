"""The relaxation behind public layers: stands whose tokens are known, and one whose layers are others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from layer_stand import read, share, stand

from privbench.attacks.inversion.relaxation import Relaxation
from privbench.trunks import PREFIX


def test_behind_a_layer_that_everybody_knows_nearly_all_is_read() -> None:
    view, tokens = stand(0)
    assert share(read(Relaxation(), view), tokens) > 0.98


def test_with_the_layers_of_another_base_it_reads_less_than_it_was_given() -> None:
    """The candidates are as good as before: it is the layers that tell."""
    view, tokens = stand(1, turn=0.25)
    rng = np.random.default_rng(5)
    others = {
        name: rng.permutation(np.asarray(array).ravel()).reshape(array.shape) if name.endswith("proj.weight") else array
        for name, array in view.arrays.items()
        if name.startswith(PREFIX)
    }
    elsewhere = replace(view, arrays={**view.arrays, **others})
    right, wrong = (share(read(Relaxation(), seen), tokens) for seen in (view, elsewhere))
    untouched = share(read(Relaxation(steps=2, rate=0.0), view), tokens)
    assert wrong < untouched < right


def test_one_seed_one_reading() -> None:
    view, _ = stand(3, turn=0.25)
    first, second = (read(Relaxation(), view) for _ in range(2))
    np.testing.assert_array_equal(first.single, second.single)

"""BiSR: forwards it is the learned inverter; backwards it reads the outcome's answer, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from privbench.attack import Inversion, NotApplicable, Reconstruction, View
from privbench.attacks.inversion.bisr import BiSR
from privbench.attacks.inversion.learned_token import LearnedToken
from privbench.attacks.label.output_gradients import Readout, cosines
from privbench.conformance.inversions import LENGTH, VICTIM, TokenStand, token_stand
from privbench.threat import curious_server

LABEL = slice(LENGTH - 2, LENGTH)
"""The places of the last answer, which ends every record of the stand."""


def read(attack: Inversion, view: View) -> Reconstruction:
    found = attack(view, np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    return found


def noised(stand: TokenStand, noise: float) -> View:
    """The stand with noise on the activations alone, as a client may add it."""
    view, name = stand.view(), f"activations/{VICTIM}"
    sent = np.asarray(view.array(name))
    blur = noise * np.random.default_rng(1).standard_normal(sent.shape).astype(np.float32)
    return replace(view, arrays={**view.arrays, name: sent + blur})


@pytest.mark.parametrize("sure", [0.0, 3.0])
def test_the_quick_form_is_the_plain_one(sure: float) -> None:
    """Cosines with every token's gradient at once, and one after the other; also where the base is sure."""
    rng = np.random.default_rng(0)
    readout = Readout(1 + 0.1 * rng.standard_normal(8), rng.standard_normal((40, 8)))
    outputs = rng.standard_normal((6, 8)) + sure * readout.head[:6]
    found = rng.standard_normal((6, 8))
    found[-1] = 0
    plain = cosines(found, readout.gradients(outputs, np.tile(np.arange(40), (6, 1))))
    assert np.allclose(readout.nearness(found, outputs), plain, atol=1e-9)
    assert not plain[-1].any()


def test_noise_on_activations_hides_no_answer_from_its_gradient() -> None:
    stand = token_stand(1)
    view = noised(stand, 4.0)
    forward, both = read(LearnedToken(), view), read(BiSR(), view)
    said = stand.truth.tokens[:, LABEL]
    assert (forward.single[:, :, LABEL] == said).mean() < 0.5
    for found in (both.single, both.accumulated):
        assert (found[:, :, LABEL] == said).all()


def test_backwards_speaks_about_the_last_answer_alone() -> None:
    view = noised(token_stand(2), 2.0)
    forward, both = read(LearnedToken(), view), read(BiSR(), view)
    for one, other in ((forward.single, both.single), (forward.accumulated, both.accumulated)):
        assert np.array_equal(one[:, :, : LABEL.start], other[:, :, : LABEL.start])


def test_answers_of_several_lengths_end_where_their_record_ends() -> None:
    """Every other record is one token shorter, and so is its answer."""
    stand = token_stand(3)
    arrays: dict[str, npt.NDArray[Any]] = {name: np.array(array) for name, array in stand.view().arrays.items()}
    short = np.arange(0, len(stand.truth.tokens), 2)
    arrays[f"activations/{VICTIM}/mask"][short, LENGTH - 1 :] = 0
    arrays["activations/server/mask"][short, 1] = 0
    found = read(BiSR(), replace(stand.view(), arrays=arrays)).single
    assert (found[:, short, LENGTH - 2] == stand.truth.tokens[short, LENGTH - 2]).all()
    assert (found[:, short, LENGTH - 1] == -1).all()
    rest = np.setdiff1d(np.arange(len(stand.truth.tokens)), short)
    assert (found[:, rest, LABEL] == stand.truth.tokens[rest, LABEL]).all()


def test_blocks_change_nothing() -> None:
    view = noised(token_stand(4), 1.0)
    assert np.array_equal(read(BiSR(at_once=7), view).single, read(BiSR(), view).single)


def without(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("public/tokens"), "holds no public texts"),
        (without("gradients/server"), "needs 'gradients/server', which was not recorded"),
        (
            lambda arrays: {**arrays, f"activations/{VICTIM}/mask": np.eye(150, LENGTH, dtype=np.uint8)},
            "record 0 has a longer answer than it sent",
        ),
    ],
)
def test_what_it_cannot_read_is_said(change: Callable[[Mapping[str, Any]], dict[str, Any]], said: str) -> None:
    view = token_stand(5).view()
    refused = BiSR()(replace(view, arrays=change(view.arrays)), np.random.default_rng(0))
    assert isinstance(refused, NotApplicable)
    assert said in refused.reason


def test_a_server_that_holds_the_labels_has_no_backward_half() -> None:
    refused = BiSR()(token_stand(6).view(curious_server()), np.random.default_rng(0))
    assert isinstance(refused, NotApplicable)
    assert refused.reason == "needs the channel gradients, which curious server does not see"

"""A recorded encoder rebuilt: what it makes of inputs, that gradients flow through it, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from conftest import SMALL
from torch import nn

from privbench.encoders import encoder_of
from privbench.errors import InputError
from privbench.estimates import told_of
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.series import encoded
from privbench.target import MEMBERS, TargetRun
from privbench.targets.prism.target import Prism

HOURS, FEATURES, WIDTH = 4, 3, 5


@pytest.fixture(scope="module")
def members(registry: Registry) -> TargetRun:
    """PRISM's members' run, made small."""
    options = AuditOptions("prism", eps=0.5, settings={**SMALL, "epochs": "1"})
    return Prism().run(Prism().configure(options, registry).as_role(MEMBERS), stream(0, "run"))


@pytest.mark.parametrize("site", ["A", "B", "C"])
def test_the_rebuilt_encoder_sends_what_was_recorded(members: TargetRun, site: str) -> None:
    """To 1e-5 of numbers between -1 and 1, with gaps in the inputs as they were."""
    sent = np.asarray(members.transcript.array(f"activations/{site}")[-1])
    inputs, observed = told_of(members.secrets.arrays, f"inputs/{site}")
    parameters = {
        name.removeprefix(f"model/{site}/"): np.asarray(values)
        for name, values in members.transcript.arrays.items()
        if name.startswith(f"model/{site}/")
    }
    encoder = encoder_of(parameters, *inputs.shape[1:3], width=sent.shape[1])
    assert encoder.recurrent
    assert not observed.all()
    with torch.inference_mode():
        again = encoder.build()(torch.from_numpy(encoder.entering(inputs, observed).astype(np.float32))).numpy()
    assert np.abs(again - sent).max() < 1e-5
    assert sent.std() > 0.01


def linear(rng: np.random.Generator, bias: bool = True) -> dict[str, npt.NDArray[Any]]:
    weight = rng.standard_normal((WIDTH, HOURS * FEATURES))
    return {"weight": weight} | ({"bias": rng.standard_normal(WIDTH)} if bias else {})


def recurrent(rng: np.random.Generator, layers: int = 2) -> dict[str, npt.NDArray[Any]]:
    found = {"mean": rng.standard_normal(FEATURES), "spread": rng.uniform(0.5, 2, FEATURES)}
    for layer in range(layers):
        reads = WIDTH if layer else 2 * FEATURES
        for name, shape in (("weight_ih", (4 * WIDTH, reads)), ("weight_hh", (4 * WIDTH, WIDTH))):
            found[f"{name}_l{layer}"] = 0.4 * rng.standard_normal(shape)
        found |= {f"bias_{part}_l{layer}": 0.4 * rng.standard_normal(4 * WIDTH) for part in ("ih", "hh")}
    return found


def named(module: nn.Module, **more: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    return {name: values.numpy() for name, values in module.state_dict().items()} | more


SCALE = {"mean": np.zeros(FEATURES), "spread": np.ones(FEATURES)}
LSTM = named(nn.LSTM(2 * FEATURES, WIDTH), **SCALE)


@pytest.fixture
def measured() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((7, HOURS, FEATURES)), rng.random((7, HOURS, FEATURES)) < 0.7


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_encoder_is_its_matrix(
    measured: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]], bias: bool
) -> None:
    parameters = linear(np.random.default_rng(0), bias)
    encoder = encoder_of(parameters, HOURS, FEATURES, WIDTH)
    entering = encoder.entering(*measured)
    wanted = measured[0].reshape(7, -1) @ parameters["weight"].T + parameters.get("bias", 0.0)
    assert encoder.build()(torch.from_numpy(entering.astype(np.float32))).numpy() == pytest.approx(wanted, abs=1e-5)
    assert (encoder.inputs(entering) == measured[0]).all()


def sigmoid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_recurrent_encoder_is_that_of_a_loop(
    measured: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]], layers: int
) -> None:
    """Hour by hour (Hochreiter, Schmidhuber 1997), gates in torch's order: input, forget, cell, output."""
    parameters = recurrent(np.random.default_rng(0), layers)
    encoder = encoder_of(parameters, HOURS, FEATURES, WIDTH)
    read: npt.NDArray[np.float64] = encoded(*measured, parameters["mean"], parameters["spread"]).astype(np.float64)
    for layer in range(layers):
        state, cell, states = np.zeros((7, WIDTH)), np.zeros((7, WIDTH)), []
        for hour in range(HOURS):
            gates = read[:, hour] @ parameters[f"weight_ih_l{layer}"].T + parameters[f"bias_ih_l{layer}"]
            gates += state @ parameters[f"weight_hh_l{layer}"].T + parameters[f"bias_hh_l{layer}"]
            let_in, keep, new, out = np.split(gates, 4, axis=1)
            cell = sigmoid(keep) * cell + sigmoid(let_in) * np.tanh(new)
            state = sigmoid(out) * np.tanh(cell)
            states.append(state)
        read = np.stack(states, axis=1)
    entering = torch.from_numpy(encoder.entering(*measured).astype(np.float32))
    assert encoder.build()(entering).numpy() == pytest.approx(read[:, -1], abs=1e-5)


@pytest.mark.parametrize("parameters", [linear(np.random.default_rng(2)), recurrent(np.random.default_rng(2))])
def test_gradients_flow_to_what_enters_and_not_to_the_encoder(
    measured: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]], parameters: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Against finite differences, in every number that enters of one record."""
    encoder = encoder_of(parameters, HOURS, FEATURES, WIDTH)
    run = encoder.build()
    entering = torch.from_numpy(encoder.entering(*measured)[:1].astype(np.float32)).requires_grad_()
    (slope,) = torch.autograd.grad(run(entering).sum(), entering)
    step = 1e-2 * torch.eye(entering.shape[1])
    with torch.inference_mode():
        off = (run(entering + step) - run(entering - step)).sum(dim=1) / 2e-2
    assert slope[0].numpy() == pytest.approx(off.numpy(), abs=2e-3)
    assert (slope != 0).all()


def test_values_that_were_measured_come_back_in_their_units(
    measured: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]],
) -> None:
    """All but what lies beyond six of the encoder's units, which is cut off there."""
    values, observed = measured
    scale = {"mean": np.array([0.0, 1.0, 0.0]), "spread": np.array([1.0, 2.0, 0.01])}
    encoder = encoder_of(LSTM | scale, HOURS, FEATURES, WIDTH)
    back = encoder.inputs(encoder.entering(values, observed))
    assert back.shape == values.shape
    wanted = np.clip(values, scale["mean"] - 6 * scale["spread"], scale["mean"] + 6 * scale["spread"])
    assert back[observed] == pytest.approx(wanted[observed], abs=1e-5)
    assert (wanted != values).any()


def test_what_holds_no_state_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    encoder_of(recurrent(np.random.default_rng(4)), HOURS, FEATURES, WIDTH).build()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "no parameter 'weight' beside nothing"),
        ({"kernel": np.ones((WIDTH, HOURS * FEATURES))}, "an unknown parameter 'kernel'"),
        (
            named(nn.Linear(HOURS * FEATURES, WIDTH), scale=np.ones(1)),
            "an unknown parameter 'scale' beside bias, weight",
        ),
        (named(nn.Linear(FEATURES, WIDTH)), r"weight has shape \[5, 3\]; .*has \[5, 12\] there"),
        (named(nn.Linear(HOURS * FEATURES, WIDTH + 1)), r"bias has shape \[6\]|weight has shape \[6, 12\]"),
        ({name: values for name, values in LSTM.items() if name != "spread"}, "no parameter 'spread'"),
        ({name: values for name, values in LSTM.items() if name != "bias_hh_l0"}, "no parameter 'bias_hh_l0'"),
        (named(nn.LSTM(2 * FEATURES, WIDTH, bidirectional=True), **SCALE), "parameter '.*_reverse'"),
        (named(nn.LSTM(2 * FEATURES, WIDTH, proj_size=2), **SCALE), "an unknown parameter 'weight_hr_l0'"),
        (named(nn.GRU(2 * FEATURES, WIDTH), **SCALE), r"has shape \[15.*has \[20"),
        (named(nn.LSTM(FEATURES, WIDTH), **SCALE), r"weight_ih_l0 has shape \[20, 3\]; .*\[20, 6\]"),
        (LSTM | {"mean": np.zeros(FEATURES + 1)}, r"mean has shape \[4\]; .*\[3\]"),
    ],
)
def test_what_is_of_no_known_kind_or_does_not_fit_is_named(
    parameters: Mapping[str, npt.NDArray[Any]], said: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        encoder_of(parameters, HOURS, FEATURES, WIDTH)
    assert "model/SITE" in str(refused.value)


def test_another_size_of_inputs_or_of_the_cut_is_refused() -> None:
    good = encoder_of(LSTM, HOURS, FEATURES, WIDTH)
    assert replace(good, hours=9).recurrent  # an LSTM reads any number of hours
    for hours, features, width in ((HOURS, FEATURES + 1, WIDTH), (HOURS, FEATURES, WIDTH - 1)):
        with pytest.raises(InputError, match="has shape"):
            encoder_of(LSTM, hours, features, width)

"""An audit that could measure nothing is refused before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from conftest import CommandLine

from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.reach import require_measurable
from privbench.registry import Registry
from privbench.target import Target


def require(
    target: str, attacks: tuple[str, ...], registry: Registry, settings: Mapping[str, str], **more: Any
) -> None:
    made: Target = registry.get("targets", target)()
    config = made.configure(AuditOptions(target, settings=settings, **more), registry)
    chosen = registry.select("attacks", attacks)
    require_measurable(target, made, config, made.describe(config), chosen, registry)


@pytest.mark.parametrize(
    ("target", "attack", "settings", "why"),
    [
        ("split-llama", "inversion/bisr", {}, "bisr: needs the channel gradients, which curious server does not see"),
        ("split-llama", "inversion/relaxation", {}, "of which there are none at k=0"),
        ("split-llama", "inversion/learned-token", {"public": "0"}, "public texts or more, there are 0"),
        ("split-llama", "inversion/noise-aware-token", {}, "needs to know the mechanism, which curious server does"),
        ("split-llama", "membership", {"tuned": "no"}, "no run of this audit put records into the training by coins"),
        ("split-llama", "membership", {"members": "no"}, "no run of this audit put records into the training by coins"),
        ("split-llama", "label", {}, "no record of this run carries a label coin"),
        ("fedavg", "membership/update-cosine", {"members": "no"}, "put records into the training by coins"),
        ("fedavg", "membership/lira", {"references": "0"}, "lira: needs 4 reference models, there are 0"),
        ("fedavg", "inversion/nearest-token", {}, "needs the channel activations"),
        ("fedavg", "inversion/update-match", {"forms": "0"}, "needs 4 or more questionnaires of the server's own"),
        ("fedavg", "label/update-counts", {"forms": "3"}, "there are 3 .--set forms."),
        ("fedavg", "membership/fedmia", {"clients": "1"}, "needs 2 updates in a round, and the server sees 1"),
        ("fedavg", "membership/fedmia", {"fraction": "0.25"}, "needs 2 updates in a round, and the server sees 1"),
        ("fedavg", "inversion/ridge", {}, "no party's inputs were recorded as numbers"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    registry: Registry, target: str, attack: str, settings: Mapping[str, str], why: str
) -> None:
    with pytest.raises(InputError, match=f"could measure anything here .*{why}.*Change --attacks, or --set"):
        require(target, (attack,), registry, settings)
    require(target, ("all",), registry, settings)


def test_no_update_is_held_against_others_where_sums_are_seen(registry: Registry) -> None:
    with pytest.raises(InputError, match="needs 2 updates in a round, and the server sees 1"):
        require("fedavg", ("membership/fedmia",), registry, {}, defenses=("secure-aggregation",))
    require("fedavg", ("membership/fedmia",), registry, {}, defenses=("top-k:share=0.1",))


def test_noise_is_read_where_no_layer_has_mixed_rows(registry: Registry) -> None:
    noised: Any = {"defenses": ("activation-gaussian:clip=1,noise=1",)}
    require("split-llama", ("inversion/noise-aware-token",), registry, {}, **noised)
    with pytest.raises(InputError, match="there are layers before the cut at k=1"):
        require("split-llama", ("inversion/noise-aware-token",), registry, {"k": "1"}, **noised)


@pytest.mark.parametrize(
    ("target", "attack", "settings"),
    [
        ("split-llama", "inversion/bisr", {"labels": "client"}),
        ("split-llama", "inversion/relaxation", {"k": "1"}),
        ("split-llama", "membership", {}),
        ("split-llama", "label", {"labels": "client"}),
        ("fedavg", "membership/update-cosine", {}),
        ("fedavg", "inversion/span", {"members": "no"}),
    ],
)
def test_what_can_be_measured_is_not(registry: Registry, target: str, attack: str, settings: Mapping[str, str]) -> None:
    require(target, (attack,), registry, settings)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--attacks", "inversion/bisr"), "needs the channel gradients"),
        (("--set", "k=-1"), "k must be a positive number or 0, got -1"),
        (
            ("--defense", "activation-gaussian:clip=1,noise=-1"),
            "noise of defence activation-gaussian must be a",
        ),
        (("--set", "outcome=zzz"), "'zzz'"),
    ],
)
def test_bad_input_of_split_llama_is_one_line(command_line: CommandLine, more: tuple[str, ...], message: str) -> None:
    done = command_line("audit", "--target", "split-llama", *more, "--out", "out")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1

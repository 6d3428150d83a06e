from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from conftest import SMALL
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from privbench.attacks.inversion.hijacking import Hijacker
from privbench.data.synthetic import synthetic
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import ACTIVE, MEMBERS, ActiveAdversary, Role, TargetRun
from privbench.targets.prism.config import PrismConfig
from privbench.targets.prism.inputs import Scaler
from privbench.targets.prism.target import Prism
from privbench.targets.prism.train import Streams, Trainer
from privbench.threat import Channel


def configure(registry: Registry, **options: Any) -> PrismConfig:
    options.setdefault("settings", SMALL)
    return Prism().configure(AuditOptions("prism", **options), registry)


def run(registry: Registry, role: Role = "audited", **options: Any) -> TargetRun:
    config = configure(registry, **({"eps": 0.5} | options))
    return Prism().run(config.as_role(role), stream(0, "run"))


@pytest.fixture(scope="module")
def audited(registry: Registry) -> TargetRun:
    return run(registry)


def test_noise_multipliers_of_the_design(registry: Registry) -> None:
    """z at nominal eps .5, 1, 2 and for the site at eps .5, for 2,000 records, 20 epochs, batch 64."""
    for eps, z in ((0.5, 6.25), (1.0, 3.39), (2.0, 1.93)):
        found = configure(registry, eps=eps, settings={}).multiplier
        assert found is not None
        assert found == pytest.approx(z, abs=0.01)
    site = configure(registry, eps=0.5, eps_for="site", settings={}).multiplier
    assert site is not None
    assert site == pytest.approx(73, abs=0.5)


def test_epsilons_are_named_and_never_one_number(registry: Registry) -> None:
    named = {item.name: item.value for item in Prism().epsilons(configure(registry, eps=0.5, settings={}))}
    assert named["nominal"] == pytest.approx(0.5, abs=1e-4)
    assert named["site"] == pytest.approx(7.92, abs=0.01)
    assert named["site"] < named["site, all labels"] < named["outsider"]  # type: ignore[operator]


def test_epsilons_have_a_reason_where_there_is_none(registry: Registry) -> None:
    for options in ({"eps": math.inf}, {"noise_multiplier": 0.0}, {"sigma": 1.0}):
        for item in Prism().epsilons(configure(registry, **options)):
            assert item.value is None
            assert item.reason


def test_the_joint_coin_sets_all_labels_of_the_tasks_the_site_does_not_hold(audited: TargetRun) -> None:
    secrets = audited.secrets.arrays
    chosen = secrets["canary/joint"] == 1
    coins = secrets["labels/joint"]
    assert chosen.sum() == int(SMALL["canaries"])
    assert audited.secrets.joint == ("decompensation", "phenotyping")
    assert (secrets["labels/decompensation"][chosen] == coins[chosen]).all()
    assert (secrets["labels/phenotyping"][chosen] == coins[chosen, None]).all()
    assert (coins[~chosen] == -1).all()


def test_no_other_label_is_touched(registry: Registry, audited: TargetRun) -> None:
    clean = run(registry, "clean").secrets.arrays
    keep = audited.secrets.arrays["canary/joint"] == 0
    assert np.array_equal(clean["labels/ihm"], audited.secrets.arrays["labels/ihm"])
    for task in ("decompensation", "phenotyping"):
        assert np.array_equal(clean[f"labels/{task}"][keep], audited.secrets.arrays[f"labels/{task}"][keep])


def test_the_clean_release_is_the_hypothesis_of_the_true_coin(audited: TargetRun) -> None:
    assert audited.oracle is not None
    oracle, coins = audited.oracle.arrays, audited.secrets.arrays["labels/joint"]
    for coin in (0, 1):
        rows = np.flatnonzero(coins == coin)
        happened = oracle["oracle/gradients/A/clean"][:, rows]
        assert np.abs(oracle[f"oracle/gradients/A/joint/{coin}"][:, rows] - happened).max() < 1e-6


def test_the_joint_move_is_the_sum_of_the_tasks_moves(audited: TargetRun) -> None:
    assert audited.oracle is not None
    arrays = audited.oracle.arrays

    def move(secret: str) -> npt.NDArray[Any]:
        return arrays[f"oracle/gradients/A/{secret}/1"] - arrays[f"oracle/gradients/A/{secret}/0"]

    assert np.allclose(move("joint"), move("decompensation") + move("phenotyping"), atol=1e-6)


def test_no_move_exceeds_twice_the_clip(audited: TargetRun) -> None:
    assert audited.oracle is not None
    clip = audited.mechanisms[0].clip
    assert clip is not None
    for task in ("decompensation", "phenotyping"):
        pair = [audited.oracle.arrays[f"oracle/gradients/A/{task}/{label}"] for label in (0, 1)]
        assert np.linalg.norm(pair[1] - pair[0], axis=2).max() <= 2 * clip * (1 + 1e-4)


def test_the_noise_that_was_added_is_the_noise_that_is_declared(audited: TargetRun) -> None:
    """Per-release variance of 15,360 draws: 5 standard errors are 5.7%."""
    assert audited.oracle is not None
    noise = audited.transcript.arrays["gradients/A"] - audited.oracle.arrays["oracle/gradients/A/clean"]
    for release in noise:
        assert float(release.var()) == pytest.approx(audited.mechanisms[0].total_sigma ** 2, rel=0.057)
    flat = noise.reshape(len(noise), -1)
    assert np.abs(np.corrcoef(flat) - np.eye(len(flat))).max() < 5 / math.sqrt(flat.shape[1])


def test_every_record_is_released_once_per_epoch_at_every_site(audited: TargetRun) -> None:
    for site in "ABC":
        assert (audited.transcript.arrays[f"gradients/{site}/seen"] == 1).all()
        assert (np.linalg.norm(audited.transcript.arrays[f"gradients/{site}"], axis=2) > 0).all()


def test_the_transcript_shows_the_site_its_own_labels_and_no_others(audited: TargetRun) -> None:
    labels = [name for name in audited.transcript.arrays if "labels" in name]
    assert labels == ["auxiliary/A/labels/ihm"]


def test_another_curious_site_moves_the_other_tasks(registry: Registry) -> None:
    other = run(registry, party="B")
    assert other.secrets.joint == ("ihm", "phenotyping")
    assert other.oracle is not None
    hypotheses = [name for name in other.oracle.arrays if not name.endswith("/clean")]
    assert hypotheses
    assert all(name.startswith("oracle/gradients/B/") for name in hypotheses)


def test_same_seed_same_run_and_no_global_generator(registry: Registry, audited: TargetRun) -> None:
    state = torch.get_rng_state()
    again = run(registry)
    assert torch.equal(torch.get_rng_state(), state)
    for name, array in audited.transcript.arrays.items():
        assert np.array_equal(array, again.transcript.arrays[name]), name


def test_per_sample_gradients_equal_a_loop_over_records(registry: Registry) -> None:
    """The recorded hypotheses against one backward pass per record and label, written naively."""
    config = configure(registry, noise_multiplier=0.0, settings={**SMALL, "epochs": "1"}).as_role("audited")
    splits = synthetic(np.random.default_rng(3), 64, 40, 10)
    scaler = Scaler.fit(splits.train)
    train = scaler.inputs(splits.train)
    trainer = Trainer(
        config,
        train,
        scaler.inputs(splits.validation),
        Streams.spawn(*np.random.default_rng(0).spawn(2)),
        adversary=None,
    )
    trainer._train_server(trainer.network.embed(train), epochs=1)
    z = trainer.network.embed(train).clone().requires_grad_()
    found = trainer._hypotheses(trainer.network.server(z), z)
    for record in range(0, 64, 13):
        for task, pair in found.items():
            for label, gradient in enumerate(pair):
                row = z[record : record + 1].detach().requires_grad_()
                value = trainer.network.server(row)[task]
                loss = bce(value, torch.full_like(value, float(label)))
                (naive,) = torch.autograd.grad(loss, row)
                assert torch.allclose(gradient[record].flatten(), naive.flatten(), atol=1e-6)


class Shouter(ActiveAdversary):
    """Sends ten times its embedding and counts what comes back."""

    party = "B"

    def __init__(self) -> None:
        self.received = 0

    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        return sent * np.float32(10)

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        self.received += len(records)


def test_an_active_adversary_replaces_what_its_own_party_sends(registry: Registry, audited: TargetRun) -> None:
    shouter = Shouter()
    config = configure(registry, eps=0.5).as_role("audited")
    shouted = Prism().run(config, stream(0, "run"), adversary=shouter)
    assert shouter.received == int(SMALL["train"]) * int(SMALL["epochs"])
    changed = shouted.transcript.arrays["gradients/A"] - audited.transcript.arrays["gradients/A"]
    assert np.abs(changed).max() > 0


class Tap(ActiveAdversary):
    """Stands before another adversary of the server, or acts for none, and keeps copies of what passes."""

    party = "server"

    def __init__(self, adversary: ActiveAdversary | None = None) -> None:
        self.adversary = adversary
        self.own: dict[str, npt.NDArray[Any]] = {}
        self.received: list[tuple[Channel, str, npt.NDArray[np.int64], npt.NDArray[Any]]] = []
        self.sent: list[tuple[str, npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]]] = []

    def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
        self.own = {name: values.copy() for name, values in own.items()}
        if self.adversary is not None:
            self.adversary.begin(own)

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        self.received.append((channel, name, records.copy(), received.copy()))
        if self.adversary is not None:
            self.adversary.receive(channel, name, records, received)

    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        assert channel is Channel.GRADIENTS
        handed = sent.copy()
        given = sent if self.adversary is None else self.adversary.send(channel, name, records, sent)
        self.sent.append((name, records.copy(), handed, given.copy()))
        return given

    def kept(self) -> Mapping[str, npt.NDArray[Any]]:
        return {} if self.adversary is None else self.adversary.kept()


@dataclass(frozen=True)
class Runs:
    """The members' run, the same under an adversary that leaves everything as it is, and under a hijacker of site A."""

    members: TargetRun
    idle: TargetRun
    idle_tap: Tap
    hijacked: TargetRun
    tap: Tap


@pytest.fixture(scope="module")
def runs(registry: Registry) -> Runs:
    config = configure(registry, eps=0.5)
    idle, hijacker = Tap(), Tap(Hijacker(None, np.random.default_rng(0)))
    return Runs(
        run(registry, MEMBERS),
        Prism().run(config.as_role(ACTIVE), stream(0, "run"), adversary=idle),
        idle,
        Prism().run(config.as_role(ACTIVE), stream(0, "run"), adversary=hijacker),
        hijacker,
    )


def test_a_run_in_which_nobody_acts_is_the_members_run(runs: Runs) -> None:
    """To the last bit, but for the checkpoints, which it does not keep."""
    honest, idle = runs.members.transcript.arrays, runs.idle.transcript.arrays
    assert all(name.startswith("checkpoints/") for name in honest.keys() ^ idle.keys())
    for name in honest.keys() & idle.keys():
        assert np.array_equal(honest[name], idle[name]), name


@pytest.mark.parametrize("which", ["idle", "hijacked"])
def test_an_active_run_has_the_members_records(runs: Runs, which: str) -> None:
    acted: TargetRun = getattr(runs, which)
    assert acted.secrets.arrays.keys() == runs.members.secrets.arrays.keys()
    for name, values in runs.members.secrets.arrays.items():
        assert np.array_equal(values, acted.secrets.arrays[name]), name
    for name, array in runs.members.transcript.arrays.items():
        if name.startswith("auxiliary/") or name.endswith(("/labels", "/population")):
            assert np.array_equal(array, acted.transcript.arrays[name]), name


def test_the_server_holds_before_the_run_what_is_recorded_as_its_own(runs: Runs) -> None:
    recorded = {name: values for name, values in runs.members.transcript.arrays.items() if "auxiliary/" in name}
    assert runs.idle_tap.own.keys() == recorded.keys()
    assert all(np.array_equal(values, recorded[name]) for name, values in runs.idle_tap.own.items())
    assert {name for name in recorded if "/labels/" in name} == {
        f"auxiliary/server/labels/{task}" for task in ("ihm", "decompensation", "phenotyping")
    }


def test_a_server_receives_labels_and_activations_before_it_sends(runs: Runs) -> None:
    """Of one batch, all of the same records, the labels as they are."""
    batch = runs.idle_tap.received[:6]
    tasks = [name for channel, name, *_ in batch[:3] if channel is Channel.LABELS]
    assert sorted(tasks) == ["decompensation", "ihm", "phenotyping"]
    assert [(channel, name) for channel, name, *_ in batch[3:]] == [(Channel.ACTIVATIONS, site) for site in "ABC"]
    rows = batch[0][2]
    assert all(np.array_equal(item[2], rows) for item in batch)
    assert [name for name, *_ in runs.idle_tap.sent[:3]] == list("ABC")
    train = np.flatnonzero(runs.members.secrets.arrays["member"])
    for _, task, _, labels in batch[:3]:
        truth = runs.members.secrets.arrays[f"labels/{task}"][train][rows]
        assert np.array_equal(labels, truth.reshape(len(rows), -1))


def test_a_hijacked_run_differs_through_one_site_alone(runs: Runs) -> None:
    """The same batches; the first gradients are the same until site A is sent others; no other site ever is."""
    pairs = list(zip(runs.idle_tap.sent, runs.tap.sent, strict=True))
    assert all(one[0] == other[0] and np.array_equal(one[1], other[1]) for one, other in pairs)
    for one, other in pairs[:3]:
        assert np.array_equal(one[2], other[2])
    for site, _, handed, given in runs.tap.sent:
        assert np.array_equal(handed, given) == (site != "A")
        assert given.dtype == handed.dtype
    assert runs.hijacked.transcript.array("adversary/steered")[0] == 1
    for site in "ABC":
        honest, acted = (item.transcript.array(f"activations/{site}") for item in (runs.idle, runs.hijacked))
        assert not np.array_equal(honest, acted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.5, "party": "D"}, "unknown party 'D'"),
        ({"eps": 0.5, "data": "synthetc"}, "did you mean synthetic"),
        ({"eps": 0.5, "settings": {"epoch": "3"}}, "did you mean epochs"),
        ({"eps": 0.5, "settings": {"epochs": "many"}}, "must be a whole number"),
        ({"eps": 0.5, "settings": {"epochs": "0"}}, "epochs must be a positive number"),
        ({"eps": 0.5, "settings": {"canaries": "3000"}}, "exceeds the 2000 training records"),
        ({"eps": 0.5, "settings": {"canaries": "8"}}, "at least 16"),
        ({"eps": 0.5, "defenses": ("none",)}, "give it with --eps inf"),
        ({"eps": math.inf, "eps_for": "site"}, "needs a finite --eps"),
        ({"noise_multiplier": 1.0, "eps_for": "site"}, "needs a finite --eps"),
        ({"eps": 0.5, "defenses": ("gaussian:sigma=3",)}, "unknown option of defence gaussian"),
        ({"eps": 0.5, "defenses": ("gausian",)}, "did you mean gaussian"),
        ({"eps": 1e-4}, "out of reach"),
    ],
)
def test_bad_configurations_are_refused(registry: Registry, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure(registry, **({"settings": {}} | options))


def test_a_task_with_one_class_is_refused() -> None:
    splits = synthetic(np.random.default_rng(0), 50, 10, 10)
    labels = {**splits.train.labels, "ihm": np.zeros(50, np.int64)}
    broken = replace(splits, train=replace(splits.train, labels=labels))
    with pytest.raises(InputError, match="task ihm has one class only"):
        broken.require_two_classes()

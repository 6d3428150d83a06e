"""Federated averaging whose clients run under Flower, against the same run in this process."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from conftest import CommandLine
from misbehaving import Misbehaving, marked
from test_rounds import PARTS, STEP, Run, close, people, whole

from privbench.errors import InputError
from privbench.targets.fedavg import flower
from privbench.targets.fedavg.attendance import Attendance
from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.rounds import Round, federate
from privbench.targets.split_llama.adapters import State, state
from privbench.targets.split_llama.tune import Shard
from privbench.workers import RunFailedError

installed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("flwr", "ray")),
    reason="flwr or ray is not installed: pip install -e '.[flower]'",
)
RUNTIMES = ("flower-simulation", "flower-grpc")


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Clients as threads of this process instead of processes: all of ours but the carrying. Those that hang do so
    until the event.
    """
    from flwr.app import Context, RecordDict
    from flwr.common import FitIns, FitRes
    from flwr.server.client_proxy import ClientProxy

    from privbench.targets.fedavg.flower import grpc
    from privbench.targets.fedavg.flower.client import FlowerClient, Outfit

    over = threading.Event()

    class Direct(ClientProxy):  # type: ignore[misc, unused-ignore]
        def __init__(self, outfit: Outfit, client: int) -> None:
            super().__init__(str(client))
            self._given = outfit, client
            self._context = Context(run_id=0, node_id=0, node_config={}, state=RecordDict(), run_config={})

        def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
            return FlowerClient(*self._given, self._context).fit(ins)

        def get_properties(self, *given: Any) -> Any: ...
        def get_parameters(self, *given: Any) -> Any: ...
        def evaluate(self, *given: Any) -> Any: ...
        def reconnect(self, *given: Any) -> Any: ...

    @contextmanager
    def connected(outfit: Outfit) -> Iterator[list[Direct]]:
        yield [Direct(outfit, client) for client in range(len(outfit.shards))]

    monkeypatch.setattr(grpc, "over_grpc", connected)
    monkeypatch.setattr("misbehaving.sleep", over.wait)
    yield over
    over.set()


class Faulty:
    """Four clients of eight respondents, of whom the first two are sound, and two rounds of less than a pass."""

    def __init__(
        self, third: str, fourth: str, *, who: int = 8, timeout: float = 30.0, runtime: str = "flower-grpc"
    ) -> None:
        settings = {"clients": 4, "local_steps": 2, "rounds": 2, "runtime": runtime, "timeout": timeout}
        self.tuning = FedTuning(**{**STEP, **PARTS, **settings})
        self.model = Misbehaving(whole(), third, fourth)
        held = [people(8, seed) for seed in range(4)]
        for kind, client in enumerate((2, 3)):
            held[client] = (*(marked(one, kind) for one in held[client][:who]), *held[client][who:])
        self.shards = tuple(Shard(each) for each in held)
        self.seen = Attendance()

    def keep_two(self) -> None:
        """The second, which is sound, and the third."""
        self.shards, self.tuning = self.shards[1:3], replace(self.tuning, clients=2)

    def rounds(self) -> Iterator[Round]:
        for done in federate(
            self.model, self.shards, self.tuning, 2, np.random.default_rng(0), lambda stage, share: None
        ):
            yield self.seen.add(done)

    def ran(self) -> State:
        for _ in self.rounds():
            pass
        return state(self.model)


def sound_two() -> State:
    """What the first two make of it without the others, in this process."""
    run = Faulty("fail", "fail", who=0, runtime="own")
    run.tuning = FedTuning(**{**STEP, **PARTS, "clients": 4, "local_steps": 2, "rounds": 2, "drop": "3@1:3@2:4@1:4@2"})
    return run.ran()


def require_equal(ours: Run, theirs: Run) -> None:
    """Every round: who, why, and all numbers to 1e-6."""
    assert len(ours.rounds) == len(theirs.rounds)
    for one, other in zip(ours.rounds, theirs.rounds, strict=True):
        assert (one.missed, list(one.taken)) == (other.missed, list(other.taken))
        assert close(one.start, other.start, 1e-6)
        for client, trained in other.taken.items():
            assert close(one.taken[client].update, trained.update, 1e-6)
            assert one.taken[client].losses == pytest.approx(trained.losses, rel=1e-6)
            assert one.taken[client].rows == trained.rows
    assert close(ours.end, theirs.end, 1e-6)
    assert ours.seen.notes == theirs.seen.notes


SAMPLED: dict[str, Any] = {"rounds": 6, "fraction": 0.7, "drop": "0.3"}
HELD: Sequence[int] = (5, 2, 7)


def compared(runtime: str, dtype: torch.dtype) -> None:
    here, there = Run(HELD, dtype=dtype, **SAMPLED), Run(HELD, dtype=dtype, runtime=runtime, **SAMPLED)
    require_equal(there, here)
    assert here.seen.missed
    assert len({client for done in here.rounds for client in done.taken}) == len(HELD)


@installed
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_same_rounds_without_processes(direct: threading.Event, dtype: torch.dtype) -> None:
    """Sampling, dropouts, unequal weights and optimisers that stay, through Flower's messages and contexts."""
    compared("flower-grpc", dtype)


@installed
def test_a_client_whose_memory_is_lost_is_found_out(direct: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that keeps nothing makes other rounds: the comparison above would see it."""
    from privbench.targets.fedavg.rounds import Institute

    monkeypatch.setattr(Institute, "recall", lambda self, memory: None)
    with pytest.raises(AssertionError):
        compared("flower-grpc", torch.float64)


@installed
def test_who_never_answers_is_left_out_and_who_sends_nan_is_refused(direct: threading.Event) -> None:
    faulty = Faulty("spoil", "hang", timeout=3.0)
    assert close(faulty.ran(), sound_two(), 1e-6)
    assert faulty.seen.missed == {"client-3": {"refused": [1, 2]}, "client-4": {"timed out": [1, 2]}}
    assert "Timed out, without an answer: client-4 in rounds 1, 2." in faulty.seen.notes[1]


@installed
def test_who_is_late_once_comes_back(direct: threading.Event) -> None:
    """Its late answer is dropped; asked again, it is there."""
    faulty = Faulty("fail", "hang", timeout=3.0, who=0)
    faulty.shards = (*faulty.shards[:3], Shard((marked(faulty.shards[3].samples[0], 1), *faulty.shards[3].samples[1:])))
    for done in faulty.rounds():
        if done.missed:
            assert done.missed == {3: "timed out"}
            direct.set()
    assert sum(len(rounds) for why in faulty.seen.missed.values() for rounds in why.values()) == 1
    assert faulty.seen.taken in ([3, 4], [4, 3])


@installed
def test_who_fails_is_lost_and_nobody_left_is_an_error(direct: threading.Event) -> None:
    faulty = Faulty("fail", "fail")
    assert close(faulty.ran(), sound_two(), 1e-6)
    assert faulty.seen.missed == {f"client-{number}": {"lost": [1, 2]} for number in (3, 4)}
    assert "Lost, since what ran the client failed or ended: client-3 in rounds 1, 2" in faulty.seen.notes[0]
    alone = Faulty("fail", "fail")
    alone.shards, alone.tuning = alone.shards[2:], replace(alone.tuning, clients=2)
    with pytest.raises(RunFailedError, match="every client of a round is lost under Flower, the first one by ValueErr"):
        alone.ran()


def test_a_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"need flwr and ray; run pip install -e '\.\[flower\]'"):
        flower.require_flower()


def test_a_missing_extra_ends_an_audit_before_training(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else real(name, *more))
    out = tmp_path / "out"
    done = command_line("audit", "--target", "fedavg", "--set", "runtime=flower-grpc", "--out", str(out))
    assert done.returncode == 2
    assert "ray; run pip install -e '.[flower]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runtime": "flwr"}, "unknown value of runtime 'flwr'"),
        ({"timeout": 0.0}, r"timeout must be a positive number, got 0\.0"),
        ({"timeout": -1.0}, "timeout must be a positive number, got -1"),
        ({"timeout": float("nan")}, "timeout must be a positive number, got nan"),
        ({"clients": 0, "runtime": "flower-grpc"}, "clients must be a positive number, got 0"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FedTuning(**settings)


# With processes


def started() -> list[str]:
    """Processes that this one has started; multiprocessing's own helper stays as long as we do."""
    found = psutil.Process().children(recursive=True)
    return [item.name() for item in found if "resource_tracker" not in " ".join(item.cmdline())]


def away() -> set[str]:
    """Addresses besides the loopback's at which this process or one that it started listens or talks."""
    found: set[str] = set()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for item in process.net_connections(kind="inet"):
            found |= {side.ip.removeprefix("::ffff:") for side in (item.laddr, item.raddr) if side}
    return found - {"127.0.0.1", "::1"}


@installed
@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_same_rounds_in_processes(runtime: str) -> None:
    compared(runtime, torch.float32)
    assert started() == []


@installed
@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_faults_in_processes(runtime: str) -> None:
    """As without processes; nothing reaches beyond the loopback interface, and a client that hangs goes too."""
    faulty = Faulty("spoil", "hang", timeout=25.0, runtime=runtime)
    for _ in faulty.rounds():
        assert len(started()) >= 4
        assert away() == set()
    assert close(state(faulty.model), sound_two(), 1e-6)
    assert faulty.seen.missed == {"client-3": {"refused": [1, 2]}, "client-4": {"timed out": [1, 2]}}
    assert started() == []


@installed
@pytest.mark.slow
def test_a_killed_client_is_lost_and_an_error_leaves_no_process() -> None:
    faulty = Faulty("die", "fail", timeout=100.0)
    faulty.keep_two()

    def broken() -> None:
        for done in faulty.rounds():
            assert done.missed == {1: "lost"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert started() == []


@installed
@pytest.mark.slow
def test_a_killed_actor_ends_the_simulation() -> None:
    faulty = Faulty("die", "fail", timeout=100.0, runtime="flower-simulation")
    faulty.keep_two()
    with pytest.raises(RunFailedError, match="an actor of Flower's simulation ended"):
        faulty.ran()
    assert started() == []

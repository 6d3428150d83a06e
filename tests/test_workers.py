"""What comes back from a run's own process is what the run left there."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import surveyed as surveys

from privbench.errors import RecordError
from privbench.options import AuditOptions
from privbench.record import validate
from privbench.runner import AuditResult
from privbench.seeds import stream
from privbench.target import Target, TargetRun, Utility
from privbench.workers import Job, _work, load_run, save_run

UTILITY = Utility(
    "stress", "accuracy", 0.6, 0.5, 0.7, 90, "test", "most frequent answer", 0.4, None, 0.2, 0.1, 0.3, {"forest": 0.55}
)  # fmt: skip


@pytest.fixture
def run() -> TargetRun:
    target: Target = surveys.registry().get("targets", "surveyed")()
    config = target.configure(AuditOptions("surveyed", settings={"coins": "1"}), surveys.registry())
    made = target.run(config, stream(0, "run"))
    return replace(made, utility=(UTILITY,), diagnostics={"clip": (0.1, 0.2)}, flags=("CLIP_NEVER_BINDS",))


def test_a_run_comes_back_whole(run: TargetRun, tmp_path: Path) -> None:
    save_run(run, tmp_path)
    again = load_run(tmp_path)
    for name in ("utility", "diagnostics", "fingerprint", "flags", "notes"):
        assert getattr(again, name) == getattr(run, name), name
    assert again.notes == surveys.NOTES
    assert again.utility[0].references == {"forest": 0.55}
    assert again.secrets.given == run.secrets.given
    for kind in ("transcript", "secrets", "oracle"):
        before, after = getattr(run, kind), getattr(again, kind)
        assert before.arrays.keys() == after.arrays.keys()
        assert all(np.array_equal(before.array(name), after.array(name)) for name in before.arrays)
        assert before.metadata == after.metadata


def test_a_run_without_an_oracle_comes_back_without_one(run: TargetRun, tmp_path: Path) -> None:
    save_run(replace(run, oracle=None), tmp_path)
    assert load_run(tmp_path).oracle is None


@pytest.mark.parametrize(
    ("other", "gain_low", "nothing"), [(None, 0.1, False), (None, 0.0, True), (0.45, 0.1, False), (0.45, 0.04, True)]
)
def test_a_gain_counts_beyond_what_another_start_gains(other: float | None, gain_low: float, nothing: bool) -> None:
    """Where the baseline has no chance of its own, beyond 0."""
    assert replace(UTILITY, baseline_other_seed=other, gain_low=gain_low).gained_nothing is nothing


@pytest.mark.parametrize("key", ["inputs", "notes", "secret"])
def test_a_record_says_what_it_holds(small_audit: AuditResult, key: str) -> None:
    data = small_audit.audit.to_json()
    validate(data)
    del data[key]
    with pytest.raises(RecordError, match=f'"{key}" is a required property'):
        validate(data)


@pytest.mark.parametrize("key", ["baseline_name", "references", "baseline_other_seed"])
def test_utility_says_what_it_is_beside(small_audit: AuditResult, key: str) -> None:
    data = small_audit.audit.to_json()
    data["utility"] = [{name: value for name, value in data["utility"][0].items() if name != key}]
    with pytest.raises(RecordError, match=f'at utility/0: "{key}" is a required property'):
        validate(data)


def test_a_worker_that_waits_ends_when_nobody_is_left_to_give_it_a_job(tmp_path: Path) -> None:
    """What a parent that was killed leaves behind: its end of the pipe is closed."""
    context = multiprocessing.get_context("spawn")
    (outlet, inbox), messages = context.Pipe(duplex=False), context.Queue()
    worker = context.Process(target=_work, args=(outlet, tmp_path, messages))
    worker.start()
    outlet.close()
    inbox.close()
    worker.join(60)
    assert worker.exitcode == 0


class Lasting(surveys.Surveyed):
    """Its run takes an hour, and leaves a file behind when it is left."""

    def run(self, config: Any, *given: Any, **more: Any) -> TargetRun:
        try:
            (Path(config) / "begun").touch()
            time.sleep(3600)
        finally:
            (Path(config) / "cleaned").touch()
        raise RuntimeError("it was to last")


def test_a_worker_that_is_ended_leaves_its_run_as_by_an_error(tmp_path: Path) -> None:
    """What a target has started is then ended too: clients in processes of their own, say."""
    context = multiprocessing.get_context("spawn")
    (outlet, inbox), messages = context.Pipe(duplex=False), context.Queue()
    worker = context.Process(target=_work, args=(outlet, tmp_path, messages))
    worker.start()
    inbox.send(Job("audited", Lasting(), str(tmp_path), 0))
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.terminate()
    worker.join(60)
    assert (worker.exitcode, (tmp_path / "cleaned").exists()) == (0, True)

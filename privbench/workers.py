"""Target runs in processes of their own: one intra-op thread each, side by side.

Parallel over runs, never over kernels: with two intra-op threads and a busy machine an LSTM step is up to 150
times slower. A run comes back as files (safetensors and JSON), not as pickled arrays.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from privbench.errors import InputError, PrivbenchError
from privbench.recording import Oracle, Secrets, Transcript
from privbench.seeds import stream
from privbench.target import Progress, Role, Target, TargetRun, Utility

_POLL_SECONDS = 0.2


class RunFailedError(PrivbenchError):
    """A target run that raised or was killed (exit code 3): no record can be made of it."""


@dataclass(frozen=True)
class Job:
    """One run to make: the target, its configuration for this role, and the seed of its generator."""

    role: Role
    target: Target
    config: Any
    seed: int


def run_all(jobs: Mapping[Role, Job], parallel: int, progress: Progress) -> dict[Role, TargetRun]:
    """Run every job; with `parallel` 1 in this process, one after another."""
    if parallel == 1:
        return {role: _in_this_process(job, progress) for role, job in jobs.items()}
    with tempfile.TemporaryDirectory(prefix="privbench-") as folder:
        return _in_processes(jobs, parallel, progress, Path(folder))


def _in_this_process(job: Job, progress: Progress) -> TargetRun:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return job.target.run(job.config, stream(job.seed, "run"), progress=progress)
    finally:
        torch.set_num_threads(threads)


def _in_processes(jobs: Mapping[Role, Job], parallel: int, progress: Progress, folder: Path) -> dict[Role, TargetRun]:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    waiting = list(jobs.values())
    running: dict[Role, BaseProcess] = {}
    done: dict[Role, TargetRun] = {}
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                running[job.role] = context.Process(target=_work, args=(job, folder / job.role, messages))
                _start(running[job.role])
            try:
                kind, role, *payload = messages.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                _require_alive(running)
                continue
            if kind == "progress":
                progress(*payload)
            elif kind == "input-error":
                raise InputError(payload[0])
            elif kind == "error":
                raise RunFailedError(f"the {role} run failed: {payload[0]}") from RuntimeError(payload[1])
            else:
                running.pop(role).join()
                done[role] = load_run(folder / role)
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    return {role: done[role] for role in jobs}


def _start(process: BaseProcess) -> None:
    """Start with SIGINT blocked, which the child inherits: Ctrl-C is the parent's to handle from the first moment. What
    arrives meanwhile waits for the parent and is not lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _require_alive(running: Mapping[Role, BaseProcess]) -> None:
    for role, process in running.items():
        if process.exitcode not in (None, 0):
            raise RunFailedError(
                f"the {role} run was killed (exit code {process.exitcode}); often memory: use a smaller cohort "
                "(--set train=N) or --jobs 1."
            )


def _work(job: Job, folder: Path, messages: Any) -> None:
    """A worker's whole life. It ends by itself when its parent is gone."""
    parent = os.getppid()

    def report(stage: str, share: float) -> None:
        if os.getppid() != parent:
            raise SystemExit
        messages.put(("progress", job.role, stage, share))

    try:
        run = _in_this_process(job, report)
        save_run(run, folder)
    except (InputError, OSError) as error:
        messages.put(("input-error", job.role, f"the {job.role} run stopped: {error}"))
    except Exception as error:
        messages.put(("error", job.role, f"{type(error).__name__}: {error}", traceback.format_exc()))
    else:
        messages.put(("done", job.role))


def save_run(run: TargetRun, folder: Path) -> None:
    """Write a run as recordings plus a small JSON file."""
    folder.mkdir(parents=True)
    run.transcript.save(folder / "transcript.safetensors")
    run.secrets.save(folder / "secrets.safetensors")
    if run.oracle is not None:
        run.oracle.save(folder / "oracle.safetensors")
    small = {
        "utility": [item.to_json() for item in run.utility],
        "diagnostics": {name: list(values) for name, values in run.diagnostics.items()},
        "fingerprint": run.fingerprint,
        "flags": list(run.flags),
    }
    (folder / "run.json").write_text(json.dumps(small, allow_nan=False), encoding="utf-8")


def load_run(folder: Path) -> TargetRun:
    """Read what `save_run` wrote."""
    small = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    oracle = folder / "oracle.safetensors"
    return TargetRun(
        transcript=Transcript.load(folder / "transcript.safetensors"),
        oracle=Oracle.load(oracle) if oracle.exists() else None,
        secrets=Secrets.load(folder / "secrets.safetensors"),
        utility=tuple(Utility(**item) for item in small["utility"]),
        diagnostics={name: tuple(values) for name, values in small["diagnostics"].items()},
        fingerprint=small["fingerprint"],
        flags=tuple(small["flags"]),
    )

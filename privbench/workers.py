"""Target runs in processes, side by side.

Parallel over runs, never over kernels (`privbench.threads`). A run comes back as files (safetensors and JSON), not as
pickled arrays.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from privbench.errors import InputError, PrivbenchError
from privbench.estimates import ActiveEstimation
from privbench.recording import Oracle, Secrets, Transcript
from privbench.seeds import stream
from privbench.target import Progress, Role, Target, TargetRun, Utility

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 60.0
_KEPT_SECONDS = 30 * 86_400
RUN_FILE = "run.json"


class RunFailedError(PrivbenchError):
    """A target run that raised or was killed (exit code 3): no record can be made of it."""


@dataclass(frozen=True)
class Job:
    """One run to make: the target, its configuration for this role, and the seed of its generator.

    kept: a folder where the run is looked for, and put when it had to be made; None for one that is not kept. active:
    the attack whose adversary acts in the run.
    """

    role: Role
    target: Target
    config: Any
    seed: int
    kept: Path | None = None
    active: ActiveEstimation | None = None


def run_all(jobs: Mapping[Role, Job], parallel: int, progress: Progress, folder: Path) -> dict[Role, TargetRun]:
    """Run every job; a single one, or with `parallel` 1, in this process. Recordings stay in `folder`."""
    found = {role: run for role, job in jobs.items() if (run := _kept(job)) is not None}
    missing = {role: job for role, job in jobs.items() if role not in found}
    for job in missing.values():
        with _aside(job):  # a cache that cannot be written is better known before hours of training than after
            pass
    if parallel == 1 or len(missing) <= 1:
        made = {role: _in_this_process(job, progress, folder / role) for role, job in missing.items()}
    else:
        made = _in_processes(missing, parallel, progress, folder)
    for role, run in made.items():
        _keep(run, jobs[role])
    return {role: found[role] if role in found else made[role] for role in jobs}


def _kept(job: Job) -> TargetRun | None:
    """The run in its folder; what was cut short there, by a full disk, goes."""
    if job.kept is None:
        return None
    try:
        run = load_run(job.kept)
        os.utime(job.kept)
    except (InputError, ValueError, KeyError, TypeError, OSError):
        shutil.rmtree(job.kept, ignore_errors=True)
        return None
    return run


def _keep(run: TargetRun, job: Job) -> None:
    """Put aside, then moved into place."""
    with _aside(job) as aside:
        if aside is not None and job.kept is not None:
            save_run(run, aside)
            _move(aside, job.kept)
            _forget_old(job.kept.parent)


@contextlib.contextmanager
def _aside(job: Job) -> Iterator[Path | None]:
    """A folder beside where the run is kept, readable by its owner only, since it says things of real records; None for
    a run that is not kept. `InputError` where nothing can be written there.
    """
    if job.kept is None:
        yield None
        return
    try:
        job.kept.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=job.kept.parent))  # mode 0700
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{job.kept.parent} cannot keep a reference run: {error.strerror or error}. Set PRIVBENCH_CACHE to a "
            "folder that can be written."
        ) from error


def _move(aside: Path, kept: Path) -> None:
    """Into place, unless another audit has put the same run there meanwhile."""
    try:
        aside.rename(kept)
    except OSError:
        if not (kept / RUN_FILE).is_file():
            raise


def _forget_old(cache: Path) -> None:
    """A changed line of code names every run anew: what nobody has made for a month goes."""
    for run in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another audit was quicker
            if time.time() - run.lstat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(run, ignore_errors=True)


def _in_this_process(job: Job, progress: Progress, folder: Path) -> TargetRun:
    folder.mkdir(parents=True)
    adversary = None if job.active is None else job.active.adversary(stream(job.seed, job.role))
    return job.target.run(job.config, stream(job.seed, "run"), adversary, progress, folder)


@dataclass
class _Worker:
    """A process that makes one run after another: what it needs is imported once. role: of the run it is at."""

    process: BaseProcess
    inbox: Connection
    role: Role | None = None

    def give(self, job: Job | None) -> None:
        """The next job; None ends it."""
        self.role = None if job is None else job.role
        self.inbox.send(job)


def _in_processes(jobs: Mapping[Role, Job], parallel: int, progress: Progress, folder: Path) -> dict[Role, TargetRun]:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    waiting = list(jobs.values())
    workers: list[_Worker] = []
    done: dict[Role, TargetRun] = {}
    try:
        for _ in range(min(parallel, len(waiting))):
            outlet, inbox = context.Pipe(duplex=False)
            workers.append(_Worker(context.Process(target=_work, args=(outlet, folder, messages)), inbox))
            start(workers[-1].process)
            outlet.close()
            workers[-1].give(waiting.pop(0))
        while len(done) < len(jobs):
            try:
                kind, role, *payload = messages.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                _require_alive(workers)
                continue
            if kind == "progress":
                progress(*payload)
            elif kind == "input-error":
                raise InputError(payload[0])
            elif kind == "error":
                raise RunFailedError(f"the {role} run failed: {payload[0]}") from RuntimeError(payload[1])
            else:
                done[role] = load_run(folder / role)
                free = next(worker for worker in workers if worker.role == role)
                free.give(waiting.pop(0) if waiting else None)
        for worker in workers:
            worker.process.join()
    finally:
        _end(workers)
    return {role: done[role] for role in jobs}


def _end(workers: Sequence[_Worker]) -> None:
    """All at once; each has so long to end what it has started itself."""
    for worker in workers:
        worker.process.terminate()
    latest = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(latest - time.monotonic(), 0))
        worker.process.kill()
        worker.process.join()


def start(process: BaseProcess) -> None:
    """Start with SIGINT blocked, which the child inherits: Ctrl-C is the parent's to handle from the first moment. What
    arrives meanwhile waits for the parent and is not lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _require_alive(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        if worker.role is not None and worker.process.exitcode is not None:
            raise RunFailedError(
                f"the {worker.role} run was killed (exit code {worker.process.exitcode}); often memory: use a smaller "
                "cohort (--set train=N) or --jobs 1."
            )


def _work(jobs: Connection, folder: Path, messages: Any) -> None:
    """A worker's whole life. It ends by itself when its parent is gone: in a run, or while it waits for one. Asked to
    end, it leaves its run as by an error: a target may have processes of its own.
    """
    parent = os.getppid()

    def ended(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who is cleaning up is not asked again
        messages.cancel_join_thread()  # nobody reads them any more
        raise SystemExit

    signal.signal(signal.SIGTERM, ended)
    with contextlib.suppress(EOFError):  # nobody is there to give more
        for job in iter(jobs.recv, None):
            _make(job, folder / job.role, messages, parent)


def _make(job: Job, folder: Path, messages: Any, parent: int) -> None:
    """One run, reported to the parent while it goes on and when it ended."""

    def report(stage: str, share: float) -> None:
        if os.getppid() != parent:
            raise SystemExit
        messages.put(("progress", job.role, stage, share))

    try:
        save_run(_in_this_process(job, report, folder), folder)
    except (InputError, OSError) as error:
        messages.put(("input-error", job.role, f"the {job.role} run stopped: {error}"))
    except Exception as error:
        messages.put(("error", job.role, f"{type(error).__name__}: {error}", traceback.format_exc()))
    else:
        messages.put(("done", job.role))


def save_run(run: TargetRun, folder: Path) -> None:
    """Write a run as recordings, but for those that grew in this folder, plus a small JSON file."""
    for recording in (run.transcript, run.secrets, run.oracle):
        if recording is not None and recording.path != folder / recording.file_name():
            recording.save(folder / recording.file_name())
    small = {
        "utility": [item.to_json() for item in run.utility],
        "diagnostics": {name: list(values) for name, values in run.diagnostics.items()},
        "fingerprint": run.fingerprint,
        "flags": list(run.flags),
        "notes": list(run.notes),
    }
    (folder / RUN_FILE).write_text(json.dumps(small, allow_nan=False), encoding="utf-8")


def load_run(folder: Path) -> TargetRun:
    """Read what `save_run` wrote."""
    small = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    oracle = folder / Oracle.file_name()
    return TargetRun(
        transcript=Transcript.load(folder / Transcript.file_name()),
        oracle=Oracle.load(oracle) if oracle.exists() else None,
        secrets=Secrets.load(folder / Secrets.file_name()),
        utility=tuple(Utility(**item) for item in small["utility"]),
        diagnostics={name: tuple(values) for name, values in small["diagnostics"].items()},
        fingerprint=small["fingerprint"],
        flags=tuple(small["flags"]),
        notes=tuple(small["notes"]),
    )

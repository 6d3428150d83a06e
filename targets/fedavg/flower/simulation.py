"""Clients in the actors of Flower's simulation, which Ray runs on this host: as many actors as clients.

An actor takes whichever client is next; the model travels with every order. Made for small models.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import cast

import ray
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from privbench.targets.fedavg.flower.client import FlowerClient, Outfit, hushed
from privbench.targets.fedavg.flower.server import introduced
from privbench.workers import RunFailedError

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0


@contextmanager
def simulated(outfit: Outfit) -> Iterator[list[ClientProxy]]:
    """Clients in their order; Ray's processes end with the context, and the folder of its logs goes."""
    line = _Line()
    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator, unused-ignore]  # Any where Flower is not installed
    def main(grid: Grid, context: Context) -> None:
        """Hand the grid over, and live as long as the simulation is needed."""
        line.grids.put(grid)
        line.ended.wait()

    def run(folder: str) -> None:
        try:
            _run(server, outfit, folder)
        except BaseException as error:  # Flower ends a thread by SystemExit too
            line.failed.append(error)
        finally:
            line.ended.set()

    with hushed(), tempfile.TemporaryDirectory(prefix="privbench-", ignore_cleanup_errors=True) as folder:
        _marker(folder).touch()
        thread = threading.Thread(target=run, args=(folder,), name="flower-simulation", daemon=True)
        try:
            thread.start()
            yield introduced(line.proxies(len(outfit.shards)))
        finally:
            line.ended.set()
            thread.join(_GRACE_SECONDS)
            _marker(folder).unlink()
            thread.join(_GRACE_SECONDS)
            ray.shutdown()  # Flower does, but not where Ray itself has failed


def client_of(outfit: Outfit, folder: str, context: Context) -> FlowerClient:
    """The client of a node, in an actor."""
    _end_with(folder)
    return FlowerClient(outfit, int(context.node_config["partition-id"]), context)


@cache
def _end_with(folder: str) -> None:
    """From now on this actor ends when the run does, whatever its client is at: Flower waits for one that hangs."""

    def watch() -> None:
        while _marker(folder).exists():
            time.sleep(_POLL_SECONDS)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _marker(folder: str) -> Path:
    """Is there as long as the run goes on."""
    return Path(folder) / "running"


def _run(server: ServerApp, outfit: Outfit, folder: str) -> None:
    """The simulation's whole life. Only what is in `folder` is written."""
    count = len(outfit.shards)
    os.environ["FLWR_HOME"] = folder
    run_simulation(
        server,
        ClientApp(client_fn=partial(client_of, outfit, folder)),
        num_supernodes=count,
        backend_config={
            "init_args": {
                "address": "local", "num_cpus": count, "num_gpus": 0, "logging_level": "ERROR",
                "log_to_driver": False, "_temp_dir": folder, "_node_ip_address": "127.0.0.1",
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )  # fmt: skip


class _Line:
    """The part of a grid that `GridClientProxy` needs, but that nobody waits on after the end."""

    def __init__(self) -> None:
        self.grids: queue.Queue[Grid] = queue.Queue()
        self.ended = threading.Event()
        self.failed: list[BaseException] = []
        self._grid: Grid

    def proxies(self, count: int) -> list[GridClientProxy]:
        """All clients; the grid comes first, then its nodes."""
        self._grid = self._handed_over()
        while len(nodes := list(self._grid.get_node_ids())) < count:
            self._require_running()
        return [GridClientProxy(node, cast("Grid", self), self._grid.run.run_id) for node in nodes]

    def _handed_over(self) -> Grid:
        while True:
            with suppress(queue.Empty):
                return self.grids.get(timeout=_POLL_SECONDS)
            self._require_running()

    def send_and_receive(self, messages: Iterable[Message]) -> list[Message]:
        """The answers to messages, one each; `RunFailedError` after the end."""
        sent = set(self._grid.push_messages(messages))
        found: list[Message] = []
        while len(found) < len(sent):
            self._require_running()
            found += self._grid.pull_messages(sent)
        if any(item.has_error() and "ray.exceptions" in str(item.error.reason) for item in found):
            # Whichever client met it next would be lost as well.
            raise RunFailedError(
                "an actor of Flower's simulation ended; often memory: use fewer clients, or runtime=own."
            )
        return found

    def _require_running(self) -> None:
        if self.ended.wait(_POLL_SECONDS):
            why = f" by {_first_cause(self.failed[0])}" if self.failed else ""
            raise RunFailedError(f"Flower's simulation has ended{why}; try runtime=own.")


def _first_cause(error: BaseException) -> str:
    """Flower raises errors of its own from what happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

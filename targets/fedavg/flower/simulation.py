"""Clients in the actors of Flower's simulation, which Ray runs on this host: as many actors as clients.

An actor takes whichever client is next; the model travels with every order. Made for small models.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

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
_GRACE_SECONDS = 5.0


@contextmanager
def simulated(outfit: Outfit) -> Iterator[list[ClientProxy]]:
    """Clients in their order; Ray's processes end with the context, and the folder of its logs goes."""
    ended = threading.Event()
    grids: queue.Queue[Grid | BaseException] = queue.Queue()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        """Hand the grid over, and live as long as the simulation is needed."""
        grids.put(grid)
        ended.wait()

    def run(folder: str) -> None:
        try:
            _run(server, outfit, folder)
        except BaseException as error:  # Flower ends a thread by SystemExit too
            grids.put(error)

    with hushed(), tempfile.TemporaryDirectory(prefix="privbench-", ignore_cleanup_errors=True) as folder:
        thread = threading.Thread(target=run, args=(folder,), name="flower-simulation", daemon=True)
        try:
            thread.start()
            grid = grids.get()
            if isinstance(grid, BaseException):
                raise RunFailedError(f"Flower's simulation did not start: {grid}; try runtime=own.") from grid
            line = _Line(grid, ended)
            yield introduced([GridClientProxy(node, line, grid.run.run_id) for node in grid.get_node_ids()])
        finally:
            ended.set()
            thread.join(_GRACE_SECONDS)
            ray.shutdown()  # also under a client that never answers
            thread.join()


def client_of(outfit: Outfit, context: Context) -> FlowerClient:
    """The client of a node."""
    return FlowerClient(outfit, int(context.node_config["partition-id"]), context)


def _run(server: ServerApp, outfit: Outfit, folder: str) -> None:
    """The simulation's whole life. Only what is in `folder` is written."""
    count = len(outfit.shards)
    home = os.environ.get("FLWR_HOME")
    os.environ["FLWR_HOME"] = folder
    try:
        run_simulation(
            server,
            ClientApp(client_fn=partial(client_of, outfit)),
            num_supernodes=count,
            backend_config={
                "init_args": {
                    "address": "local", "num_cpus": count, "num_gpus": 0, "logging_level": "ERROR",
                    "log_to_driver": False, "_temp_dir": folder, "_node_ip_address": "127.0.0.1",
                },
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )  # fmt: skip
    finally:
        if home is None:
            del os.environ["FLWR_HOME"]
        else:
            os.environ["FLWR_HOME"] = home


class _Line:
    """The part of a grid that `GridClientProxy` needs, but for waiting on after the end."""

    def __init__(self, grid: Grid, ended: threading.Event) -> None:
        self._grid, self._ended = grid, ended

    def send_and_receive(self, messages: Iterable[Message]) -> list[Message]:
        """The answers to messages, one each."""
        sent = set(self._grid.push_messages(messages))
        found: list[Message] = []
        while len(found) < len(sent):
            if self._ended.wait(_POLL_SECONDS):
                raise ConnectionAbortedError("the simulation has ended.")
            found += self._grid.pull_messages(sent)
        return found

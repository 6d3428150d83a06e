"""Each client in a process of its own, which Flower reaches over gRPC on the loopback interface.

Flower's SuperNode starts a process anew for every message and no longer speaks gRPC (1.42). Its older server and client
do, over one stream that stays open as long as the client lives: those are used here.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess

import grpc
from flwr.app import Context
from flwr.compat.client.app import start_client_internal
from flwr.proto.transport_pb2_grpc import add_FlowerServiceServicer_to_server
from flwr.server import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.superlink.fleet.grpc_bidi.flower_service_servicer import FlowerServiceServicer

from privbench.targets.fedavg.flower.client import FlowerClient, Outfit, hushed
from privbench.targets.fedavg.flower.server import introduced
from privbench.workers import RunFailedError, start

_LOOPBACK = "127.0.0.1"
_START_SECONDS = 900.0
_UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
_PR_SET_PDEATHSIG = 1


@contextmanager
def over_grpc(outfit: Outfit) -> Iterator[list[ClientProxy]]:
    """Clients in their order, on a port that the system chooses; their processes end with the context."""
    count, token = len(outfit.shards), secrets.token_hex(16)
    manager = SimpleClientManager()
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    # A stream occupies a thread as long as its client lives; one more lets a stranger in, to be found out.
    with hushed(), ThreadPoolExecutor(count + 1) as pool:
        server = grpc.server(pool, options=_UNLIMITED)
        add_FlowerServiceServicer_to_server(FlowerServiceServicer(manager), server)
        address = f"{_LOOPBACK}:{server.add_insecure_port(f'{_LOOPBACK}:0')}"
        try:
            server.start()
            for client in range(count):
                given = (address, outfit, client, token, os.getpid())
                processes.append(context.Process(target=live, args=given, daemon=True))
                start(processes[-1])
            _await(manager, processes)
            yield introduced(list(manager.all().values()), token)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()  # there is nothing to save, and one that hangs may not heed less
                    process.join()
            server.stop(None).wait()


def live(address: str, outfit: Outfit, client: int, token: str, parent: int) -> None:
    """A client's whole life: it ends when the server ends it, or is gone."""
    _die_with(parent)
    # Where a proxy is set, gRPC would ask it for the loopback interface too; it reads the name in small letters only.
    os.environ["no_grpc_proxy"] = _LOOPBACK  # noqa: SIM112

    def client_fn(context: Context) -> FlowerClient:
        return FlowerClient(outfit, client, context, token)

    with hushed(), suppress(grpc.RpcError):
        start_client_internal(server_address=address, node_config={}, client_fn=client_fn, insecure=True, max_retries=0)


def _await(manager: SimpleClientManager, processes: Sequence[BaseProcess]) -> None:
    """Until all have joined; `RunFailedError` when one cannot."""
    latest = time.monotonic() + _START_SECONDS
    while not manager.wait_for(len(processes), timeout=1):
        ended = [process.exitcode for process in processes if process.exitcode is not None]
        if ended or time.monotonic() > latest:
            why = f"ended with exit code {ended[0]}" if ended else f"did not join in {_START_SECONDS:g} s"
            raise RunFailedError(f"a client's process {why}; often memory: use fewer clients, or runtime=own.")


def _die_with(parent: int) -> None:
    """Linux kills this process when its parent is killed; elsewhere a broken stream ends it."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        raise SystemExit

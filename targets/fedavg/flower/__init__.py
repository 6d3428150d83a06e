"""The clients of federated averaging under Flower (Beutel et al. 2020); nothing here is imported unless asked for.

The server's part stays with `rounds.federate`: who is drawn, who drops out, the mean. Flower carries a round's orders
to clients and updates back: in its simulation, or over gRPC on the loopback interface. Each client's optimiser lives in
its Flower context, so that it stays with its client whichever process trains it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from privbench.errors import InputError

if TYPE_CHECKING:
    from privbench.targets.fedavg.config import FedTuning
    from privbench.targets.fedavg.rounds import Clients, Whole
    from privbench.targets.split_llama.tune import Shard

_PACKAGES = ("flwr", "ray")
_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listens on the loopback interface, as it does there, and not on all
    "RAY_worker_niceness": "0",  # 15 otherwise: on a busy machine clients would starve beside the server that waits
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # says no to a warning
}
"""Flower reads its own when it is imported, Ray when it starts: neither reports to its makers."""


def require_flower() -> None:
    """`InputError` where the extra is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"runtime flower-simulation and flower-grpc need {' and '.join(missing)}; run pip install -e '.[flower]' "
            "in privbench's folder, or use runtime=own."
        )


@contextmanager
def flower_clients(model: Whole, shards: Sequence[Shard], tuning: FedTuning, steps: int) -> Iterator[Clients]:
    """Clients as `tuning.runtime` says, until the context ends; `InputError` where the extra is not installed."""
    require_flower()
    with _environment(_SETTINGS):
        from privbench.targets.fedavg.flower.client import Outfit
        from privbench.targets.fedavg.flower.grpc import over_grpc
        from privbench.targets.fedavg.flower.server import FlowerServer
        from privbench.targets.fedavg.flower.simulation import simulated

        outfit = Outfit(model, tuple(shards), tuning, steps)
        connected = over_grpc if tuning.runtime == "flower-grpc" else simulated
        with connected(outfit) as proxies, FlowerServer(proxies, tuning.timeout) as server:
            yield server


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """With these variables; what Flower and Ray set besides goes with them."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

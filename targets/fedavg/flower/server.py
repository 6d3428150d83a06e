"""The server's side under Flower: orders out, answers back, and who has not answered in time is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

from flwr.common import FitRes, GetPropertiesIns, GetPropertiesRes
from flwr.server.client_proxy import ClientProxy

from privbench.targets.fedavg.flower.client import instruction, trained_by
from privbench.targets.fedavg.rounds import Order, Trained, Why
from privbench.targets.split_llama.adapters import State
from privbench.workers import RunFailedError


class FlowerServer:
    """Asks all clients of a round at once, and waits so many seconds for them together.

    A client has one thread, so that it gets an order only after it has answered the one before. What comes too late is
    dropped, and its sender may take part in the next round; an order that it never saw is withdrawn.
    """

    def __init__(self, proxies: Sequence[ClientProxy], timeout: float) -> None:
        self._proxies, self._timeout = proxies, timeout
        self._askers = [ThreadPoolExecutor(1, thread_name_prefix="flower") for _ in proxies]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asker in self._askers:
            asker.shutdown(wait=False, cancel_futures=True)

    def train(self, start: State, orders: Mapping[int, Order]) -> Mapping[int, Trained | Why]:
        """`rounds.Clients.train`; `RunFailedError` when every client that was asked is lost, or Flower itself fails."""
        asked = {
            client: self._askers[client].submit(self._proxies[client].fit, instruction(start, order), None, None)
            for client, order in orders.items()
        }
        wait(asked.values(), timeout=self._timeout)
        answers = {client: _answer(asked[client], start, order) for client, order in orders.items()}
        if all(answer == "lost" for answer in answers.values()):
            cause = next(iter(asked.values())).exception()
            raise RunFailedError(
                "every client of a round is lost under Flower, the first one by "
                f"{type(cause).__name__}: {cause}; try runtime=own."
            ) from cause
        return answers


def _answer(asked: Future[FitRes], start: State, order: Order) -> Trained | Why:
    if asked.cancel() or not asked.done():
        return "timed out"
    error = asked.exception()
    if isinstance(error, RunFailedError):
        raise error
    if error is not None:
        return "lost"
    return trained_by(asked.result(), start, order) if order.sends else "dropped out"


def introduced(proxies: Sequence[ClientProxy], token: str = "") -> list[ClientProxy]:
    """The proxies in the order of clients; `RunFailedError` for one that this audit has not started."""
    pool = ThreadPoolExecutor(len(proxies))
    try:
        asked = [pool.submit(proxy.get_properties, GetPropertiesIns({}), None, None) for proxy in proxies]
        said: list[GetPropertiesRes] = [item.result() for item in asked]
    finally:
        pool.shutdown(wait=False)  # who is interrupted here ends the clients, and they these threads
    if any(item.properties["token"] != token for item in said):
        raise RunFailedError("a client that this audit has not started has joined it; start it again.")
    found = {int(item.properties["client"]): proxy for item, proxy in zip(said, proxies, strict=True)}
    return [found[client] for client in range(len(proxies))]

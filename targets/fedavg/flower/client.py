"""A client of federated averaging as Flower knows it, the same in the simulation and over gRPC."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, Context
from flwr.client import Client
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)

from privbench.targets.fedavg.config import FedTuning
from privbench.targets.fedavg.rounds import Institute, Order, Trained, Whole
from privbench.targets.split_llama.adapters import State
from privbench.targets.split_llama.tune import Shard
from privbench.threads import one_torch_thread

_MEMORY = "optimiser"
_FINE = Status(Code.OK, "")


@dataclass(frozen=True)
class Outfit:
    """All that clients are built from, in whichever process. rounds: in all."""

    model: Whole
    shards: tuple[Shard, ...]
    tuning: FedTuning
    rounds: int


class FlowerClient(Client):  # type: ignore[misc, unused-ignore]  # Any where Flower is not installed
    """One client for one message: what it keeps from round to round is in its context.

    token: what it proves with that this audit has started it.
    """

    def __init__(self, outfit: Outfit, number: int, context: Context, token: str = "") -> None:
        self._outfit, self._number, self._context, self._token = outfit, number, context, token

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Which client it is."""
        return GetPropertiesRes(_FINE, {"client": self._number, "token": self._token})

    def fit(self, ins: FitIns) -> FitRes:
        """Carry out an order. Who drops out half-way sends no update."""
        outfit, kept = self._outfit, self._context.state
        order = order_of(ins)
        with one_torch_thread():
            steps = outfit.rounds * outfit.tuning.local[self._number]
            institute = Institute(outfit.model, outfit.shards[self._number], outfit.tuning, steps)
            if _MEMORY in kept.array_records:
                institute.recall(kept.array_records[_MEMORY].to_torch_state_dict())
            trained = institute.train(dict(zip(institute.names, tensors(ins.parameters), strict=True)), order)
        kept.array_records[_MEMORY] = ArrayRecord(institute.memory)
        sent = tuple(trained.update.values()) if order.sends else ()
        return FitRes(
            _FINE, packed(sent), len(outfit.shards[self._number].samples), {"losses": json.dumps(trained.losses)}
        )


def instruction(start: State, order: Order) -> FitIns:
    """An order with the server's state."""
    config: dict[str, Scalar] = {"first": order.first, "batches": json.dumps(order.batches), "sends": order.sends}
    return FitIns(packed(tuple(start.values())), config)


def order_of(ins: FitIns) -> Order:
    """The order in an `instruction`."""
    batches = tuple(tuple(rows) for rows in json.loads(str(ins.config["batches"])))
    return Order(int(ins.config["first"]), batches, bool(ins.config["sends"]))


def trained_by(answer: FitRes, start: State, order: Order) -> Trained:
    """What a client answers to an `instruction`."""
    update = dict(zip(start, tensors(answer.parameters), strict=True))
    rows = frozenset(row for rows in order.batches for row in rows)
    return Trained(update, tuple(json.loads(str(answer.metrics["losses"]))), rows)


def packed(values: tuple[torch.Tensor, ...]) -> Parameters:
    """Tensors as Flower sends them, each in numpy's own format."""
    return ndarrays_to_parameters([item.numpy() for item in values])


def tensors(parameters: Parameters) -> list[torch.Tensor]:
    """The tensors that were `packed`."""
    return [torch.from_numpy(np.array(item)) for item in parameters_to_ndarrays(parameters)]


@contextmanager
def hushed() -> Iterator[None]:
    """Flower's log is not the audit's: who failed is in the rounds."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)

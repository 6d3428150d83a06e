"""What a training of the grid costs a client by either method: computed, and measured here. `make reports`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privbench.targets.split_llama.cost import LLAMA_3B, Setting, Training, cost
from privbench.targets.split_llama.measure import measure
from privbench.targets.split_llama.models import shape_of

STEPS, ROUNDS, MEASURED = 50, 10, 15
"""Of each of ten clients with equal shares, in the grid; steps that are measured."""
NUMBER = 4
"""Bytes of a number of an update, float32."""
WAYS: Mapping[str, Training] = {"split": "split client", "FedAvg": "full local"}
MEGA, GIGA = 1e6, 1e9


def settings() -> dict[str, Setting]:
    """The grid's model at the tokens of a typical record, and the published one, for which only closed forms speak."""
    tiny = Setting(shape_of("tiny"), batch=8, prompt=277, answer=3, train_head=True)
    return {"tiny": tiny, "LLaMA-3.2-3B": replace(LLAMA_3B, batch=8)}


def row(model: str, method: str, setting: Setting, *, run: bool) -> dict[str, Any]:
    """A client's whole training. In split learning activations and their gradients travel in every step, in FedAvg the
    state and the update in every round.
    """
    training = WAYS[method]
    each, whole = cost(setting, training), cost(setting, "full local")
    state = each.trained * NUMBER * ROUNDS
    up, down = (each.bytes_up * STEPS, each.bytes_down * STEPS) if method == "split" else (state, state)
    found = measure(setting, training, MEASURED) if run else None
    return {
        "model": model,
        "method": method,
        "client_flops": each.flops * STEPS,
        "server_flops": (whole.flops - each.flops) * STEPS,
        "bytes_up": up,
        "bytes_down": down,
        "memory": each.memory,
        "client_seconds": None if found is None else found.seconds * STEPS,
        "peak": None if found is None else found.memory,
    }


def table(folder: Path) -> Iterator[str]:
    """Of cost.json."""
    head = ("model", "method", "client, GFLOPs", "server, GFLOPs", "sent, MB", "received, MB", "memory, MB", "seconds")
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for item in json.loads((folder / "cost.json").read_text(encoding="utf-8")):
        seconds = "–" if item["client_seconds"] is None else f"{item['client_seconds']:.1f}"
        memory = f"{item['memory'] / MEGA:,.0f}" + ("" if item["peak"] is None else f" ({item['peak'] / MEGA:,.0f})")
        flops = (f"{item[who] / GIGA:,.1f}" for who in ("client_flops", "server_flops"))
        sent, received = (f"{item[way] / MEGA:,.1f}" for way in ("bytes_up", "bytes_down"))
        yield (
            f"| {item['model']} | {item['method']} | {' | '.join(flops)} | {sent} | {received} | {memory} | {seconds} |"
        )


def main(folder: Path) -> None:
    rows = [row(model, way, item, run=model == "tiny") for model, item in settings().items() for way in WAYS]
    (folder / "cost.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

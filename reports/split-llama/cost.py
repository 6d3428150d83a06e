"""Measure and compute the cost of one step per client, and write cost.json: `make reports`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from privbench.targets.split_llama.cost import LLAMA_3B, REPORTED, REPORTED_TOKENS, Row, Setting, table
from privbench.targets.split_llama.models import shape_of
from privbench.targets.split_llama.shape import LLAMA_3_2_3B, projection

STEPS = 5


def row(item: Row) -> dict[str, object]:
    return {
        "model": item.model,
        "training": item.training,
        "labels": item.setting.placement,
        "k": item.setting.k,
        "batch": item.setting.batch,
        "tokens": item.setting.prompt + item.setting.answer,
        "cost": asdict(item.cost),
        "measured": None if item.measured is None else asdict(item.measured),
    }


def main(folder: Path) -> None:
    settings = {
        "tiny": Setting(shape_of("tiny"), batch=8, prompt=277, answer=3, train_head=True),
        "smollm2": Setting(shape_of("smollm2"), batch=4, prompt=247, answer=3),
        "LLaMA-3.2-3B": LLAMA_3B,
    }
    rows = table(settings, measured=("tiny", "smollm2"), steps=STEPS)
    width, adapter = LLAMA_3_2_3B.width, LLAMA_3_2_3B.embedding_adapter(16)
    heads = {
        "bottleneck 256, with biases": projection(width, 256),
        "bottleneck 16, without biases": projection(width, 16, bias=False),
    }
    data = {
        "rows": [row(item) for item in rows],
        "reported": {**asdict(REPORTED), "tokens": REPORTED_TOKENS},
        "client_parameters": {name: {"head": head, "with adapter": head + adapter} for name, head in heads.items()},
    }
    (folder / "cost.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

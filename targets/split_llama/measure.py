"""A client's step run for real: wall-clock and peak memory, in a process of its own.

The process builds only what that client holds (random weights: cost does not depend on values), and answers it with
random messages in place of the server. Peak memory is the kernel's high-water mark of resident memory (VmHWM in
/proc/self/status, Linux only) during the steps, which unlike tracemalloc sees torch's tensors; what interpreter and
libraries take before the model is built is subtracted.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from privbench.targets.split_llama.cost import Setting, Training
from privbench.targets.split_llama.shape import Shape

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

    from privbench.targets.split_llama.batches import Batch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Measured:
    """Median seconds per step on one thread, and peak bytes; None where the system does not say."""

    seconds: float
    memory: int | None


def measure(setting: Setting, training: Training, steps: int = 3) -> Measured:
    """Run a warm-up step and then `steps` steps in a fresh process; `RuntimeError` with its last words if it fails."""
    order = json.dumps({"setting": asdict(setting), "training": training, "steps": steps})
    done = subprocess.run([sys.executable, "-m", __name__, order], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring {training} failed: {done.stderr[-300:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def run(setting: Setting, training: Training, steps: int) -> Measured:
    """The measurement itself, meant for a process that does nothing else."""
    import peft
    import torch
    import transformers

    _ = peft.LoraConfig, transformers.LlamaForCausalLM  # both load lazily: their memory is the libraries'
    torch.set_num_threads(1)
    before = _resident("VmRSS")
    step, parameters = client_step(setting, training)
    _forget_peak()
    optimiser = torch.optim.Adam(parameters, fused=True)
    seconds = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        optimiser.zero_grad()
        step()
        optimiser.step()
        seconds.append(time.perf_counter() - start)
    peak = _resident("VmHWM")
    memory = None if before is None or peak is None else peak - before
    return Measured(median(seconds[1:]), memory)


def client_step(setting: Setting, training: Training) -> tuple[Callable[[], object], list[torch.nn.Parameter]]:
    """Forward and backward of what one client computes in a step, and what it trains."""
    import torch

    from privbench.targets.split_llama.halves import exchange, split

    local = training == "full local"
    generator = torch.Generator().manual_seed(0)
    client, server = split(
        random_llama(setting.shape, setting.shape.layers if local else setting.k),
        generator,
        k=setting.k,
        placement="client" if local else setting.placement,
        bottleneck=setting.bottleneck,
        rank=setting.rank,
        train_head=setting.train_head,
    )
    batch = _batch(setting)
    parties = (client, server) if local else (client,)
    parameters = [p for party in parties for p in party.parameters() if p.requires_grad]

    def alone() -> None:
        sent = client(batch).activations
        if client.readout is not None:
            client.step(torch.randn(sent.shape, generator=generator), batch)
        client.backward(torch.randn(sent.shape, generator=generator))

    return (lambda: exchange(client, server, batch)) if local else alone, parameters


def random_llama(shape: Shape, layers: int) -> LlamaForCausalLM:
    """A LLaMA of these dimensions with so many layers and any weights; the global generator is put back."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.intermediate,
        num_hidden_layers=layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )
    with torch.random.fork_rng(devices=[]):
        return LlamaForCausalLM(config).requires_grad_(False)


def _batch(setting: Setting) -> Batch:
    from privbench.targets.split_llama.batches import collate

    def row(count: int) -> list[int]:
        return [token % setting.shape.vocabulary for token in range(7, 7 + count)]

    return collate([row(setting.prompt)] * setting.batch, [[row(setting.answer)]] * setting.batch)


def _resident(field: str) -> int | None:
    """A line of the kernel's account of this process, in bytes."""
    if not STATUS.exists():
        return None
    lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines() if ":" in line)
    return int(lines[field].split()[0]) * 1024


def _forget_peak() -> None:
    """Start the high-water mark again (proc(5)): drawing random weights takes more than a step does."""
    with contextlib.suppress(OSError):
        CLEAR.write_text("5", encoding="ascii")


def main(argument: str) -> None:
    order: dict[str, Any] = json.loads(argument)
    shape = Shape(**order["setting"].pop("shape"))
    found = run(Setting(shape=shape, **order["setting"]), order["training"], order["steps"])
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

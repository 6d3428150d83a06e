"""Write README.md from the sweeps that stand beside it: every number is theirs. `make reports`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from privbench import record
from privbench.defenses.base import rms
from privbench.record import Audit, Finding
from privbench.report.sweep_utility import over_runs
from privbench.report.words import number, short_name
from privbench.stats.answers import Undefined, over_seeds
from privbench.targets.split_llama.models import load

ATTACKS = ("nearest-token", "affine-token", "rescaled-token", "learned-token")
ANSWERS, TOKENS = "answer-accuracy", "token-accuracy"
DRAWS, HALF = 4_000, 0.5

Groups = Mapping[str, list[Audit]]
"""Audits that differ in their seed alone, by what they are."""


def read(folder: Path, name: Callable[[Audit], str]) -> Groups:
    found: dict[str, list[Audit]] = {}
    for cell in sorted((folder / "cells").iterdir()):
        audit = record.read(cell)
        found.setdefault(name(audit), []).append(audit)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "none", _natural(item[0]))))


def _natural(text: str) -> list[tuple[float, str]]:
    """Numbers within a name by their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if number % 2 else (0.0, part) for number, part in enumerate(parts)]


def defence(audit: Audit) -> str:
    return str(audit.manifest["config"]["resolved"]["defense"])


def depth(audit: Audit) -> str:
    return str(audit.manifest["config"]["resolved"]["tuning"]["k"])


def survey(audit: Audit) -> str:
    """A survey by its outcome: two outcomes of one survey are two rows."""
    data = str(audit.manifest["config"]["resolved"]["data"])
    return f"{data.partition(':')[0]}: {audit.utility[0]['task']}"


def picked(audit: Audit, attack: str, metric: str, last: bool) -> Finding | None:
    """An attack's finding over one release, or over all."""
    found = [
        f for f in audit.findings if (f.attack, f.metric) == (f"inversion/{attack}", metric) and f.value is not None
    ]
    return next((f for f in sorted(found, key=lambda f: f.releases, reverse=last)), None)


def values(audits: Sequence[Audit], attack: str, metric: str, last: bool) -> list[float]:
    found = [picked(audit, attack, metric, last) for audit in audits]
    return [item.value for item in found if item is not None and item.value is not None]


def baseline(audits: Sequence[Audit], metric: str) -> str:
    found = [picked(audit, ATTACKS[0], metric, True) for audit in audits]
    return over_runs([item.baseline for item in found if item is not None and item.baseline is not None], share=True)


def useful(audits: Sequence[Audit]) -> str:
    """Accuracy of the tuned model, and what the most frequent answer reaches."""
    rows = [item for audit in audits for item in audit.utility if item["metric"] == "accuracy"]
    ours, base = (over_runs([row[key] for row in rows], share=True) for key in ("value", "baseline"))
    return f"{ours}, most frequent {base}"


def gains(audits: Sequence[Audit]) -> bool:
    """Whether the tuned model is better than the most frequent answer, by Student's t over seeds."""
    over = over_seeds([item["gain"] for audit in audits for item in audit.utility if item["metric"] == "accuracy"])
    return not isinstance(over, Undefined) and over.low > 0


def table(groups: Groups, what: str, metric: str, last: bool) -> Iterator[str]:
    attacks = " | ".join(short_name(f"inversion/{name}") for name in ATTACKS)
    yield f"| {what} | {attacks} | one reply for all | accuracy |"
    yield f"|---|{'---|' * len(ATTACKS)}---|---|"
    for name, audits in groups.items():
        read_of = " | ".join(over_runs(values(audits, attack, metric, last), share=True) for attack in ATTACKS)
        yield f"| {name} | {read_of} | {baseline(audits, metric)} | {useful(audits)} |"


def best(audits: Sequence[Audit], last: bool) -> float:
    """What the best attack reads of the answers, by its mean over seeds."""
    return max(sum(v) / len(v) for name in ATTACKS if (v := values(audits, name, ANSWERS, last)))


def looked_up(table: torch.Tensor, times: float) -> float:
    """Share of tokens whose row lies nearest to itself with noise of so many times the entries' root mean square."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, len(table), (DRAWS,), generator=generator)
    noise = torch.randn((DRAWS, table.shape[1]), generator=generator)
    sent = table[ids] + times * rms(table) * noise
    return float((torch.cdist(sent, table).argmin(dim=1) == ids).float().mean())


def half_read(table: torch.Tensor) -> float:
    """The noise, in those units, at which half of the tokens are still found; by bisection."""
    low, high = 0.0, 64.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if looked_up(table, middle) > HALF else (low, middle)
    return low


def opening(noise: Groups, depths: Groups, surveys: Groups) -> Iterator[str]:
    """What a reader should take home, from the tables below."""
    bare = noise["none"]
    yield (
        f"- At the embedding cut, undefended, the best attack reads {number(best(bare, False))} of the answers from "
        f"one pass and {number(best(bare, True))} from all; one reply for everybody reads {baseline(bare, ANSWERS)}."
    )
    told = ", ".join(f"{name} {number(best(audits, True))}" for name, audits in surveys.items())
    yield f"- On real surveys, from all passes: {told}."
    deep = ", ".join(f"{number(best(audits, True))} with {name}" for name, audits in depths.items())
    yield f"- Layers at the client: {deep}."
    kept = ", ".join(f"{number(best(audits, True))} with `{name}`" for name, audits in noise.items() if name != "none")
    yield f"- Defences: {kept}."
    both = [f"`{name}`" for name, audits in noise.items() if best(audits, True) < HALF and gains(audits)]
    yield (
        f"- Hide half of the answers from all passes and keep an accuracy above the most frequent answer's: "
        f"{', '.join(both) or 'none of these defences'}."
    )


def page(folder: Path) -> str:
    noise, depths = read(folder / "noise", defence), read(folder / "depth", depth)
    surveys = read(folder / "surveys", survey)
    rows = load("tiny").model.model.embed_tokens.weight.detach().float()
    half = half_read(rows)
    seeds = max(map(len, noise.values()))
    passes = max(item.releases for item in noise["none"][0].findings)
    lines = [
        "# What a split LLaMA's cut gives away",
        "",
        "The paper says that raw responses never leave the institution. What leaves is one activation a token. Read by",
        "a curious server that knows the public base model and no pair of token and activation (model tiny):",
        "",
        *opening(noise, depths, surveys),
        "",
        "Shares are of whole answers, each answer of a question counting the same, beside what one reply for all",
        f"reads; 95% intervals by Student's t over {seeds} seeds. The last column is the tuned model's accuracy on",
        "test respondents. Real respondents appear as rates only. Repeated by `make reports`.",
        "",
        f"## Defences: answers read from all {passes} passes (synthetic survey)",
        "",
        *table(noise, "defence", ANSWERS, True),
        "",
        "From one pass:",
        "",
        *table(noise, "defence", ANSWERS, False),
        "",
        "Sizes are in units of the public table (docs/split-llama.md). A clip alone is undone by directions. No attack",
        "here is told of the noise or learns with it, so that an adversary who is may read more.",
        "",
        f"By Monte Carlo on the table ({DRAWS:,} tokens, each as likely as any other) nearest-token finds half of the",
        f"tokens at noise {half:.1f} from one pass, {half * passes**0.5:.1f} from {passes} of one activation.",
        "",
        "## Depth: answers read from all passes",
        "",
        *table(depths, "layers at the client", ANSWERS, True),
        "",
        "## Real surveys: answers read from all passes, undefended, at the embedding",
        "",
        *table(surveys, "survey: outcome", ANSWERS, True),
        "",
        "Tokens of answers:",
        "",
        *table(surveys, "survey: outcome", TOKENS, True),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "README.md").write_text(page(here), encoding="utf-8")
    sys.stdout.write(f"wrote {here / 'README.md'}\n")

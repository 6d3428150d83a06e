"""Write README.md from the sweeps and the costs that stand beside it: every number is theirs. `make reports`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privbench import record
from privbench.report.sweep_lines import groups
from privbench.report.words import interval, number
from privbench.stats.answers import Undefined, over_seeds
from privbench.sweep.record import Row, Sweep, read_sweep

MAIN = "accuracy"
LIMITS = {"value": ("low", "high"), "gain": ("gain_low", "gain_high")}
RANKED = ("quadratic kappa", "macro F1")
WORDED = ("accuracy, generated", "ANLS, generated", "ANLS strict, generated")


Items = Sequence[Mapping[str, Any]]


def items(rows: Sequence[Row], metric: str) -> Items:
    return [item for row in rows for item in row.utility if item["metric"] == metric]


def spread(found: Items, key: str, sign: str = "") -> str:
    """Mean with Student's interval over seeds; of one training its own interval, over test respondents."""
    values = [float(item[key]) for item in found]
    over = over_seeds(values)
    low, high = LIMITS[key]
    ends = (found[0][low], found[0][high]) if isinstance(over, Undefined) else (over.low, over.high)
    value = sum(values) / len(values)
    return f"{value:+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}]" if sign else f"{number(value)} {interval(*ends)}"


def mean(values: Sequence[float]) -> str:
    return number(sum(values) / len(values)) if values else "–"


def verdict(found: Items) -> str:
    """Whether the gain's interval is above 0."""
    over = over_seeds([float(item["gain"]) for item in found])
    low = found[0]["gain_low"] if isinstance(over, Undefined) else over.low
    return "learned" if low > 0 else "**not shown**"


def named(rows: Sequence[Row]) -> str:
    """A task by its survey and outcome."""
    return f"{rows[0].data.rpartition(':')[2].partition(',')[0]}: {rows[0].utility[0]['task']}"


def learning(sweep: Sweep) -> Iterator[str]:
    others = ("logistic regression", "FT-Transformer", "0-shot prompting")
    yield f"| survey: outcome | most frequent | {' | '.join(others)} | split LoRA | gain over most frequent | |"
    yield f"|---|---|{'---|' * len(others)}---|---|---|"
    for rows in groups(sweep).values():
        found = items(rows, MAIN)
        beside = [mean([i["references"][name] for i in found if name in i["references"]]) for name in others]
        yield (
            f"| {named(rows)} | {mean([i['baseline'] for i in found])} | {' | '.join(beside)} "
            f"| {spread(found, 'value')} | {spread(found, 'gain', '+')} | {verdict(found)} |"
        )


def unlearned(sweep: Sweep) -> Iterator[str]:
    """What the split model does not learn, and whether another method shows that it was there to learn."""
    for rows in groups(sweep).values():
        found = items(rows, MAIN)
        if verdict(found) == "learned":
            continue
        ways = sorted({name for item in found for name in item["references"]})
        shares = {way: [i["references"][way] for i in found if way in i["references"]] for way in ways}
        best = max(shares, key=lambda way: sum(shares[way]) / len(shares[way]))
        base = [item["baseline"] for item in found]
        there = min(shares[best]) > max(base)
        yield (
            f"Not learned: {named(rows)}. The best other method, {best}, reads {mean(shares[best])} where the most "
            f"frequent answer reads {mean(base)}{': the answer is in the other columns' if there else ''}."
        )


def metrics(sweep: Sweep) -> Iterator[str]:
    names = (*RANKED, *WORDED)
    yield f"| survey: outcome | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for rows in groups(sweep).values():
        cells = []
        for name in names:
            found = items(rows, name)
            cells.append(
                f"{mean([i['value'] for i in found])} ({mean([i['baseline'] for i in found])})" if found else "–"
            )
        yield f"| {named(rows)} | {' | '.join(cells)} |"


def leakage(sweep: Sweep) -> Iterator[str]:
    yield "| survey: outcome | token accuracy, one release | all releases | most frequent answers |"
    yield "|---|---|---|---|"
    for rows in groups(sweep).values():
        one = [h.value for row in rows if (h := row.value("inversion/nearest-token", "one")) and h.value is not None]
        every = [h.value for row in rows if (h := row.value("inversion/nearest-token", "all")) and h.value is not None]
        yield f"| {named(rows)} | {mean(one or every)} | {mean(every)} | {mean(baselines(sweep, rows))} |"


def baselines(sweep: Sweep, rows: Sequence[Row]) -> list[float]:
    found = []
    for row in rows:
        audit = record.read(FOLDER / "learning" / "cells" / row.cell)
        found += [f.baseline for f in audit.findings if f.metric == "token-accuracy" and f.baseline is not None][:1]
    return found


def dropped(sweep: Sweep) -> Iterator[str]:
    for rows in groups(sweep).values():
        notes = record.read(FOLDER / "learning" / "cells" / rows[0].cell).notes
        for note in notes:
            if note.startswith("Dropped "):
                yield f"- {named(rows)}: {note.removeprefix('Dropped ')}"


def curve(sweep: Sweep) -> Iterator[str]:
    yield "| respondents, each once | most frequent | logistic regression | 0-shot | 2-shot | split LoRA | gain | |"
    yield "|---|---|---|---|---|---|---|---|"
    for rows in sorted(groups(sweep).values(), key=lambda rows: int(rows[0].settings.get("train", 0))):
        found = items(rows, MAIN)
        if not found:
            continue
        beside = [
            mean([i["references"][name] for i in found if name in i["references"]])
            for name in ("logistic regression", "0-shot prompting", "2-shot prompting")
        ]
        yield (
            f"| {rows[0].settings['train']} | {mean([i['baseline'] for i in found])} | {' | '.join(beside)} "
            f"| {spread(found, 'value')} | {spread(found, 'gain', '+')} | {verdict(found)} |"
        )


def costs(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| model | training | labels | k | batch x tokens | FLOPs | peak memory | up | down | trained | s per step |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in data["rows"]:
        cost, ran = row["cost"], row["measured"]
        cut = (row["labels"], str(row["k"])) if row["training"] == "split client" else ("–", "–")
        memory = f"{size(cost['memory'])} computed"
        cells = (
            row["model"], row["training"], *cut, f"{row['batch']} x {row['tokens']}", flops(cost["flops"]),
            f"{size(ran['memory'])} measured, {memory}" if ran and ran["memory"] else memory,
            size(cost["bytes_up"]), size(cost["bytes_down"]), f"{cost['trained']:,}",
            f"{ran['seconds']:.2g}" if ran else "not run",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def published(data: Mapping[str, Any]) -> Iterator[str]:
    """The reported figures beside ours, and both readings of the head."""
    told, heads = data["reported"], data["client_parameters"]
    whole, thin = heads["bottleneck 256, with biases"], heads["bottleneck 16, without biases"]
    least, most = told["local_memory"]
    yield (
        f"Reported for LLaMA-3.2-3B: {flops(told['split_flops'])}FLOPs and {size(told['split_memory'])} a step for a "
        f"split client, {flops(told['local_flops'])}FLOPs and {size(least)} to {size(most)} locally. Both FLOPs are "
        f"6 x parameters x {told['tokens']:,} tokens, which counts gradients of frozen weights that LoRA does not "
        "compute. Communication and wall-clock were not reported."
    )
    yield ""
    yield (
        "The reported client has 3.68M parameters and a head of about 100K, which do not agree: a head with bottleneck "
        f"256 and biases has {whole['head']:,} parameters, with the embedding's adapter {whole['with adapter']:,} "
        f"(3.68M); one with bottleneck 16 and no biases has {thin['head']:,} (~100K), together "
        f"{thin['with adapter']:,}."
    )


def size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def flops(count: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f}"


FOLDER = Path(__file__).resolve().parent


def main() -> None:
    learned, real = read_sweep(FOLDER / "learning"), read_sweep(FOLDER / "smollm2")
    cost = json.loads((FOLDER / "cost.json").read_text(encoding="utf-8"))
    seeds = len({row.seed for row in learned.rows})
    lines = [
        "# The split LLaMA over surveys",
        "",
        "**Data locality is not privacy.** The clients' respondents never left them; a curious server that looks every",
        "activation up in the public embedding table reads nearly all of their answers:",
        "",
        *leakage(learned),
        "",
        "Repeated by `make reports SURVEYS=DIR` (`page.py` writes this page from [the sweep](learning/sweep.md),",
        "[SmolLM2's](smollm2/sweep.md) and `cost.json`). DIR holds the public surveys; none of their rows is here.",
        "",
        f"## What the tiny model learns, {seeds} seeds",
        "",
        "Accuracy on test respondents: 2,000 for training over 4 clients, 500 for testing (fewer where the survey has",
        "fewer), 400 steps of 8, nobody on two sides. Each seed draws respondents, split, start and order anew: 95%",
        "intervals by Student's t over seeds.",
        "",
        *learning(learned),
        "",
        *(line for said in unlearned(learned) for line in (said, "")),
        "Other metrics, means over seeds, in brackets the most frequent answer's:",
        "",
        *metrics(learned),
        "",
        "ANLS flatters: similar wording earns credit, and an adjacent level half of it.",
        "",
        "Columns that give an outcome away, found and dropped (first seed):",
        "",
        *(list(dropped(learned)) or ["- none"]),
        "",
        "## SmolLM2-135M: do 240 respondents teach it anything?",
        "",
        f"{named(real.rows)}, batches of 4, one training per size; 95% intervals over 100 test respondents hold",
        "their choice, not a training's chance:",
        "",
        *curve(real),
        "",
        "## What one step costs a client",
        "",
        *costs(cost),
        "",
        "A split client's time is its own half alone. Memory measured: the kernel's high-water mark above what the",
        "libraries take; computed: a lower bound without allocator holes and temporaries.",
        "",
        *published(cost),
        "",
    ]
    (FOLDER / "README.md").write_text("\n".join(lines), encoding="utf-8")
    sys.stderr.write(f"wrote {FOLDER / 'README.md'}\n")


if __name__ == "__main__":
    main()

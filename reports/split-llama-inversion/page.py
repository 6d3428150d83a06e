"""Write README.md and its figure from the sweeps that stand beside it: every number is theirs. `make reports`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from figure import draw
from tables import (
    ANSWERS,
    AUC,
    COINS,
    TOKENS,
    Groups,
    alone,
    best,
    by_pass,
    defence,
    gains,
    guessed,
    mean,
    one_reply,
    read,
    setting,
    survey,
    table,
    useful,
)

from privbench.defenses.base import rms
from privbench.record import Audit
from privbench.report.sweep_utility import over_runs
from privbench.report.words import number, short_name
from privbench.targets.split_llama.models import load

DRAWS, HALF = 4_000, 0.5


def looked_up(rows: torch.Tensor, times: float) -> float:
    """Share of tokens whose row lies nearest to itself with noise of so many times the entries' root mean square."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, len(rows), (DRAWS,), generator=generator)
    noise = torch.randn((DRAWS, rows.shape[1]), generator=generator)
    sent = rows[ids] + times * rms(rows) * noise
    return float((torch.cdist(sent, rows).argmin(dim=1) == ids).float().mean())


def half_read(rows: torch.Tensor) -> float:
    """The noise, in those units, at which half of the tokens are still found; by bisection."""
    low, high = 0.0, 64.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if looked_up(rows, middle) > HALF else (low, middle)
    return low


def most(audits: list[Audit], last: bool) -> str:
    """What the best attack reads of the answers."""
    return number(mean(best(audits, ANSWERS, last)[1]))


def opening(sweeps: Mapping[str, Groups]) -> Iterator[str]:
    """What a reader should take home, from the tables below."""
    noise, bare = sweeps["noise"], sweeps["noise"]["none"]
    yield (
        f"- At the embedding cut, undefended, the best attack reads {most(bare, False)} of the answers from one pass "
        f"and {most(bare, True)} from all; one reply for everybody reads {one_reply(bare, ANSWERS)}."
    )
    told = ", ".join(f"{name} {most(audits, True)}" for name, audits in sweeps["surveys"].items())
    yield f"- On real surveys, from all passes: {told}."
    deep = ", ".join(f"{most(audits, True)} with {name}" for name, audits in sweeps["depth"].items())
    yield f"- Layers at the client: {deep}. SmolLM2, untuned: " + (
        ", ".join(f"{most(audits, True)} with {name}" for name, audits in sweeps["smollm2/depth"].items()) + "."
    )
    kept = ", ".join(f"{most(audits, True)} with `{name}`" for name, audits in noise.items() if name != "none")
    yield f"- Defences: {kept}."
    for name, audits in noise.items():
        first, pooled = mean(alone(audits)[0]), mean(best(audits, TOKENS, True)[1])
        if first > pooled:
            yield (
                f"- `{name}` has to be learned: of the tokens, {number(first)} are read of the first pass by itself, "
                f"{number(pooled)} of all passes pooled. Whoever keeps the first pass keeps that."
            )
    both = [
        f"`{name}`" for name, audits in noise.items() if mean(best(audits, ANSWERS, True)[1]) < HALF and gains(audits)
    ]
    yield (
        f"- Hide half of the answers from all passes and keep an accuracy above the most frequent answer's: "
        f"{', '.join(both) or 'none of these defences'}."
    )
    for name, audits in sweeps["labels"].items():
        attack, shares = best(audits, COINS, True)
        yield (
            f"- Labels at the client, {name}: {number(mean(shares))} of label coins guessed from the gradients that go "
            f"up ({short_name(attack)}; chance .5)."
        )
    for name, audits in sweeps["members"].items():
        attack, areas = best(audits, AUC, True)
        yield f"- Was this questionnaire trained on, defence {name}: AUC {number(mean(areas))} ({short_name(attack)})."


def steps(groups: Groups) -> Iterator[str]:
    """Drift of the client's activations, and what is read of one pass, and of all."""
    yield "| client's rate, of the server's | moved, first pass | moved, last | last pass | all passes | accuracy |"
    yield "|---|---|---|---|---|---|"
    for name, audits in groups.items():
        first, last = ([(audit.inputs or {})["drift"][at] for audit in audits] for at in (0, -1))
        late = max(
            (
                [audit.series[attack].y[-1] for audit in audits]
                for attack in audits[0].series
                if attack.startswith("inversion/")
            ),
            key=mean,
        )
        everything = best(audits, TOKENS, True)[1]
        cells = (over_runs(first), over_runs(last), over_runs(late, share=True), over_runs(everything, share=True))
        yield f"| {name} | {' | '.join(cells)} | {useful(audits)} |"


def page(folder: Path, sweeps: Mapping[str, Groups]) -> str:
    rows = load("tiny").model.model.embed_tokens.weight.detach().float()
    half = half_read(rows)
    noise = sweeps["noise"]
    seeds = max(map(len, noise.values()))
    passes = max(item.releases for item in noise["none"][0].findings)
    late = max(item.releases for item in sweeps["steps"]["3.0"][0].findings)
    lines = [
        "# What a split LLaMA's cut gives away",
        "",
        "The paper says that raw responses never leave the institution. What leaves is one activation a token. Read by",
        "a curious server that knows the public base model and no pair of token and activation (model tiny, where no",
        "other is named):",
        "",
        *opening(sweeps),
        "",
        "![Answers read by noise, and tokens read by pass](figure.svg)",
        "",
        "Shares are of whole answers, each answer of a question counting the same, beside what one reply for all",
        f"reads; 95% intervals by Student's t over {seeds} seeds. The last column is the tuned model's accuracy on",
        "test respondents. The language model is the public base, told all answers before each and its true beginning,",
        "but nothing that crossed the cut. Real respondents appear as rates only. Repeated by `make reports`.",
        "",
        f"## Defences: answers read from all {passes} passes (synthetic survey)",
        "",
        *table(noise, "defence", ANSWERS, True),
        "",
        "From one pass, of each respondent another one, drawn by seed:",
        "",
        *table(noise, "defence", ANSWERS, False),
        "",
        "Tokens read of each pass by itself, by the attack that reads most of it. A defence that has to be learned",
        "hides nothing in the first: who keeps that pass alone reads more than the pooled figures above say.",
        "",
        *by_pass(noise),
        "",
        "Sizes are in units of the public table (docs/split-llama.md). A clip alone is undone by directions.",
        "",
        f"By Monte Carlo on the table ({DRAWS:,} tokens, each as likely as any other) nearest-token finds half of the",
        f"tokens at noise {half:.1f} from one pass, {half * passes**0.5:.1f} from {passes} of one activation.",
        "",
        "## Depth: answers read from all passes",
        "",
        *table(sweeps["depth"], "layers at the client", ANSWERS, True),
        "",
        f"## Training: tokens read by pass, {late} passes of a small client",
        "",
        *steps(sweeps["steps"]),
        "",
        "Moved: root mean square distance of activations from their tokens' public rows, in lengths of a row. What a",
        "client sent before it had moved stays read: a drifting client is no defence. Read: by the attack that reads",
        "most; the last pass by itself, and all passes together.",
        "",
        "## Real surveys: answers read from all passes, undefended, at the embedding",
        "",
        *table(sweeps["surveys"], "survey: outcome", ANSWERS, True),
        "",
        "Tokens of answers:",
        "",
        *table(sweeps["surveys"], "survey: outcome", TOKENS, True),
        "",
        "## SmolLM2-135M: answers read of 64 respondents, one pass before any tuning",
        "",
        *table(sweeps["smollm2/noise"], "defence", ANSWERS, True),
        "",
        *table(sweeps["smollm2/depth"], "layers at the client", ANSWERS, True),
        "",
        "Tuned for 60 steps of 4, 16 respondents of one of two clients:",
        "",
        *steps(sweeps["smollm2/steps"]),
        "",
        "## Labels at the client: coins guessed from the gradients that go up",
        "",
        *guessed(sweeps["labels"], "head", COINS),
        "",
        "Chance is .5: the label of each of these respondents is a fair coin between two answers, so that nothing can",
        "be predicted. The answer's own activations cross the cut as well, where the inversions above read them.",
        "",
        "## Was this questionnaire in the client's set: AUC",
        "",
        *guessed(sweeps["members"], "defence", AUC),
        "",
        "Fair coins decide who is trained on; a blind classifier of the questionnaires alone stands in each record.",
        "",
    ]
    return "\n".join(lines)


def head(audit: Audit) -> str:
    return "a trained head" if setting("train_head")(audit) == "yes" else "the public head"


if __name__ == "__main__":
    here = Path(__file__).parent
    names = {
        "noise": defence, "depth": setting("k"), "surveys": survey, "steps": setting("client_rate"), "labels": head,
        "members": defence, "smollm2/noise": defence, "smollm2/depth": setting("k"),
        "smollm2/steps": setting("client_rate"),
    }  # fmt: skip
    found = {name: read(here / name, by) for name, by in names.items()}
    draw(found, here)
    (here / "README.md").write_text(page(here, found), encoding="utf-8")
    sys.stdout.write(f"wrote {here / 'README.md'}\n")

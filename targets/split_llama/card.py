"""The model card of the tiny base: every figure in it is one that the run measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privbench.targets.split_llama.pretrain import Recipe


@dataclass(frozen=True)
class Answers:
    """Questions of held-out documents: how many, loss in nats per answer token, share of whole answers right, and the
    same for one of the options at random.
    """

    count: int
    loss: float
    right: float
    chance: float


@dataclass(frozen=True)
class Figures:
    """What a run measured.

    tokens       said in training; unseen: ids of the vocabulary that were not
    first_loss   mean over the first 20 steps, last_loss over the last, in nats per weighted token
    copied       questions about an answer that stands in the text
    guessed      questions about an outcome, of which a base that was not trained on the survey knows nothing
    """

    parameters: int
    tokens: int
    unseen: int
    first_loss: float
    last_loss: float
    copied: Answers
    guessed: Answers


def card(recipe: Recipe, figures: Figures) -> str:
    """Markdown."""
    r, s, f = recipe, recipe.size, figures
    rows = (
        ("Shape", f"hidden {s.hidden}, {s.layers} layers, {s.heads} heads, intermediate {s.intermediate}, head untied"),
        ("Context", f"{s.context} tokens, rotary positions"),
        ("Tokenizer", f"byte-level BPE, {s.vocabulary:,} tokens, specials `<pad>`, `<s>`, `</s>`"),
        ("Data", f"{f.tokens:,} tokens: invented respondents of invented surveys, and drills of random tokens"),
        ("Token ids never seen in training", f"{f.unseen}"),
        ("Training", f"{r.steps:,} steps of {r.batch} texts, AdamW, rate {r.rate:g}, seed {r.seed}"),
        ("Loss, first and last 20 steps", f"{f.first_loss:.3f}, {f.last_loss:.3f} nats per weighted token"),
    )
    measured = "\n".join(
        f"| {name} | {a.count:,} | {a.loss:.3f} | {a.right:.1%} | {a.chance:.1%} |"
        for name, a in (("an answer in the text", f.copied), ("an outcome", f.guessed))
    )
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""---
license: apache-2.0
---
# The tiny base of privbench's split_llama

A LlamaForCausalLM of {f.parameters:,} parameters with a tokenizer of its own, small enough to audit a split language
model on one core. It knows the vocabulary and the format of serialised surveys and finds the answer that belongs to a
question. Asked for what is not in the text, before it is trained for it, it repeats an answer given on the same scale:
that can be right more often than a guess where the two go together, and is no knowledge of the survey.

| | |
|---|---|
{table}

Measured on {r.held_out} respondents of random surveys that are not in the training data:

| Question about | Questions | Loss per answer token | Whole answer right | By chance |
|---|---|---|---|---|
{measured}

No real respondent is in the data: words come from a list of ours, answers from random numbers. English only, no
instruction following, no medical knowledge: never use what it says about a person.

Licence: Apache-2.0. To repeat it: `make pretrain`. The same seed gives the same weights byte for byte on one machine
with the same package versions.
"""

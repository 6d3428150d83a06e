"""The runs of an audit of the split LLaMA, by what they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench.data.catalogue import invented
from privbench.data.surveys import tabular
from privbench.recording import Secrets
from privbench.seeds import stream
from privbench.target import Progress, TargetRun, Utility
from privbench.targets.split_llama.answering import answer, pooled, utilities
from privbench.targets.split_llama.coins import OUTCOME, Coins
from privbench.targets.split_llama.config import SplitLlamaConfig
from privbench.targets.split_llama.halves import Client, Server
from privbench.targets.split_llama.material import Asked, Material
from privbench.targets.split_llama.prior import foretold
from privbench.targets.split_llama.prompting import prompted
from privbench.targets.split_llama.public import PublicText, invented_texts
from privbench.targets.split_llama.recipe import LlamaConfig
from privbench.targets.split_llama.respondents import NOBODYS
from privbench.targets.split_llama.system import WATCHED, System
from privbench.targets.split_llama.tape import Tape
from privbench.targets.split_llama.upward import Upward
from privbench.tensors import RELEASE_TYPES

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

CLIENT = "client-1"
"""Whose activations are recorded: every client's are alike."""
Methods = Mapping[str, Sequence[str]]
"""What each method answers a survey's test respondents' questions."""
NO_PRIOR = (
    "What a language model says of the answers without any activation was not computed (--set prior=yes does): "
    "attacks stand beside one reply for everybody alone."
)


def run_audited(config: SplitLlamaConfig, rng: np.random.Generator, report: Progress, folder: Path | None) -> TargetRun:
    """Tune, record what the first client sends, answer the test respondents' questions.

    Where labels are guessed, coins replace them in the audited run, which answers nothing; the clean one has its
    respondents' own labels and records one of them.
    """
    tuning = config.tuning
    report("reading the survey", 0.0)
    material = Material.load(config, rng)
    encoder, model = material.encoder, material.base.model
    coins = _coins(config, material) if config.coined else None
    tossed = coins if config.role == "audited" else None
    clean = coins is not None and tossed is None
    train = material.train if tossed is None else tossed.into(material.train)
    system = System.build(model, train, material.holder, tuning, rng, config.defense)
    tuned = tuning.tuned == "yes"
    compared = tuned and tossed is None
    untold: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()
    others: tuple[Methods, ...] = ()
    if compared:
        others, untold = other_methods(config, material, rng, report)
    watched = system.shards[WATCHED].samples[: 1 if clean else tuning.record or None]
    public = None
    if tuning.public and not clean:
        texts = invented_texts(encoder, tuning.public, stream(config.seed, "public text"))
        public = PublicText(texts, model, tuning.k)
    words = encoder.vocabulary(len(material.table)) if invented(config.data) else None
    upward = None
    if tossed is not None:
        labels = [item.label for item in watched]
        upward = Upward(labels, tossed.answers, model, system.passes, RELEASE_TYPES[tuning.record_as])
    with Tape(
        CLIENT, watched, system.passes, material.table, words,
        labels=tuning.labels == "client", dtype=tuning.record_as, folder=folder, public=public, upward=upward,
    ) as tape:  # fmt: skip
        if tuned:
            losses = system.tune(tape, rng, report)
        else:
            system.send(tape, report)
        transcript, secrets = tape.finish(_metadata(config, material))
    secrets, unasked = (secrets, ()) if clean else _with_prior(secrets, model, tuning.prior == "yes")
    notes = (*material.notes, *untold, *unasked, *(() if coins is None else (coins.note,)))
    fingerprint = material.fingerprint
    if tossed is not None:
        secrets = Secrets({**secrets.arrays, **tossed.secrets}, {"joint": [OUTCOME]})
    elif coins is not None:
        secrets = Secrets({**secrets.arrays, **material.natural(coins.rows[:1])})
    if not compared:
        return TargetRun(transcript, None, secrets, (), {"loss": losses} if tuned else {}, fingerprint, notes=notes)
    utility = answered(system.clients[0], system.server, material, others, rng, report)
    return TargetRun(transcript, None, secrets, utility, {"loss": losses}, fingerprint, notes=notes)


def other_methods(
    config: LlamaConfig, material: Material, rng: np.random.Generator, report: Progress
) -> tuple[tuple[Methods, ...], tuple[str, ...]]:
    """Of each survey that is asked about what simpler methods answer its test respondents' questions, by name, and what
    to say where one cannot.
    """
    # What is drawn for a survey that no client holds leaves all else as it is without it.
    apart = stream(config.seed, "examples of an unseen survey")
    drawn = [apart if part is material.unseen else rng for part in material.asked]
    found, untold = zip(
        *(_methods(config, material, part, own, report) for part, own in zip(material.asked, drawn, strict=True)),
        strict=True,
    )
    return found, tuple(dict.fromkeys(chain.from_iterable(untold)))


def _methods(
    config: LlamaConfig, material: Material, part: Asked, rng: np.random.Generator, report: Progress
) -> tuple[Methods, tuple[str, ...]]:
    tuning, splits = config.tuning, part.people.splits
    others: dict[str, Sequence[str]] = {"logistic regression": tabular.logistic_regression(splits)}
    if tuning.tabular == "yes":
        report("FT-Transformer", 0.0)
        others["FT-Transformer"] = tabular.ft_transformer(splits, config.seed)
    if tuning.prompting == "no":
        return others, ()
    said, untold = prompted(
        material.base.model, material.encoder, part.options, material.train_of(part), part.test, tuning.shots, rng,
        report,
    )  # fmt: skip
    return others | said, untold


def answered(
    client: Client,
    server: Server,
    material: Material,
    others: Sequence[Methods],
    rng: np.random.Generator,
    report: Progress,
) -> tuple[Utility, ...]:
    """How right the tuned halves are about the test respondents, beside the `others` of each survey; of several surveys
    that clients hold about all of them first, and about one that none holds last.
    """
    found = []
    for part, methods in zip(material.asked, others, strict=True):
        people = part.people
        said = answer(
            client, server, [item.prompt for item in part.test], part.options, material.encoder,
            partial(report, "answering the test respondents"),
        )  # fmt: skip
        truth = people.splits.test.answers[people.outcome.question.column].tolist()
        found.append(utilities(people.outcome, truth, said, tabular.majority(people.splits), methods, rng))
    apart = tuple(replace(item, task=f"{item.task}, {NOBODYS}") for item in chain(*found[len(material.surveys) :]))
    held = found[: len(material.surveys)]
    return (*(held[0] if len(held) == 1 else (*pooled(held), *chain.from_iterable(held))), *apart)


def _coins(config: SplitLlamaConfig, material: Material) -> Coins:
    """Of the first client's respondents that are recorded; the same in every run of an audit."""
    rows = np.flatnonzero(material.holder == WATCHED)[: config.tuning.record or None]
    return Coins.toss(
        material.first.told, material.first.options, material.encoder, rows, stream(config.seed, "label coins")
    )


def _with_prior(secrets: Secrets, model: LlamaForCausalLM, asked: bool) -> tuple[Secrets, tuple[str, ...]]:
    """With what the base says next at every answer where it is asked, and what to say where it is not."""
    if not asked:
        return secrets, (NO_PRIOR,)
    tokens, answers = (secrets.array(f"inputs/{CLIENT}{part}") for part in ("", "/answers"))
    return replace(secrets, arrays={**secrets.arrays, f"inputs/{CLIENT}/prior": foretold(model, tokens, answers)}), ()


def _metadata(config: SplitLlamaConfig, material: Material) -> dict[str, Any]:
    """What the recorded respondents were asked, as all their samples say, and what was done to the activations."""
    found: dict[str, Any] = {"questions": {CLIENT: [question.strip().rstrip(":") for question in material.first.asked]}}
    if config.defense is not None:
        found["mechanisms"] = [config.defense.mechanism(CLIENT, material.table).to_json()]
    return found

"""The runs of an audit of the split LLaMA, by what they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from privbench.data.catalogue import invented
from privbench.data.surveys import tabular
from privbench.data.surveys.samples import Sample, samples
from privbench.recording import Secrets
from privbench.seeds import stream
from privbench.target import Progress, TargetRun, Utility
from privbench.targets.split_llama import models, respondents
from privbench.targets.split_llama.answering import answer, utilities
from privbench.targets.split_llama.coins import OUTCOME, Coins
from privbench.targets.split_llama.config import SplitLlamaConfig
from privbench.targets.split_llama.halves import Client, Server
from privbench.targets.split_llama.models import Base
from privbench.targets.split_llama.prior import foretold
from privbench.targets.split_llama.prompting import prompted
from privbench.targets.split_llama.public import PublicText, invented_texts
from privbench.targets.split_llama.recipe import LlamaConfig
from privbench.targets.split_llama.respondents import Respondents
from privbench.targets.split_llama.system import WATCHED, System
from privbench.targets.split_llama.tape import Tape
from privbench.targets.split_llama.tokens import Encoded, Encoder, lost
from privbench.targets.split_llama.upward import Upward
from privbench.tensors import RELEASE_TYPES

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM

CLIENT = "client-1"
"""Whose activations are recorded: every client's are alike."""
NO_PRIOR = (
    "What a language model says of the answers without any activation was not computed (--set prior=yes does): "
    "attacks stand beside one reply for everybody alone."
)


@dataclass(frozen=True)
class Material:
    """What every run starts from: respondents as token ids, and the base model. told: the training respondents' samples
    in the survey's order; order, train, holder: a permutation, and in it their tokens and which client holds each.
    """

    people: Respondents
    base: Base
    encoder: Encoder
    told: tuple[Sample, ...]
    order: npt.NDArray[np.int64]
    train: tuple[Encoded, ...]
    test: tuple[Encoded, ...]

    @classmethod
    def load(cls, config: LlamaConfig, rng: np.random.Generator) -> Material:
        """Read or invent the survey, split it, and turn it into tokens; `InputError` for what a user can mend."""
        people = respondents.load(config.data, config.tuning, rng)
        base = models.load(config.model)
        encoder, options = Encoder(base.tokenizer, base.context), people.outcome.question.answers
        told = tuple(samples(people.splits.train, people.outcome))
        encoded = encoder.encode_all(told, options)
        order = rng.permutation(len(encoded))  # a file may be sorted: the first respondents are recorded
        test = encoder.encode_all(samples(people.splits.test, people.outcome), options)
        return cls(people, base, encoder, told, order, tuple(encoded[int(i)] for i in order), test)

    @property
    def options(self) -> Sequence[str]:
        """The answers that the outcome's question allows."""
        return self.people.outcome.question.answers

    @property
    def holder(self) -> npt.NDArray[np.int64]:
        """Which client holds each of `train`."""
        return self.people.splits.client[self.order]

    @property
    def table(self) -> Tensor:
        """The public embedding table [V, d]."""
        table: Tensor = self.base.model.model.embed_tokens.weight.detach()
        return table

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions of a sample in their order, the outcome's last."""
        return *(question for question, _, _ in self.told[0].features), self.told[0].question

    def natural(self, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
        """The labels that these of `train` gave themselves, as numbers of the options."""
        return {f"labels/{OUTCOME}": self.numbers(self.told[int(self.order[row])].answer for row in rows)}

    def numbers(self, said: Iterable[str]) -> npt.NDArray[np.int64]:
        """Answers to the outcome's question as numbers of the options [n]."""
        return np.array([list(self.options).index(answer) for answer in said], np.int64)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the data."""
        everybody = [*self.train, *self.test]
        return *self.people.notes, *_cut_short(*lost(everybody), len(everybody), self.base.context)


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
    others: Mapping[str, Sequence[str]] = {}
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
    fingerprint = material.people.fingerprint
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
) -> tuple[dict[str, Sequence[str]], tuple[str, ...]]:
    """What simpler methods answer the test respondents' questions, by name, and what to say where one cannot."""
    tuning, splits = config.tuning, material.people.splits
    others: dict[str, Sequence[str]] = {"logistic regression": tabular.logistic_regression(splits)}
    if tuning.tabular == "yes":
        report("FT-Transformer", 0.0)
        others["FT-Transformer"] = tabular.ft_transformer(splits, config.seed)
    if tuning.prompting == "no":
        return others, ()
    said, untold = prompted(
        material.base.model, material.encoder, material.options, material.train, material.test, tuning.shots, rng,
        report,
    )  # fmt: skip
    return others | said, untold


def answered(
    client: Client,
    server: Server,
    material: Material,
    others: Mapping[str, Sequence[str]],
    rng: np.random.Generator,
    report: Progress,
) -> tuple[Utility, ...]:
    """How right the tuned halves are about the test respondents, beside `others`."""
    people = material.people
    said = answer(
        client, server, [item.prompt for item in material.test], material.options, material.encoder,
        partial(report, "answering the test respondents"),
    )  # fmt: skip
    truth = people.splits.test.answers[people.outcome.question.column].tolist()
    return utilities(people.outcome, truth, said, tabular.majority(people.splits), others, rng)


def _coins(config: SplitLlamaConfig, material: Material) -> Coins:
    """Of the first client's respondents that are recorded; the same in every run of an audit."""
    rows = np.flatnonzero(material.holder == WATCHED)[: config.tuning.record or None]
    return Coins.toss(material.told, material.options, material.encoder, rows, stream(config.seed, "label coins"))


def _with_prior(secrets: Secrets, model: LlamaForCausalLM, asked: bool) -> tuple[Secrets, tuple[str, ...]]:
    """With what the base says next at every answer where it is asked, and what to say where it is not."""
    if not asked:
        return secrets, (NO_PRIOR,)
    tokens, answers = (secrets.array(f"inputs/{CLIENT}{part}") for part in ("", "/answers"))
    return replace(secrets, arrays={**secrets.arrays, f"inputs/{CLIENT}/prior": foretold(model, tokens, answers)}), ()


def _metadata(config: SplitLlamaConfig, material: Material) -> dict[str, Any]:
    """What respondents were asked, as all samples say, and what was done to the activations."""
    found: dict[str, Any] = {"questions": {CLIENT: [question.strip().rstrip(":") for question in material.asked]}}
    if config.defense is not None:
        found["mechanisms"] = [config.defense.mechanism(CLIENT, material.table).to_json()]
    return found


def _cut_short(count: int, most: int, total: int, context: int) -> tuple[str, ...]:
    """Samples longer than the context, never silently."""
    if not count:
        return ()
    return (
        f"{count:,} of {total:,} samples were longer than the model's context of {context:,} tokens and lost their "
        f"last questions, at most {most}.",
    )

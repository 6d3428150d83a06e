"""The split LLaMA as a target: clients tune a LoRA-adapted LLaMA together with a server, over surveys about people.

A client holds respondents, the tokenizer, the embedding and a projection; it sends cut-layer activations, one vector a
token. The server wants to read the respondents' answers from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench.data.catalogue import invented
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.threads import one_torch_thread
from privbench.threat import Channel, ThreatModel, curious_server

if TYPE_CHECKING:
    from torch import Tensor

    from privbench.targets.split_llama.config import SplitLlamaConfig

CLIENT = "client-1"
"""Whose activations are recorded: every client's are alike."""
_TYPICAL_LENGTH, _LONGEST_PUBLIC = 256, 512
_FLOPS_PER_SECOND = 80e9
"""SmolLM2's step of 509 GFLOPs took 6.4 s on one core of the machine that made the reports."""


class SplitLlama(Target):
    card = TargetCard(
        name="split-llama",
        summary="a LLaMA with LoRA, split after its embedding, tuned by several clients over surveys",
        paper="Syfullah and Khalil, LLM-Based Schema-Aware Split Learning (arXiv 2609.15871)",
        channels=(Channel.ACTIVATIONS,),
        parties=("client-1, client-2, ...", "server"),
        cost="tiny: about a minute on one core; smollm2: 5 to 6 s a step",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> SplitLlamaConfig:
        from privbench.targets.split_llama.config import resolve

        return resolve(options, registry)

    def describe(self, config: SplitLlamaConfig) -> dict[str, Any]:
        return config.to_json()

    def roles(self, config: SplitLlamaConfig) -> Mapping[Role, SplitLlamaConfig]:
        return {"audited": config}

    def fingerprint(self, config: SplitLlamaConfig) -> str:
        from privbench.targets.split_llama import models, respondents
        from privbench.targets.split_llama.config import require_depth

        require_depth(config)
        return respondents.file_hash(config.data) + models.file_hash(config.model)

    def disk_bytes(self, config: SplitLlamaConfig) -> int:
        """Of typical samples: how long they are is known only once they are read."""
        from privbench.data.surveys.splits import parts
        from privbench.targets.split_llama import models, tape
        from privbench.targets.split_llama.system import WATCHED
        from privbench.targets.split_llama.tune import passes_of

        shape, tuning = models.shape_of(config.model), config.tuning
        held = max(round(tuning.train * parts(tuning.shares, tuning.clients)[WATCHED]), 1)
        passes = max(passes_of(tuning, WATCHED, held), 1)
        recorded = min(tuning.record or held, held)
        table = (shape.vocabulary, shape.width)
        return tape.disk_bytes(
            recorded, _TYPICAL_LENGTH, passes, table, tuning.record_as, (tuning.public, _LONGEST_PUBLIC)
        )

    def expected_seconds(self, config: SplitLlamaConfig) -> float:
        """By the closed form of a step's FLOPs at the speed seen on one core; a tiny model takes its time elsewhere."""
        from privbench.targets.split_llama import models
        from privbench.targets.split_llama.cost import Setting, cost

        tuning = config.tuning
        setting = Setting(models.shape_of(config.model), batch=tuning.batch, prompt=_TYPICAL_LENGTH, rank=tuning.rank)
        seconds = tuning.steps * cost(setting, "full local").flops / _FLOPS_PER_SECOND
        return seconds if seconds >= 60 else 0.0

    def threats(self, config: SplitLlamaConfig) -> tuple[ThreatModel, ...]:
        return (curious_server(),)

    def held(self, config: SplitLlamaConfig) -> Mapping[str, Mapping[str, Any]]:
        return {"inputs": {}}

    def epsilons(self, config: SplitLlamaConfig) -> tuple[Epsilon, ...]:
        return ()

    def run(
        self,
        config: SplitLlamaConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """Read, split, tune, answer the test respondents' questions."""
        with one_torch_thread():
            return _run(config, rng, progress or (lambda stage, share: None), folder)


def _run(config: SplitLlamaConfig, rng: np.random.Generator, report: Progress, folder: Path | None) -> TargetRun:
    from privbench.data.surveys import tabular
    from privbench.data.surveys.samples import samples
    from privbench.targets.split_llama import models, respondents
    from privbench.targets.split_llama.answering import answer, utilities
    from privbench.targets.split_llama.prompting import prompted
    from privbench.targets.split_llama.public import PublicText, invented_texts
    from privbench.targets.split_llama.system import System
    from privbench.targets.split_llama.tape import Tape
    from privbench.targets.split_llama.tokens import Encoder, lost

    tuning = config.tuning
    report("audited: reading the survey", 0.0)
    people = respondents.load(config.data, tuning, rng)
    outcome, splits = people.outcome, people.splits
    base = models.load(config.model)
    encoder, options = Encoder(base.tokenizer, base.context), outcome.question.answers
    told = tuple(samples(splits.train, outcome))
    encoded = encoder.encode_all(told, options)
    asked = [*(question for question, _, _ in told[0].features), told[0].question]
    order = rng.permutation(len(encoded))  # a file may be sorted: the first respondents are recorded
    train = tuple(encoded[int(i)] for i in order)
    test = encoder.encode_all(samples(splits.test, outcome), options)
    system = System.build(base.model, train, splits.client[order], tuning, rng, config.defense)
    tuned = tuning.tuned == "yes"
    untold: tuple[str, ...] = ()
    others: dict[str, Sequence[str]] = {}
    if tuned:  # without a tuned system nothing is compared
        others["logistic regression"] = tabular.logistic_regression(splits)
        if tuning.tabular == "yes":
            report("audited: FT-Transformer", 0.0)
            others["FT-Transformer"] = tabular.ft_transformer(splits, config.seed)
        if tuning.prompting == "yes":
            said_untuned, untold = prompted(base.model, encoder, options, train, test, tuning.shots, rng, report)
            others |= said_untuned
    watched = system.shards[0].samples
    table = base.model.model.embed_tokens.weight.detach()
    public = None
    if tuning.public:
        texts = invented_texts(encoder, tuning.public, stream(config.seed, "public text"))
        public = PublicText(texts, base.model, tuning.k)
    words = encoder.vocabulary(len(table)) if invented(config.data) else None
    with Tape(
        CLIENT, watched[: tuning.record or len(watched)], system.passes, table, words,
        labels=tuning.labels == "client", dtype=tuning.record_as, folder=folder, public=public,
    ) as tape:  # fmt: skip
        if tuned:
            losses = system.tune(tape, rng, report)
        else:
            system.send(tape, report)
        transcript, secrets = tape.finish(_metadata(config, table, asked))
    notes = (*people.notes, *_cut_short(*lost([*train, *test]), len(train) + len(test), base.context), *untold)
    if not tuned:
        return TargetRun(transcript, None, secrets, (), {}, people.fingerprint, notes=notes)
    said = answer(
        system.clients[0], system.server, [item.prompt for item in test], options, encoder,
        partial(report, "audited: answering the test respondents"),
    )  # fmt: skip
    truth = splits.test.answers[outcome.question.column].tolist()
    return TargetRun(
        transcript,
        None,
        secrets,
        utilities(outcome, truth, said, tabular.majority(splits), others, rng),
        {"loss": losses},
        people.fingerprint,
        notes=notes,
    )


def _metadata(config: SplitLlamaConfig, table: Tensor, asked: Sequence[str]) -> dict[str, Any]:
    """What was done to the activations, and what invented respondents were asked."""
    found: dict[str, Any] = {}
    if config.defense is not None:
        found["mechanisms"] = [config.defense.mechanism(CLIENT, table).to_json()]
    if invented(config.data):
        found["questions"] = {CLIENT: [question.strip().rstrip(":") for question in asked]}
    return found


def _cut_short(count: int, most: int, total: int, context: int) -> tuple[str, ...]:
    """Samples longer than the context, never silently."""
    if not count:
        return ()
    return (
        f"{count:,} of {total:,} samples were longer than the model's context of {context:,} tokens and lost their "
        f"last questions, at most {most}.",
    )

"""The split LLaMA as a target: clients tune a LoRA-adapted LLaMA together with a server, over surveys about people.

A client holds respondents, the tokenizer, the embedding and a projection; it sends cut-layer activations, one vector a
token. The server wants to read the respondents' answers from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.target import ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.threads import one_torch_thread
from privbench.threat import (
    Channel,
    ThreatModel,
    curious_outsider,
    curious_server,
    server_below_labels,
    server_told_defence,
    server_with_candidates,
)

if TYPE_CHECKING:
    from privbench.targets.split_llama.config import SplitLlamaConfig

_LONGEST_PUBLIC = 512


class SplitLlama(Target):
    card = TargetCard(
        name="split-llama",
        summary="a LLaMA with LoRA, split after its embedding, tuned by several clients over surveys",
        paper="Syfullah and Khalil, LLM-Based Schema-Aware Split Learning (arXiv 2609.15871)",
        channels=(Channel.ACTIVATIONS, Channel.GRADIENTS, Channel.OUTPUTS),
        parties=("client-1, client-2, ...", "server"),
        cost="tiny: about two minutes on two cores; smollm2: 5 to 6 s a step",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> SplitLlamaConfig:
        from privbench.targets.split_llama.config import resolve

        return resolve(options, registry)

    def describe(self, config: SplitLlamaConfig) -> dict[str, Any]:
        return config.to_json()

    def roles(self, config: SplitLlamaConfig) -> Mapping[Role, SplitLlamaConfig]:
        clean = ("clean",) if config.coined else ()
        return {role: config.as_role(role) for role in (*clean, "audited", *config.asking)}

    def fingerprint(self, config: SplitLlamaConfig) -> str:
        from privbench.targets.split_llama import models, respondents
        from privbench.targets.split_llama.config import require_depth

        require_depth(config)
        respondents.require_outcomes(config.data, config.tuning)
        return respondents.file_hash(config.data) + models.file_hash(config.model)

    def disk_bytes(self, config: SplitLlamaConfig) -> int:
        """Of typical samples: how long they are is known only once they are read. About membership: what was received,
        and what the base makes of the pool, about half of which was sent, and of the test respondents.
        """
        from privbench.targets.split_llama import models, tape
        from privbench.targets.split_llama.cost import TYPICAL_LENGTH
        from privbench.targets.split_llama.system import WATCHED
        from privbench.targets.split_llama.tune import passes_of

        shape, tuning = models.shape_of(config.model), config.tuning
        held = max(round(tuning.train * tuning.parts_held[WATCHED]), 1)
        passes = max(passes_of(tuning, WATCHED, held), 1)
        recorded = min(tuning.record or held, held)
        # Where coins are guessed the base's head may lie beside its table, and the clean run records the table again.
        table = (shape.vocabulary * (3 if config.coined else 1), shape.width)
        members = 3 * tuning.train + tuning.population if tuning.asks_members else 0
        texts, trunk = (tuning.public, _LONGEST_PUBLIC), tuning.k * (shape.layer + shape.head_dim)
        return tape.disk_bytes(passes * recorded + members, TYPICAL_LENGTH, 1, table, tuning.record_as, texts, trunk)

    def expected_seconds(self, config: SplitLlamaConfig) -> float:
        """By the closed form of a step's FLOPs at the speed seen on one core; a tiny model takes its time elsewhere.

        About membership: the tunings, and asking each about the pool, which is a forward pass, a third of a step.
        """
        from privbench.targets.split_llama import models
        from privbench.targets.split_llama.cost import step_seconds

        tuning = config.tuning
        asked = (2 * tuning.train + tuning.population) / (3 * tuning.batch)
        more = (1 + tuning.references) * (tuning.reference_steps + asked) if tuning.asks_members else 0.0
        return (tuning.steps + more) * step_seconds(models.shape_of(config.model), tuning.batch, tuning.rank)

    def threats(self, config: SplitLlamaConfig) -> tuple[ThreatModel, ...]:
        asking = (curious_outsider(), server_with_candidates()) if config.tuning.asks_members else ()
        told = (server_told_defence(),) if config.defense is not None and not config.coined else ()
        return (server_below_labels() if config.coined else curious_server(), *told, *asking)

    def held(self, config: SplitLlamaConfig) -> Mapping[str, Mapping[str, Any]]:
        from privbench.targets.split_llama.coins import OUTCOME

        tuning = config.tuning
        held: dict[str, Mapping[str, Any]] = {"inputs": {"prior": tuning.prior == "yes"}}
        if config.coined:
            held["secret"] = {"moved": [OUTCOME]}
        if tuning.asks_members:
            held["members"] = config.members_held
        return held

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
        """Read, split, tune, answer the test respondents' questions. Runs about membership:
        `membership.run_membership`.
        """
        from privbench.targets.split_llama.membership import run_membership
        from privbench.targets.split_llama.running import run_audited

        report = config.telling(progress)
        with one_torch_thread():
            if config.role not in ("clean", "audited"):
                return run_membership(config, rng, report)
            return run_audited(config, rng, report, folder)

"""Federated averaging as a target: clients tune the split run's LLaMA at home and send updates.

A client holds respondents and the whole model. The server wants to know the answers, and whom a client trained on.
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
    server_told_of_members,
    server_with_updates,
    server_with_updates_and_candidates,
)

if TYPE_CHECKING:
    from privbench.targets.fedavg.config import FedConfig


class FedAvg(Target):
    card = TargetCard(
        name="fedavg",
        summary="the LLaMA of split-llama, tuned by federated averaging over the same surveys",
        paper="McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017; model and surveys: arXiv 2609.15871",
        channels=(Channel.UPDATES, Channel.OUTPUTS),
        parties=("client-1, client-2, ...", "server"),
        cost="tiny: minutes on two cores; smollm2: 5 to 6 s a step",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> FedConfig:
        from privbench.targets.fedavg.config import resolve

        return resolve(options, registry)

    def describe(self, config: FedConfig) -> dict[str, Any]:
        return config.to_json()

    def roles(self, config: FedConfig) -> Mapping[Role, FedConfig]:
        return {role: config.as_role(role) for role in ("audited", *config.asking)}

    def fingerprint(self, config: FedConfig) -> str:
        """Of what a run reads; `InputError` where it needs what is not installed: known before training, and not asked
        of who only verifies a record.
        """
        from privbench.targets.fedavg.flower import require_flower
        from privbench.targets.split_llama import models, respondents

        if config.tuning.runtime != "own":
            require_flower()
        respondents.require_outcomes(config.data, config.tuning)
        return respondents.file_hash(config.data) + models.file_hash(config.model)

    def disk_bytes(self, config: FedConfig) -> int:
        """Of the updates; about membership there are a few numbers for a candidate, and what models say of it."""
        from privbench.targets.fedavg import matching, tape
        from privbench.targets.fedavg.defending import senders
        from privbench.targets.split_llama import models
        from privbench.targets.split_llama.cost import Setting, cost

        tuning = config.tuning
        setting = Setting(
            models.shape_of(config.model), rank=tuning.rank, bottleneck=tuning.bottleneck,
            train_head=tuning.train_head == "yes",
        )  # fmt: skip
        trained, shape = cost(setting, "full local").trained, setting.shape
        seen = len(senders(tuning.clients, config.defense))
        updates = tape.disk_bytes(trained, seen, tuning.rounds, shape.vocabulary * shape.width)
        return updates + matching.disk_bytes(tuning)

    def expected_seconds(self, config: FedConfig) -> float:
        """By the closed form of a step's FLOPs. About membership: the trainings, asking each about the pool, which is a
        third of a step, and in the members' run a step for every candidate and round that is asked about. One for each
        questionnaire that the server fills in, too.
        """
        from privbench.targets.split_llama import models
        from privbench.targets.split_llama.cost import step_seconds

        tuning = config.tuning
        at_once = tuning.clients * tuning.fraction * tuning.local_steps
        asked = (2 * tuning.train + tuning.population) / (3 * tuning.batch)
        models_made = (1 + tuning.references) * (tuning.reference_rounds * at_once + asked)
        more = models_made + tuning.asked * 2 * tuning.train / tuning.batch if tuning.asks_members else 0.0
        filled_in = tuning.forms * min(tuning.rounds, tuning.one_pass(tuning.most_held)) / tuning.batch
        steps = tuning.rounds * at_once + filled_in + more
        return steps * step_seconds(models.shape_of(config.model), tuning.batch, tuning.rank)

    def threats(self, config: FedConfig) -> tuple[ThreatModel, ...]:
        if not config.tuning.asks_members:
            return (server_with_updates(),)
        holding = (server_with_updates_and_candidates(), server_told_of_members())
        return (server_with_updates(), curious_outsider(), *holding)

    def held(self, config: FedConfig) -> Mapping[str, Mapping[str, Any]]:
        members = {"members": config.members_held} if config.tuning.asks_members else {}
        return {"inputs": {"prior": True}, **members}

    def epsilons(self, config: FedConfig) -> tuple[Epsilon, ...]:
        return config.epsilons

    def promised(self, config: FedConfig) -> Mapping[str, Any]:
        return config.described(config.tuning.rounds)

    def run(
        self,
        config: FedConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """Read, split, average, answer the test respondents' questions. Runs about membership:
        `membership.run_membership`.
        """
        from privbench.targets.fedavg.membership import run_membership
        from privbench.targets.fedavg.running import run_audited

        report = config.telling(progress)
        with one_torch_thread():
            if config.role != "audited":
                return run_membership(config, rng, report)
            return run_audited(config, rng, report, folder)

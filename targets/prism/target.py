"""PRISM-VFL as a target: vertical split learning over three hospitals with noised cut gradients.

Three sites hold disjoint features of the same stays and one task's labels each. A server trains a gated mixture
of experts on their embeddings and sends back per-sample cut gradients, clipped and noised per task, then summed.
A curious site wants the other sites' labels of its own patients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from privbench.mechanism import Audience, Claim
from privbench.options import AuditOptions
from privbench.recording import Secrets
from privbench.registry import Registry
from privbench.target import (
    ACTIVE,
    MEMBERS,
    REFERENCE,
    ActiveAdversary,
    Epsilon,
    Progress,
    Role,
    Target,
    TargetCard,
    TargetRun,
    Utility,
)
from privbench.threads import one_torch_thread
from privbench.threat import (
    Channel,
    ThreatModel,
    auditor_of,
    curious_outsider,
    curious_site,
    malicious_server,
    server_with_encoder,
    server_with_patients,
)

_TEST_BLOCK = 4_000
"""Test stays turned into inputs at once: the whole split in memory would double the run's peak."""

if TYPE_CHECKING:
    from privbench.data.cohort import Cohort, Splits
    from privbench.targets.prism.config import PrismConfig
    from privbench.targets.prism.inputs import Scaler
    from privbench.targets.prism.tape import Tape
    from privbench.targets.prism.train import Trace, Trainer


class Prism(Target):
    card = TargetCard(
        name="prism",
        summary="differentially private vertical split learning over three hospital sites",
        paper="PRISM-VFL",
        channels=(Channel.GRADIENTS, Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.CHECKPOINTS),
        parties=("A", "B", "C", "server"),
        cost="about a minute on two cores: two trainings of 20 epochs over 2,000 stays",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> PrismConfig:
        from privbench.data.sources import describe
        from privbench.targets.prism.config import DEFAULT_DATA, resolve

        options.require_noise()
        options.refuse_model()
        source = describe(options.data or DEFAULT_DATA)
        return resolve(options, registry, source.holders, source.train_records)

    def describe(self, config: PrismConfig) -> dict[str, Any]:
        return config.to_json()

    def roles(self, config: PrismConfig) -> Mapping[Role, PrismConfig]:
        models = [f"{REFERENCE}{number + 1}" for number in range(config.training.references)]
        return {role: config.as_role(role) for role in ("clean", "audited", MEMBERS, *models, ACTIVE)}

    def threats(self, config: PrismConfig) -> tuple[ThreatModel, ...]:
        curious = curious_site(config.party)
        servers = server_with_patients(), server_with_encoder(), malicious_server()
        return curious, auditor_of(curious), curious_outsider(), *servers

    def held(self, config: PrismConfig) -> Mapping[str, Mapping[str, Any]]:
        training = config.training
        pool = 2 * training.train
        return {
            "secret": {"records": training.train, "moved": list(config.moved)},
            "members": {"candidates": pool, "references": training.references, "blind": True},
            "estimates": {"records": pool, "others": True},
        }

    def epsilons(self, config: PrismConfig) -> tuple[Epsilon, ...]:
        from privbench.targets.prism.config import epsilons

        return epsilons(config)

    def fingerprint(self, config: PrismConfig) -> str:
        from privbench.data.sources import fingerprint_files

        return fingerprint_files(config.data)

    def disk_bytes(self, config: PrismConfig) -> int:
        return config.disk_bytes

    def run(
        self,
        config: PrismConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """Train once. The clean run measures utility; the audited run replaces labels by coins and records both
        hypotheses at the curious site. Both see the same stays, in the same order, from the same initial weights (but
        for the towers' biases, which start at each run's own prevalence); their noise differs. Runs about membership:
        `membership.run_membership`.
        """
        with one_torch_thread():
            if config.role not in ("clean", "audited"):
                from privbench.targets.prism.membership import run_membership

                return run_membership(config, rng, progress or (lambda stage, share: None), adversary)
            return self._run(config, rng, adversary, progress, folder)

    def _run(
        self,
        config: PrismConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None,
        progress: Progress | None,
        folder: Path | None,
    ) -> TargetRun:
        from privbench.data.sources import load
        from privbench.targets.prism.inputs import Scaler
        from privbench.targets.prism.train import Streams, Trainer

        report = progress or (lambda stage, share: None)
        data_rng, coin_rng, shared_rng, clean_rng, audited_rng, other_rng = rng.spawn(6)
        report(f"{config.called}: reading data", 0.0)
        source = load(config.data, data_rng, config.training)
        splits = source.splits
        splits.require_two_classes()
        audited = config.role == "audited"
        train, secrets = _with_canaries(splits.train, config, coin_rng) if audited else (splits.train, _labels(splits))
        scaler = Scaler.fit(splits.train)
        trainer = Trainer(
            config,
            scaler.inputs(train),
            scaler.inputs(splits.validation),
            Streams.spawn(shared_rng, audited_rng if audited else clean_rng),
            adversary=adversary,
        )
        with _tape(config, train, trainer.network.sites, folder) as tape:
            trace = trainer.run(report, tape)
            transcript, oracle = tape.finish(_metadata(config, trace))
        utility = () if audited else _utility(config, splits, scaler, trainer, other_rng)
        return TargetRun(
            transcript=transcript,
            oracle=oracle,
            secrets=secrets,
            utility=utility,
            diagnostics={name: tuple(values) for name, values in trace.diagnostics.items()},
            fingerprint=source.fingerprint,
            flags=(*source.flags, *_clip_flags(config, trace)),
        )


def _with_canaries(cohort: Cohort, config: PrismConfig, rng: np.random.Generator) -> tuple[Cohort, Secrets]:
    """Replace the moved tasks' labels of randomly drawn records by one fair coin each (all labels of a task)."""
    count = len(cohort)
    chosen = np.sort(rng.choice(count, config.training.canaries, replace=False))
    coins = rng.integers(0, 2, len(chosen))
    labels = {name: values.copy() for name, values in cohort.labels.items()}
    for task in config.moved:
        labels[task][chosen] = coins if labels[task].ndim == 1 else coins[:, None]
    joint = np.full(count, -1, np.int64)
    joint[chosen] = coins
    mask = np.zeros(count, np.uint8)
    mask[chosen] = 1
    arrays: dict[str, npt.NDArray[Any]] = {f"labels/{name}": values for name, values in labels.items()}
    secrets = Secrets({**arrays, "labels/joint": joint, "canary/joint": mask}, {"joint": list(config.moved)})
    return replace(cohort, labels=labels), secrets


def _labels(splits: Splits) -> Secrets:
    return Secrets({f"labels/{name}": values for name, values in splits.train.labels.items()})


def _tape(config: PrismConfig, train: Cohort, sites: Iterable[str], folder: Path | None) -> Tape:
    """Records what each site receives, and what the curious one knows by right: its own task's labels."""
    from privbench.targets.prism.tape import Tape

    own = {
        f"auxiliary/{config.party}/labels/{task}": np.asarray(train.labels[task], np.int64)
        for task, holder in config.tasks.items()
        if holder == config.party
    }
    return Tape(
        tuple(sites),
        config.moved,
        (config.training.epochs, len(train), config.training.embedding),
        dtype=config.training.record_as,
        party=config.party if config.role == "audited" else None,
        own_labels=own,
        folder=folder,
    )


def _metadata(config: PrismConfig, trace: Trace) -> dict[str, Any]:
    mechanisms = [
        config.defense.mechanism(site, clip, trace.noise.sigma[site]).to_json()
        for site, clip in trace.noise.clip.items()
    ]
    return {"mechanisms": mechanisms, "claims": [claim.to_json() for claim in _claims(config)]}


def _clip_flags(config: PrismConfig, trace: Trace) -> tuple[str, ...]:
    if not config.defense.clips:
        return ()
    flags = ["CLIP_SET_FROM_DATA"]
    if max(trace.diagnostics["clip fraction"]) < 0.001:
        flags.append("CLIP_NEVER_BINDS")
    if trace.diagnostics["batch dependence"][0] > 1e-4:
        flags.append("CLIP_DEPENDS_ON_BATCH")
    return tuple(flags)


def _claims(config: PrismConfig) -> tuple[Claim, ...]:
    """What this configuration promises; nothing without noise, and nothing where sigma / C is unknown."""
    if not config.defense.clips or not config.multiplier:
        return ()
    epochs, rate = config.training.epochs, config.sample_rate
    if config.eps_for == "site" and config.eps is not None:
        audience: Audience = "site"
        return (Claim(config.eps, config.delta, audience, "replace", "gdp", rate, epochs),)
    from privbench.accounting import nominal_eps

    eps = config.eps or nominal_eps(config.multiplier, rate, config.steps, config.delta)
    return (Claim(eps, config.delta, "nominal", "add-remove", "rdp", rate, epochs),)


def _utility(
    config: PrismConfig, splits: Splits, scaler: Scaler, trainer: Trainer, other_rng: np.random.Generator
) -> tuple[Utility, ...]:
    """AUC per task on the test stays, beside a server trained on frozen random encoders: those that this run started
    from, and others, since two seeds of the same baseline show how much a training's own chance is worth.
    """
    from privbench.stats.auc import macro_auc, macro_gain

    truth: dict[str, list[npt.NDArray[np.float32]]] = {task.name: [] for task in splits.test.tasks}
    networks = (trainer.network, trainer.frozen_baseline(), trainer.frozen_baseline(other_rng))
    predictions: list[dict[str, list[npt.NDArray[np.float32]]]] = [{task: [] for task in truth} for _ in networks]
    for start in range(0, len(splits.test), _TEST_BLOCK):
        rows = np.arange(start, min(start + _TEST_BLOCK, len(splits.test)))
        part = scaler.inputs(splits.test.take(rows))
        for name, labels_of in truth.items():
            labels_of.append(part.labels[name].numpy())
        for network, found in zip(networks, predictions, strict=True):
            for name, logits in network.predict(part).items():
                found[name].append(logits)
    result = []
    for task in splits.test.tasks:
        labels = np.concatenate(truth[task.name])
        ours, frozen, other = (np.concatenate(found[task.name]) for found in predictions)
        value, gain = macro_auc(ours, labels), macro_gain(ours, frozen, labels)
        result.append(
            Utility(
                task=task.name,
                metric="macro AUC" if task.multilabel else "AUC",
                value=value.value,
                low=value.low,
                high=value.high,
                n=value.n,
                split="test",
                baseline_name="frozen random encoders",
                baseline=macro_auc(frozen, labels).value,
                baseline_other_seed=macro_auc(other, labels).value,
                gain=gain.value,
                gain_low=gain.low,
                gain_high=gain.high,
            )
        )
    return tuple(result)

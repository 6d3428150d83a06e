"""The mechanism itself as a target: the test bench of attacks, bounds and verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privbench import accounting
from privbench.epsilons import own_releases
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.recording import Secrets
from privbench.registry import Registry
from privbench.target import ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.targets.gaussian.config import SITE, GaussianConfig, resolve
from privbench.targets.gaussian.draw import Drawn, draw_recording
from privbench.threat import Channel, ThreatModel, auditor_of, curious_site, server_with_encoder, server_with_patients


class GaussianTarget(Target):
    card = TargetCard(
        name="gaussian",
        summary="releases drawn from the mechanism itself, honest or broken; every answer is known in closed form",
        paper="docs/bounds.md",
        channels=(Channel.GRADIENTS,),
        parties=(SITE,),
        cost="about a second for 1,000 records, 20 releases of 32 numbers",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> GaussianConfig:
        options.require_noise()
        options.refuse_model()
        return resolve(options)

    def describe(self, config: GaussianConfig) -> dict[str, Any]:
        return config.to_json()

    def roles(self, config: GaussianConfig) -> Mapping[Role, GaussianConfig]:
        return {"audited": config}

    def fingerprint(self, config: GaussianConfig) -> str:
        return ""

    def disk_bytes(self, config: GaussianConfig) -> int:
        return config.disk_bytes

    def threats(self, config: GaussianConfig) -> tuple[ThreatModel, ...]:
        curious = curious_site(SITE)
        server = (server_with_patients(), server_with_encoder()) if config.draw.inputs else ()
        return curious, auditor_of(curious), *server

    def held(self, config: GaussianConfig) -> Mapping[str, Mapping[str, Any]]:
        draw = config.draw
        coins = {"secret": {"records": draw.records, "canaries": draw.coined, "moved": list(draw.moved_names)}}
        known, natural = draw.records // 2, draw.tasks - len(draw.moved_names)
        cut = {"known": known, "records": draw.records - known, "hours": 1, "others": 0 < natural <= known}
        return coins | ({"estimates": cut} if draw.inputs else {})

    def epsilons(self, config: GaussianConfig) -> tuple[Epsilon, ...]:
        moved, releases = len(config.draw.moved_names), config.draw.releases
        mu = accounting.mechanism_mu(config.mechanism, moved, releases)
        site = own_releases(SITE, mu, config.delta, moved, releases)
        claims = config.claims
        if not claims or config.eps_for == "site":
            return (site,)
        nominal = replace(
            site,
            name="nominal",
            value=claims[0].eps,
            neighbours="add-remove",
            sampling=f"Poisson, q = {config.sample_rate:.4g}",
            accountant="Opacus RDP",
            speaks_for="the published habit: noise counted once per batch sum; no party of the protocol sees only that",
            assumes="Poisson sampling",
        )
        return nominal, site

    def run(
        self,
        config: GaussianConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """Draw once; with `--data DIR` the three files are kept there."""
        if adversary is not None:
            raise InputError("target gaussian has no protocol in which an active adversary could act.")
        if config.files is not None:
            config.files.mkdir(parents=True, exist_ok=True)
        drawn = draw_recording(config, rng, progress or (lambda stage, share: None), config.files or folder)
        if config.files is not None:
            drawn.secrets.save(config.files / Secrets.file_name())
        return TargetRun(
            drawn.transcript, drawn.oracle, drawn.secrets, (), {}, _fingerprint(drawn.secrets), _flags(config, drawn)
        )


def _flags(config: GaussianConfig, drawn: Drawn) -> tuple[str, ...]:
    flags = []
    if drawn.clip_fraction < 0.001:
        flags.append("CLIP_NEVER_BINDS")
    if drawn.batch_dependence > 1e-4:
        flags.append("CLIP_DEPENDS_ON_BATCH")
    return tuple(flags)


def _fingerprint(secrets: Secrets) -> str:
    digest = hashlib.sha256()
    for name in sorted(secrets.arrays):
        digest.update(name.encode() + secrets.array(name).tobytes())
    return digest.hexdigest()

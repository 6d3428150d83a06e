"""All choices of a PRISM-VFL run, in one object.

From the paper: three sites, two-layer LSTMs of 64, a mixture of 4 experts with a gate per task, per-task clipping
and noise. Our choices, where the paper leaves a detail open: expert and tower widths, learning rates, the clip
norm's rule, one warm-up epoch of the server alone, centring at the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from privbench import accounting, pld
from privbench.defenses.base import Defense, build_defense
from privbench.errors import InputError, unknown
from privbench.options import AuditOptions, read_settings
from privbench.registry import Registry
from privbench.target import Epsilon, Role
from privbench.tensors import RELEASE_TYPES

DEFAULT_DATA = "synthetic"


@dataclass(frozen=True)
class Training:
    """What --set may change. Sizes count stays; the PhysioNet reader ignores train, validation and test.

    references: models that the adversary of membership inference trains itself, at least 2 for most attacks, or 0.
    """

    train: int = 2_000
    validation: int = 500
    test: int = 20_000
    canaries: int = 800
    epochs: int = 20
    batch: int = 64
    embedding: int = 64
    experts: int = 4
    expert_width: int = 64
    tower_width: int = 32
    clip_factor: float = 5.0
    server_rate: float = 1e-3
    encoder_rate: float = 3e-4
    references: int = 4
    record_as: str = "float32"

    def __post_init__(self) -> None:
        if self.record_as not in RELEASE_TYPES:
            raise unknown("value of record_as", self.record_as, RELEASE_TYPES)
        for f in fields(self):
            value = getattr(self, f.name)
            lowest = 0 if f.name == "references" else None
            if f.type != "str" and not (math.isfinite(value) and (value > 0 or value == lowest)):
                raise InputError(f"{f.name} must be a positive number{' or 0' if lowest == 0 else ''}, got {value!r}.")
        if self.canaries < 16:
            raise InputError(f"canaries must be at least 16 (an eighth calibrates the attacks), got {self.canaries}.")


@dataclass(frozen=True)
class PrismConfig:
    """A resolved run. `multiplier` z = sigma / C; None where --sigma fixes an absolute noise instead."""

    data: str
    party: str
    tasks: Mapping[str, str]
    records: int
    training: Training
    defense: Defense
    defense_spec: str
    delta: float
    eps: float | None
    eps_for: str
    multiplier: float | None
    sigma: float | None
    seed: int
    role: Role = "clean"

    @property
    def moved(self) -> tuple[str, ...]:
        """The tasks whose labels the curious site does not hold: the joint coin moves them."""
        return tuple(task for task, holder in self.tasks.items() if holder != self.party)

    @property
    def sample_rate(self) -> float:
        return min(1.0, self.training.batch / self.records)

    @property
    def steps(self) -> int:
        return pld.steps(self.sample_rate, self.training.epochs)

    @property
    def disk_bytes(self) -> int:
        """Of both runs' recordings: every site's releases, and in the audited run also before the noise, and at the
        curious site under either label of each moved task and of all together.
        """
        t, sites = self.training, len(set(self.tasks.values()))
        release = t.epochs * self.records * t.embedding * RELEASE_TYPES[t.record_as].itemsize
        return release * (3 * sites + 2 * (1 + len(self.moved)))

    @property
    def called(self) -> str:
        """What this run is called while it goes on."""
        return f"{self.role.rstrip('-')} run"

    def as_role(self, role: Role) -> PrismConfig:
        return replace(self, role=role)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.data.partition(":")[0],
            "party": self.party,
            "tasks": dict(self.tasks),
            "records": self.records,
            "training": asdict(self.training),
            "defense": self.defense_spec,
            "release": "sum",
            "noise": "uniform",
            "delta": self.delta,
            "eps": "inf" if self.eps == math.inf else self.eps,
            "eps_for": self.eps_for,
            "noise_multiplier": self.multiplier,
            "sigma": self.sigma,
        }


def resolve(options: AuditOptions, registry: Registry, tasks: Mapping[str, str], records: int | None) -> PrismConfig:
    """Check every option and fix the noise. `records` is the number of training records a reader found."""
    training = Training(**read_settings(Training, options.settings, "prism"))
    if records is None:
        records = training.train
    if training.canaries > records:
        raise InputError(
            f"canaries = {training.canaries} exceeds the {records} training records; use --set canaries=N."
        )
    holders = sorted(set(tasks.values()))
    party = options.party or tasks["ihm"]
    if party not in holders:
        raise unknown("party", party, holders)
    spec = _defense_spec(options)
    draft = PrismConfig(
        data=options.data or DEFAULT_DATA,
        party=party,
        tasks=tasks,
        records=records,
        training=training,
        defense=build_defense(spec, registry, Defense, "prism"),  # type: ignore[type-abstract]
        defense_spec=spec,
        delta=options.delta,
        eps=options.eps,
        eps_for=options.eps_for,
        multiplier=options.noise_multiplier,
        sigma=options.sigma,
        seed=options.seed,
    )
    return _with_noise(draft)


def epsilons(config: PrismConfig) -> tuple[Epsilon, ...]:
    """Every epsilon by name; a value is None where there is no noise or its scale is only known after warm-up."""
    z, total, moved = config.multiplier, len(config.tasks), len(config.moved)
    releases, delta, sites = config.training.epochs, config.delta, len(set(config.tasks.values()))
    reason = None
    if not config.defense.clips or not z:
        unknown_scale = config.sigma is not None and config.sigma > 0
        reason = "sigma / C is known only after the run's warm-up" if unknown_scale else "no noise, no epsilon"

    def entry(name: str, value: float | None, accounted: tuple[str, str, str], speaks: str, assumes: str) -> Epsilon:
        neighbours, sampling, accountant = accounted
        return Epsilon(name, value, delta, neighbours, sampling, releases, accountant, speaks, assumes, reason)

    def site_eps(labels: int, encoders: int = 1) -> float | None:
        if reason or not z:
            return None
        mu = math.sqrt(encoders) * accounting.site_mu(z, total, labels, releases)
        return accounting.gdp_eps(mu, delta)

    nominal = None if reason or not z else accounting.nominal_eps(z, config.sample_rate, config.steps, delta)
    others = " and ".join(config.moved)
    habit = ("add-remove", f"Poisson, q = {config.sample_rate:.4g}", "Opacus RDP")
    replaced = ("replace", "none (the site knows its batches)", "Gaussian DP, rho = 1")
    post = ("replace", "none", "Gaussian DP, rho = 1, post-processing")
    own_releases = (
        "labels reach the site through its own noised releases only (the server trains on clean ones), and the clip "
        "norm tells nothing (it is set from the data)"
    )
    return (
        entry(
            "nominal",
            nominal,
            habit,
            "the published habit: noise counted once per batch sum; no party of the protocol sees only that",
            "Poisson sampling (the training shuffles)",
        ),
        entry(
            "site",
            site_eps(moved),
            replaced,
            f"site {config.party}, about one record's labels for {others}",
            own_releases,
        ),
        entry("site, all labels", site_eps(total), replaced, "a site that holds no label", own_releases),
        entry(
            "outsider",
            site_eps(total, sites),
            post,
            f"who sees the {sites} trained encoders and nothing else",
            "the encoders learned of labels through noised releases only (the server trains on clean ones)",
        ),
    )


def _defense_spec(options: AuditOptions) -> str:
    if len(options.defenses) > 1:
        raise InputError("prism takes one --defense; several cannot be composed on its gradients yet.")
    free = options.eps == math.inf
    spec = options.defenses[0] if options.defenses else ("none" if free else "gaussian")
    if (spec == "none") != free:
        raise InputError(
            "--defense none means no noise and no clip: give it with --eps inf (and --eps inf with no other defence)."
        )
    return spec


def _with_noise(config: PrismConfig) -> PrismConfig:
    if config.eps_for == "site" and config.eps in (None, math.inf):
        raise InputError("--eps-for site needs a finite --eps to account for.")
    if config.eps is None or config.eps == math.inf:
        return config
    if config.eps_for == "site":
        z = accounting.site_multiplier(
            config.eps, config.delta, len(config.tasks), len(config.moved), config.training.epochs
        )
    else:
        z = accounting.nominal_multiplier(config.eps, config.sample_rate, config.steps, config.delta)
    return replace(config, multiplier=z)

"""What to draw: every number of the mechanism, honest or broken."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from privbench import accounting, pld
from privbench.errors import InputError, unknown
from privbench.mechanism import Claim, Mechanism, NoiseUnit
from privbench.options import AuditOptions, parse_number, read_settings
from privbench.tensors import RELEASE_TYPES

SITE = "A"

Broken = Literal[
    "no", "skips-noise", "reuses-noise", "one-draw", "half-noise", "clip-after-sum", "batch-max", "mean-loss",
    "batch-level",
]  # fmt: skip
"""Honest, or one of the things that make a bound lie (docs/bounds.md)."""


@dataclass(frozen=True)
class Draw:
    """What --set may change.

    tasks, moved        K tasks are summed, the coin moves the labels of J of them (0: all)
    records, canaries   N records, of which so many carry coins (0: all)
    releases, width     T releases of d numbers; seen: the chance that a record is released at a time
    rho                 cosine between the moves of any two tasks
    clip                C; sigma_ratio: each task's share of the noise, "1:2:1", or one number for all
    prevalence, association   of the natural labels, and the correlation of their latent causes between tasks
    p, gain, spread     the head's probability and G = ||dv/de||, times exp(spread * normal) per record: the gradient is
                        (p - y) G, saturated where both sides reach C
    signal              every gradient is so many times what is declared: 1 is honest
    batch               records per batch, for a nominal claim and for the faults of a batch
    noise               per-task, once (on the sum) or separate (each task sent apart)
    broken              no, or a fault: skips-noise, reuses-noise, one-draw, half-noise, clip-after-sum, batch-max,
                        mean-loss, batch-level
    inputs, cut_noise   so many independent standard normal inputs behind a linear cut, sent as width numbers with noise
                        of this size: the best estimate explains 1 / (1 + cut_noise^2) of each (0 inputs: none are sent)
    """

    tasks: int = 2
    moved: int = 0
    records: int = 1_000
    canaries: int = 0
    releases: int = 20
    width: int = 32
    rho: float = 0.0
    clip: float = 1.0
    sigma_ratio: str = "1"
    noise: str = "per-task"
    prevalence: float = 0.5
    association: float = 0.0
    p: float = 0.5
    gain: float = 4.0
    spread: float = 0.0
    seen: float = 1.0
    signal: float = 1.0
    batch: int = 64
    inputs: int = 0
    cut_noise: float = 0.5
    broken: str = "no"
    record_as: str = "float32"

    def __post_init__(self) -> None:
        for name, allowed in (("noise", get_args(NoiseUnit)), ("broken", get_args(Broken))):
            if getattr(self, name) not in allowed:
                raise unknown(f"value of {name}", getattr(self, name), allowed)
        if self.record_as not in RELEASE_TYPES:
            raise unknown("value of record_as", self.record_as, RELEASE_TYPES)
        for name in ("tasks", "records", "releases", "width", "clip", "gain", "batch"):
            self._require(name, 0 < getattr(self, name) < math.inf, "a positive number")
        for name in ("moved", "canaries", "spread", "signal", "inputs", "cut_noise"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "a number of at least 0")
        for name in ("prevalence", "p"):
            self._require(name, 0 < getattr(self, name) < 1, "in (0, 1)")
        self._require("association", 0 <= self.association < 1, "in [0, 1)")
        self._require("seen", 0 < self.seen <= 1, "in (0, 1]")
        self._require("moved", self.moved <= self.tasks, f"at most tasks = {self.tasks}")
        self._require("width", self.width >= self.tasks, f"at least tasks = {self.tasks}: each has a direction")
        self._require("inputs", self.inputs <= self.width, f"at most width = {self.width}")
        self._require("canaries", self.canaries <= self.records, f"at most records = {self.records}")
        self._require("canaries", self.coined >= 16, "at least 16: an eighth calibrates the attacks")
        lowest = -1 / (self.tasks - 1) if self.tasks > 1 else -1.0
        self._require("rho", lowest <= self.rho <= 1, f"in [-1/(K-1), 1] = [{lowest:g}, 1]")
        if self.noise == "separate" and self.broken == "clip-after-sum":
            raise InputError("broken = clip-after-sum needs a sum: noise = per-task or once.")
        if self.noise == "once" and len(set(self.ratios)) > 1:
            raise InputError("noise = once is one draw: sigma_ratio must be one number.")

    def _require(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise InputError(f"{name} must be {allowed}, got {getattr(self, name)!r}.")

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(f"task{k + 1}" for k in range(self.tasks))

    @property
    def moved_names(self) -> tuple[str, ...]:
        return self.task_names[: self.moved or self.tasks]

    @property
    def coined(self) -> int:
        return self.canaries or self.records

    @property
    def ratios(self) -> tuple[float, ...]:
        values = tuple(float(parse_number("sigma_ratio", item)) for item in self.sigma_ratio.split(":"))
        if len(values) not in (1, self.tasks) or not all(0 <= value < math.inf for value in values):
            raise InputError(
                f"sigma_ratio must be one number or {self.tasks}, a task's each, as in 1:2; got '{self.sigma_ratio}'."
            )
        return values * self.tasks if len(values) == 1 else values


@dataclass(frozen=True)
class GaussianConfig:
    """A resolved draw. `files`: where its recording is kept, None for nowhere."""

    draw: Draw
    sigma: float
    eps: float | None
    eps_for: str
    delta: float
    files: Path | None

    @property
    def mechanism(self) -> Mechanism:
        """What the recording declares, whatever it does."""
        sigmas = {task: self.sigma * ratio for task, ratio in zip(self.draw.task_names, self.draw.ratios, strict=True)}
        noise: Any = self.draw.noise
        # Nothing is trained: no server's state can depend on a coin.
        return Mechanism("gradients", SITE, "gaussian", self.draw.clip, "task", noise, sigmas, server_noised=True)

    @property
    def cut(self) -> Mechanism | None:
        """What is done to the inputs that are sent through the linear cut."""
        if not self.draw.inputs or not self.draw.cut_noise:
            return None
        return Mechanism("activations", SITE, "gaussian", noise="once", sigma={"cut": self.draw.cut_noise})

    @property
    def sample_rate(self) -> float:
        return min(1.0, self.draw.batch / self.draw.records)

    @property
    def claims(self) -> tuple[Claim, ...]:
        if self.eps is None or self.sigma == 0:
            return ()
        nominal = self.eps_for == "nominal"
        return (
            Claim(
                self.eps,
                self.delta,
                "nominal" if nominal else "site",
                "add-remove" if nominal else "replace",
                "rdp" if nominal else "gdp",
                self.sample_rate,
                self.draw.releases,
            ),
        )

    @property
    def disk_bytes(self) -> int:
        """Releases, the same before the noise, and both hypotheses of each moved task and of all together."""
        streams = self.draw.tasks if self.draw.noise == "separate" else 1
        pairs = len(self.draw.moved_names) + (self.draw.noise != "separate")
        one = self.draw.releases * self.draw.records * self.draw.width * RELEASE_TYPES[self.draw.record_as].itemsize
        return one * (2 * streams + 2 * pairs)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": "drawn",
            "party": SITE,
            "draw": asdict(self.draw),
            "defense": "gaussian" if self.draw.broken == "no" else f"gaussian, broken: {self.draw.broken}",
            "sigma": self.sigma,
            "noise_multiplier": self.sigma / self.draw.clip,
            "eps": "inf" if self.eps is None and self.sigma == 0 else self.eps,
            "eps_for": self.eps_for,
            "delta": self.delta,
        }


def resolve(options: AuditOptions) -> GaussianConfig:
    """Check every option and fix the noise."""
    if options.defenses:
        raise InputError("target gaussian is its own defence; shape it with --set (noise, sigma_ratio, broken).")
    if options.party not in (None, SITE):
        raise unknown("party", str(options.party), (SITE,))
    draw = Draw(**read_settings(Draw, options.settings, "gaussian"))
    files = Path(options.data) if options.data else None
    if files is not None and files.exists() and (not files.is_dir() or any(files.iterdir())):
        raise InputError(
            f"--data is where target gaussian writes its recording: {files} is in use, name an empty folder."
        )
    eps = None if options.eps == math.inf else options.eps
    config = GaussianConfig(draw, 0.0, eps, options.eps_for, options.delta, files)
    return replace(config, sigma=_sigma(config, options))


def _sigma(config: GaussianConfig, options: AuditOptions) -> float:
    draw = config.draw
    if options.sigma is not None:
        return options.sigma
    if options.noise_multiplier is not None:
        return options.noise_multiplier * draw.clip
    if config.eps is None:
        return 0.0
    if config.eps_for == "site":
        at_one = accounting.mechanism_mu(replace(config, sigma=1.0).mechanism, len(draw.moved_names), draw.releases)
        if at_one is None:
            raise InputError("--eps-for site needs noise on every task; sigma_ratio holds a 0.")
        return at_one / accounting.gdp_mu(config.eps, config.delta)
    steps = pld.steps(config.sample_rate, draw.releases)
    return draw.clip * accounting.nominal_multiplier(config.eps, config.sample_rate, steps, config.delta)

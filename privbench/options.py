"""What a user asked for, before a target resolves it. Nothing here knows a particular target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any

from privbench.errors import InputError, unknown

SMALLEST, LARGEST = 1e-6, 1e9
"""Noise outside this range is no noise, or nothing else, in the float32 arithmetic of a training."""


RECORDED = "recorded"
"""The target that reads a recording instead of running anything."""


@dataclass(frozen=True)
class RecordingFiles:
    """--transcript, --secrets and --oracle: a recording from anywhere."""

    transcript: Path
    secrets: Path
    oracle: Path | None = None


@dataclass(frozen=True)
class AuditOptions:
    """The options of `privbench audit`, checked. At most one of eps, noise_multiplier and sigma is given, and none of
    them with a `recording`, which holds its own noise. A target that makes noise asks for one: `require_noise`.
    """

    target: str
    eps: float | None = None
    noise_multiplier: float | None = None
    sigma: float | None = None
    eps_for: str = "nominal"
    delta: float = 1e-5
    party: str | None = None
    data: str | None = None
    model: str | None = None
    attacks: tuple[str, ...] = ("all",)
    defenses: tuple[str, ...] = ()
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    recording: RecordingFiles | None = None

    def __post_init__(self) -> None:
        if self.recording is not None:
            self._check_recorded()
        elif self.target == RECORDED:
            raise InputError("target recorded needs --transcript and --secrets, and --oracle where there is one.")
        elif len(self._noise) > 1:
            self.require_noise()
        if self.eps is not None and not self.eps > 0:
            raise InputError(f"--eps must be above 0 (inf for no noise), got {self.eps:g}.")
        for name, value in (("--noise-multiplier", self.noise_multiplier), ("--sigma", self.sigma)):
            if value is not None and not (value == 0 or SMALLEST <= value <= LARGEST):
                raise InputError(
                    f"{name} must be 0 or a finite number from {SMALLEST:g} to {LARGEST:g} (at least 0), got {value:g}."
                )
        if self.eps_for not in ("nominal", "site"):
            raise unknown("value of --eps-for", self.eps_for, ("nominal", "site"))
        if not 0 < self.delta < 1:
            raise InputError(f"--delta must lie in (0, 1), got {self.delta:g}.")
        if not 0 <= self.seed < 2**63:
            raise InputError("--seed must be at least 0 and below 2^63.")
        for name, text in (("--party", self.party), ("--data", self.data), ("--model", self.model)):
            if text is not None and not text.strip():
                raise InputError(f"{name} is empty; leave it out for the default.")
        if not self.attacks:
            raise InputError("--attacks names none; leave it out for all.")

    @property
    def _noise(self) -> list[str]:
        """The flags of the noise that was given."""
        flags = {"--eps": self.eps, "--noise-multiplier": self.noise_multiplier, "--sigma": self.sigma}
        return [name for name, value in flags.items() if value is not None]

    def require_noise(self) -> None:
        """For targets whose mechanism needs exactly one of the three; --eps inf means none."""
        if len(self._noise) != 1:
            what = " and ".join(self._noise) or "none"
            raise InputError(f"give exactly one of --eps, --noise-multiplier and --sigma; given: {what}.")

    def refuse_model(self) -> None:
        """For targets that have a network of their own."""
        if self.model is not None:
            raise InputError(f"target {self.target} takes no --model; leave it out.")

    def _check_recorded(self) -> None:
        """A recording is what it is: nothing about its making can be chosen."""
        chosen = {"--data": self.data, "--model": self.model, "--defense": self.defenses, "--set": self.settings}
        clash = [*self._noise, *(name for name, value in chosen.items() if value)]
        if self.target != RECORDED:
            clash.append(f"--target {self.target}")
        if clash:
            raise InputError(f"--transcript is a finished recording; leave out {', '.join(clash)}.")


def parse_number(name: str, text: str, *, whole: bool = False) -> float | int:
    """A number from the command line or a file; "inf" is allowed, NaN is not."""
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise InputError(f"{name} must be {'a whole number' if whole else 'a number'}, got '{shown}'.") from None
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{name} must be a number, got '{shown}'.")
    if whole and abs(value) >= 2**63:
        raise InputError(f"{name} must be below 2^63 in size, got '{shown}'.")
    return value


_KINDS = {"str": "text", "int": "whole number", "float": "number"}


@dataclass(frozen=True)
class Setting:
    """One thing that --set may change. kind: text, whole number or number."""

    name: str
    kind: str
    default: str | int | float


def settings_of(config: object) -> tuple[str, tuple[Setting, ...]]:
    """What --set may change of a target, with what its author says of them: the part of its resolved configuration that
    `read_settings` fills, a dataclass of texts and numbers with defaults. Nothing where it has no such part.
    """
    parts = [getattr(config, f.name) for f in fields(config)] if is_dataclass(config) else []
    for part in parts:
        kind, own = type(part), fields(part) if is_dataclass(part) else ()
        if own and all(f.type in _KINDS and f.default is not MISSING for f in own):
            return getdoc(kind) or "", tuple(Setting(f.name, _KINDS[str(f.type)], getattr(kind, f.name)) for f in own)
    return "", ()


def read_settings(kind: type[Any], given: Mapping[str, str], target: str) -> dict[str, Any]:
    """The --set values of a target, as the fields of `kind`, a dataclass of texts and numbers, ask for them."""
    types = {f.name: str(f.type) for f in fields(kind)}
    for key in given:
        if key not in types:
            raise unknown(f"setting of target {target}", key, types)
    return {
        key: text if types[key] == "str" else parse_number(key, text, whole=types[key] == "int")
        for key, text in given.items()
    }

"""A target that trains nothing: clients' answers as token activations, and where asked label coins beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privbench.attack import Reconstruction, View
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.conformance.inversions import VICTIM, token_stand
from privbench.mechanism import Mechanism
from privbench.options import AuditOptions, parse_number
from privbench.recording import Secrets, Transcript
from privbench.registry import Registry, default_registry
from privbench.target import ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.threat import Channel, ThreatModel, auditor_of, curious_server, curious_site

COIN_RELEASES = 4
NOTES = ("2 of 200 invented respondents answered nothing and were left out.",)


def registry() -> Registry:
    """With this target, as "surveyed"."""
    return default_registry().add("targets", "surveyed", "surveyed:Surveyed")


@dataclass(frozen=True)
class SurveyedConfig:
    """noise, passes: of the token activations; coins: whether labels are audited too; described: whether a mechanism
    on the activations is; prior: 1 where a language model says every second respondent's tokens, 2 where everybody's;
    seed: of what the answers are.
    """

    noise: float = 0.0
    passes: int = 2
    coins: int = 0
    described: int = 0
    prior: int = 0
    seed: int = 0


class Surveyed(Target):
    card = TargetCard("surveyed", "invented answers", "none", (Channel.ACTIVATIONS,), ("client-1",), "nothing")

    def configure(self, options: AuditOptions, registry: Registry) -> SurveyedConfig:
        numbers: dict[str, Any] = {
            key: parse_number(key, text, whole=key != "noise") for key, text in options.settings.items()
        }
        return SurveyedConfig(**numbers, seed=options.seed)

    def describe(self, config: SurveyedConfig) -> dict[str, Any]:
        return {"data": "invented answers", "defense": "none", "eps": None, "survey": asdict(config)}

    def roles(self, config: SurveyedConfig) -> Mapping[Role, SurveyedConfig]:
        return {"audited": config}

    def fingerprint(self, config: SurveyedConfig) -> str:
        return ""

    def threats(self, config: SurveyedConfig) -> tuple[ThreatModel, ...]:
        site = curious_site("A")
        return (site, auditor_of(site), curious_server()) if config.coins else (curious_server(),)

    def epsilons(self, config: SurveyedConfig) -> tuple[Epsilon, ...]:
        return ()

    def run(
        self,
        config: SurveyedConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        stand = token_stand(config.seed, config.noise, config.passes, upward=False)
        sent, hidden = dict(stand.transcript.arrays), {
            f"inputs/{VICTIM}": stand.truth.tokens,
            f"inputs/{VICTIM}/answers": stand.truth.answers,
        }  # fmt: skip
        if config.prior:
            said = np.full_like(stand.truth.tokens, -1)
            said[:: 3 - config.prior] = stand.truth.tokens[:: 3 - config.prior]
            hidden[f"inputs/{VICTIM}/prior"] = said
        mechanisms, joint, oracle = [], [], None
        if config.described:
            noise = {"answers": max(config.noise, 1.0)}
            mechanisms.append(Mechanism("activations", VICTIM, "gaussian", 1.0, sigma=noise).to_json())
        if config.coins:
            drawn = _coins(len(stand.truth.tokens), rng)
            sent, hidden, oracle = sent | drawn.transcript.arrays, hidden | drawn.secrets.arrays, drawn.oracle
            mechanisms += [item.to_json() for item in drawn.mechanisms]
            joint = list(drawn.secrets.joint)
        secrets = Secrets(hidden, {"joint": joint})
        return TargetRun(Transcript(sent, {"mechanisms": mechanisms}), oracle, secrets, (), {}, "", notes=NOTES)


def _coins(records: int, rng: np.random.Generator) -> TargetRun:
    """Cut gradients with label coins, from target gaussian."""
    made: Target = default_registry().get("targets", "gaussian")()
    settings = {"records": str(records), "releases": str(COIN_RELEASES), "width": "8"}
    config = made.configure(AuditOptions("gaussian", sigma=2.0, settings=settings), default_registry())
    return made.run(config, rng)


class Broken(NearestToken):
    """Raises."""

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        raise ZeroDivisionError("the table is a wall")


class TooShort(NearestToken):
    """Says nothing of the last token."""

    def run(self, view: View, rng: np.random.Generator) -> Reconstruction:
        found = super().run(view, rng)
        return Reconstruction(found.single[:, :, :-1], found.accumulated[:, :, :-1])

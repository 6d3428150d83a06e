"""A recording from anywhere as a target: what parties exchanged, the secrets, and where there is one the oracle.

Nothing is run. The three files are checked, and checked against each other, before anything is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privbench import accounting
from privbench.epsilons import own_releases, sampling_of
from privbench.errors import InputError, unknown
from privbench.mechanism import gradient_mechanism
from privbench.options import AuditOptions, RecordingFiles
from privbench.recording import Oracle, Secrets, Transcript
from privbench.registry import Registry
from privbench.target import ActiveAdversary, Epsilon, Progress, Role, Target, TargetCard, TargetRun
from privbench.targets.recorded.given import require_given
from privbench.targets.recorded.measured import require_measured
from privbench.targets.recorded.public import require_public
from privbench.threat import (
    Channel,
    Party,
    ThreatModel,
    auditor_of,
    curious_outsider,
    curious_server,
    curious_site,
    malicious_server,
    server_below_labels,
    server_told_defence,
    server_told_of_members,
    server_with_candidates,
    server_with_encoder,
    server_with_patients,
    server_with_updates,
    server_with_updates_and_candidates,
)

SMALLEST = 16
"""Canaries; an eighth of them calibrates the attacks and is not scored."""


@dataclass(frozen=True)
class RecordedConfig:
    """A recording that was read and checked; its large arrays stay in their files. party: the curious site, or "" for
    the server, which has no name: where there are no coins, or gradients came to it.
    """

    files: RecordingFiles
    transcript: Transcript
    oracle: Oracle | None
    secrets: Secrets
    party: str

    @property
    def secret(self) -> str:
        return self.secrets.coined[0]

    @property
    def holder(self) -> str:
        """What arrays that are addressed to the curious party are named by."""
        return self.party or str(Party.SERVER)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the three files; they may be gigabytes, so that it is made once."""
        digest = hashlib.sha256()
        for path in (self.files.transcript, self.files.secrets, self.files.oracle):
            if path is not None:
                with path.open("rb") as handle:
                    digest.update(hashlib.file_digest(handle, "sha256").digest())
        return digest.hexdigest()


class Recorded(Target):
    card = TargetCard(
        name="recorded",
        summary="a recording from anywhere: --transcript, --secrets and --oracle where there is one",
        paper="none: the format is docs/recordings.md",
        channels=tuple(item for item in Channel if item is not Channel.LABELS),
        parties=("the sites of the recording", "server"),
        cost="seconds; memory of one release at a time",
    )

    def configure(self, options: AuditOptions, registry: Registry) -> RecordedConfig:
        files = options.recording
        if files is None:
            raise InputError("target recorded needs --transcript and --secrets.")
        transcript, secrets = Transcript.load(files.transcript), Secrets.load(files.secrets)
        oracle = Oracle.load(files.oracle) if files.oracle is not None else None
        _require_secrets(transcript, secrets)
        require_given(transcript, secrets)
        require_measured(transcript, secrets)
        require_public(transcript)
        if oracle is not None:
            _require_matching(transcript, oracle)
        party = _party(options.party, transcript, oracle) if secrets.coined else _server(options.party)
        return RecordedConfig(files, transcript, oracle, secrets, "" if party == Party.SERVER else party)

    def describe(self, config: RecordedConfig) -> dict[str, Any]:
        eps = next((claim.eps for claim in config.transcript.claims), None)
        return {
            "data": config.files.transcript.name,
            "oracle": config.files.oracle.name if config.files.oracle is not None else None,
            "secrets": config.files.secrets.name,
            "defense": "as recorded",
            "eps": eps,
            "party": config.party,
        }

    def roles(self, config: RecordedConfig) -> Mapping[Role, RecordedConfig]:
        return {"audited": config}

    def fingerprint(self, config: RecordedConfig) -> str:
        return config.fingerprint

    def threats(self, config: RecordedConfig) -> tuple[ThreatModel, ...]:
        secrets = config.secrets
        found: list[ThreatModel] = []
        if secrets.coined:
            curious = curious_site(config.party) if config.party else server_below_labels()
            found += [curious] if config.oracle is None else [curious, auditor_of(curious)]
        sent, shown = _read_from(next(iter(secrets.given), ""))
        if shown in config.transcript.arrays:
            found.append(server_with_updates())
        if (
            secrets.given
            and (config.party or not secrets.coined)
            and (sent in config.transcript.arrays or shown not in config.transcript.arrays)
        ):
            found.append(curious_server())
            if any(item.channel == Channel.ACTIVATIONS for item in config.transcript.mechanisms):
                found.append(server_told_defence())
        if secrets.asks_membership:
            asked = config.transcript.arrays
            found.append(curious_outsider())
            found += [server_with_candidates()] if "asked/activations" in asked else []
            if "asked/squares" in asked:
                found += [server_with_updates_and_candidates(), server_told_of_members()]
        if secrets.asks_membership or secrets.measured:
            found.append(server_with_patients())
        held = {name.split("/")[0] for name in config.transcript.arrays}
        if secrets.measured and "model" in held:
            found.append(server_with_encoder())
        if secrets.measured and "adversary" in held:
            found.append(malicious_server())
        return tuple(found)

    def epsilons(self, config: RecordedConfig) -> tuple[Epsilon, ...]:
        """The claims as recorded, and the site's own epsilon where the mechanism is described."""
        releases = _releases(config)
        found = [
            Epsilon(
                f"claimed, {claim.audience}",
                claim.eps,
                claim.delta,
                claim.neighbours,
                sampling_of(claim),
                claim.epochs or releases,
                claim.accountant,
                claim.audience,
                "what the recording says of itself; not checked",
            )
            for claim in config.transcript.claims
        ]
        mechanism = gradient_mechanism(config.transcript.mechanisms, config.holder)
        if mechanism is not None and config.secrets.coined:
            moved = len(config.secrets.moved(config.secret))
            mu = accounting.mechanism_mu(mechanism, moved, releases)
            delta = next((claim.delta for claim in config.transcript.claims), 1e-5)
            found.append(own_releases(config.holder, mu, delta, moved, releases))
        return tuple(found)

    def run(
        self,
        config: RecordedConfig,
        rng: np.random.Generator,
        adversary: ActiveAdversary | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TargetRun:
        """What was recorded; an adversary has nothing to act in."""
        if adversary is not None:
            raise InputError("a recording is over: no active adversary can take part in it.")
        return TargetRun(config.transcript, config.oracle, config.secrets, (), {}, config.fingerprint)


def _require_secrets(transcript: Transcript, secrets: Secrets) -> None:
    """Something that an attack can be scored on: coins, inputs, memberships, or several of these."""
    if secrets.coined:
        _require_coins(secrets)
        _require_noise(transcript, secrets)
        _require_records(transcript, secrets)
    elif not (secrets.given or secrets.measured or secrets.asks_membership):
        raise InputError(
            f"{secrets.where} marks no canaries and no answers: label attacks are scored on records whose label was a "
            "fair coin (canary/joint or canary/TASK, and its labels), inversions on inputs/CLIENT and "
            "inputs/CLIENT/answers, membership attacks on member; see docs/recordings.md."
        )
    elif secrets.given and not any(name in transcript.arrays for name in _read_from(secrets.given[0])):
        raise InputError(
            f"{transcript.where} holds no {' or '.join(map(repr, _read_from(secrets.given[0])))}, from which "
            f"'inputs/{secrets.given[0]}' in {secrets.where} could be read, and there are no coins: nothing can be "
            "scored."
        )


def _read_from(party: str) -> tuple[str, str]:
    """What tells a party's inputs: its activations, or of an update whose it is."""
    return f"activations/{party}", f"updates/{party}/shown"


def _require_coins(secrets: Secrets) -> None:
    """Canaries whose label was a fair coin: without them chance is not known, and nothing can be judged."""
    where = secrets.where
    for secret in secrets.coined:
        canaries, coins = secrets.coins(secret)
        if len(canaries) < SMALLEST:
            raise InputError(f"{where}: canary/{secret} marks {len(canaries)} records; at least {SMALLEST} are needed.")
        if len(np.unique(coins)) < 2:
            raise InputError(
                f"{where}: every coin in 'labels/{secret}' is {int(coins[0])}: one class only. Fair coins show both."
            )


def _require_noise(transcript: Transcript, secrets: Secrets) -> None:
    """A task that the coin moves must have a sigma wherever Gaussian noise is described."""
    for mechanism in transcript.mechanisms:
        for task in secrets.moved(secrets.coined[0]):
            if mechanism.channel == Channel.GRADIENTS and mechanism.sigma and task not in mechanism.sigma:
                raise InputError(
                    f"{secrets.where}: the coin moves '{task}', for which {transcript.where} describes no sigma; it "
                    f"has {', '.join(mechanism.sigma)}."
                )


def _require_records(transcript: Transcript, secrets: Secrets) -> None:
    ours = next((len(a) for n, a in secrets.arrays.items() if n.startswith(("labels/", "canary/"))), 0)
    for name, array in transcript.arrays.items():
        parts = name.split("/")
        if parts[0] == "gradients" and array.shape[1] != ours:
            raise InputError(
                f"{secrets.where} speaks of {ours} records, '{name}' in {transcript.where} has {array.shape[1]}; they "
                "must be the same records in the same order."
            )


def _require_matching(transcript: Transcript, oracle: Oracle) -> None:
    for name, array in oracle.arrays.items():
        site = name.split("/")[2]
        shape = next(
            (a.shape for n, a in transcript.arrays.items() if n.split("/")[:2] == ["gradients", site] and a.ndim == 3),
            None,
        )
        if shape is None:
            raise InputError(f"{oracle.where}: '{name}' is about party '{site}', to which no gradients were recorded.")
        if array.shape != shape:
            raise InputError(
                f"{oracle.where}: '{name}' has shape {list(array.shape)}, the releases to '{site}' have {list(shape)}."
            )


def _party(asked: str | None, transcript: Transcript, oracle: Oracle | None) -> str:
    sites = sorted({name.split("/")[1] for name in transcript.arrays if name.startswith("gradients/")})
    if not sites:
        raise InputError(
            f"{transcript.where} holds no gradients: the attacks of this version read cut gradients (gradients/SITE)."
        )
    if asked is not None:
        if asked not in sites:
            raise unknown("party", asked, sites)
        return asked
    informed = sorted({name.split("/")[2] for name in oracle.arrays if "/clean" not in name}) if oracle else []
    likely = informed if len(informed) == 1 else sites
    if len(likely) > 1:
        raise InputError(
            f"{transcript.where} holds the gradients of {', '.join(sites)}: name the curious one, --party."
        )
    return likely[0]


def _server(asked: str | None) -> str:
    """Without coins the curious one is the server, to which activations go; as a party it has no name."""
    if asked not in (None, Party.SERVER):
        raise unknown("party", str(asked), (Party.SERVER,))
    return ""


def _releases(config: RecordedConfig) -> int:
    """Gradients that went to the curious site, or activations that came from the first client."""
    given = config.secrets.given
    at = ["gradients", config.holder] if config.secrets.coined else ["activations", *given[:1]]
    return next((len(a) for n, a in config.transcript.arrays.items() if n.split("/")[:2] == at), 1)

"""Membership inference: was this record trained on?

Candidates are in or out by independent fair coins, so members and others come from one distribution, and a classifier
that sees the records alone, and no model, must stay near chance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privbench.attack import AttackBase, AttackCard, Index, NotApplicable, Scores, View, require_untold, view_of
from privbench.blind import blind_scores
from privbench.errors import InputError
from privbench.measure import Refused, split_coins, try_each
from privbench.mechanism import Claim
from privbench.recording import MEMBER
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import Progress, TargetRun
from privbench.threat import Channel, ThreatModel

ABOUT_RECORDS = ("server", "outsider")
"""Audiences of claims about whole records; a site's is about the labels of its records."""
_LEAST = 20
"""Members, and others, below which nothing can be told about them."""


class MembershipAttack(AttackBase):
    """Base of all attacks that score how likely a record was trained on. Authors write `run` and a card.

    least_references: models trained on balanced halves of the records without which it cannot be run. least_senders:
    updates that come in one round, if it needs to hold them against each other.
    """

    least_references: ClassVar[int] = 0
    least_senders: ClassVar[int] = 0

    def __call__(self, view: View, rng: np.random.Generator) -> Scores | NotApplicable:
        refused = self.refusal(view)
        if refused is not None:
            return refused
        require_untold(view)
        scores = np.asarray(self.run(view, rng))
        if scores.shape != view.candidates.shape:
            raise ValueError(
                f"attack {self.card.name} returned scores {scores.shape}, expected [{len(view.candidates)}]."
            )
        with np.errstate(over="ignore"):
            kept: Scores = scores.astype(np.float32)
        if not np.isfinite(kept).all():
            raise ValueError(f"attack {self.card.name} returned scores that are not finite in 32 bits.")
        kept.flags.writeable = False
        return kept

    @abstractmethod
    def run(self, view: View, rng: np.random.Generator) -> Scores:
        """Score every candidate, [m]; higher: more likely trained on. What is chosen is chosen on `view.hints` only."""


def asking(threats: Sequence[ThreatModel]) -> tuple[ThreatModel, ...]:
    """Adversaries who are after members. Who receives gradients is after labels, and what it was told are their coins;
    alone among all it is asked, and will say what it lacks.
    """
    return tuple(threat for threat in threats if Channel.GRADIENTS not in threat.channels) or tuple(threats)


def require_enough(coins: Index | npt.NDArray[np.uint8]) -> None:
    """`InputError` where too few candidates are in or out [n] to tell anything."""
    members = int(coins.sum())
    if min(members, len(coins) - members) < _LEAST:
        raise InputError(
            f"membership: a coin put {members} of {len(coins)} candidates into the training; at least {_LEAST} must be "
            f"in, and {_LEAST} out. Use more records, or ask nothing about membership."
        )


@dataclass(frozen=True)
class Exposed:
    """How one attack scored the candidates, [m]."""

    card: AttackCard
    threat: ThreatModel
    scores: Scores


@dataclass(frozen=True)
class Membership:
    """All membership attacks of one run.

    scored [m]: record numbers; coins uint8 [m]: whether they were trained on; blind [m]: what a classifier makes of the
    records alone, None where their features are not recorded. references: how many models were trained beside; claim:
    what the run promises about a whole record, or None.
    """

    outcomes: Mapping[str, Exposed]
    refused: Mapping[str, Refused]
    scored: Index
    coins: npt.NDArray[np.uint8]
    blind: Scores | None
    candidates: int
    references: int
    claim: Claim | None = None


def ask_all(
    names: Sequence[str],
    registry: Registry,
    threats: Sequence[ThreatModel],
    run: TargetRun,
    seed: int,
    progress: Progress,
) -> Membership:
    """Every membership attack under the weakest threat model that suffices for it."""
    candidates, coins = run.secrets.memberships()
    require_enough(coins)
    able = asking(threats)
    hints, scored, tossed = split_coins(candidates, coins, stream(seed, "membership calibration"))

    def tried(name: str, attack: MembershipAttack, threat: ThreatModel) -> Exposed | NotApplicable:
        view = view_of(threat, run.transcript, secret=MEMBER, moved=(), candidates=scored, hints=hints)
        found = attack(view, stream(seed, name))
        return found if isinstance(found, NotApplicable) else Exposed(attack.card, threat, found)

    outcomes, refused = try_each(names, registry, able, progress, tried)
    made = run.transcript.arrays.get("reference/member")
    return Membership(
        outcomes,
        refused,
        scored,
        tossed,
        blind_scores(run.secrets, candidates, coins, scored, stream(seed, "blind")),
        candidates=len(candidates),
        references=0 if made is None else len(made),
        claim=next((item for item in run.claims if item.audience in ABOUT_RECORDS), None),
    )

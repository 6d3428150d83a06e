"""Who the adversary is: which party, how it behaves, what it sees and what it knows.

Threat models are partially ordered: one that sees and knows at least as much never has a weaker best attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    """The ways information leaves a party."""

    ACTIVATIONS = "activations"
    GRADIENTS = "gradients"
    UPDATES = "updates"
    OUTPUTS = "outputs"
    LABELS = "labels"
    AUXILIARY = "auxiliary"


class Party(StrEnum):
    SITE = "site"
    SERVER = "server"
    CLIENT = "client"
    OUTSIDER = "outsider"


class Behaviour(StrEnum):
    CURIOUS = "curious"
    MALICIOUS = "malicious"


class Knowledge(StrEnum):
    """What the adversary knows besides the tensors it sees."""

    MECHANISM = "mechanism"
    MODEL = "model"
    INPUTS = "inputs"
    HINTS = "hints"


@dataclass(frozen=True)
class ThreatModel:
    """An adversary. `name` is the site or client when the party is one.

    HINTS: it knows the secret of a few records (the calibration coins), which are never scored.
    MODEL with INPUTS is the auditor's oracle: it can evaluate both hypotheses exactly.
    """

    party: Party
    name: str
    behaviour: Behaviour
    channels: frozenset[Channel]
    knowledge: frozenset[Knowledge]

    def __le__(self, other: ThreatModel) -> bool:
        """True when `other` sees and knows at least as much, at the same place."""
        return (
            (self.party, self.name) == (other.party, other.name)
            and (self.behaviour == other.behaviour or other.behaviour is Behaviour.MALICIOUS)
            and self.channels <= other.channels
            and self.knowledge <= other.knowledge
        )

    @property
    def label(self) -> str:
        """One short phrase, for records and tables."""
        who = f"{self.party} {self.name}".strip()
        return f"{self.behaviour} {who}" + (" with the model" if Knowledge.MODEL in self.knowledge else "")

    def describe(self) -> str:
        """The adversary in a sentence a reviewer can quote."""
        who = f"{self.party} {self.name}".strip()
        saw = ", ".join(sorted(self.channels)) or "nothing"
        knew = ", ".join(sorted(self.knowledge)) or "nothing else"
        acts = (
            "follows the protocol and keeps what it receives"
            if self.behaviour is Behaviour.CURIOUS
            else "may change what it sends"
        )
        return f"{who} ({self.behaviour}: {acts}) receives {saw} and knows {knew}"

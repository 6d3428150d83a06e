"""Who the adversary is: which party, how it behaves, what it sees and what it knows.

Threat models are partially ordered: one that sees and knows at least as much never has a weaker best attack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Channel(StrEnum):
    """The ways information leaves a party."""

    ACTIVATIONS = "activations"
    GRADIENTS = "gradients"
    UPDATES = "updates"
    OUTPUTS = "outputs"
    CHECKPOINTS = "checkpoints"
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
    BASE = "base"


@dataclass(frozen=True)
class ThreatModel:
    """An adversary. `name` is the site or client when the party is one.

    HINTS: it knows the secret of a few records (the calibration coins), which are never scored.
    MODEL with INPUTS is the auditor's oracle: it can evaluate both hypotheses exactly.
    BASE: it knows the public pretrained model that the training started from, as everybody does.
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

    def to_json(self) -> dict[str, object]:
        return {
            "label": self.label,
            "description": self.describe(),
            "party": str(self.party),
            "name": self.name,
            "behaviour": str(self.behaviour),
            "channels": sorted(map(str, self.channels)),
            "knowledge": sorted(map(str, self.knowledge)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ThreatModel:
        return cls(
            Party(data["party"]),
            str(data["name"]),
            Behaviour(data["behaviour"]),
            frozenset(map(Channel, data["channels"])),
            frozenset(map(Knowledge, data["knowledge"])),
        )

    def describe(self) -> str:
        """The adversary in a sentence a reviewer can quote."""
        saw = [_SEEN[channel] for channel in Channel if channel in self.channels]
        knew = [_KNOWN[item] for item in Knowledge if item in self.knowledge]
        acts = (
            "follows the protocol and keeps"
            if self.behaviour is Behaviour.CURIOUS
            else "may change what it sends and keeps"
        )
        return (
            f"{self.party} {self.name}".strip()
            + f" {acts} {_listed(saw) or 'nothing'}; besides, it knows {_listed(knew) or 'nothing'}"
        )


def curious_site(name: str) -> ThreatModel:
    """A site that keeps the cut gradients it receives; it knows the defence, its own labels and a few coins."""
    return ThreatModel(
        Party.SITE,
        name,
        Behaviour.CURIOUS,
        frozenset({Channel.GRADIENTS, Channel.AUXILIARY}),
        frozenset({Knowledge.MECHANISM, Knowledge.HINTS}),
    )


def curious_server() -> ThreatModel:
    """A server that keeps the cut activations it receives; it knows the public base model."""
    return ThreatModel(
        Party.SERVER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.ACTIVATIONS}),
        frozenset({Knowledge.BASE}),
    )


def curious_outsider() -> ThreatModel:
    """Whoever may query the trained model, and knows of a few records whether they were trained on."""
    return ThreatModel(
        Party.OUTSIDER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.OUTPUTS}),
        frozenset({Knowledge.HINTS}),
    )


def server_with_patients() -> ThreatModel:
    """A server that keeps the model after every pass and the cut activations of any record that it asks for; it has
    patients of its own, who were not trained on, and knows of a few records whether they were.
    """
    return ThreatModel(
        Party.SERVER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.CHECKPOINTS, Channel.AUXILIARY}),
        frozenset({Knowledge.HINTS}),
    )


def server_with_encoder() -> ThreatModel:
    """The same server where it also holds the trained encoder: it made it, or a site's copy was lost to it."""
    server = server_with_patients()
    return replace(server, knowledge=server.knowledge | {Knowledge.MODEL})


def malicious_server() -> ThreatModel:
    """A server that sends back what it likes. It computes losses, hence sees labels, and knows inputs of other
    patients, though not what they are sent as.
    """
    return ThreatModel(
        Party.SERVER,
        "",
        Behaviour.MALICIOUS,
        frozenset({Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.LABELS, Channel.AUXILIARY}),
        frozenset(),
    )


def auditor_of(site: ThreatModel) -> ThreatModel:
    """The same adversary who could also evaluate both hypotheses: it knows the model and every site's inputs."""
    return replace(site, knowledge=site.knowledge | {Knowledge.MODEL, Knowledge.INPUTS})


_SEEN = {
    Channel.ACTIVATIONS: "the cut-layer activations",
    Channel.GRADIENTS: "the cut-layer gradients sent back to it",
    Channel.UPDATES: "the model updates",
    Channel.OUTPUTS: "the model's outputs",
    Channel.CHECKPOINTS: "the model as it stood after each pass",
    Channel.LABELS: "the labels",
    Channel.AUXILIARY: "its own labels and inputs",
}
_KNOWN = {
    Knowledge.MECHANISM: "the defence, its clip and its noise",
    Knowledge.MODEL: "the model in every step",
    Knowledge.INPUTS: "every site's inputs",
    Knowledge.HINTS: "the coins of a few records that are never scored",
    Knowledge.BASE: "the public base model and its tokenizer",
}


def _listed(items: list[str]) -> str:
    return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1] if items else ""

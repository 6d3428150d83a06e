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
    CANDIDATES = "candidates"


@dataclass(frozen=True)
class ThreatModel:
    """An adversary. `name` is the site or client when the party is one.

    HINTS: it knows the secret of a few records (the calibration coins), which are never scored.
    MODEL with INPUTS is the auditor's oracle: it can evaluate both hypotheses exactly.
    BASE: it knows the public pretrained model that the training started from, as everybody does.
    CANDIDATES: it holds the records of which it asks whether they were trained on, and the public base.
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
    def holder(self) -> str:
        """What arrays that are addressed to it are named by: its name, or "server"."""
        return self.name or str(self.party)

    @property
    def label(self) -> str:
        """One short phrase, for records and tables."""
        who = f"{self.party} {self.name}".strip()
        holds = [f" with the {item}" for item in (Knowledge.MODEL, Knowledge.CANDIDATES) if item in self.knowledge]
        told = self.party is Party.SERVER and Knowledge.MECHANISM in self.knowledge
        # Who also receives gradients is told in any case.
        holds += [" told of the defence"] if told and Channel.GRADIENTS not in self.channels else []
        holds += (
            [" told of some members"] if Channel.UPDATES in self.channels and Knowledge.HINTS in self.knowledge else []
        )
        return f"{self.behaviour} {who}{''.join(holds)}"

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
        saw = [_SEEN_BY.get((self.party, item), _SEEN[item]) for item in Channel if item in self.channels]
        knew = [self._known(item) for item in Knowledge if item in self.knowledge]
        acts = (
            "follows the protocol and keeps"
            if self.behaviour is Behaviour.CURIOUS
            else "may change what it sends and keeps"
        )
        besides = f"; besides, it knows {_listed(knew)}" if knew else ""
        return f"{self.party} {self.name}".strip() + f" {acts} {_listed(saw) or 'nothing'}{besides}"

    def _known(self, item: Knowledge) -> str:
        """Whoever receives gradients is after labels: it is told coins, and not who was trained on."""
        if item is Knowledge.HINTS and Channel.GRADIENTS in self.channels:
            return _KNOWN[item]
        if item is Knowledge.CANDIDATES and Channel.UPDATES in self.channels:
            return _CANDIDATES_OF_UPDATES
        return _KNOWN_BY.get((self.party, item), _KNOWN[item])


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


def server_told_defence() -> ThreatModel:
    """The same server where it also knows what clients do to their activations, and with how much noise."""
    server = curious_server()
    return replace(server, knowledge=server.knowledge | {Knowledge.MECHANISM})


def server_below_labels() -> ThreatModel:
    """The same server where clients hold the labels (U-shape): gradients of its outputs come up to it. It knows the
    defence, and a few label coins.
    """
    server = curious_server()
    return replace(
        server,
        channels=server.channels | {Channel.GRADIENTS},
        knowledge=server.knowledge | {Knowledge.MECHANISM, Knowledge.HINTS},
    )


def server_with_candidates() -> ThreatModel:
    """The same server where it also holds records, and wants to know which of them a client sent."""
    server = curious_server()
    return replace(server, knowledge=server.knowledge | {Knowledge.CANDIDATES})


def server_with_updates() -> ThreatModel:
    """A server of federated averaging that keeps what it hands out and the updates that come back; it knows the public
    base model.
    """
    return ThreatModel(
        Party.SERVER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.UPDATES}),
        frozenset({Knowledge.BASE}),
    )


def server_with_updates_and_candidates() -> ThreatModel:
    """The same server where it also holds records, and wants to know which of them a client trained on."""
    server = server_with_updates()
    return replace(server, knowledge=server.knowledge | {Knowledge.CANDIDATES})


def server_told_of_members() -> ThreatModel:
    """The same server where it also knows of some of the records whether they were trained on, and asks the trained
    model, which it holds.
    """
    server = server_with_updates_and_candidates()
    return replace(server, channels=server.channels | {Channel.OUTPUTS}, knowledge=server.knowledge | {Knowledge.HINTS})


def curious_outsider() -> ThreatModel:
    """Whoever may query the trained model with records whose inputs and labels it holds, and knows of some of them
    whether they were trained on. It knows the recipe of the training, by which it may train models of its own.
    """
    return ThreatModel(
        Party.OUTSIDER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.OUTPUTS}),
        frozenset({Knowledge.HINTS}),
    )


def server_with_patients() -> ThreatModel:
    """A server that keeps what its own part of the model computes: the cut activations of any record that it asks for,
    outputs, losses and cut gradients, from the trained system and at several times of the training. It has inputs and
    labels of patients of its own, who were not trained on, and knows of some records whether they were. What it never
    holds is a site's encoder.
    """
    return ThreatModel(
        Party.SERVER,
        "",
        Behaviour.CURIOUS,
        frozenset({Channel.ACTIVATIONS, Channel.OUTPUTS, Channel.CHECKPOINTS, Channel.AUXILIARY}),
        frozenset({Knowledge.HINTS}),
    )


def server_with_encoder() -> ThreatModel:
    """The same server where it also holds the sites' trained encoders: it made them, or copies were lost to it."""
    server = server_with_patients()
    return replace(server, knowledge=server.knowledge | {Knowledge.MODEL})


def malicious_server() -> ThreatModel:
    """A server that sends back what it likes. It computes losses, hence sees the labels that are trained on, and has
    inputs and labels of patients of its own, who are not.
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
    Channel.UPDATES: "the trained state of every round and the updates that come back, each client's or under secure "
    "aggregation their sum",
    Channel.OUTPUTS: "the trained model's outputs and the true labels of all records that it asks about",
    Channel.CHECKPOINTS: "what the model made of them at several times of the training",
    Channel.LABELS: "the labels that are trained on",
    Channel.AUXILIARY: "its own labels and inputs",
}
_SEEN_BY = {
    (Party.OUTSIDER, Channel.OUTPUTS): "the outputs of the trained model, and of models that it trains itself by the "
    "same recipe, for records whose inputs and true labels it holds",
    (Party.SERVER, Channel.GRADIENTS): "the gradients of its outputs that clients send up",
    (Party.SERVER, Channel.CHECKPOINTS): "what its own part of the model made of them at several times of the training "
    "(outputs, activations, norms of cut gradients)",
    (Party.SERVER, Channel.AUXILIARY): "the inputs and labels of patients of its own, who are never scored",
}
"""Where a channel brings a party something else than it brings others."""
_KNOWN = {
    Knowledge.MECHANISM: "the defence, its clip and its noise",
    Knowledge.MODEL: "the model in every step",
    Knowledge.INPUTS: "every site's inputs",
    Knowledge.HINTS: "the coins of a few records that are never scored",
    Knowledge.BASE: "the public base model and its tokenizer",
    Knowledge.CANDIDATES: "all that stands in the records of which it asks whether a client sent them",
}
_CANDIDATES_OF_UPDATES = "all that stands in the records of which it asks whether a client trained on them"
_TRAINED_ON = "which of some records, never scored, were trained on"
_KNOWN_BY = {
    (Party.SERVER, Knowledge.MODEL): "the weights of the sites' trained encoders",
    (Party.SERVER, Knowledge.HINTS): _TRAINED_ON,
    (Party.OUTSIDER, Knowledge.HINTS): _TRAINED_ON,
}


def _listed(items: list[str]) -> str:
    return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1] if items else ""

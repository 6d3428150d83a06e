"""What is said of an adversary is what it sees and knows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from privbench.attack import unmet
from privbench.registry import Registry
from privbench.threat import (
    Behaviour,
    Channel,
    Knowledge,
    Party,
    ThreatModel,
    auditor_of,
    curious_outsider,
    curious_server,
    curious_site,
    malicious_server,
    server_told_defence,
    server_told_of_members,
    server_with_candidates,
    server_with_encoder,
    server_with_patients,
    server_with_updates,
    server_with_updates_and_candidates,
)

SITE = curious_site("A")
ALL = (
    SITE,
    auditor_of(SITE),
    curious_server(),
    server_told_defence(),
    curious_outsider(),
    server_with_candidates(),
    server_with_patients(),
    server_with_encoder(),
    server_with_updates(),
    server_with_updates_and_candidates(),
    server_told_of_members(),
    malicious_server(),
)
RECIPE = "models that it trains itself by the same recipe, for records whose inputs and true labels it holds"
OWN_PART = "what its own part of the model made of them at several times of the training"
PATIENTS = "the inputs and labels of patients of its own"
ENCODERS = "the weights of the sites' trained encoders"
ANSWERS = "the true labels of all records that it asks about"
MEMBERS = "which of some records, never scored, were trained on"
CANDIDATES = "all that stands in the records of which it asks whether a client sent them"
BASE = "the public base model and its tokenizer"
UPDATES = (
    "the trained state of every round and the updates that come back, each client's or under secure aggregation their "
    "sum"
)
TRAINED = "all that stands in the records of which it asks whether a client trained on them"
SAID = {
    curious_server(): {BASE},
    server_told_defence(): {BASE, "the defence, its clip and its noise"},
    server_with_candidates(): {BASE, CANDIDATES},
    server_with_updates(): {UPDATES, BASE},
    server_with_updates_and_candidates(): {UPDATES, BASE, TRAINED},
    server_told_of_members(): {UPDATES, ANSWERS, BASE, TRAINED, MEMBERS},
    curious_outsider(): {RECIPE, MEMBERS},
    server_with_patients(): {OWN_PART, PATIENTS, ANSWERS, MEMBERS},
    server_with_encoder(): {OWN_PART, PATIENTS, ANSWERS, MEMBERS, ENCODERS},
    malicious_server(): {PATIENTS, ANSWERS, "the labels that are trained on", "may change what it sends"},
    SITE: {"its own labels and inputs", "the coins of a few records that are never scored"},
    auditor_of(SITE): {"its own labels and inputs", "the coins of a few", "the model in every step"},
}


@pytest.mark.parametrize("threat", SAID, ids=lambda threat: threat.label)
def test_each_adversary_is_described_by_what_it_holds_and_by_nothing_else(threat: ThreatModel) -> None:
    said = threat.describe()
    assert {phrase for phrase in set().union(*SAID.values()) if phrase in said} >= SAID[threat]
    others = {RECIPE, OWN_PART, PATIENTS, ENCODERS, ANSWERS, MEMBERS, CANDIDATES, BASE, UPDATES, TRAINED} - SAID[threat]
    assert not [phrase for phrase in others if phrase in said]


def test_who_knows_nothing_besides_is_not_said_to() -> None:
    assert "besides" not in malicious_server().describe()
    blank = replace(malicious_server(), channels=frozenset(), behaviour=Behaviour.CURIOUS)
    assert blank.describe() == "server follows the protocol and keeps nothing"


def test_adversaries_that_hold_different_things_are_described_differently() -> None:
    assert len({threat.describe() for threat in ALL}) == len(ALL)


@pytest.mark.parametrize("party", Party)
def test_every_channel_and_all_knowledge_has_words_for_every_party(party: Party) -> None:
    """Each adds something of its own to the sentence."""
    bare = ThreatModel(party, "", Behaviour.CURIOUS, frozenset(), frozenset())
    several = [replace(bare, channels=frozenset({item})) for item in Channel]
    several += [replace(bare, knowledge=frozenset({item})) for item in Knowledge]
    assert len({item.describe() for item in several}) == len(several)


def test_the_documents_use_the_same_words() -> None:
    text = Path(__file__).resolve().parents[1] / "docs" / "membership-and-inversion.md"
    flat = re.sub(r"\s+", " ", text.read_text(encoding="utf-8"))
    for threat in (
        curious_outsider(),
        server_with_candidates(),
        server_with_patients(),
        server_with_encoder(),
        server_with_updates_and_candidates(),
        server_told_of_members(),
        malicious_server(),
    ):
        kept, _, knew = threat.describe().partition("; besides, it knows ")
        assert kept.rpartition(" keeps ")[2] in flat
        assert knew.partition(" and ")[0] in flat


def test_an_attack_that_reads_labels_says_so_and_has_somebody_to_run_it(registry: Registry) -> None:
    """The hijacking server judges beside the training's labels, and reads beside those of whom it asks about."""
    fsha, sdar = (registry.get("attacks", f"inversion/{name}").card for name in ("fsha", "sdar"))
    assert {Channel.LABELS, Channel.OUTPUTS} <= set(fsha.channels)
    assert not unmet(fsha, malicious_server())
    assert unmet(fsha, replace(malicious_server(), channels=malicious_server().channels - {Channel.LABELS}))
    assert Channel.OUTPUTS in sdar.channels
    assert not unmet(sdar, server_with_patients())


def test_a_server_that_was_told_of_the_defence_has_a_name_of_its_own() -> None:
    assert curious_server().label == "curious server"
    assert server_told_defence().label == "curious server told of the defence"
    assert curious_server() <= server_told_defence()
    assert not server_told_defence() <= curious_server()


def test_a_server_of_updates_that_was_told_of_members_is_the_stronger_one() -> None:
    weaker, stronger = server_with_updates_and_candidates(), server_told_of_members()
    assert server_with_updates() <= weaker <= stronger
    assert not stronger <= weaker
    assert stronger.label == "curious server with the candidates told of some members"

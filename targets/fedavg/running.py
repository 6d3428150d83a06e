"""The run of an audit whose updates are recorded, and which answers the test respondents' questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from privbench.data.catalogue import invented
from privbench.recording import Secrets
from privbench.seeds import stream
from privbench.target import Progress, TargetRun
from privbench.targets.fedavg.attendance import Attendance
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.defending import called
from privbench.targets.fedavg.matching import Matched
from privbench.targets.fedavg.reading import Reading
from privbench.targets.fedavg.rounds import Whole, federate
from privbench.targets.fedavg.tape import UpdateTape
from privbench.targets.split_llama.adapters import state
from privbench.targets.split_llama.material import Material
from privbench.targets.split_llama.running import answered, other_methods
from privbench.targets.split_llama.system import shards_of, untuned


def run_audited(config: FedConfig, rng: np.random.Generator, report: Progress, folder: Path | None) -> TargetRun:
    """Average, record every update, answer. Respondents, initial weights and batches are those that the split run of
    the same seed draws.
    """
    tuning = config.tuning
    report("reading the survey", 0.0)
    material = Material.load(config, rng)
    model = Whole(*untuned(material.base.model, tuning, rng))
    shards = shards_of(material.train, material.holder, tuning.clients)
    others, untold = other_methods(config, material, rng, report)
    seen, reading = Attendance(), Reading.of(material, shards, config.defense)
    weights = tuning.weights([len(shard.samples) for shard in shards], config.defense)
    public = reading.public(invented(config.data))
    # Draws of its own: how many questionnaires are filled in changes nothing else.
    matched = Matched(model, reading.form, reading.watched, tuning, stream(config.seed, "questionnaires"))
    with UpdateTape(state(model), weights, tuning.rounds, folder, public, reading.watched, matched.arrays) as tape:
        for done in federate(model, shards, tuning, tuning.rounds, rng, report, config.defense):
            matched.add(done, tape.put(seen.add(done)), report)
        questions = {reading.watched.sender: reading.questions}
        transcript = tape.finish({"missed": seen.missed, "questions": questions, **config.described(tuning.rounds)})
    utility = answered(model.client, model.server, material, others, rng, report)
    secrets = Secrets({**material.natural(reading.rows(tape.shown)), **reading.secrets(tape.shown)})
    notes = (*material.notes, *untold, *_of_one_mind(material, tuning.clients), *seen.notes, *config.notes)
    fingerprint = material.fingerprint
    return TargetRun(transcript, None, secrets, utility, seen.diagnostics, fingerprint, notes=notes)


def _of_one_mind(material: Material, clients: int) -> Iterator[str]:
    """Clients whose respondents all give one answer: such an update tells it, and teaches nothing else."""
    holder, said = material.holder, np.array(material.said)
    for client in range(clients):
        answers = said[holder == client]
        if len(set(answers)) == 1:
            yield f"All {len(answers)} respondents of {called(client)} gave the same answer, '{answers[0]}'."

"""From data sets' names to the respondents of a run: leaking columns dropped, duplicates and groups kept apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privbench.data.catalogue import invented
from privbench.data.surveys import leaks
from privbench.data.surveys.leaks import Leak
from privbench.data.surveys.read import parse_spec, read_survey
from privbench.data.surveys.schema import Outcome
from privbench.data.surveys.splits import SurveySplits, split
from privbench.data.surveys.survey import Survey
from privbench.data.surveys.synthetic import synthetic
from privbench.errors import InputError
from privbench.targets.split_llama.recipe import Recipe
from privbench.targets.split_llama.schemas import Part, parts_of, unseen_of

SPARE = 1.5
"""Invented respondents for each one that is used: some are duplicates, or near ones."""

NOBODYS = "held by no client"


@dataclass(frozen=True)
class Respondents:
    """Of one survey. clients: who of the run's clients hold it, in the order of `splits.client`; notes: what was left
    out and why, in sentences; fingerprint: SHA-256 over every answer of the three sides.
    """

    splits: SurveySplits
    clients: tuple[int, ...]
    notes: tuple[str, ...]
    fingerprint: str

    @property
    def outcome(self) -> Outcome:
        return self.splits.outcome

    @property
    def holder(self) -> npt.NDArray[np.int64]:
        """Which of the run's clients holds each training respondent."""
        return np.array(self.clients)[self.splits.client]

    @property
    def held_by(self) -> str:
        """The survey and its clients, in words."""
        if not self.clients:
            return f"Survey {self.splits.train.schema.title}, {NOBODYS}"
        who = ", ".join(str(client + 1) for client in self.clients)
        return f"Survey {self.splits.train.schema.title}, client{'s' if len(self.clients) > 1 else ''} {who}"


def require_outcomes(data: str, tuning: Recipe) -> None:
    """`InputError` for an outcome that an invented survey lacks; those of others are known once files are read."""
    unseen = unseen_of(data, tuning)
    for part in (*parts_of(data, tuning), *(() if unseen is None else (unseen,))):
        if invented(part.data):
            few = replace(part, train=1, validation=1, test=1)
            _survey(few, np.random.default_rng(0)).schema.outcome(part.outcome or None)


def load(data: str, tuning: Recipe, rng: np.random.Generator) -> tuple[Respondents, ...]:
    """Read or invent the surveys and split them. `InputError` for whatever a user can mend."""
    return tuple(_load(part, tuning.leaks == "drop", rng) for part in parts_of(data, tuning))


def load_unseen(data: str, tuning: Recipe, rng: np.random.Generator) -> Respondents | None:
    """The survey that no client holds, where one is asked about."""
    part = unseen_of(data, tuning)
    return None if part is None else _load(part, tuning.leaks == "drop", rng)


def _load(part: Part, drops: bool, rng: np.random.Generator) -> Respondents:
    survey = _survey(part, rng)
    outcome = survey.schema.outcome(part.outcome or None)
    search = leaks.search(survey, outcome)
    found = search.leaks
    kept = leaks.drop(survey, found) if drops else survey
    if not kept.inputs(outcome):
        keep = " or keep what leaks, --set leaks=keep" if found and drops else ""
        raise InputError(f"outcome {outcome.name}: no question is left as input; choose another outcome{keep}.")
    splits = split(
        kept,
        outcome,
        rng,
        train=part.train,
        validation=part.validation,
        test=part.test,
        clients=max(len(part.clients), 1),
        share=part.share,
    )
    few = (search.note,) if search.note else ()
    notes = (*_leaking(found, drops), *few, *_notes(splits))
    return Respondents(splits, part.clients, notes, fingerprint(splits))


def file_hash(data: str) -> str:
    """SHA-256 of the files that `load` would read; "" for invented respondents."""
    if invented(data):
        return ""
    spec = parse_spec(data)
    digest = hashlib.sha256()
    for path in (spec.path, spec.schema):
        if path is not None:
            try:
                digest.update(Path(path).read_bytes())
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    return digest.hexdigest()


def fingerprint(splits: SurveySplits) -> str:
    """SHA-256 over the answers of the three sides, in order."""
    digest = hashlib.sha256()
    for side in (splits.train, splits.validation, splits.test):
        digest.update(side.answers.to_csv(index=False).encode())
    return digest.hexdigest()


def _survey(part: Part, rng: np.random.Generator) -> Survey:
    if not invented(part.data):
        return read_survey(part.data)
    name = part.data.partition(":")[2]
    count = int(SPARE * (part.train + part.validation + part.test))
    return synthetic(rng, count, survey=name) if name else synthetic(rng, count)


def _leaking(found: Sequence[Leak], drops: bool) -> Iterator[str]:
    """Each column once, with the first reason that was found."""
    reasons: dict[str, str] = {}
    for leak in found:
        reasons.setdefault(leak.column, leak.reason)
    for column, reason in reasons.items():
        yield f"{'Dropped' if drops else 'Kept'} {column}: {reason}."


def _notes(splits: SurveySplits) -> Iterator[str]:
    sides = (splits.train, splits.validation, splits.test)
    train, validation, test = (len(side) for side in sides)
    groups = sum(len(np.unique(side.groups)) for side in sides)
    held = [f"{count:,}" for count in np.bincount(splits.client)]
    who = "client" if len(held) == 1 else "clients"
    yield (
        f"{train:,} respondents for training over {len(held)} {who} ({', '.join(held)}), {validation:,} "
        f"for validation, {test:,} for testing, in {groups:,} groups; no group is on two sides."
    )
    yield from splits.train.account.notes

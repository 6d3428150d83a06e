"""Training, validation and test respondents, and who holds whom: no person or group is ever on two sides."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.groups import near_duplicates, remove_identical
from privbench.data.surveys.schema import Outcome
from privbench.data.surveys.survey import Survey
from privbench.errors import InputError

Codes = npt.NDArray[np.int64]
Share = Literal["even", "power", "one-large"] | tuple[float, ...]

LARGE = 0.6
"""What one client holds under "one-large"."""
_UNUSED = -1
_TENTH = 10


@dataclass(frozen=True)
class SurveySplits:
    """Respondents with a known outcome.

    client: int64 [train], which client holds each training record; apart: what is never on two sides, in words
    """

    outcome: Outcome
    train: Survey
    validation: Survey
    test: Survey
    client: npt.NDArray[np.int64]
    apart: str = ""


def split(
    survey: Survey,
    outcome: Outcome,
    rng: np.random.Generator,
    *,
    train: int = 2000,
    validation: int = 250,
    test: int = 500,
    clients: int = 4,
    share: Share = "even",
) -> SurveySplits:
    """Respondents whose outcome is known, over three sides, and the training side over clients.

    1. A survey that was blown up is thinned: of each of its groups (one person) as few records as the wanted sizes
       need, at random. Copies of different people then rarely meet, and people count alike.
    2. Identical pairs of input and output are removed (`remove_identical`) and groups formed (`near_duplicates`).
    3. Groups are drawn at random; each goes to the side, or the client, that lacks the largest share of its size. No
       group is ever on two: of one that is larger than a tenth of the smallest side or client (more where records
       would be short), or than what is still lacking, a random part is used and the rest by nobody.

    A survey that is too small shrinks the wanted sizes in proportion. The training survey's account says all this.

    share: how the training records are spread over the clients: "even"; "power", in proportion to 1, 1/2, 1/3, ...;
    "one-large", 60% at the first, the rest even; or the shares themselves, which sum to 1.

    Raises `InputError` for a missing outcome column, an outcome with one value, an empty side or client, a class of
    validation or test that training lacks, and sizes or shares out of range.
    """
    shares = parts(share, clients)
    wanted = _targets(train, validation, test, shares)
    people = _thin(_known(survey, outcome), int(wanted.sum()), rng)
    distinct = remove_identical(people, outcome)
    grouping = near_duplicates(distinct, outcome)
    grouped = grouping.apply(distinct)
    bins, lacking = _draw(grouped.groups, wanted, rng)
    held = np.bincount(bins[bins != _UNUSED], minlength=len(wanted))
    _require_filled(held, clients, outcome, grouped)
    if lacking:
        found = (held[2:].sum(), held[0], held[1])
        note = (
            f"sizes shrunk from {train:,}, {validation:,}, {test:,} to {', '.join(f'{n:,}' for n in found)}: no more "
            "records."
        )
        grouped = replace(grouped, account=replace(grouped.account, notes=(*grouped.account.notes, note)))
    rows = np.flatnonzero(bins >= 2)
    made = SurveySplits(
        outcome,
        train=grouped.take(rows),
        validation=grouped.take(np.flatnonzero(bins == 0)),
        test=grouped.take(np.flatnonzero(bins == 1)),
        client=bins[rows] - 2,
        apart=grouping.sentence,
    )
    _require_classes(made)
    return made


def leaking_random_split(
    survey: Survey,
    outcome: Outcome,
    rng: np.random.Generator,
    *,
    train: int = 2000,
    validation: int = 250,
    test: int = 500,
) -> SurveySplits:
    """Records at random, groups and duplicates ignored, all at one client: only to show what such a split would claim.

    One person's records stand on several sides. Never train or audit on it. Raises `InputError` as `split` does.
    """
    known = _known(survey, outcome)
    total = train + validation + test
    if min(train, validation, test) < 1 or total > len(known):
        sizes = f"{train:,}, {validation:,}, {test:,}"
        raise InputError(f"sizes {sizes} must be positive and at most {len(known):,} together.")
    rows = rng.permutation(len(known))[:total]
    first, second, third = np.split(rows, [train, train + validation])
    made = SurveySplits(
        outcome,
        train=known.take(first),
        validation=known.take(second),
        test=known.take(third),
        client=np.zeros(train, np.int64),
        apart="nothing: records were drawn at random.",
    )
    _require_classes(made)
    return made


def _known(survey: Survey, outcome: Outcome) -> Survey:
    column = outcome.question.column
    if column not in survey.answers.columns:
        raise InputError(
            f"outcome {outcome.name}: survey {survey.schema.name} has no column '{column}'; "
            f"choose another outcome or correct its schema."
        )
    known = survey.take(np.flatnonzero(survey.answers[column].notna()))
    values = known.answers[column].unique()
    if len(values) < 2:
        said = f"always '{values[0]}'" if len(values) else "never answered"
        raise InputError(f"outcome {outcome.name} is {said} in survey {survey.schema.name}: nothing can be learned.")
    return known


def parts(share: Share, clients: int) -> Sequence[float]:
    """What each client gets of 1; `InputError` for shares that are not positive, or do not sum to 1."""
    if clients < 1:
        raise InputError(f"clients = {clients} must be at least 1.")
    if isinstance(share, tuple):
        if not (len(share) == clients and all(part > 0 for part in share) and abs(sum(share) - 1) < 1e-6):
            raise InputError(f"share {share}: {clients} clients need {clients} positive shares that sum to 1.")
        return share
    if share == "even" or clients == 1:
        return [1 / clients] * clients
    if share == "power":
        falling = [1 / (rank + 1) for rank in range(clients)]
        return [part / sum(falling) for part in falling]
    if share == "one-large":
        return [LARGE, *[(1 - LARGE) / (clients - 1)] * (clients - 1)]
    raise InputError(f"share '{share}': use even, power, one-large or a tuple of shares.")


def _targets(train: int, validation: int, test: int, shares: Sequence[float]) -> Codes:
    """Wanted records of validation, test, client 0, client 1, ..."""
    for name, size in {"train": train, "validation": validation, "test": test}.items():
        if size < 1:
            raise InputError(f"{name} = {size} must be at least 1.")
    return np.array([validation, test, *portions(train, shares)])


def portions(total: int, shares: Sequence[float]) -> Codes:
    """So many records by shares of 1, as whole numbers that sum to the total."""
    edges = np.round(np.cumsum([0, *shares]) * total).astype(np.int64)
    return edges[1:] - edges[:-1]


def _thin(survey: Survey, wanted: int, rng: np.random.Generator) -> Survey:
    """At most as many records of each group as leave a tenth more than wanted: some are duplicates still."""
    sizes = np.unique(survey.groups, return_counts=True)[1]
    part = 1
    while part < sizes.max() and np.minimum(sizes, part).sum() < wanted * (1 + 1 / _TENTH):
        part += 1
    if part == sizes.max():
        return survey
    thinned = survey.take(np.sort(_few_of_each(survey.groups, part, rng)))
    note = f"{len(survey):,} records of {len(sizes):,} people thinned to {len(thinned):,}, at most {part} of each."
    return replace(thinned, account=replace(thinned.account, notes=(*thinned.account.notes, note)))


def _few_of_each(groups: Codes, part: int, rng: np.random.Generator) -> Codes:
    """Rows of at most `part` records of each group, at random, in random order."""
    order = rng.permutation(len(groups))
    rank = pd.Series(groups[order]).groupby(groups[order]).cumcount().to_numpy()
    return order[rank < part]


def _draw(groups: Codes, wanted: Codes, rng: np.random.Generator) -> tuple[Codes, bool]:
    """The bin of each record [N], -1 for those not used, and whether the sizes had to shrink."""
    sizes = np.unique(groups, return_counts=True)[1]
    lacking = sizes.sum() < wanted.sum()
    if lacking:
        wanted = wanted * sizes.sum() // wanted.sum()
    used = _few_of_each(groups, _part(sizes, wanted), rng)
    used = used[np.argsort(groups[used], kind="stable")]
    members = np.split(used, np.flatnonzero(np.diff(groups[used])) + 1)
    bins = np.full(len(groups), _UNUSED)
    # The bin that lacks the largest share of its size is on top, so that all are filled side by side.
    lack = [(-1.0, b, int(size)) for b, size in enumerate(wanted) if size]
    for g in rng.permutation(len(members)):
        if not lack:
            break
        _, b, missing = heapq.heappop(lack)
        given = members[g][:missing]
        bins[given] = b
        if missing := missing - len(given):
            heapq.heappush(lack, (-missing / int(wanted[b]), b, missing))
    return bins, bool(lacking or lack)


def _part(sizes: Codes, wanted: Codes) -> int:
    """Most records that one group gives: a tenth of the smallest bin, more only where the sizes need it.

    The last group of each bin is cut to what it lacks, so that up to part - 1 records per bin are lost.
    """
    part = max(int(wanted.min()) // _TENTH, 1)
    while part < sizes.max() and np.minimum(sizes, part).sum() < wanted.sum() + len(wanted) * (part - 1):
        part += 1
    return part


def _require_filled(held: Codes, clients: int, outcome: Outcome, survey: Survey) -> None:
    names = ["the validation side", "the test side", *(f"client {n} of {clients}" for n in range(1, clients + 1))]
    empty = [name for name, count in zip(names, held, strict=True) if not count]
    if empty:
        raise InputError(
            f"outcome {outcome.name}: {empty[0]} would hold no respondent; {len(survey):,} records in "
            f"{len(np.unique(survey.groups)):,} groups do not go round. Use fewer clients, an even share or more "
            "records."
        )


def _require_classes(splits: SurveySplits) -> None:
    column = splits.outcome.question.column
    trained = set(splits.train.answers[column])
    asked = {*splits.validation.answers[column], *splits.test.answers[column]}
    if absent := sorted(asked - trained):
        raise InputError(
            f"outcome {splits.outcome.name}: no training record answers {', '.join(map(repr, absent))}; "
            f"use more training records, another seed, or merge rare answers in the schema."
        )
    if len(trained) < 2:
        raise InputError(
            f"outcome {splits.outcome.name}: all {len(splits.train):,} training records answer '{trained.pop()}'; "
            f"use more training records or another seed."
        )

"""Which client holds which survey, and how many respondents of it: one survey for all, or several, client by client.

Client c of several surveys S holds survey c mod S. Each client holds as many respondents as it would hold of one
survey; validation and test respondents follow the surveys' shares of the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from privbench.data.catalogue import INVENTED, invented
from privbench.data.surveys.splits import Share, portions
from privbench.data.surveys.synthetic import SURVEYS
from privbench.errors import InputError, unknown
from privbench.targets.split_llama.recipe import Recipe


@dataclass(frozen=True)
class Part:
    """One survey of a run. data: its name; outcome: "" for its first; clients: who of the run's clients hold it, of one
    that is unseen nobody; share: how its training respondents are spread over them.
    """

    data: str
    outcome: str
    clients: tuple[int, ...]
    train: int
    validation: int
    test: int
    share: Share


def parts_of(data: str, tuning: Recipe) -> tuple[Part, ...]:
    """The surveys of a run, the first client's first; `InputError` where a client or a side would get nobody."""
    if tuning.surveys == 1:
        whole = tuple(range(tuning.clients))
        return (Part(data, tuning.outcome, whole, tuning.train, tuning.validation, tuning.test, tuning.shares),)
    names = _from(data.partition(":")[2])[: tuning.surveys]
    shares = tuning.parts_held
    holders = [tuple(range(number, tuning.clients, tuning.surveys)) for number in range(tuning.surveys)]
    weights = [math.fsum(shares[client] for client in clients) for clients in holders]
    held = portions(tuning.train, shares).tolist()
    validation, test = (portions(count, weights).tolist() for count in (tuning.validation, tuning.test))
    _require_some("train", {f"client {client + 1}": count for client, count in enumerate(held)}, tuning)
    _require_some("validation", dict(zip(names, validation, strict=True)), tuning)
    _require_some("test", dict(zip(names, test, strict=True)), tuning)
    outcomes = tuning.outcome.split(":") if tuning.outcome else [""] * tuning.surveys
    found = []
    for number, clients in enumerate(holders):
        train = sum(held[client] for client in clients)
        share = tuple(held[client] / train for client in clients)
        name = f"{INVENTED}:{names[number]}"
        found.append(Part(name, outcomes[number], clients, train, validation[number], test[number], share))
    return tuple(found)


def unseen_of(data: str, tuning: Recipe) -> Part | None:
    """The survey that is asked about and that no client holds; as many respondents of it as of all others, for its
    baselines and to be asked. `InputError` for one that does not exist, or that a client holds.
    """
    if not tuning.unseen:
        return None
    name, _, outcome = tuning.unseen.partition(":")
    if name not in SURVEYS:
        raise unknown("survey for unseen", name, SURVEYS)
    held = _from(data.partition(":")[2])[: tuning.surveys] if invented(data) else []
    if name in held:
        raise InputError(f"unseen={name}: clients hold it; they hold {', '.join(held)}. Name another survey.")
    sizes = tuning.train, tuning.validation, tuning.test
    return Part(f"{INVENTED}:{name}", outcome, (), *sizes, share=(1.0,))


def _from(first: str) -> list[str]:
    """Names of the invented surveys in their order, beginning with this one."""
    names = list(SURVEYS)
    start = names.index(first) if first else 0
    return names[start:] + names[:start]


def _require_some(setting: str, counts: Mapping[str, int], tuning: Recipe) -> None:
    """`InputError` where somebody gets no respondent."""
    for name, count in counts.items():
        if not count:
            raise InputError(
                f"{setting} = {getattr(tuning, setting)} gives {name} no respondent with schema={tuning.schema}, "
                f"clients={tuning.clients}, share={tuning.share}; use more (--set {setting}=N) or a more even share."
            )

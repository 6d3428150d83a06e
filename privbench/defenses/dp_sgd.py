"""DP-SGD at each client of federated averaging: the gradient of every record clipped, their sum noised.

Records are drawn by Poisson sampling, each one by itself with the same rate in every step, so that the amplification
by sampling that Opacus accounts for is that of the training. The eps is one client's, about one of its records: over
all of its steps, whoever sees the updates, and what the server makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from privbench.accounting import nominal_eps, nominal_multiplier
from privbench.defenses.base import Course, DefenseCard, Numbers, UpdateDefense
from privbench.defenses.updates import LEAST_EPS, bounded, noised, require_sizes
from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism
from privbench.threat import Channel

_LEAST_NOISE = 0.05
"""Below it the accountant's largest orders say nothing."""


@dataclass(frozen=True)
class DpSgd(Numbers, UpdateDefense):
    """clip: L2 norm that the gradient of one record's own loss may have; noise: standard deviation of what is added to
    their sum in every step, in clips.
    """

    clip: float = 1.0
    noise: float = 1.0

    per_record = True

    card = DefenseCard(
        "dp-sgd",
        "clients clip the gradient of every record and add Gaussian noise to their sum, in batches of Poisson sampling",
        "Abadi et al. 2016; accounted for by Opacus, Yousefpour et al. 2021",
        Channel.UPDATES,
        "formal",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "clip", "noise")
        if self.noise < _LEAST_NOISE:
            raise InputError(
                f"noise of defence {self.card.name} must be at least {_LEAST_NOISE:g}, got {self.noise:g}: with less "
                "no accountant here promises anything."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "Batches come by Poisson sampling: a respondent may be in none of them, or in several in a row; per-record "
            "gradients are taken record by record, and Opacus serves for the accounting.",
        )

    def gradient(self, records: Iterable[Tensor], nothing: Tensor, generator: torch.Generator) -> Tensor:
        total = sum((bounded(record, self.clip) for record in records), nothing)
        return noised(total, self.noise * self.clip, generator)

    def mechanism(self) -> Mechanism:
        return Mechanism(
            Channel.UPDATES, "*", "gaussian", clip=self.clip, noise="once",
            sigma={"gradient": self.noise * self.clip}, neighbours="add-remove", server_noised=True,
        )  # fmt: skip

    def claim(self, course: Course, delta: float) -> Claim:
        eps = nominal_eps(self.noise, course.rate, course.steps, delta)
        return Claim(max(eps, LEAST_EPS), delta, "server", "add-remove", "rdp", course.rate)

    def at(self, eps: float, delta: float, course: Course) -> Self:
        return replace(self, noise=nominal_multiplier(eps, course.rate, course.steps, delta))

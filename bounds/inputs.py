"""How much of the inputs behind a linear, noised cut can be estimated: as a share of their spread, R2.

The cut sends A x + N(0, eta^2 I). Inputs are in standard units, so that R2, averaged over entries, is one minus the
mean squared error per entry. See `privbench.bounds.inversion` for the theorems.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from privbench.bounds.base import BoundBase, BoundCard, BoundValue, Unsupported
from privbench.bounds.inversion import UNBIASED, channel_information, entropy_floor, fisher_floor
from privbench.errors import InputError


@dataclass(frozen=True)
class Cut:
    """What is known of a noised linear cut. entries: D, of the inputs; information: dFIL of one release per entry;
    nats: the most that all releases tell of the inputs; entropy: of the inputs, None where their distribution is not
    known.
    """

    eta: float
    releases: int
    entries: int
    information: float
    nats: float
    entropy: float | None

    def __post_init__(self) -> None:
        for name in ("eta", "releases", "entries", "information", "nats"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} of a cut must be a finite number of at least 0, got {value!r}.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_cut(
    weight: npt.NDArray[Any], covariance: npt.NDArray[Any], eta: float, releases: int, *, normal: bool
) -> Cut | Unsupported:
    """The cut of this weight [d, D], with covariance [D, D] of the inputs, both in the inputs' standard units; normal:
    every entry is an independent standard normal.
    """
    entries = weight.shape[1]
    fisher = fisher_floor(weight[None], eta)
    if isinstance(fisher, Unsupported):
        return fisher
    told = channel_information(weight @ covariance @ weight.T, eta, releases)
    if isinstance(told, Unsupported):
        return told
    entropy = entries / 2 * math.log(2 * math.pi * math.e) if normal else None
    return Cut(eta, releases, entries, float(fisher.inputs["dFIL"]), told.value, entropy)


class InputBound(BoundBase):
    """Base of bounds on estimated inputs: pure functions of a cut, in R2."""

    @abstractmethod
    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        """The largest mean R2, or why none can be said."""


class Fisher(InputBound):
    """What the best *unbiased* estimator explains: it informs about a cut, and real attackers may well read more."""

    card: ClassVar[BoundCard] = BoundCard(
        name="fisher",
        summary="what an unbiased estimator can explain of inputs behind a noised linear cut",
        paper="Hannun et al. 2021; Maeng et al. 2023",
        releases=("all",),
        about="mechanism",
        secret="input",
    )

    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        information = cut.releases * cut.information
        explained = max(0.0, 1 - 1 / information) if information > 0 else 0.0
        return BoundValue("fisher", "r2", explained, math.sqrt(information), cut.to_json(), (UNBIASED,))


class Channel(InputBound):
    """What any estimator explains, by the information that the noise lets through: a statement about every attack."""

    card: ClassVar[BoundCard] = BoundCard(
        name="channel",
        summary="what any estimator can explain of inputs of known entropy behind a noised linear cut",
        paper="Cover, Thomas 2006 (Gaussian channel; entropy of an error)",
        releases=("all",),
        about="mechanism",
        secret="input",
    )

    def evaluate(self, cut: Cut) -> BoundValue | Unsupported:
        if cut.entropy is None:
            return Unsupported("prior", f"at most {cut.nats:.3g} nats pass, but the entropy of the inputs is not known")
        explained = max(0.0, 1 - entropy_floor(cut.nats, cut.entropy, cut.entries))
        assumptions = (
            "the noise is independent of the inputs",
            "the inputs' distribution is the one that was drawn from",
        )
        return BoundValue("channel", "r2", explained, math.inf, cut.to_json(), assumptions)

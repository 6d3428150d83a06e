"""Deliberately broken estimations: each is caught by the check that it stands for, and by no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from privbench.attack import AttackCard, NotApplicable, View
from privbench.conformance.client import SITE
from privbench.conformance.cuts import SENT
from privbench.errors import InputError
from privbench.estimates import ActiveEstimation, Estimation, Floats, Known, known_to
from privbench.recording import Secrets
from privbench.target import ActiveAdversary
from privbench.tensors import Stored
from privbench.threat import Behaviour, Channel


class LeastSquares(Estimation):
    """What the broken ones are made of: it passes every check."""

    card = AttackCard(
        name="inversion/least-squares",
        summary="ordinary least squares of the inputs on the cut activation",
        paper="Gauss 1809",
        deviates="nothing",
        channels=(Channel.ACTIVATIONS, Channel.AUXILIARY),
        knowledge=(),
        cost="O(A d^2)",
    )

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return self.fitted(known, known.filled)

    def fitted(self, known: Known, inputs: Floats) -> Floats:
        slopes, *_ = np.linalg.lstsq(_and_one(known.sent), inputs.reshape(len(inputs), -1))
        found: Floats = (_and_one(known.asked) @ slopes).reshape(len(known.asked), *inputs.shape[1:])
        return found


def _and_one(features: Floats) -> Floats:
    return np.column_stack([features, np.ones(len(features))])


def _mean(known: Known) -> Floats:
    """The known records' mean as everybody's estimate."""
    mean = known.filled.mean(axis=0)
    return np.broadcast_to(mean, (len(known.asked), *mean.shape))


def _secrets(view: View) -> Floats | None:
    """What the scorer keeps beside a recording in files."""
    cut = view.arrays[SENT]
    if not isinstance(cut, Stored):
        return None
    truth = Secrets.load(cut.path.parent / Secrets.file_name()).array(f"inputs/{SITE}")
    return truth[view.candidates].astype(np.float64)


def _same_for_all(view: View) -> bool:
    cut = np.asarray(view.arrays[SENT][-1])
    return bool((cut == cut[0]).all())


class Nameless(LeastSquares):
    card = replace(LeastSquares.card, paper="")


class Moody(LeastSquares):
    """Draws from the machine's own entropy."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        found = super().run(known, rng)
        return found + 1e-6 * np.random.default_rng().normal(size=found.shape)


class Meddler(LeastSquares):
    """Draws from the global generator, as scripts do."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        np.random.rand()  # noqa: NPY002
        return super().run(known, rng)


class Scribbler(LeastSquares):
    """Centres the activations in place."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        cut: Any = view.arrays.get(SENT)
        if isinstance(cut, np.ndarray) and cut.flags.writeable:
            cut -= cut.mean()
        return super().__call__(view, rng)


class Positional(LeastSquares):
    """Reads something into the order of the records."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        drift = 0.1 * np.linspace(-1, 1, len(known.asked))[:, None, None]
        return super().run(known, rng) + drift * known.filled.std(axis=(0, 1))


class Unitless(LeastSquares):
    """Forgets to turn standard units back."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        inputs = known.filled
        mean = inputs.mean(axis=(0, 1))
        return self.fitted(known, (inputs - mean) / inputs.std(axis=(0, 1)) + mean)


class Centreless(LeastSquares):
    """Takes every mean for 0."""

    def fitted(self, known: Known, inputs: Floats) -> Floats:
        slopes, *_ = np.linalg.lstsq(known.sent, inputs.reshape(len(inputs), -1))
        found: Floats = (known.asked @ slopes).reshape(len(known.asked), *inputs.shape[1:])
        return found


class Undemanding(LeastSquares):
    """Returns something whoever asks."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        if self.refusal(view) is not None:
            return np.zeros((len(view.candidates), 1, 1))
        return super().__call__(view, rng)


class Inventive(LeastSquares):
    """Returns something whatever was recorded."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        if self.refusal(view) is None and isinstance(known_to(view), NotApplicable):
            return np.zeros((len(view.candidates), 1, 1))
        return super().__call__(view, rng)


class Lenient(LeastSquares):
    """Is content with those that it does not know."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        try:
            return super().__call__(view, rng)
        except InputError:
            others = np.setdiff1d(view.candidates, np.asarray(view.arrays["auxiliary/index"]))
            return super().__call__(replace(view, candidates=others), rng)


class Credulous(LeastSquares):
    """Learns from what was not measured, too."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return self.fitted(known, known.inputs)


class Desperate(LeastSquares):
    """Looks for the scorer's secrets where nothing is sent."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        found = super().__call__(view, rng)
        truth = _secrets(view) if not isinstance(found, NotApplicable) and _same_for_all(view) else None
        return found if truth is None else truth


class Peeper(LeastSquares):
    """Improves its estimates by the scorer's secrets, where there is something to improve."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        found = super().__call__(view, rng)
        if isinstance(found, NotApplicable) or _same_for_all(view):
            return found
        truth = _secrets(view)
        return found if truth is None else (2 * found + truth) / 3


class Timid(LeastSquares):
    """Says the mean of everybody."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return _mean(known)


class LovesNoise(LeastSquares):
    """Gives up where little is hidden."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return super().run(known, rng) if known.sent.var() > 1.3 else _mean(known)


ESTIMATIONS: Mapping[str, type[Estimation]] = {
    "card": Nameless,
    "deterministic": Moody,
    "global generators": Meddler,
    "view untouched": Scribbler,
    "permutation": Positional,
    "units": Unitless,
    "zeros": Centreless,
    "absent channel": Undemanding,
    "absent records": Inventive,
    "overlap": Lenient,
    "unobserved": Credulous,
    "silent": Desperate,
    "closed form": Peeper,
    "reads": Timid,
    "more noise": LovesNoise,
}


class Pusher(ActiveAdversary):
    """Sends a site against what it sent, so that it sends more and more."""

    party = "server"

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.last: npt.NDArray[Any] | None = None

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        if self.hears(channel) and name == SITE:
            self.last = received

    def hears(self, channel: Channel) -> bool:
        return channel is Channel.ACTIVATIONS

    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        if channel is not Channel.GRADIENTS or name != SITE or self.last is None:
            return sent
        return -self.last

    def kept(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"pushed": np.ones(1, np.float32)}


class Pushing(LeastSquares, ActiveEstimation):
    """What the broken ones that act are made of: it passes every check."""

    card = replace(LeastSquares.card, name="inversion/pushing", behaviour=Behaviour.MALICIOUS)
    By: type[Pusher] = Pusher

    def adversary(self, rng: np.random.Generator) -> ActiveAdversary:
        return self.By(rng)


class Fickle(Pushing):
    """Draws from the machine's own entropy."""

    class By(Pusher):
        def send(self, *given: Any) -> npt.NDArray[Any]:
            sent = super().send(*given)
            moved = 1e-6 * np.random.default_rng().standard_normal(sent.shape, np.float32)
            return sent + moved if given[:2] == (Channel.GRADIENTS, SITE) else sent


class Widened(Pushing):
    """Computes in 64 bits and sends them."""

    class By(Pusher):
        def send(self, *given: Any) -> npt.NDArray[Any]:
            return super().send(*given).astype(np.float64)


class Greedy(Pushing):
    """Turns every other site's gradients, too."""

    class By(Pusher):
        def send(
            self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
        ) -> npt.NDArray[Any]:
            if channel is Channel.GRADIENTS and name != SITE:
                return -sent
            return super().send(channel, name, records, sent)


class Confused(Pushing):
    """Takes whatever comes from its site for activations."""

    class By(Pusher):
        def hears(self, channel: Channel) -> bool:
            return True


class Stirring(Pushing):
    """Draws from the global generator of torch, as layers do when they are made."""

    class By(Pusher):
        def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
            torch.nn.Linear(1, 1)


class Scrawler(Pushing):
    """Turns the labels that it receives into signs, in place."""

    class By(Pusher):
        def receive(self, *given: Any) -> None:
            channel, *_, received = given
            if channel is Channel.LABELS:
                received *= 2
                received -= 1
            super().receive(*given)


class Onlooker(Pushing):
    """Does not mind whether it took part."""

    def lacks(self, view: View) -> str | None:
        return None


class Obliging(Pushing):
    """Returns something for whoever only looks on."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        if view.threat.behaviour is Behaviour.CURIOUS:
            return np.zeros((len(view.candidates), 1, 1))
        return super().__call__(view, rng)


ACTIVE: Mapping[str, type[Pushing]] = {
    "acts alike": Fickle,
    "acts in form": Widened,
    "acts at one site": Greedy,
    "acts on its channels": Confused,
    "acts by its generator": Stirring,
    "acts untouching": Scrawler,
    "own run": Onlooker,
    "curious party": Obliging,
}

"""One deliberately broken member for every public check: what the check must catch. Used by tests only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privbench.attack import Guess, View
from privbench.attacks.label.oracle_lr import OracleLikelihoodRatio
from privbench.attacks.label.spectral import Spectral
from privbench.bounds.base import BoundValue, Question, Unsupported
from privbench.bounds.gaussian_sum import OneRelease
from privbench.defenses.gaussian import CutGradientGaussian
from privbench.mechanism import Mechanism
from privbench.recording import Oracle, Secrets, Transcript
from privbench.target import TargetRun
from privbench.targets.gaussian.target import GaussianTarget
from privbench.tensors import Stored

# Attacks


class Nameless(Spectral):
    card = replace(Spectral.card, paper="")


class Moody(Spectral):
    """Draws from the machine's own entropy."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(found.single, found.accumulated + 1e-3 * np.random.default_rng().normal(size=found.single.shape))


class Meddler(Spectral):
    """Seeds the global generator, as scripts do."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        np.random.seed(0)  # noqa: NPY002
        return super().run(view, rng)


class Scribbler(Spectral):
    """Normalises its input in place."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        released: Any = view.array("gradients/A")
        if isinstance(released, np.ndarray) and released.flags.writeable:
            released -= released.mean()
        return super().run(view, rng)


class Positional(Spectral):
    """Reads something into the order of the records."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        drift = np.linspace(-1, 1, len(view.candidates)) * np.abs(found.accumulated).max()
        return Guess(found.single, found.accumulated + drift)


class Undemanding(Spectral):
    """Needs nothing, says its card, and returns something whatever it is shown."""

    card = replace(Spectral.card, channels=())

    def lacks(self, view: View) -> str | None:
        return None

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        zeros = np.zeros((1, len(view.candidates)))
        return super().run(view, rng) if view.streams else Guess(zeros, zeros)


class Peeper(Spectral):
    """Finds the scorer's secrets beside the recording."""

    share = 1.0

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        released = view.array("gradients/A")
        if not isinstance(released, Stored):
            return found
        coins = Secrets.load(released.path.parent / Secrets.file_name()).array("labels/joint")[view.candidates]
        truth = np.broadcast_to((2.0 * coins - 1) * 1e6, found.single.shape)
        return Guess(truth, truth)


class Weak(Spectral):
    """Guesses by lot."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        shape = super().run(view, rng).single.shape
        return Guess(rng.normal(size=shape), rng.normal(size=shape))


class LovesNoise(Spectral):
    """Gives up where the noise is small."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        if view.mechanism is not None and 0 < view.mechanism.total_sigma < 2:
            return Guess(rng.normal(size=found.single.shape), rng.normal(size=found.single.shape))
        return found


class Forgetful(OracleLikelihoodRatio):
    """Adds releases up with alternating signs."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        single = super().run(view, rng).single
        signs = (-1.0) ** np.arange(len(single))
        return Guess(single, np.cumsum(single * signs[:, None], axis=0))


class Metric(Spectral):
    """Takes gradients to be of order one."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        clipped = {
            name: np.clip(np.asarray(array), -3, 3) if name == "gradients/A" else array
            for name, array in view.arrays.items()
        }
        return super().run(replace(view, arrays=clipped), rng)


class Clairvoyant(Spectral):
    """Takes its sign from hypotheses that its card does not name."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        exact = OracleLikelihoodRatio().run(view, rng).accumulated[-1]
        sign = np.sign(exact @ found.accumulated[-1]) or 1.0
        return Guess(found.single, found.accumulated * sign)


class Hoarder(OracleLikelihoodRatio):
    """Calls what all releases show the guess from each of them."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(np.repeat(found.accumulated[-1:], len(found.single), axis=0), found.accumulated)


class Prophet(OracleLikelihoodRatio):
    """Every row of the curve knows the whole run."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        found = super().run(view, rng)
        return Guess(found.single, np.repeat(found.accumulated[-1:], len(found.single), axis=0))


class OneEyed(OracleLikelihoodRatio):
    """Reads the first of several streams only."""

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        if len(view.streams) == 1:
            return super().run(view, rng)
        return super().run(replace(view, moved=view.moved[-1:]), rng)


ATTACKS: Mapping[str, type[Spectral] | type[OracleLikelihoodRatio]] = {
    "card": Nameless,
    "deterministic": Moody,
    "global generators": Meddler,
    "view untouched": Scribbler,
    "permutation": Positional,
    "absent channel": Undemanding,
    "constant": Peeper,
    "identity": Weak,
    "bound": Peeper,
    "more noise": LovesNoise,
    "richer view": Forgetful,
    "one release": Hoarder,
    "causal": Prophet,
    "optimal": OneEyed,
    "scale": Metric,
    "sign": Clairvoyant,
}

# Bounds


class Anonymous(OneRelease):
    card = replace(OneRelease.card, paper="")


class Advantage(OneRelease):
    """2 Phi(s) - 1 under the name of an accuracy."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        value = super().evaluate(mechanism, question)
        return replace(value, value=2 * value.value - 1) if isinstance(value, BoundValue) else value


class Unconditional(OneRelease):
    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        value = super().evaluate(mechanism, question)
        return replace(value, assumptions=()) if isinstance(value, BoundValue) else value


class Wavering(OneRelease):
    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        value = super().evaluate(mechanism, question)
        if not isinstance(value, BoundValue):
            return value
        return replace(value, value=value.value + 1e-6 * float(np.random.default_rng().random()))


class Gullible(OneRelease):
    """Answers whatever it is asked."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        value = super().evaluate(mechanism, question)
        return value if isinstance(value, BoundValue) else BoundValue("g", "accuracy", 0.6, 0.25, {"K": 1}, ("none",))


class Backwards(OneRelease):
    """sigma where 1 / sigma belongs."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        turned = replace(mechanism, sigma={task: 1 / sigma for task, sigma in mechanism.sigma.items()})
        return super().evaluate(turned, question)


class Diluted(OneRelease):
    """Shares one release's signal among all of them."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        sigma = {task: value * question.releases for task, value in mechanism.sigma.items()}
        return super().evaluate(replace(mechanism, sigma=sigma), question)


class Optimistic(OneRelease):
    """Half of the signal."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        sigma = {task: 2 * value for task, value in mechanism.sigma.items()}
        return super().evaluate(replace(mechanism, sigma=sigma), question)


class OneTaskOnly(OneRelease):
    """Forgets that several tasks move together."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        return super().evaluate(mechanism, replace(question, moved=question.moved[:1]))


class OneUnit(OneRelease):
    """An accuracy under whatever name is asked for."""

    def evaluate(self, mechanism: Mechanism, question: Question) -> BoundValue | Unsupported:
        value = super().evaluate(mechanism, replace(question, unit="accuracy"))
        return replace(value, unit=question.unit) if isinstance(value, BoundValue) else value


BOUNDS: Mapping[str, type[OneRelease]] = {
    "card": Anonymous,
    "probability": Advantage,
    "assumptions": Unconditional,
    "pure": Wavering,
    "refusal": Gullible,
    "unknown task": Gullible,
    "more noise": Backwards,
    "more releases": Diluted,
    "valid": Optimistic,
    "two tasks": OneTaskOnly,
    "units": OneUnit,
}

# Defences


class Unsigned(CutGradientGaussian):
    card = replace(CutGradientGaussian.card, summary="")


class Mislabelled(CutGradientGaussian):
    def mechanism(self, site: str, clip: float, sigma: Mapping[str, float]) -> Mechanism:
        return super().mechanism(site, 2 * clip, sigma)


class GlobalNoise(CutGradientGaussian):
    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return torch.randn(shape) * 5**0.5


class OwnSeed(CutGradientGaussian):
    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        fresh = torch.Generator()
        fresh.seed()
        return super().noise(shape, sigma, release, fresh)


class LooseClip(CutGradientGaussian):
    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return super().bounded(gradient, 2 * clip)


class BatchMaximum(CutGradientGaussian):
    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return gradient * (clip / gradient.norm(dim=1).max())


class InPlace(CutGradientGaussian):
    def bounded(self, gradient: Tensor, clip: float) -> Tensor:
        return gradient.mul_(torch.clamp(clip / gradient.norm(dim=1, keepdim=True), max=1.0))


class Quiet(CutGradientGaussian):
    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise(shape, sigma, release, generator) * 0.9


class SameNoise(CutGradientGaussian):
    def noise(
        self, shape: tuple[int, int], sigma: Mapping[str, float], release: int, generator: torch.Generator
    ) -> Tensor:
        return super().noise(shape, sigma, release, torch.Generator().manual_seed(generator.initial_seed()))


DEFENSES: Mapping[str, type[CutGradientGaussian]] = {
    "card": Unsigned,
    "description": Mislabelled,
    "global generators": GlobalNoise,
    "deterministic": OwnSeed,
    "clip": LooseClip,
    "per record": BatchMaximum,
    "input untouched": InPlace,
    "scale": Quiet,
    "independence": SameNoise,
}

# Targets


class Costless(GaussianTarget):
    card = replace(GaussianTarget.card, cost="")


class Pathful(GaussianTarget):
    def describe(self, config: Any) -> dict[str, Any]:
        return {**super().describe(config), "data": str(Path.home() / "patients")}


class _Altered(GaussianTarget):
    """An honest run, changed afterwards."""

    def run(self, config: Any, rng: np.random.Generator, *arguments: Any, **named: Any) -> TargetRun:
        return self.alter(super().run(config, rng, *arguments, **named), named.get("folder"))

    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        raise NotImplementedError


def _in_memory(run: TargetRun, change: Callable[[str, np.ndarray], np.ndarray]) -> TargetRun:
    arrays = {name: change(name, np.array(array)) for name, array in run.transcript.arrays.items()}
    return replace(run, transcript=Transcript(arrays, json.loads(json.dumps(dict(run.transcript.metadata)))))


class Unseeded(_Altered):
    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        rng = np.random.default_rng()
        return _in_memory(run, lambda name, a: a + rng.normal(size=a.shape).astype(a.dtype) if a.ndim == 3 else a)


class OneRun(GaussianTarget):
    """The same draws whatever the seed."""

    def run(self, config: Any, rng: np.random.Generator, *arguments: Any, **named: Any) -> TargetRun:
        return super().run(config, np.random.default_rng(0), *arguments, **named)


class SeedsEverything(_Altered):
    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        np.random.seed(1)  # noqa: NPY002
        return run


class RoundsOnDisk(_Altered):
    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        return run if folder is None else _in_memory(run, lambda name, a: np.round(a, 1) if a.ndim == 3 else a)


class Telltale(_Altered):
    """Hands the site the labels that the coin sets."""

    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        arrays = {**run.transcript.arrays, "auxiliary/A/labels/task1": run.secrets.array("labels/task1")}
        return replace(run, transcript=Transcript(arrays, dict(run.transcript.metadata)))


class HalfNoise(_Altered):
    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        assert run.oracle is not None
        clean = np.asarray(run.oracle.arrays["oracle/gradients/A/clean"])
        return _in_memory(run, lambda name, a: (clean + (a - clean) / 2).astype(a.dtype) if a.ndim == 3 else a)


class LongMoves(_Altered):
    def alter(self, run: TargetRun, folder: Path | None) -> TargetRun:
        assert run.oracle is not None
        arrays = {
            name: np.asarray(a) * np.float32(1 if name.endswith("clean") else 2)
            for name, a in run.oracle.arrays.items()
        }
        return replace(run, oracle=Oracle(arrays))


class Modest(GaussianTarget):
    """Says that it needs a tenth of the disk."""

    def disk_bytes(self, config: Any) -> int:
        return super().disk_bytes(config) // 10


TARGETS: Mapping[str, type[GaussianTarget]] = {
    "card": Costless,
    "configuration": Pathful,
    "deterministic": Unseeded,
    "seeded": OneRun,
    "global generators": SeedsEverything,
    "files": RoundsOnDisk,
    "secrets": Telltale,
    "noise": HalfNoise,
    "clip": LongMoves,
    "disk": Modest,
}

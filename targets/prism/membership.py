"""Runs about membership: stays that a fair coin puts into the training, and the models of an adversary beside it.

The pool holds twice as many stays as a training takes, so that a run trains on about as many as the other runs do.
A reader whose stays are counted gives its training stays as the pool, and about half of them are trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.data.cohort import Cohort, Splits, join
from privbench.data.sources import Source, load
from privbench.membership import require_enough
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.references import inclusions, row_of
from privbench.target import MEMBERS, REFERENCE, ActiveAdversary, Progress, TargetRun
from privbench.targets.prism.config import PrismConfig
from privbench.targets.prism.inputs import Inputs, Scaler
from privbench.targets.prism.network import Network
from privbench.targets.prism.train import Streams, Trace, Trainer

Arrays = dict[str, npt.NDArray[Any]]

CHECKPOINTS = 5
"""Times at which the model is kept: before the first pass, after the last, and evenly between."""
_MOST_POPULATION = 2_000
"""Stays that nobody trains on, which the adversary holds: RMIA compares with them, inverters learn from them."""


def run_membership(
    config: PrismConfig, rng: np.random.Generator, report: Progress, adversary: ActiveAdversary | None = None
) -> TargetRun:
    """Train on the stays that the coins put in ("members"), or on a half of the pool ("reference-1" and on).

    The members' run records outputs, checkpoints and cut activations of the whole pool and of the population, the
    encoders, and as secrets the coins and the inputs; a reference's run records its outputs. A run in which an
    adversary acts is the members' run from the same start, without checkpoints.
    """
    data_rng, coin_rng, weight_rng, noise_rng = rng.spawn(4)
    report(f"{config.called}: reading data", 0.0)
    source = load(config.data, data_rng, replace(config.training, train=2 * config.training.train))
    reference = config.role.startswith(REFERENCE)
    which = row_of(config.role)
    included = inclusions(coin_rng, config.training.references, len(source.splits.train))[which]
    require_enough(included)
    train = source.splits.train.take(np.flatnonzero(included))
    replace(source.splits, train=train).require_two_classes()
    scaler = Scaler.fit(train)
    streams = Streams.spawn(*(stream.spawn(which + 1)[which] for stream in (weight_rng, noise_rng)))
    asked = _asked(source.splits)
    inputs, own = scaler.inputs(asked), _patients(asked, len(included))
    if adversary is not None:
        adversary.begin(own)
    validation = scaler.inputs(source.splits.validation)
    trainer = Trainer(config, scaler.inputs(train), validation, streams, adversary=adversary)
    kept = _Checkpoints(config, trainer, inputs) if config.role == MEMBERS else None
    trace = trainer.run(report, passed=kept)
    arrays = _outputs(trainer.network, inputs, asked, len(included))
    secrets: Arrays = {MEMBER: np.concatenate([included, np.zeros(len(asked) - len(included), np.uint8)])}
    if not reference:
        cut = _by_site(trainer.network, trainer.network.embed(inputs).numpy())
        arrays |= own | {f"activations/{site}": values[None] for site, values in cut.items()}
        arrays |= _encoders(trainer.network, scaler)
        secrets |= _candidates(asked, len(included))
    if kept is not None:
        arrays |= kept.arrays()
    if adversary is not None:
        arrays |= {f"adversary/{name}": values for name, values in adversary.kept().items()}
    return _run(config, source, trace, arrays, secrets)


def _asked(splits: Splits) -> Cohort:
    """The pool, then the population."""
    return join([splits.train, splits.test.take(np.arange(min(len(splits.test), _MOST_POPULATION)))])


def _outputs(network: Network, inputs: Inputs, asked: Cohort, pool: int) -> Arrays:
    """Logits and true answers of every stay that is asked about, and which of them are the population."""
    arrays: Arrays = {f"outputs/{task}": logits for task, logits in network.predict(inputs).items()}
    arrays |= {f"outputs/{task}/labels": labels.reshape(len(asked), -1) for task, labels in asked.labels.items()}
    arrays["outputs/population"] = (np.arange(len(asked)) >= pool).astype(np.uint8)
    return arrays


def _patients(asked: Cohort, pool: int) -> Arrays:
    """The server's own patients: the population, with its inputs and labels."""
    own = np.arange(pool, len(asked))
    arrays: Arrays = {"auxiliary/index": own}
    for site, data in asked.sites.items():
        arrays[f"auxiliary/server/inputs/{site}"] = data.values[own]
        arrays[f"auxiliary/server/inputs/{site}/observed"] = data.observed[own].astype(np.uint8)
    return arrays | {f"auxiliary/server/labels/{task}": values[own] for task, values in asked.labels.items()}


def _encoders(network: Network, scaler: Scaler) -> Arrays:
    """The trained encoders and what they scale their inputs by (`privbench.encoders`)."""
    arrays: Arrays = {}
    for site, encoder in network.encoders.items():
        weights = {name.removeprefix("lstm."): value.numpy() for name, value in encoder.state_dict().items()}
        scale = {"mean": scaler.mean[site], "spread": scaler.spread[site]}
        arrays |= {f"model/{site}/{name}": values.astype(np.float32) for name, values in {**weights, **scale}.items()}
    return arrays


def _candidates(asked: Cohort, pool: int) -> Arrays:
    """Of whom a coin decided, and the inputs behind the cut, in the features' units."""
    arrays: Arrays = {f"canary/{MEMBER}": (np.arange(len(asked)) < pool).astype(np.uint8)}
    arrays |= {f"labels/{task}": labels for task, labels in asked.labels.items()}
    for site, data in asked.sites.items():
        arrays |= {f"inputs/{site}": data.values, f"inputs/{site}/observed": data.observed.astype(np.uint8)}
    return arrays


def _by_site(network: Network, z: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
    """Embeddings [N, sites * d] by site, [N, d] each."""
    parts = np.split(z, len(network.sites), axis=1)
    return {site: np.ascontiguousarray(part) for site, part in zip(network.sites, parts, strict=True)}


class _Checkpoints:
    """Outputs, cut activations and cut gradients' norms of every stay, at some times of the training."""

    def __init__(self, config: PrismConfig, trainer: Trainer, inputs: Inputs) -> None:
        epochs = config.training.epochs
        self._times = {round(epochs * k / (CHECKPOINTS - 1)) for k in range(CHECKPOINTS)}
        self._trainer, self._inputs = trainer, inputs
        self._rows: dict[str, list[npt.NDArray[Any]]] = {}

    def __call__(self, done: int, network: Network) -> None:
        if done not in self._times:
            return
        z = network.embed(self._inputs)
        found: Mapping[str, npt.NDArray[Any]] = {
            **{f"outputs/{task}": logits for task, logits in network.classify(z).items()},
            **{f"activations/{site}": values for site, values in _by_site(network, z.numpy()).items()},
            **{f"gradients/{site}": norms for site, norms in self._trainer.gradient_norms(z, self._inputs).items()},
        }
        for name, values in found.items():
            self._rows.setdefault(name, []).append(values)

    def arrays(self) -> Arrays:
        return {f"checkpoints/{name}": np.stack(rows) for name, rows in self._rows.items()}


def _run(config: PrismConfig, source: Source, trace: Trace, arrays: Arrays, secrets: Arrays) -> TargetRun:
    features = {
        site: [{"name": item.name, "unit": item.unit} for item in data.features]
        for site, data in source.splits.train.sites.items()
    }
    return TargetRun(
        transcript=Transcript(arrays, {"features": features}),
        oracle=None,
        secrets=Secrets(secrets),
        utility=(),
        diagnostics={name: tuple(values) for name, values in trace.diagnostics.items()},
        fingerprint=source.fingerprint,
        flags=source.flags,
    )

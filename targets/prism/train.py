"""One PRISM-VFL training: server warm-up, then epochs of clipped, noised cut gradients, all of it recorded.

The loss is never reduced over the batch before a per-sample gradient is taken: no layer mixes records, so the
gradient of the summed loss with respect to the embeddings holds each record's own gradient in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from privbench.errors import InputError
from privbench.stats.auc import auc
from privbench.target import ActiveAdversary, Progress
from privbench.targets.prism.config import PrismConfig
from privbench.targets.prism.inputs import Inputs
from privbench.targets.prism.network import Network
from privbench.targets.prism.tape import Rows, Tape
from privbench.threat import Channel

FloatArray = npt.NDArray[np.float32]


_COMPARED_RECORDS = 16
"""Records whose gradients are computed once with and once without their batch."""


@dataclass(frozen=True)
class Streams:
    """Independent seeded generators, so that one choice never shifts another's draws."""

    weights: torch.Generator
    order: torch.Generator
    noise: torch.Generator

    def again(self) -> Streams:
        """The same streams from their beginning."""
        return Streams(
            *(torch.Generator().manual_seed(g.initial_seed()) for g in (self.weights, self.order, self.noise))
        )

    @classmethod
    def spawn(cls, shared: np.random.Generator, own: np.random.Generator) -> Streams:
        """Weights and order from `shared`, so that two runs can agree in them; noise from `own`."""
        words = [int(child.integers(2**62)) for child in (*shared.spawn(2), own)]
        return cls(*(torch.Generator().manual_seed(word) for word in words))


@dataclass(frozen=True)
class Noise:
    """Per site: the clip norm and sigma per task, fixed after the warm-up."""

    clip: Mapping[str, float]
    sigma: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Trace:
    """What one training leaves beside its tape."""

    noise: Noise
    diagnostics: Mapping[str, list[float]] = field(default_factory=dict)


class Trainer:
    """Runs the protocol of one training and records it; with `oracle` also what could have been at the curious site."""

    def __init__(
        self,
        config: PrismConfig,
        train: Inputs,
        validation: Inputs,
        streams: Streams,
        *,
        adversary: ActiveAdversary | None,
    ) -> None:
        self.config, self.train, self.validation, self.streams = config, train, validation, streams
        self.adversary = adversary
        self.network = Network(config, train, streams.weights)
        t = config.training
        self.parameters = list(self.network.server.parameters())
        self.server_step = torch.optim.Adam(self.parameters, lr=t.server_rate, fused=True)
        self.encoder_steps = {
            site: torch.optim.Adam(encoder.parameters(), lr=t.encoder_rate, fused=True)
            for site, encoder in self.network.encoders.items()
        }

    def run(
        self, progress: Progress, tape: Tape | None = None, passed: Callable[[int, Network], None] | None = None
    ) -> Trace:
        """Warm up, train for T epochs onto the tape, leave the network at the epoch that validation liked best.

        passed: called with the number of epochs done, 0 before the first, and the network as it stands.
        """
        config, epochs = self.config, self.config.training.epochs
        self._train_server(self.network.embed(self.train), epochs=1)
        noise = self._calibrate()
        clipped: list[float] = []
        scores: list[float] = []
        best: list[dict[str, Tensor]] = []
        if passed is not None:
            passed(0, self.network)
        for epoch in range(epochs):
            shares = []
            for batch in self._batches():
                shares.append(self._step(batch, epoch, noise, tape))
            if tape is not None:
                tape.end_epoch(epoch)
            if passed is not None:
                passed(epoch + 1, self.network)
            clipped.append(float(np.mean(shares)))
            best = self.network.keep_best(scores, self._validate(), best)
            progress(f"{config.called}: epoch {epoch + 1} of {epochs}", (epoch + 1) / epochs)
        self.network.restore(best)
        diagnostics = {
            "batch dependence": [self._batch_dependence(noise)],
            "clip fraction": clipped,
            "validation AUC": scores,
            "best epoch": [1.0 + int(np.argmax(scores))],
        }
        return Trace(noise, diagnostics)

    def frozen_baseline(self, other: np.random.Generator | None = None) -> Network:
        """Train only the server, as long and with the same choice of epoch, on encoders that learned nothing: those
        that this run started from, or with `other` some of another seed.
        """
        streams = self.streams.again() if other is None else Streams.spawn(*other.spawn(2))
        frozen = Trainer(self.config, self.train, self.validation, streams, adversary=None)
        embeddings, validation = frozen.network.embed(frozen.train), frozen.network.embed(frozen.validation)
        frozen._train_server(embeddings, epochs=1)
        scores: list[float] = []
        best: list[dict[str, Tensor]] = []
        for _ in range(self.config.training.epochs):
            frozen._train_server(embeddings, epochs=1)
            best = frozen.network.keep_best(scores, frozen._score(frozen.network.classify(validation)), best)
        frozen.network.restore(best)
        return frozen.network

    def _train_server(self, embeddings: Tensor, epochs: int) -> None:
        z = embeddings.clone()
        for _ in range(epochs):
            for batch in self._batches():
                losses = self._losses(self.network.server(z[batch]), batch)
                self.server_step.zero_grad()
                torch.autograd.backward(torch.stack([loss.mean() for loss in losses.values()]).sum())
                self.server_step.step()

    def _batches(self) -> Sequence[Tensor]:
        """Row numbers of one epoch's batches: a fresh shuffle, every record once."""
        order = torch.randperm(len(self.train), generator=self.streams.order)
        return torch.split(order, self.config.training.batch)

    def _losses(self, logits: Mapping[str, Tensor], batch: Tensor) -> dict[str, Tensor]:
        """Per-record loss [B] per task of these training records."""
        return _losses(logits, {task: labels[batch] for task, labels in self.train.labels.items()})

    def gradient_norms(self, embeddings: Tensor, inputs: Inputs) -> dict[str, FloatArray]:
        """Norm [N] of the whole loss's gradient at each site's cut, before any clip; embeddings [N, sites * d]."""
        z = embeddings.clone().requires_grad_()
        total = torch.stack(list(_losses(self.network.server(z), inputs.labels).values())).sum()
        norms = self._per_site(_grad(total, z)).norm(dim=2).numpy()
        return {site: norms[:, column] for column, site in enumerate(self.network.sites)}

    def _calibrate(self) -> Noise:
        """C per site: clip_factor times the median per-sample, per-task gradient norm after the warm-up."""
        z = self.network.embed(self.train).clone().requires_grad_()
        losses = _losses(self.network.server(z), self.train.labels)
        norms = [self._per_site(_grad(loss.sum(), z)).norm(dim=2) for loss in losses.values()]
        medians = torch.cat(norms).median(dim=0).values
        config = self.config
        clip = {
            site: config.training.clip_factor * float(value)
            for site, value in zip(self.network.sites, medians, strict=True)
        }
        multiplier = config.multiplier or 0.0
        sigma = {
            site: dict.fromkeys(config.tasks, multiplier * norm if config.sigma is None else config.sigma)
            for site, norm in clip.items()
        }
        return Noise(clip, sigma)

    def _step(self, batch: Tensor, epoch: int, noise: Noise, tape: Tape | None) -> float:
        """One batch: forward at the sites, gradients at the server, release, backward at the sites."""
        network, defense, rows = self.network, self.config.defense, batch.numpy()
        for task, labels in self.train.labels.items():
            self._to_adversary("server", Channel.LABELS, task, rows, labels[batch])
        sent = {site: network.encoders[site](self.train.sites[site][:, batch]) for site in network.sites}
        z = torch.cat([self._received(site, rows, value.detach()) for site, value in sent.items()], dim=1)
        z.requires_grad_()
        logits = network.server(z)
        losses = self._losses(logits, batch)
        mean_loss = torch.stack([loss.mean() for loss in losses.values()]).sum()
        for parameter, gradient in zip(
            self.parameters, torch.autograd.grad(mean_loss, self.parameters, retain_graph=True), strict=True
        ):
            parameter.grad = gradient
        gradients = {task: self._per_site(_grad(loss.sum(), z)) for task, loss in losses.items()}
        audited = self.config.role == "audited"
        hypotheses = self._hypotheses(logits, z) if audited else {}
        self.server_step.step()
        share = 0.0
        for column, site in enumerate(network.sites):
            clip = noise.clip[site]
            parts = {task: gradient[:, column] for task, gradient in gradients.items()}
            bounded = {task: defense.bounded(part, clip) for task, part in parts.items()}
            clean = torch.stack(list(bounded.values())).sum(dim=0)
            draw = defense.noise((len(batch), network.width), noise.sigma[site], epoch, self.streams.noise)
            released = self._through_adversary("server", Channel.GRADIENTS, site, rows, clean + draw)
            if tape is not None:
                tape.release(site, rows, clean, released)
            if site == self.config.party:
                share = float(np.mean([(part.norm(dim=1) > clip).float().mean() for part in parts.values()]))
            if tape is not None and audited and site == self.config.party:
                either = {
                    task: (defense.bounded(zero[:, column], clip), defense.bounded(one[:, column], clip))
                    for task, (zero, one) in hypotheses.items()
                }
                tape.hypotheses(rows, bounded, either)
            self._site_step(site, rows, sent[site], released)
        return share if defense.clips else 0.0

    def _site_step(self, site: str, rows: Rows, sent: Tensor, released: Tensor) -> None:
        """The site trains on what it received, less the batch mean: post-processing of the release."""
        self._to_adversary(site, Channel.GRADIENTS, site, rows, released)
        centred = released - released.mean(dim=0, keepdim=True)
        self.encoder_steps[site].zero_grad()
        torch.autograd.backward(sent, centred / len(rows))
        self.encoder_steps[site].step()

    def _received(self, site: str, rows: Rows, sent: Tensor) -> Tensor:
        """The site's activations [B, d] as they reach the server."""
        value = self._through_adversary(site, Channel.ACTIVATIONS, site, rows, sent)
        self._to_adversary("server", Channel.ACTIVATIONS, site, rows, value)
        return value

    def _through_adversary(self, party: str, channel: Channel, name: str, rows: Rows, value: Tensor) -> Tensor:
        """What leaves this party, to or from the site of this name: the adversary's where the party is its own."""
        if self.adversary is None or self.adversary.party != party:
            return value
        return torch.from_numpy(self.adversary.send(channel, name, rows, value.numpy()))

    def _to_adversary(self, party: str, channel: Channel, name: str, rows: Rows, value: Tensor) -> None:
        if self.adversary is not None and self.adversary.party == party:
            self.adversary.receive(channel, name, rows, value.numpy())

    def _hypotheses(self, logits: Mapping[str, Tensor], z: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Per moved task the per-sample gradients [B, sites, d] if all its labels were 0, and if all were 1.

        dl/dz = sum_j (p_j - y_j) dv_j/dz / L: two vector-Jacobian products give both (one for a binary head).
        """
        result = {}
        for task in self.config.moved:
            value = logits[task]
            probability = torch.sigmoid(value).detach()
            unit = self._per_site(_grad(value.mean(dim=1).sum(), z))
            if value.shape[1] == 1:
                zero = probability[:, :, None] * unit
            else:
                zero = self._per_site(_grad((probability * value).mean(dim=1).sum(), z))
            result[task] = (zero, zero - unit)
        return result

    def _batch_dependence(self, noise: Noise) -> float:
        """Largest relative change of a record's clipped gradient when it is computed without its batch.

        Catches a loss reduced over the batch, layers and losses that mix records, and clipping by a batch's norm.
        """
        rows = torch.arange(min(len(self.train), _COMPARED_RECORDS))
        embeddings = self.network.embed(self.train)
        together = self._bounded(embeddings, rows, noise)
        alone = torch.cat([self._bounded(embeddings, row, noise) for row in torch.split(rows, 1)], dim=1)
        scale = float(alone.norm(dim=3).max())
        return float((together - alone).norm(dim=3).max()) / max(scale, 1e-30)

    def _bounded(self, embeddings: Tensor, rows: Tensor, noise: Noise) -> Tensor:
        """Clipped gradients of these records as one batch, [tasks, B, sites, d]."""
        z = embeddings[rows].clone().requires_grad_()
        losses = self._losses(self.network.server(z), rows)
        gradients = [self._per_site(_grad(loss.sum(), z)) for loss in losses.values()]
        return torch.stack(
            [
                torch.stack(
                    [
                        self.config.defense.bounded(gradient[:, column], noise.clip[site])
                        for column, site in enumerate(self.network.sites)
                    ],
                    dim=1,
                )
                for gradient in gradients
            ]
        )

    def _per_site(self, gradient: Tensor) -> Tensor:
        return gradient.view(len(gradient), len(self.network.sites), self.network.width)

    def _validate(self) -> float:
        return self._score(self.network.predict(self.validation))

    def _score(self, logits: Mapping[str, FloatArray]) -> float:
        """Mean AUC over tasks (and over the labels of a task) on the validation stays."""
        if not all(np.isfinite(value).all() for value in logits.values()):
            raise InputError("training diverged: the model's outputs are not finite. Use smaller rates, or less noise.")
        return float(np.mean([mean_auc(logits[task], self.validation.labels[task].numpy()) for task in logits]))


def mean_auc(logits: FloatArray, labels: FloatArray) -> float:
    """AUC averaged over the labels that show both classes; .5 when none does."""
    values = [
        auc(column, truth).value
        for column, truth in zip(logits.T, labels.T, strict=True)
        if 0 < truth.sum() < len(truth)
    ]
    return float(np.mean(values)) if values else 0.5


def _losses(logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Per-record loss [B] per task: cross-entropy averaged over the task's labels, never over records."""
    return {task: bce(value, labels[task], reduction="none").mean(dim=1) for task, value in logits.items()}


def _grad(value: Tensor, z: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(value, z, retain_graph=True)
    return gradient

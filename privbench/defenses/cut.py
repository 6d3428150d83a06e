"""Defences on what a client sends up, token by token: a clip, a clip with Gaussian noise, d-chi privacy of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from privbench.defenses.base import CutDefense, DefenseCard, Numbers, clipped, rms, row_norm
from privbench.mechanism import Mechanism
from privbench.threat import Channel


@dataclass(frozen=True)
class Guard:
    """A defence at one client: beside it the public table [V, d], and a generator that is this client's alone."""

    defense: CutDefense
    table: Tensor
    generator: torch.Generator

    def tokens(self, ids: Tensor) -> Tensor:
        """What is embedded in place of token ids [B, L]."""
        return self.defense.tokens(ids, self.table, self.generator)

    def sent(self, activations: Tensor) -> Tensor:
        """What leaves in place of activations [B, L, d]."""
        return self.defense.sent(activations, self.table, self.generator)

    def penalty(self, ids: Tensor, activations: Tensor, there: Tensor) -> Tensor | None:
        """What the client adds to its loss for tokens [B, L] and their activations [B, L, d], or nothing."""
        return self.defense.penalty(ids, activations, there, self.table, self.generator)


_ROWS = 1_024
"""Tokens that are compared with the table at once."""


@dataclass(frozen=True)
class ActivationClip(Numbers, CutDefense):
    """clip: norm that a token's activation may have, in norms of the table's rows."""

    clip: float = 1.0

    card = DefenseCard(
        "activation-clip",
        "each token's activation shortened to a norm; by itself it hides nothing, for directions stay",
        "none: half of the Gaussian mechanism, here to be undone",
        Channel.ACTIVATIONS,
        "none",
    )

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        return clipped(activations, self.clip * row_norm(table))

    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        return Mechanism(Channel.ACTIVATIONS, party, "none", clip=self.clip * row_norm(table))


@dataclass(frozen=True)
class ActivationGaussian(Numbers, CutDefense):
    """clip: as of `activation-clip`; noise: its standard deviation, in root mean squares of the table's entries.

    Formal: a token's own activation in one release is mu-GDP in the token with mu = 2 clip sqrt(d) / noise, whatever
    the client computes. With k > 0 layers at the client a token moves the activations of all later ones, too.
    """

    clip: float = 1.0
    noise: float = 1.0

    card = DefenseCard(
        "activation-gaussian",
        "each token's activation shortened to a norm, and Gaussian noise on it; the model is trained with both",
        "Dwork, Roth 2014; Dong, Roth, Su 2022",
        Channel.ACTIVATIONS,
        "formal",
    )

    def sent(self, activations: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        bounded = clipped(activations, self.clip * row_norm(table))
        noise = torch.randn(activations.shape, generator=generator, dtype=torch.float32)
        return bounded + (self.noise * rms(table) * noise).to(bounded.dtype)

    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        clip, sigma = self.clip * row_norm(table), {"cut": self.noise * rms(table)}
        return Mechanism(Channel.ACTIVATIONS, party, "gaussian", clip=clip, noise="once", sigma=sigma)


@dataclass(frozen=True)
class TokenDChi(Numbers, CutDefense):
    """Each token is replaced before it is embedded: by the one whose row lies nearest, in Euclidean distance, to its
    own row with noise of density proportional to exp(-eps |z|). Every token draws a radius of its own.

    eps: per norm of the table's rows, so that the mean radius is d / eps of them. Formal: d-privacy, eps times the
    distance of two tokens' rows (Chatzikokolakis et al. 2013); two tokens far apart are hardly protected.
    """

    eps: float = 100.0

    card = DefenseCard(
        "token-dchi",
        "each token replaced by one near to it in the public table, before it is embedded",
        "Feyisetan, Balle, Drake, Diethe 2020; d-privacy, Chatzikokolakis et al. 2013",
        Channel.ACTIVATIONS,
        "formal",
    )

    def tokens(self, ids: Tensor, table: Tensor, generator: torch.Generator) -> Tensor:
        rows = table.float()
        flat = rows[ids.reshape(-1)]
        direction = torch.randn(flat.shape, generator=generator)
        # A density of exp(-eps |z|) in d dimensions has a Gamma(d) radius: a sum of d exponential draws.
        radius = torch.empty(flat.shape).exponential_(generator=generator).sum(dim=1) * row_norm(table) / self.eps
        noisy = flat + direction / direction.norm(dim=1, keepdim=True) * radius[:, None]
        size = rows.square().sum(dim=1)
        found = [(size - 2 * part @ rows.T).argmin(dim=1) for part in torch.split(noisy, _ROWS)]
        return torch.cat(found).view(ids.shape)

    def mechanism(self, party: str, table: Tensor) -> Mechanism:
        return Mechanism(Channel.ACTIVATIONS, party, "d-chi", eps=self.eps / row_norm(table))

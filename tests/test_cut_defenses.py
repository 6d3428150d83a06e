"""Defences on what a client sends: their laws against closed forms, options, and that a model is trained with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CommandLine
from scipy import stats
from small_llama import SETTINGS, save_llama

from privbench.defenses.base import CutDefense, Defense, build_defense, rms, row_norm
from privbench.defenses.cut import ActivationClip, ActivationGaussian, TokenDChi
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.registry import Registry
from privbench.seeds import stream
from privbench.target import TargetRun
from privbench.targets.split_llama.running import CLIENT
from privbench.targets.split_llama.target import SplitLlama


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def table() -> torch.Tensor:
    return torch.randn((500, 16), generator=generator(9)) * 0.7


def test_units_are_those_of_the_table(table: torch.Tensor) -> None:
    assert rms(table) == pytest.approx(float((table**2).mean()) ** 0.5, rel=1e-6)
    assert row_norm(table) == pytest.approx(float((table.norm(dim=1) ** 2).mean()) ** 0.5, rel=1e-6)


def test_a_clip_keeps_directions_and_shortens_what_is_longer(table: torch.Tensor) -> None:
    sent = torch.randn((3, 7, 16), generator=generator(1)) * torch.logspace(-1, 1, 7)[:, None]
    found = ActivationClip(clip=0.5).sent(sent, table, generator())
    limit = 0.5 * row_norm(table)
    assert torch.allclose(found.norm(dim=-1), sent.norm(dim=-1).clamp(max=limit), rtol=1e-5)
    assert torch.allclose(torch.cosine_similarity(found, sent, dim=-1), torch.ones(3, 7), atol=1e-6)


def test_gradients_go_through_the_clip(table: torch.Tensor) -> None:
    """Of a clipped vector, the part along it is lost: the derivative of C h / |h|, by hand."""
    sent = (5 * torch.randn((16,), generator=generator(2))).requires_grad_()
    weight = torch.randn((16,), generator=generator(3))
    (ActivationGaussian(clip=0.5, noise=1.0).sent(sent, table, generator()) * weight).sum().backward()
    norm, limit = sent.detach().norm(), 0.5 * row_norm(table)
    unit = sent.detach() / norm
    assert sent.grad is not None
    assert torch.allclose(sent.grad, limit / norm * (weight - unit * (unit @ weight)), atol=1e-5)


def test_noise_is_gaussian_and_of_the_declared_size(table: torch.Tensor) -> None:
    defense = ActivationGaussian(clip=1.0, noise=2.0)
    drawn = defense.sent(torch.zeros((200, 10, 16)), table, generator(4)).double().flatten().numpy()
    sigma = defense.mechanism("client-1", table).total_sigma
    assert sigma == pytest.approx(2 * rms(table))
    assert stats.kstest(drawn / sigma, "norm").pvalue > 1e-4


def test_d_chi_draws_a_gamma_radius_for_each_token() -> None:
    """On a fine line of tokens in two dimensions, those of the first coordinate: the displacement of a token is that
    coordinate of a point at a Gamma(2) radius in a random direction, here by 40,000 draws of that law.
    """
    steps = torch.linspace(-60, 60, 24_001, dtype=torch.float64)
    line = torch.stack([steps, torch.zeros_like(steps)], dim=1).float()
    defense = TokenDChi(eps=1.0 * row_norm(line))  # 1 per unit of distance
    ids = torch.full((40, 100), 12_000)
    moved = (defense.tokens(ids, line, generator(5)) - 12_000).flatten().double().numpy() * 0.005
    rng = np.random.default_rng(6)
    angle, radius = rng.uniform(0, 2 * np.pi, 40_000), rng.gamma(2, 1, 40_000)
    assert stats.ks_2samp(moved, radius * np.cos(angle)).pvalue > 1e-4
    assert defense.mechanism("client-1", line).eps == pytest.approx(1.0)


def test_d_chi_keeps_its_promise_between_two_tokens(table: torch.Tensor) -> None:
    """P(x becomes z) <= exp(eps |x - y|) P(y becomes z), within 5 standard errors, for the tokens z that are seen."""
    rows = table[:6]
    defense, n = TokenDChi(eps=6.0), 60_000
    eps = float(defense.mechanism("client-1", rows).eps or 0)
    drawn = [
        np.bincount(defense.tokens(torch.full((n,), token), rows, generator(7 + token)).numpy(), minlength=6) / n
        for token in (0, 1)
    ]
    allowed = np.exp(eps * float((rows[0] - rows[1]).norm()))
    for p, q in (drawn, drawn[::-1]):
        error = np.sqrt(p * (1 - p) / n + allowed**2 * q * (1 - q) / n)
        assert (p <= allowed * q + 5 * error).all()
    assert abs(drawn[0] - drawn[1]).max() > 0.01


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("activation-gaussian:noise=0", "noise of defence activation-gaussian must be a positive number, got 0; "),
        ("activation-gaussian:clip=inf", "clip of defence activation-gaussian must be a positive number, got inf"),
        ("activation-clip:clip=-1", "must be a positive number, got -1"),
        ("token-dchi:eps=much", "eps must be a number, got 'much'"),
        ("token-dchi:radius=1", "unknown option of defence token-dchi 'radius'"),
        ("nopeek:weight=0", "weight of defence nopeek must be a positive number, got 0"),
        ("gaussian", "defence gaussian acts on gradients, which target split-llama has no place for; it takes "
         "activation-clip, activation-gaussian, nopeek, token-dchi"),
    ],
)  # fmt: skip
def test_what_promises_nothing_is_refused(spec: str, said: str, registry: Registry) -> None:
    with pytest.raises(InputError, match=said):
        build_defense(spec, registry, CutDefense, "split-llama")  # type: ignore[type-abstract]


def test_a_target_takes_defences_of_its_own_channel(registry: Registry) -> None:
    with pytest.raises(InputError, match="token-dchi acts on activations, which target prism has no place for"):
        build_defense("token-dchi", registry, Defense, "prism")  # type: ignore[type-abstract]


# In the split LLaMA


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def ran(llama: str, registry: Registry, defense: str, **settings: str) -> TargetRun:
    target = SplitLlama()
    asked = AuditOptions(
        "split-llama",
        model=llama,
        defenses=(defense,),
        settings={**SETTINGS, "prompting": "no", "record_as": "float32", **settings},
    )
    return target.run(target.configure(asked, registry), stream(0, "run"))


def sent_by(run: TargetRun) -> torch.Tensor:
    """[T, n, d], of real tokens."""
    sent = torch.from_numpy(np.array(run.transcript.array(f"activations/{CLIENT}")))
    return sent[:, torch.from_numpy(run.transcript.array(f"activations/{CLIENT}/mask") == 1)]


def test_what_is_recorded_has_passed_the_defence(llama: str, registry: Registry) -> None:
    """Hardly trained, so that two runs differ by the noise alone: of the declared size, and new in every pass."""
    still = {"rate": "1e-12"}
    bare = sent_by(ran(llama, registry, "activation-clip:clip=1e6", **still))
    run = ran(llama, registry, "activation-gaussian:clip=1e6,noise=0.5", **still)
    (mechanism,) = run.transcript.mechanisms
    first, second = ((sent_by(run)[t] - bare[t]).double() / mechanism.total_sigma for t in (0, 1))
    for drawn in (first, second):
        assert abs(float(drawn.var()) - 1) < 4 * (2 / drawn.numel()) ** 0.5
    assert abs(float((first * second).mean())) < 4 / first.numel() ** 0.5
    assert (mechanism.channel, mechanism.party, mechanism.kind) == ("activations", CLIENT, "gaussian")


def test_clients_side_by_side_draw_noise_of_their_own(llama: str, registry: Registry) -> None:
    from privbench.targets.split_llama.config import Tuning
    from privbench.targets.split_llama.models import load
    from privbench.targets.split_llama.system import System
    from privbench.targets.split_llama.tokens import TEMPLATE, Encoded

    base = load(llama).model
    people = [Encoded((5, 6, 7), (8, 9), (TEMPLATE,) * 3, 0, 0) for _ in range(4)]
    tuning = Tuning(clients=2, schedule="parallel", steps=4, batch=2, rank=2, bottleneck=4)
    rng = np.random.default_rng(0)
    system = System.build(base, people, np.repeat([0, 1], 2), tuning, rng, ActivationGaussian())
    drawn = [client.guard.sent(torch.zeros(3, 4)) for client in system.clients if client.guard is not None]
    assert len(drawn) == 2
    assert not torch.allclose(drawn[0], drawn[1])


def test_replaced_tokens_are_what_is_embedded(llama: str, registry: Registry) -> None:
    """At a large eps every token stays; at a small one most are others, and answers are scored all the same."""
    bare, near, far = (
        ran(llama, registry, spec, steps="9") for spec in ("none", "token-dchi:eps=1e6", "token-dchi:eps=5")
    )
    assert torch.equal(sent_by(bare)[0], sent_by(near)[0])
    changed = (sent_by(bare)[0] - sent_by(far)[0]).abs().amax(dim=-1) > 1e-3
    assert float(changed.float().mean()) > 0.5
    assert {item.metric for item in far.utility} == {item.metric for item in bare.utility}


def test_an_audit_with_a_defence_is_a_record_that_agrees(llama: str, command_line: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    asked = ["audit", "--target", "split-llama", "--model", llama, "--defense", "activation-gaussian:clip=1,noise=2"]
    done = command_line(*asked, *settings, "--out", str(out), "--exit-zero")
    assert done.returncode == 0, done.stderr
    audit = read(out)
    assert audit.findings[0].defense == "activation-gaussian:clip=1,noise=2"
    assert audit.mechanisms[0]["kind"] == "gaussian"
    assert command_line("verify", str(out)).returncode == 0

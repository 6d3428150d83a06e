"""Defences on updates: their laws against closed forms and naive twins, their promises, and what is refused."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privbench import pld
from privbench.conformance import check_update_defense, require
from privbench.defenses.base import Course, UpdateDefense, build_defense
from privbench.defenses.dp_sgd import DpSgd
from privbench.defenses.updates import Quantisation, SecureAggregation, TopK, UpdateGaussian
from privbench.errors import InputError
from privbench.registry import default_registry

SIZE = 300
COURSE = Course(rounds=9, steps=45, rate=0.05)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vector(seed: int = 0, size: int = SIZE) -> torch.Tensor:
    return torch.randn(size, generator=seeded(seed))


# Clip and noise


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_an_update_is_shortened_and_keeps_its_direction(scale: float) -> None:
    update = scale * vector()
    sent = UpdateGaussian(clip=2.0, where="server").sent(update, seeded())
    assert float(sent.norm()) == pytest.approx(min(2.0, float(update.norm())), rel=1e-5)
    assert float(torch.cosine_similarity(sent, update, dim=0)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("where", ["client", "server"])
def test_noise_is_gaussian_of_the_declared_size(where: str) -> None:
    """120,000 draws: the standard deviation within 4 standard errors, of normal law at 1e-4. The server's is that of
    the sum, seen in the mean of five clients.
    """
    defense, generator = UpdateGaussian(clip=0.5, noise=3.0, where=where), seeded(1)
    update = 0.001 * vector()
    sent = [defense.sent(update, generator) - update for _ in range(400)]
    drawn = torch.cat(sent if where == "client" else [defense.released(update, 5, generator) - update for _ in sent])
    sigma = 1.5 if where == "client" else 1.5 / 5
    found = drawn.double().numpy()
    assert abs(found.std() / sigma - 1) < 4 / math.sqrt(2 * len(found))
    assert stats.kstest(found / sigma, "norm").pvalue > 1e-4
    if where == "server":
        assert not torch.stack(sent).any()
        assert torch.equal(UpdateGaussian().released(update, 5, generator), update)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_that_is_not_finite_leaves_as_noise(bad: float) -> None:
    """To refuse it would tell; without noise of its own it is zeros."""
    update = vector()
    update[3] = bad
    assert not UpdateGaussian(where="server").sent(update, seeded()).any()
    assert torch.equal(UpdateGaussian().sent(update, seeded()), UpdateGaussian().sent(0 * vector(), seeded()))


def test_what_a_clients_updates_are_accounted_for_is_gaussian_dp() -> None:
    """delta(eps) of mu-GDP, written out at the claimed eps, mu = 2 sqrt(9) / 4: two vectors of norm clip lie 2 clip
    apart.
    """
    claim, phi = UpdateGaussian(noise=4.0).claim(COURSE, 1e-5), NormalDist().cdf
    mu, eps = 1.5, claim.eps
    assert phi(-eps / mu + mu / 2) - math.exp(eps) * phi(-eps / mu - mu / 2) == pytest.approx(1e-5, rel=1e-6)
    assert (claim.audience, claim.neighbours, claim.accountant) == ("server", "add-remove", "gdp")
    one, two = (UpdateGaussian(where="server").sent(sign * 100 * vector(), seeded()) for sign in (1, -1))
    assert float((one - two).norm()) == pytest.approx(2, rel=1e-5)


def test_who_sees_clean_updates_is_promised_nothing() -> None:
    central = UpdateGaussian(where="server")
    assert central.claim(COURSE, 1e-5).audience == "outsider"
    assert central.mechanism().channel == "outputs"
    assert "to it nothing is promised" in central.notes[0]
    assert UpdateGaussian().mechanism().channel == "updates"
    require(check_update_defense(lambda: UpdateGaussian(where="server")))


# DP-SGD


def naive(records: list[torch.Tensor], clip: float) -> torch.Tensor:
    total = np.zeros(SIZE)
    for record in records:
        row = record.double().numpy()
        total += row * min(1.0, clip / np.linalg.norm(row))
    return torch.from_numpy(total)


def test_a_step_is_the_sum_of_clipped_gradients_with_one_noise() -> None:
    records = [10.0**k * vector(k + 3) for k in (-2, -1, 0, 1)]
    made = DpSgd(clip=1.5, noise=0.7).gradient(records, torch.zeros(SIZE), seeded(5))
    noise = torch.randn(SIZE, generator=seeded(5)) * 0.7 * 1.5
    assert torch.allclose(made.double() - noise, naive(records, 1.5), atol=1e-5)
    alone = DpSgd(clip=1.5, noise=0.7).gradient([], torch.zeros(SIZE), seeded(5))
    assert torch.allclose(alone, noise)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=6), st.floats(0.1, 10))
def test_a_record_moves_a_step_by_the_clip_at_most(scales: list[float], clip: float) -> None:
    """Added to others, with the same noise; and by exactly the clip where it is longer."""
    defense, nothing = DpSgd(clip=clip, noise=1.0), torch.zeros(8, dtype=torch.float64)
    rows = [scale * vector(number, 8).double() for number, scale in enumerate(scales)]
    added = defense.gradient(rows, nothing, seeded()) - defense.gradient(rows[1:], nothing, seeded())
    assert float(added.norm()) == pytest.approx(min(clip, float(rows[0].norm())), rel=1e-6, abs=1e-9)


def test_a_gradient_that_is_not_finite_counts_as_none() -> None:
    bad = vector()
    bad[0] = math.nan
    nothing = torch.zeros(SIZE)
    with_it, without = (DpSgd().gradient(rows, nothing, seeded()) for rows in ([bad], []))
    assert torch.equal(with_it, without)


def test_steps_are_accounted_for_as_poisson_sampled_gaussians() -> None:
    """The privacy loss distribution of the same steps is tighter than Renyi's, and not by more than a fifth here."""
    claim = DpSgd(noise=1.1).claim(COURSE, 1e-5)
    tight = pld.epsilon(1.1, 0.05, 45, 1e-5, replace=False)
    assert tight < claim.eps < 1.25 * tight
    assert (claim.audience, claim.neighbours, claim.accountant) == ("server", "add-remove", "rdp")
    assert claim.sample_rate == 0.05
    # All records in every step: nothing is left of the sampling, and Gaussian DP is exact.
    whole = DpSgd(noise=10.0).claim(Course(9, 25, 1.0), 1e-5).eps
    assert UpdateGaussian(noise=20.0).claim(Course(25, 25, 1.0), 1e-5).eps < whole


@pytest.mark.parametrize("defense", [DpSgd(), UpdateGaussian(), UpdateGaussian(where="server")])
def test_noise_is_found_for_an_eps(defense: UpdateDefense) -> None:
    made = defense.at(1.5, 1e-5, COURSE)
    claim = made.claim(COURSE, 1e-5)
    assert claim is not None
    assert claim.eps == pytest.approx(1.5, rel=1e-4)


# Fewer and coarser numbers


@pytest.mark.parametrize(("share", "kept"), [(0.1, 30), (1e-6, 1), (0.5, 150), (1.0, 300), (0.101, 31)])
def test_the_largest_numbers_are_sent(share: float, kept: int) -> None:
    update = vector()
    sent = TopK(share=share).sent(update, seeded())
    order = sorted(range(SIZE), key=lambda at: -abs(float(update[at])))
    expected = [float(update[at]) if at in order[:kept] else 0.0 for at in range(SIZE)]
    assert sent.tolist() == expected


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_rounding_is_unbiased_and_takes_few_values(bits: int) -> None:
    """Of 4,000 roundings of 300 numbers the mean of each is off by less than 5 standard errors (one false alarm in
    6,000), where rounding down is off by half a step on average.
    """
    update, generator = vector(), seeded(2)
    largest = float(update.abs().max())
    step = 2 * largest / (2**bits - 1)
    sent = torch.stack([Quantisation(bits=bits).sent(update, generator) for _ in range(4_000)]).double()
    places = ((sent + largest) / step).round()
    assert torch.allclose(sent, places * step - largest, atol=1e-5)
    assert 0 <= int(places.min()) < int(places.max()) <= 2**bits - 1
    error = sent.std(dim=0) / math.sqrt(4_000)
    assert bool(((sent.mean(dim=0) - update).abs() <= 5 * error + 1e-5).all())
    assert bool(((sent - update).abs() <= step * (1 + 1e-5)).all())


def test_zeros_are_sent_as_they_are() -> None:
    assert not Quantisation().sent(torch.zeros(5), seeded()).any()
    assert torch.isnan(Quantisation().sent(torch.tensor([math.nan, 1.0]), seeded())).any()


def test_only_sums_leave_and_nothing_is_promised() -> None:
    assert SecureAggregation.summed
    assert not any(kind.summed for kind in (UpdateGaussian, TopK, Quantisation, DpSgd))
    for defense in (SecureAggregation(), TopK(), Quantisation()):
        assert defense.claim(COURSE, 1e-5) is None
        with pytest.raises(InputError, match="promises no eps: leave --eps out"):
            defense.at(1.0, 1e-5, COURSE)
    assert "no cryptography is run" in SecureAggregation().notes[0]


# What is refused


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("update-gaussian:clip=0", "clip of defence update-gaussian must be a positive number, got 0; without it "
         "nothing is promised"),
        ("update-gaussian:noise=-1", "noise of defence update-gaussian must be a positive number, got -1"),
        ("update-gaussian:noise=1e-9", "noise of defence update-gaussian must lie from 1e-06 to 1e"),
        ("update-gaussian:noise=1e-5,clip=1e-5", "clip times noise of defence update-gaussian must lie from 1e-06"),
        ("update-gaussian:where=sever", "unknown value of where 'sever'; did you mean server"),
        ("update-gaussian:sigma=1", "unknown option of defence update-gaussian 'sigma'"),
        ("dp-sgd:clip=-2", "clip of defence dp-sgd must be a positive number, got -2"),
        ("dp-sgd:noise=0", "noise of defence dp-sgd must be a positive number, got 0"),
        ("dp-sgd:noise=0.01", "noise of defence dp-sgd must be at least 0.05, got 0.01"),
        ("dp-sgd:noise=inf", "noise of defence dp-sgd must be a positive number, got inf"),
        ("top-k:share=0", "share of defence top-k must be a positive number, got 0; without it nothing is done"),
        ("top-k:share=1.5", "share of defence top-k must be above 0 and at most 1, got 1.5"),
        ("quantisation:bits=0", "bits of defence quantisation must be a positive number, got 0"),
        ("quantisation:bits=17", "bits of defence quantisation must lie from 1 to 16, got 17"),
        ("quantisation:bits=2.5", "bits must be a whole number, got '2.5'"),
        ("secure-aggregation:least=3", "unknown option of defence secure-aggregation 'least'"),
    ],
)  # fmt: skip
def test_sizes_that_are_refused(spec: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_defense(spec, default_registry(), UpdateDefense, "fedavg")  # type: ignore[type-abstract]

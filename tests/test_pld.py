"""Steps against whole numbers, the cap on the work against measured losses."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from privbench import pld
from privbench.errors import InputError


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 1000))
def test_steps_are_those_of_whole_numbers(batch: int, records: int, epochs: int) -> None:
    batch = min(batch, records)
    assert pld.steps(batch / records, epochs) == math.ceil(Fraction(epochs * records, batch))


@pytest.mark.parametrize(("records", "epochs"), [(49, 1), (98, 1), (103, 7), (2000, 20)])
def test_one_record_a_step_is_one_step_a_record(records: int, epochs: int) -> None:
    assert pld.steps(1 / records, epochs) == records * epochs


@pytest.mark.parametrize(("rate", "epochs"), [(0.5, 0), (0.5, -1), (1e-300, 1), (0.5, 10**20)])
def test_no_epochs_and_endless_runs_are_bad_input(rate: float, epochs: int) -> None:
    with pytest.raises(InputError):
        pld.steps(rate, epochs)


@pytest.mark.parametrize(("z", "rate"), [(0.5, 0.03), (1.0, 0.3), (1.0, 1.0), (3.0, 0.01)])
def test_the_cap_on_the_mean_loss_is_one(z: float, rate: float) -> None:
    """The divergence of one step by numerical integration is below what out_of_reach counts: so many steps that it is
    400 are refused.
    """

    def weighted(x: float) -> float:
        mixed = (1 - rate) * stats.norm.pdf(x, 0, z) + rate * stats.norm.pdf(x, 1, z)
        return float(mixed * math.log(mixed / stats.norm.pdf(x, 0, z))) if mixed > 0 else 0.0

    divergence, _ = integrate.quad(weighted, -12 * z, 1 + 12 * z, limit=200)
    assert pld.out_of_reach(z, rate, math.ceil(1.001 * pld.MOST_LOSS / divergence)) is not None
    assert pld.out_of_reach(z, rate, 1) is None


def test_steps_of_the_paper_are_within_reach() -> None:
    for z in (0.93, 7.52):
        assert pld.out_of_reach(z, 64 / 2048, 960) is None

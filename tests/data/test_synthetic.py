from __future__ import annotations

import numpy as np
import pytest

from privbench.data.cohort import Cohort, join
from privbench.data.sources import fingerprint
from privbench.data.synthetic import DECOMPENSATION, MORTALITY, synthetic
from privbench.errors import InputError
from privbench.stats.auc import auc


@pytest.fixture(scope="module")
def stays() -> Cohort:
    return synthetic(np.random.default_rng(0), 100, 10, 20_000).test


def test_prevalences_are_those_of_icu_cohorts(stays: Cohort) -> None:
    """20,000 stays: 4 standard errors are at most .014."""
    assert stays.labels["ihm"].mean() == pytest.approx(MORTALITY, abs=0.0095)
    assert stays.labels["decompensation"].mean() == pytest.approx(DECOMPENSATION, abs=0.0053)
    expected = np.linspace(0.40, 0.05, 25)
    assert np.abs(stays.labels["phenotyping"].mean(axis=0) - expected).max() < 0.014


def test_who_dies_early_dies(stays: Cohort) -> None:
    assert (stays.labels["ihm"][stays.labels["decompensation"] == 1] == 1).all()


def test_diseases_come_together(stays: Cohort) -> None:
    correlation = np.corrcoef(stays.labels["phenotyping"].T)
    off = correlation[~np.eye(25, dtype=bool)]
    assert off.mean() > 0.05
    assert off.min() > -0.03


def test_values_lie_in_their_ranges_and_mean_something_only_where_observed(stays: Cohort) -> None:
    for data in stays.sites.values():
        for j, feature in enumerate(data.features):
            seen = data.values[..., j][data.observed[..., j]]
            assert seen.min() >= feature.low
            assert seen.max() <= feature.high
        assert (data.values[~data.observed] == 0).all()


@pytest.mark.parametrize(
    ("site", "feature", "low", "high"),
    [
        ("A", 0, 78, 92),
        ("A", 1, 115, 130),
        ("A", 5, 36.6, 37.3),
        ("A", 6, 95, 98.5),
        ("B", 0, 18, 30),
        ("C", 1, 163, 176),
    ],
)
def test_medians_are_physiological(stays: Cohort, site: str, feature: int, low: float, high: float) -> None:
    data = stays.sites[site]
    assert low < np.median(data.values[..., feature][data.observed[..., feature]]) < high


def test_measurements_are_irregular_and_the_sicker_are_measured_more(stays: Cohort) -> None:
    data = stays.sites["B"]
    rates = data.observed.mean(axis=(0, 1))
    assert (rates < 0.4).all()
    per_stay = data.observed.mean(axis=(1, 2))
    assert per_stay.std() > 0.03
    assert per_stay[stays.labels["ihm"] == 1].mean() > per_stay[stays.labels["ihm"] == 0].mean()


def test_every_site_knows_a_part(stays: Cohort) -> None:
    """Mean coma score and mean heart rate each tell something about death, and neither tells all."""
    for site, feature, sign in (("A", 0, 1), ("B", 3, -1)):
        data = stays.sites[site]
        seen = data.observed[..., feature]
        mean = (data.values[..., feature] * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        known = seen.any(axis=1)
        assert 0.6 < auc(sign * mean[known], stays.labels["ihm"][known]).value < 0.85


def test_seed_determines_everything_and_test_size_changes_no_training_stay() -> None:
    first = synthetic(np.random.default_rng(5), 50, 20, 30)
    second = synthetic(np.random.default_rng(5), 50, 20, 30)
    larger = synthetic(np.random.default_rng(5), 50, 20, 9_000)
    other = synthetic(np.random.default_rng(6), 50, 20, 30)
    assert fingerprint(first) == fingerprint(second) != fingerprint(other)
    for site, data in first.train.sites.items():
        assert np.array_equal(data.values, larger.train.sites[site].values)


def test_splits_share_no_stay() -> None:
    splits = synthetic(np.random.default_rng(0), 40, 20, 30)
    ids = np.concatenate([cohort.record_ids for cohort in (splits.train, splits.validation, splits.test)])
    assert len(np.unique(ids)) == 90


def test_a_cohort_refuses_repeated_records_and_ragged_arrays(stays: Cohort) -> None:
    part = stays.take(np.arange(5))
    with pytest.raises(InputError, match="each record once"):
        join([part, part])
    with pytest.raises(InputError, match="labels have shape"):
        Cohort(part.record_ids, part.sites, part.tasks, {**part.labels, "ihm": np.zeros(4, np.int64)})

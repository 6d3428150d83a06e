"""LiRA and RMIA: golden AUCs on synthetic references, the formulas as loops, and known mistakes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from privbench.stats.auc import auc
from privbench.stats.membership import (
    Population,
    lira_offline,
    lira_online,
    logit_margin,
    rmia_offline,
    rmia_online,
    tune_offset,
)

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

seeded = settings(derandomize=True, deadline=None, max_examples=50)


@dataclass(frozen=True, eq=False)
class World:
    """Logits of a target and of references, and what they are made of (statistics.md, golden values)."""

    truth: Bools
    target: Array
    references: Array
    member: Bools
    difficulty: Array
    gain: Array
    z_target: Array
    z_references: Array

    def auc(self, scores: Array) -> float:
        return auc(scores, self.truth.astype(int)).value

    @property
    def p(self) -> tuple[Array, Array, Bools]:
        return special.expit(self.target), special.expit(self.references), self.member

    @property
    def population(self) -> Population:
        return Population(special.expit(self.z_target), special.expit(self.z_references))


def world(seed: int, n: int = 10_000, references: int = 64, z: int = 10_000, gain: float = 1.0) -> World:
    rng = np.random.default_rng(seed)
    difficulty, gains = rng.normal(1.5, 1.5, n), gain * np.abs(rng.normal(0.6, 0.5, n))
    member = rng.random((references + 1, n)) < 0.5
    logits = difficulty + gains * member + rng.normal(0, 0.7, (references + 1, n))
    z_logits = rng.normal(1.5, 1.5, z) + rng.normal(0, 0.7, (references + 1, z))
    return World(member[0], logits[0], logits[1:], member[1:], difficulty, gains, z_logits[0], z_logits[1:])


@cache
def golden_aucs() -> dict[str, float]:
    """Means over four seeds."""
    found: dict[str, list[float]] = {}
    for seed in range(30, 34):
        w = world(seed)
        mean_out = np.array([row.mean() for row in np.ma.array(w.references, mask=w.member).T])
        ratio = stats.norm.logpdf(w.target, w.difficulty + w.gain, 0.7) - stats.norm.logpdf(w.target, w.difficulty, 0.7)
        scores = {
            "rmia offline .3": rmia_offline(*w.p, w.population, offset=0.3),
            "rmia offline .6": rmia_offline(*w.p, w.population, offset=0.6),
            "lira online": lira_online(w.target, w.references, w.member, variance="pooled"),
            "lira offline": lira_offline(w.target, w.references, w.member),
            "two-sided": (w.target - mean_out) ** 2,
            "oracle": ratio,
        }
        for name, values in scores.items():
            found.setdefault(name, []).append(w.auc(values))
    return {name: float(np.mean(values)) for name, values in found.items()}


# Golden values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rmia offline .3", 0.685),
        ("rmia offline .6", 0.689),
        ("lira online", 0.745),
        ("lira offline", 0.718),
        ("two-sided", 0.635),
        ("oracle", 0.752),
    ],
)
def test_golden_auc(name: str, value: float) -> None:
    assert golden_aucs()[name] == pytest.approx(value, abs=0.015)


def test_one_sided_beats_the_two_sided_density_by_far() -> None:
    """The log density under OUT calls a record far below its OUT scores a member."""
    assert golden_aucs()["lira offline"] > golden_aucs()["two-sided"] + 0.05


@pytest.mark.parametrize("references", [4, 16])
def test_pooled_variance_beats_the_records_own_with_few_references(references: int) -> None:
    w = world(35, n=6000, references=2 * references)
    # Records with two references a side, so that both variances exist.
    kept = np.minimum(w.member.sum(axis=0), (~w.member).sum(axis=0)) >= 2
    target, many, member = w.target[kept], w.references[:, kept], w.member[:, kept]
    labels = w.truth[kept].astype(int)
    pooled, own = (auc(lira_online(target, many, member, variance=v), labels).value for v in ("pooled", "record"))
    assert pooled > own + 0.003
    assert np.array_equal(lira_online(target, many, member), lira_online(target, many, member, variance="pooled"))


def test_auto_takes_the_records_own_variance_from_32_references_a_side() -> None:
    rng = np.random.default_rng(36)
    member = np.repeat([True, False], [32, 32])[:, None] & np.ones(20, bool)
    references, target = rng.standard_normal((64, 20)), rng.standard_normal(20)
    auto = lira_online(target, references, member)
    assert np.array_equal(auto, lira_online(target, references, member, variance="record"))
    fewer = np.delete(references, 0, axis=0), np.delete(member, 0, axis=0)
    assert not np.array_equal(lira_online(target, *fewer), lira_online(target, *fewer, variance="record"))
    # The OUT side still has 32.
    assert np.array_equal(lira_offline(target, *fewer), lira_offline(target, *fewer, variance="record"))


# Formulas as loops


def moments_by_loops(references: Array, side: Bools, pooled: bool) -> list[tuple[float, float]]:
    groups = [references[side[:, n], n] for n in range(references.shape[1])]
    squares = [sum((x - group.mean()) ** 2 for x in group) for group in groups]
    together = sum(squares) / sum(len(group) - 1 for group in groups)
    return [
        (float(group.mean()), together if pooled else square / (len(group) - 1))
        for group, square in zip(groups, squares, strict=True)
    ]


@pytest.mark.parametrize("pooled", [True, False])
def test_lira_is_the_formula(pooled: bool) -> None:
    w = world(37, n=40, references=24)
    inside = moments_by_loops(w.references, w.member, pooled)
    outside = moments_by_loops(w.references, ~w.member, pooled)
    online = [
        stats.norm.logpdf(x, i[0], math.sqrt(i[1])) - stats.norm.logpdf(x, o[0], math.sqrt(o[1]))
        for x, i, o in zip(w.target, inside, outside, strict=True)
    ]
    offline = [stats.norm.logcdf((x - o[0]) / math.sqrt(o[1])) for x, o in zip(w.target, outside, strict=True)]
    variance = "pooled" if pooled else "record"
    assert lira_online(w.target, w.references, w.member, variance=variance) == pytest.approx(np.array(online))
    assert lira_offline(w.target, w.references, w.member, variance=variance) == pytest.approx(np.array(offline))


def rmia_by_loops(
    p: Array, references: Array, member: Bools, population: Population, gamma: float, offset: float | None
) -> Array:
    """offset None: online."""
    z, z_references = np.asarray(population.target), np.asarray(population.references)

    def corrected(out: float) -> float:
        return out if offset is None else ((1 + offset) * out + 1 - offset) / 2

    shares = []
    for n, own in enumerate(p):
        out = references[~member[:, n], n].mean()
        prior = (references[member[:, n], n].mean() + out) / 2 if offset is None else corrected(out)
        ratios = [(own / prior) / (z[j] / corrected(z_references[:, j].mean())) for j in range(len(z))]
        shares.append(np.mean([ratio >= gamma for ratio in ratios]))
    return np.array(shares)


@pytest.mark.parametrize("gamma", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("offset", [None, 0.0, 0.3, 1.0])
def test_rmia_is_the_formula(gamma: float, offset: float | None) -> None:
    w = world(38, n=40, references=12, z=60)
    expected = rmia_by_loops(*w.p, w.population, gamma, offset)
    if offset is None:
        assert rmia_online(*w.p, w.population, gamma=gamma) == pytest.approx(expected, abs=1e-12)
    else:
        assert rmia_offline(*w.p, w.population, offset=offset, gamma=gamma) == pytest.approx(expected, abs=1e-12)


def test_rmia_counts_a_ratio_of_exactly_gamma() -> None:
    references = np.full((2, 1), 0.25)
    population = Population(np.array([0.25]), np.full((2, 1), 0.25))
    member = np.array([[True], [False]])
    assert rmia_online(np.array([0.5]), references, member, population, gamma=2).tolist() == [1.0]
    assert rmia_online(np.array([0.5]), references, member, population, gamma=2.001).tolist() == [0.0]


def test_out_means_are_over_the_records_own_out_references() -> None:
    """IN references are masked; filled with zeros they would lower the mean of whoever has many of them."""
    references = np.array([[0.8, 0.8], [0.6, 0.1], [0.9, 0.2]])
    member = np.array([[False, False], [False, True], [True, True]])
    population = Population(np.array([0.5, 0.5]), np.full((3, 2), 0.5))
    scores = rmia_offline(np.array([0.7, 0.8]), references, member, population, offset=1.0, gamma=1.0)
    assert scores.tolist() == [1.0, 1.0]  # priors .7 and .8, not .47 and .27
    assert rmia_offline(np.array([0.699, 0.799]), references, member, population, offset=1.0, gamma=1.0).sum() == 0
    changed = np.where(member, 0.123, references)
    assert np.array_equal(
        rmia_offline(np.array([0.7, 0.8]), changed, member, population, offset=1.0, gamma=1.0), scores
    )


@seeded
@given(st.integers(2, 6), st.data())
def test_logit_margin_is_the_log_odds(classes: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    logits, labels = 3 * rng.standard_normal((7, classes)), rng.integers(0, classes, 7)
    p = special.softmax(logits, axis=-1)[np.arange(7), labels]
    assert logit_margin(logits, labels) == pytest.approx(np.log(p / (1 - p)), abs=1e-6)
    stacked = logit_margin(np.stack([logits, logits + 5]), np.stack([labels, labels]))
    assert stacked == pytest.approx(np.stack([logit_margin(logits, labels)] * 2))


def test_logit_margin_does_not_saturate() -> None:
    assert logit_margin([[80.0, -80.0, -90.0], [-500.0, 500.0, 0.0]], [0, 0]) == pytest.approx([160, -1000], abs=0.01)


# Tuning of the offset


def tuning_by_hand(w: World, pseudo: int, truth: Bools) -> dict[float, float]:
    """AUC per offset of an attack on reference `pseudo` with the others, against `truth`."""
    others = np.arange(len(w.references)) != pseudo
    p, references = special.expit(w.references[pseudo]), special.expit(w.references[others])
    population = Population(special.expit(w.z_references[pseudo]), special.expit(w.z_references[others]))
    found = {}
    for offset in np.linspace(0, 1, 11).tolist():
        scores = rmia_offline(p, references, w.member[others], population, offset=offset)
        found[offset] = auc(scores, truth.astype(int)).value
    return found


@pytest.mark.parametrize("pseudo", [0, 5])
def test_offset_is_the_best_on_a_reference_as_pseudo_target(pseudo: int) -> None:
    w = world(39, n=3000, references=16, z=2000)
    by_hand = tuning_by_hand(w, pseudo, w.member[pseudo])
    found = tune_offset(special.expit(w.references), w.member, w.population, pseudo_target=pseudo)
    assert by_hand[found] == max(by_hand.values())


def test_an_offset_tuned_on_the_wrong_membership_sees_nothing_and_ours_does() -> None:
    """statistics.md: AUC .484 where .854 was there. The target's members say nothing about the pseudo-target."""
    w = world(40, n=5000, references=16, z=2000, gain=4.0)
    wrong, right = (tuning_by_hand(w, 0, truth) for truth in (w.truth, w.member[0]))
    assert max(wrong.values()) < 0.53
    assert max(right.values()) > 0.8
    offset = tune_offset(special.expit(w.references), w.member, w.population)
    reached = w.auc(rmia_offline(*w.p, w.population, offset=offset))
    best = max(w.auc(rmia_offline(*w.p, w.population, offset=float(a))) for a in np.linspace(0, 1, 11))
    assert reached > best - 0.005


def test_the_offset_does_not_depend_on_the_target() -> None:
    w = world(41, n=500, references=8, z=300)
    other = Population(np.full(300, 0.5), w.population.references)
    assert tune_offset(w.p[1], w.member, w.population) == tune_offset(w.p[1], w.member, other)


def test_records_whose_only_out_reference_is_the_pseudo_target_are_left_out() -> None:
    w = world(42, n=300, references=3, z=200)
    assert (w.member[1:].all(axis=0) & ~w.member[0]).any()
    assert 0 <= tune_offset(w.p[1][:, ~w.member.all(axis=0)], w.member[:, ~w.member.all(axis=0)], w.population) <= 1


# No leakage


def test_no_leakage_shows_none() -> None:
    """Without a gain no score knows the members: AUC within 4 standard errors of 1/2."""
    w = world(43, n=4000, references=16, z=2000, gain=0.0)
    kept = np.minimum(w.member.sum(axis=0), (~w.member).sum(axis=0)) >= 2
    one, many, member = w.target[kept], w.references[:, kept], w.member[:, kept]
    p, p_many = special.expit(one), special.expit(many)
    offset = tune_offset(p_many, member, w.population)
    for scores in (
        lira_online(one, many, member),
        lira_offline(one, many, member),
        rmia_online(p, p_many, member, w.population),
        rmia_offline(p, p_many, member, w.population, offset=offset),
    ):
        assert auc(scores, w.truth[kept].astype(int)).value == pytest.approx(0.5, abs=4 / math.sqrt(12 * 1000))


# Properties


def all_scores(w: World, order: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> list[Array]:
    one, many, member = w.target[order], w.references[rows][:, order], w.member[rows][:, order]
    p, p_many = special.expit(one), special.expit(many)
    population = Population(w.population.target, np.asarray(w.population.references)[rows])
    return [
        lira_online(one, many, member),
        lira_offline(one, many, member),
        rmia_online(p, p_many, member, population),
        rmia_offline(p, p_many, member, population, offset=0.4),
    ]


@seeded
@given(st.permutations(range(30)), st.permutations(range(20)))
def test_scores_follow_their_records_whatever_the_order_of_references(order: list[int], rows: list[int]) -> None:
    w = world(44, n=30, references=20, z=50)
    straight = all_scores(w, np.arange(30), np.arange(20))
    for turned, scores in zip(all_scores(w, np.array(order), np.array(rows)), straight, strict=True):
        assert turned == pytest.approx(scores[order], abs=1e-9)


@seeded
@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_lira_does_not_depend_on_scale_and_shift_of_the_scores(scale: float, shift: float) -> None:
    w = world(45, n=30, references=20, z=1)
    for score in (lira_online, lira_offline):
        straight = score(w.target, w.references, w.member)
        assert score(scale * w.target + shift, scale * w.references + shift, w.member) == pytest.approx(straight)


@seeded
@given(st.integers(0, 29), st.floats(0, 1))
def test_rmia_and_offline_lira_rise_with_the_targets_score(n: int, by: float) -> None:
    w = world(46, n=30, references=20, z=50)
    p, p_many, member = w.p
    raised, higher = p.copy(), w.target.copy()
    raised[n] += by * (1 - raised[n])
    higher[n] += by
    for score in (rmia_online, lambda *a: rmia_offline(*a, offset=0.5)):
        assert score(raised, p_many, member, w.population)[n] >= score(p, p_many, member, w.population)[n]
    assert lira_offline(higher, w.references, member)[n] >= lira_offline(w.target, w.references, member)[n]


def test_float32_and_integer_masks_give_nearly_the_same_scores() -> None:
    w = world(47, n=200, references=20, z=100)
    single = World(
        w.truth,
        *(a.astype(np.float32) for a in (w.target, w.references)),
        w.member.astype(np.int8),
        w.difficulty,
        w.gain,
        *(a.astype(np.float32) for a in (w.z_target, w.z_references)),
    )
    everything = np.arange(200), np.arange(20)
    for a, b in zip(all_scores(single, *everything), all_scores(w, *everything), strict=True):
        assert a.dtype == np.float64
        assert a == pytest.approx(b, abs=0.011)


def test_one_record() -> None:
    references, member = np.array([[0.1], [0.3], [0.7], [0.9]]), np.array([[False], [False], [True], [True]])
    population = Population(np.array([0.5]), np.full((4, 1), 0.5))
    for score in (lira_online, lira_offline):
        low, high = (score(np.array([x]), references, member)[0] for x in (0.2, 0.8))
        assert low < high
    assert rmia_online(np.array([0.9]), references, member, population, gamma=1).tolist() == [1]
    assert rmia_online(np.array([0.1]), references, member, population, gamma=1).tolist() == [0]


def test_probabilities_of_zero_are_allowed() -> None:
    """float32 softmax underflows: a record that no reference believes in has a prior of 0."""
    references, member = np.zeros((2, 2)), np.array([[True, True], [False, False]])
    population = Population(np.array([0.0, 0.5]), np.array([[0.0, 0.5], [0.0, 0.5]]))
    for scores in (
        rmia_online(np.array([0.0, 0.5]), references, member, population),
        rmia_offline(np.array([0.0, 0.5]), references, member, population, offset=1),
    ):
        assert scores.tolist() == [0.5, 1.0]


def test_references_of_one_record_that_agree_take_the_pooled_variance() -> None:
    w = world(48, n=50, references=80, z=1)
    references = w.references.copy()
    references[:, 0] = 1.25
    for score in (lira_online, lira_offline):
        assert np.isfinite(score(w.target, references, w.member, variance="record")).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_references_that_all_agree_are_refused(value: float) -> None:
    member = np.arange(14)[:, None] % 2 == np.zeros(5)
    for score in (lira_online, lira_offline):
        with pytest.raises(ValueError, match="copies of one model"):
            score(np.zeros(5), np.full((14, 5), value), member)


def test_all_equal_probabilities_tell_nobody_apart() -> None:
    member = np.arange(14)[:, None] % 2 == np.zeros(5)
    population = Population(np.full(3, 0.4), np.full((14, 3), 0.4))
    scores = rmia_offline(np.full(5, 0.4), np.full((14, 5), 0.4), member, population, offset=0.5)
    assert len(set(scores.tolist())) == 1


def test_a_million_records() -> None:
    w = world(49, n=1_000_000, references=6, z=1000)
    enough = np.minimum(w.member.sum(axis=0), (~w.member).sum(axis=0)) >= 2
    one, many, member = w.target[enough], w.references[:, enough], w.member[:, enough]
    truth = w.truth[enough].astype(int)
    assert auc(lira_online(one, many, member), truth).value > 0.6
    scores = rmia_offline(special.expit(one), special.expit(many), member, w.population, offset=0.3)
    assert auc(scores, truth).value > 0.6


# Refusals


@pytest.mark.parametrize("side", ["in", "out"])
def test_a_record_with_one_reference_on_a_side_is_refused(side: str) -> None:
    w = world(50, n=10, references=20, z=5)
    member = w.member.copy()
    member[:, 3] = np.arange(20) < (1 if side == "in" else 19)
    with pytest.raises(ValueError, match="record 3 has 1 references on a side, 2 are needed"):
        lira_online(w.target, w.references, member)
    if side == "out":
        with pytest.raises(ValueError, match="record 3"):
            lira_offline(w.target, w.references, member)
    else:
        assert np.isfinite(lira_offline(w.target, w.references, member)).all()


@pytest.mark.parametrize("side", ["IN", "OUT"])
def test_rmia_refuses_a_record_without_references_on_a_side(side: str) -> None:
    w = world(51, n=10, references=20, z=5)
    p, references, member = w.p
    member = member.copy()
    member[:, 4] = side == "OUT"
    with pytest.raises(ValueError, match=f"record 4 has no {side} reference"):
        rmia_online(p, references, member, w.population)
    if side == "OUT":
        with pytest.raises(ValueError, match="record 4 has no OUT reference"):
            rmia_offline(p, references, member, w.population, offset=0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["target", "references"])
def test_lira_refuses_scores_that_are_not_finite(bad: float, where: str) -> None:
    w = world(52, n=10, references=20, z=5)
    arrays = {"target": w.target.copy(), "references": w.references.copy()}
    arrays[where][..., 0] = bad
    for score in (lira_online, lira_offline):
        with pytest.raises(ValueError, match=f"{where} must be finite"):
            score(arrays["target"], arrays["references"], w.member)


@pytest.mark.parametrize("bad", [math.nan, -0.01, 1.01, math.inf])
@pytest.mark.parametrize("where", ["target", "references", "population target", "population references"])
def test_rmia_refuses_what_is_no_probability(bad: float, where: str) -> None:
    w = world(53, n=10, references=20, z=5)
    p, references, member = (a.copy() for a in w.p)
    z, z_references = np.array(w.population.target), np.array(w.population.references)
    {"target": p, "references": references, "population target": z, "population references": z_references}[where][
        ..., 0
    ] = bad
    population = Population(z, z_references)
    for refuses in (
        lambda: rmia_online(p, references, member, population),
        lambda: rmia_offline(p, references, member, population, offset=0.5),
    ):
        with pytest.raises(ValueError, match=f"{where} must be"):
            refuses()


def test_shapes_that_do_not_fit_are_refused() -> None:
    w = world(54, n=10, references=20, z=5)
    p, references, member = w.p
    for args in (
        (w.target[:9], w.references, w.member),
        (w.target, w.references[:, :9], w.member),
        (w.target, w.references, w.member[:19]),
        (w.target, w.references.T, w.member.T),
        (np.zeros(0), np.zeros((20, 0)), np.zeros((20, 0), bool)),
    ):
        with pytest.raises(ValueError, match="need target"):
            lira_online(*args)
    with pytest.raises(ValueError, match="need a population"):
        rmia_online(p, references, member, Population(np.full(5, 0.5), np.full((19, 5), 0.5)))
    with pytest.raises(ValueError, match="need a population"):
        rmia_online(p, references, member, Population(np.zeros(0), np.zeros((20, 0))))
    with pytest.raises(ValueError, match="bool, or 0 and 1"):
        lira_online(w.target, w.references, w.member.astype(int) * 2)


def test_settings_outside_their_range_are_refused() -> None:
    w = world(55, n=30, references=20, z=5)
    for gamma in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="gamma"):
            rmia_online(*w.p, w.population, gamma=gamma)
    for offset in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="offset"):
            rmia_offline(*w.p, w.population, offset=offset)
    with pytest.raises(ValueError, match="variance"):
        lira_online(w.target, w.references, w.member, variance="own")  # type: ignore[arg-type]
    for pseudo in (-1, 20):
        with pytest.raises(ValueError, match="pseudo-target"):
            tune_offset(w.p[1], w.member, w.population, pseudo_target=pseudo)
    with pytest.raises(ValueError, match="0 offsets"):
        tune_offset(w.p[1], w.member, w.population, offsets=())


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[1.0]], [0], "C >= 2"),
        ([[1.0, 2.0]], [0, 1], "labels"),
        ([[1.0, math.nan]], [0], "finite"),
        ([[1.0, 2.0]], [2], "0..1"),
        ([[1.0, 2.0]], [-1], "0..1"),
        ([[1.0, 2.0]], [0.0], "integers"),
    ],
)
def test_logit_margin_refuses_what_does_not_fit(logits: npt.ArrayLike, labels: npt.ArrayLike, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        logit_margin(logits, labels)

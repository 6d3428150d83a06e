"""Membership attacks on records whose every logit is known: what each must reach, what it must not, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from privbench.accounting import gdp_eps
from privbench.attack import Hints, NotApplicable, Scores, View, view_of
from privbench.attacks.membership.cut_layer import Drift, Embedding, GradientNorm
from privbench.attacks.membership.lira import Lira, LiraOffline
from privbench.attacks.membership.loss import Loss
from privbench.attacks.membership.one_run import OneRun
from privbench.attacks.membership.rmia import Rmia
from privbench.attacks.membership.trajectory import Trajectory
from privbench.conformance.members import CHECKPOINTS, RECORDS, SITE, TASK, MemberStand, member_stand
from privbench.errors import InputError
from privbench.findings_members import DELTA, GUESSED, LEVEL, one_run_guesses
from privbench.losses import record_losses, scaled_logits
from privbench.membership import MembershipAttack
from privbench.recording import MEMBER, Recording, Secrets, Transcript
from privbench.references import balanced_halves
from privbench.stats.auc import auc
from privbench.stats.membership import Population, rmia_offline, tune_offset
from privbench.stats.one_run import OneRunBound, steinke_eps
from privbench.threat import curious_outsider, server_with_patients

OUTSIDER, SERVER = curious_outsider(), server_with_patients()
BY_MODELS: tuple[type[MembershipAttack], ...] = (Lira, LiraOffline, Rmia)
AT_THE_CUT: tuple[type[MembershipAttack], ...] = (Drift, GradientNorm, Embedding, Trajectory)
ALL = (Loss, OneRun, *BY_MODELS, *AT_THE_CUT)
NEEDS: Mapping[type[MembershipAttack], tuple[str, ...]] = {
    Loss: ("outputs/",),
    OneRun: ("outputs/", "checkpoints/outputs/"),
    Lira: ("outputs/", "reference/"),
    LiraOffline: ("outputs/", "reference/"),
    Rmia: ("outputs/", "reference/"),
    Drift: ("checkpoints/activations/",),
    GradientNorm: ("checkpoints/gradients/",),
    Embedding: ("activations/",),
    Trajectory: ("outputs/", "checkpoints/outputs/"),
}


def scores_of(make: type[MembershipAttack], view: View) -> Scores:
    result = make()(view, np.random.default_rng(0))
    assert not isinstance(result, NotApplicable), result
    return result


def refusal_of(make: type[MembershipAttack], view: View) -> str:
    result = make()(view, np.random.default_rng(0))
    assert isinstance(result, NotApplicable)
    return result.reason


def changed(view: View, change: Callable[[str, Any], Any]) -> View:
    """The view with every array as `change` makes it; None leaves it out."""
    made = {name: change(name, array) for name, array in view.arrays.items()}
    return replace(view, arrays={name: array for name, array in made.items() if array is not None})


def without(view: View, *prefixes: str) -> View:
    return changed(view, lambda name, array: None if name.startswith(prefixes) else array)


# The synthetic case


@dataclass(frozen=True)
class Case:
    """Logits of the true answer, [N] of the target and [R, N] of references, and their recording as a binary task."""

    right: npt.NDArray[np.float64]
    stand: MemberStand


def synthetic(seed: int, n: int, references: int) -> Case:
    """n records, and n of the population. The recording's logits are turned back by its labels."""
    stand = member_stand(seed, records=n, population=n, references=references, hints=n // 8)
    logits, labels = (stand.transcript.array(f"outputs/{TASK}{kind}")[:, 0] for kind in ("", "/labels"))
    return Case(logits * (2.0 * labels - 1), stand)


def test_a_binary_tasks_scaled_logit_is_the_logit_of_the_true_answer() -> None:
    case = synthetic(0, 2_000, 0)
    losses = record_losses(case.stand.transcript.arrays)
    assert losses == pytest.approx(np.log1p(np.exp(-case.right)), rel=1e-9)
    assert scaled_logits(losses) == pytest.approx(case.right, abs=1e-9)


def test_the_case_is_drawn_as_written() -> None:
    """Mean and variance of 20,000 and 10,000 logits: 4 standard errors, one false alarm in 4,000."""
    case = synthetic(1, 20_000, 0)
    inside, population = case.right[:20_000][case.stand.coins[:20_000] == 1], case.right[20_000:]
    gains = stats.foldnorm(0.6 / 0.5, scale=0.5)
    for found, mean, variance in (
        (population, 1.5, 1.5**2 + 0.7**2),
        (inside, 1.5 + gains.mean(), 1.5**2 + 0.7**2 + gains.var()),
    ):
        assert abs(found.mean() - mean) < 4 * np.sqrt(variance / len(found))
        assert abs(found.var() - variance) < 4 * variance * np.sqrt(2 / len(found))


@cache
def reached(n: int, references: int, seeds: int) -> dict[str, float]:
    """Mean AUC over seeds, of every attack of whoever may query the model."""
    found: dict[str, list[float]] = {}
    for seed in range(100, 100 + seeds):
        stand = synthetic(seed, n, references).stand
        for make in BY_MODELS:
            found.setdefault(make.card.name, []).append(stand.auc(scores_of(make, stand.view(OUTSIDER))))
    return {name: float(np.mean(values)) for name, values in found.items()}


@pytest.mark.parametrize(
    ("attack", "value"), [("membership/lira", 0.745), ("membership/lira-offline", 0.718), ("membership/rmia", 0.689)]
)
def test_the_known_values_are_reached(attack: str, value: float) -> None:
    """64 references, 10,000 records and as many of the population; five seeds (a standard error of .0025)."""
    assert reached(10_000, 64, 5)[attack] == pytest.approx(value, abs=0.015)


def test_few_references_cost_little() -> None:
    """Four of them, two on each side: five seeds of 2,000 records, a standard error of .006 each."""
    many, few = reached(10_000, 64, 5), reached(2_000, 4, 5)
    for make in BY_MODELS:
        assert 0.6 < few[make.card.name] < many[make.card.name] + 0.02


def test_references_are_worth_their_training() -> None:
    """Which records are hard is known from other models alone; the same records, so that luck cancels."""
    stand = synthetic(2, 4_000, 16).stand
    plain = stand.auc(scores_of(Loss, stand.view(OUTSIDER)))
    for make in BY_MODELS:
        assert stand.auc(scores_of(make, stand.view(OUTSIDER))) > plain + 0.03


# What is found, and what is not


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.card.name)
def test_a_planted_signal_is_found(make: type[MembershipAttack]) -> None:
    """525 coins: .7 is 8 standard errors above chance."""
    stand = member_stand(3, 4.0, hints=75)
    assert stand.auc(scores_of(make, stand.view(SERVER))) > 0.7


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.card.name)
def test_nothing_is_found_where_nothing_is(make: type[MembershipAttack]) -> None:
    """Coins that nothing depends on: exact for whatever the scores are (Kolmogorov and Smirnov, two samples), and
    |AUC - 1/2| is at most that distance. Ten stands, one false alarm in 1,000 together.
    """
    for seed in range(10):
        stand = member_stand(200 + seed, 0.0)
        scores, coins = scores_of(make, stand.view(SERVER)), stand.coins[stand.scored]
        apart = stats.ks_2samp(scores[coins == 1], scores[coins == 0], method="exact")
        assert apart.pvalue > 1e-4
        assert abs(stand.auc(scores) - 0.5) <= apart.statistic + 1e-12


@pytest.mark.parametrize(("make", "read"), NEEDS.items())
def test_nothing_else_is_read(make: type[MembershipAttack], read: tuple[str, ...]) -> None:
    """What an attack does not need may be left out: the same scores."""
    view = member_stand(4).view(SERVER)
    alone = changed(view, lambda name, array: array if name.startswith(read) else None)
    assert 0 < len(alone.arrays) < len(view.arrays)
    assert np.array_equal(scores_of(make, alone), scores_of(make, view))


def test_the_loss_keeps_the_order_of_the_true_answers_probability() -> None:
    case = synthetic(5, 3_000, 0)
    rows = case.stand.scored
    scores = scores_of(Loss, case.stand.view(OUTSIDER))
    assert np.array_equal(np.argsort(scores, kind="stable"), np.argsort(case.right[rows], kind="stable"))


def test_one_run_cancels_how_hard_a_record_is() -> None:
    """Hard records and easy ones, all the same before the training: the loss alone shows who is hard."""
    view, coins = canaries(6, 4_000, 1.0, hard=3.0)
    before, after = record_losses(view.arrays, "checkpoints/outputs")[0], record_losses(view.arrays)
    fallen = scores_of(OneRun, view)
    assert fallen == pytest.approx(before - after, rel=1e-6, abs=1e-7)
    assert auc(fallen, coins).value > auc(scores_of(Loss, view), coins).value + 0.1


def test_drift_counts_every_site_in_its_own_unit() -> None:
    """A site whose embeddings are a thousand times larger does not drown the other."""
    stand = member_stand(7, 4.0)
    path = f"checkpoints/activations/{SITE}"
    rng = np.random.default_rng(7)
    noise = rng.standard_normal(stand.transcript.array(path).shape).astype(np.float32)
    small, large = (
        replace(view, arrays={**view.arrays, "checkpoints/activations/B": noise * np.float32(unit)})
        for view, unit in ((stand.view(SERVER), 1), (stand.view(SERVER), 1_000))
    )
    assert scores_of(Drift, large) == pytest.approx(scores_of(Drift, small), rel=1e-4)
    assert stand.auc(scores_of(Drift, large)) > 0.8


def test_drift_is_the_way_from_the_first_checkpoint_to_the_last() -> None:
    """Where a record started, and how it got there, does not count."""
    view = member_stand(22).view(SERVER)
    rng = np.random.default_rng(22)

    def elsewhere(name: str, array: Any) -> Any:
        if not name.startswith("checkpoints/activations/"):
            return array
        made = np.array(array) + 5 * rng.standard_normal(array.shape[1:]).astype(np.float32)
        made[1:-1] = 0
        return made

    assert scores_of(Drift, changed(view, elsewhere)) == pytest.approx(scores_of(Drift, view), rel=1e-4)


def test_rmia_is_tuned_on_the_first_reference_and_never_on_the_target() -> None:
    """The scores are those of that offset, where another one counts."""
    stand = member_stand(23, 4.0, references=8)
    view = stand.view(OUTSIDER)
    rows, others = stand.scored, np.arange(stand.records, len(stand.coins))
    target, models = np.exp(-record_losses(view.arrays)), np.exp(-record_losses(view.arrays, "reference/outputs"))
    member, people = view.array("reference/member")[:, rows] == 1, Population(target[others], models[:, others])
    offset = tune_offset(models[:, rows], member, people, pseudo_target=0)
    expected = {at: rmia_offline(target[rows], models[:, rows], member, people, offset=at) for at in (0.0, offset, 1.0)}
    assert len(expected) == 3
    assert scores_of(Rmia, view) == pytest.approx(expected[offset], abs=1e-6)
    assert abs(expected[0.0] - expected[offset]).max() > 0.05
    other = replace(view, arrays={**view.arrays, f"outputs/{TASK}": -view.array(f"outputs/{TASK}")})
    turned = np.exp(-record_losses(other.arrays))
    again = rmia_offline(turned[rows], models[:, rows], member, replace(people, target=turned[others]), offset=offset)
    assert scores_of(Rmia, other) == pytest.approx(again, abs=1e-6)


def test_nobody_reads_the_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """In files, the secrets beside the recording: from here on whoever opens a recording fails."""
    stand = member_stand(8, 1.0)
    views = [stand.view(SERVER), stand.stored(tmp_path).view(SERVER)]
    (tmp_path / Secrets.file_name()).unlink()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an attack opened a recording")

    for method in ("load", "array", "__post_init__"):
        monkeypatch.setattr(Recording, method, refuse)
    for make in ALL:
        in_memory, in_files = (scores_of(make, view) for view in views)
        assert np.array_equal(in_memory, in_files)
    assert not any("secret" in name or name == MEMBER or "canary" in name for name in views[0].arrays)


@pytest.mark.parametrize("make", [Loss, *BY_MODELS], ids=lambda make: make.card.name)
def test_each_record_is_scored_on_its_own(make: type[MembershipAttack]) -> None:
    """What the audited model says of one record does not move another's score, RMIA's offset least of all."""
    view = member_stand(9).view(OUTSIDER)
    name = f"outputs/{TASK}"
    other = np.array(view.array(name))
    other[view.candidates[:250]] *= -1
    before, after = scores_of(make, view), scores_of(make, replace(view, arrays={**view.arrays, name: other}))
    assert np.array_equal(before[250:], after[250:])
    assert (before[:250] != after[:250]).mean() > 0.9


# Refusals


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.card.name)
def test_hints_that_are_scored_are_refused(make: type[MembershipAttack]) -> None:
    view = member_stand(10).view(SERVER)
    overlapping = replace(view, hints=Hints(view.candidates[:5], np.array([0, 1, 0, 1, 1])))
    with pytest.raises(InputError, match="hints and scored records overlap"):
        make()(overlapping, np.random.default_rng(0))


@pytest.mark.parametrize("make", (Loss, OneRun, *BY_MODELS, Trajectory), ids=lambda make: make.card.name)
def test_without_true_answers_there_is_no_loss(make: type[MembershipAttack]) -> None:
    view = without(member_stand(11).view(SERVER), f"outputs/{TASK}/labels")
    assert "true answers, which were not recorded" in refusal_of(make, view)


@pytest.mark.parametrize("make", BY_MODELS, ids=lambda make: make.card.name)
def test_without_references(make: type[MembershipAttack]) -> None:
    view = without(member_stand(12).view(OUTSIDER), "reference/")
    assert refusal_of(make, view) == "needs reference models, and none were trained"


@pytest.mark.parametrize("make", [Lira, LiraOffline], ids=lambda make: make.card.name)
def test_one_reference_shows_no_variance(make: type[MembershipAttack]) -> None:
    view = changed(member_stand(13).view(OUTSIDER), lambda name, a: a[:1] if name.startswith("reference/") else a)
    assert "needs 2 reference models" in refusal_of(make, view)


def seen_by_all(view: View, row: int, but: int = 0) -> View:
    """Every reference was trained on the record, but for the first so many."""

    def change(name: str, array: Any) -> Any:
        if name != "reference/member":
            return array
        made = np.array(array)
        made[:, row] = 1
        made[:but, row] = 0
        return made

    return changed(view, change)


@pytest.mark.parametrize(
    ("make", "but", "said"),
    [
        (Lira, 0, "needs 2 reference models not trained on it for every record; record 321 has 0"),
        (Lira, 1, "needs 2 reference models not trained on it for every record; record 321 has 1"),
        (Lira, 16, "needs 2 reference models trained on it for every record; record 321 has 0"),
        (LiraOffline, 0, "needs 2 reference models not trained on it for every record; record 321 has 0"),
        (LiraOffline, 1, "needs 2 reference models not trained on it for every record; record 321 has 1"),
        (Rmia, 0, "needs a reference model that was not trained on the record; record 321 has none"),
    ],
)
def test_a_record_with_too_few_references_on_a_side(make: type[MembershipAttack], but: int, said: str) -> None:
    assert refusal_of(make, seen_by_all(member_stand(14).view(OUTSIDER), 321, but)) == said


@pytest.mark.parametrize(("make", "but"), [(LiraOffline, 16), (Rmia, 16), (Rmia, 1)])
def test_offline_attacks_need_nobody_who_saw_the_record(make: type[MembershipAttack], but: int) -> None:
    view = seen_by_all(member_stand(15).view(OUTSIDER), 321, but)
    assert np.isfinite(scores_of(make, view)).all()


@pytest.mark.parametrize("references", [1, 2])
def test_too_few_references_to_tune_on_leave_the_papers_offset(references: int) -> None:
    """One leaves no other; of two halves that complete each other, whoever the second never saw, the first did."""
    stand = member_stand(24, references=0)
    n = len(stand.coins)
    member = np.zeros((references, n), np.uint8)
    if references == 2:
        member[:, : stand.records] = balanced_halves(np.random.default_rng(24), 2, stand.records)
    logits = stand.transcript.array(f"outputs/{TASK}") + np.random.default_rng(25).normal(size=(references, n, 1))
    added = {f"reference/outputs/{TASK}": logits.astype(np.float32), "reference/member": member}
    view = replace(stand.view(OUTSIDER), arrays={**stand.view(OUTSIDER).arrays, **added})
    rows, others = stand.scored, np.arange(stand.records, n)
    target, models = np.exp(-record_losses(view.arrays)), np.exp(-record_losses(view.arrays, "reference/outputs"))
    people = Population(target[others], models[:, others])
    expected = rmia_offline(target[rows], models[:, rows], member[:, rows], people, offset=0.3)
    assert scores_of(Rmia, view) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("make", BY_MODELS, ids=lambda make: make.card.name)
def test_records_that_are_not_asked_for_need_no_references(make: type[MembershipAttack]) -> None:
    stand = member_stand(16)
    view = seen_by_all(stand.view(OUTSIDER), int(stand.view().hints.index[0]))
    assert np.isfinite(scores_of(make, view)).all()


@pytest.mark.parametrize("marked", [True, False], ids=["nobody", "not said"])
def test_without_a_population(marked: bool) -> None:
    def change(name: str, array: Any) -> Any:
        return array if name != "outputs/population" else np.zeros_like(array) if marked else None

    view = changed(member_stand(17).view(OUTSIDER), change)
    assert "records that no model was trained on (outputs/population)" in refusal_of(Rmia, view)
    assert np.isfinite(scores_of(Lira, view)).all()


@pytest.mark.parametrize(
    ("make", "prefix", "said"),
    [
        (OneRun, "checkpoints/outputs/", "outputs of an early checkpoint"),
        (Trajectory, "checkpoints/outputs/", "outputs of an early checkpoint"),
        (GradientNorm, "checkpoints/gradients/", "cut gradients at checkpoints"),
        (Drift, "checkpoints/activations/", "cut activations at checkpoints"),
        (Embedding, "activations/", "cut activations of the asked records"),
    ],
)
def test_without_what_was_kept_on_the_way(make: type[MembershipAttack], prefix: str, said: str) -> None:
    assert said in refusal_of(make, without(member_stand(18).view(SERVER), prefix))


@pytest.mark.parametrize(
    ("make", "channel"),
    [(OneRun, "checkpoints"), (Embedding, "activations"), (Drift, "checkpoints"), (GradientNorm, "checkpoints")],
)
def test_an_outsider_sees_the_outputs_alone(make: type[MembershipAttack], channel: str) -> None:
    view = member_stand(19).view(OUTSIDER)
    assert {name.split("/")[0] for name in view.arrays} == {"outputs", "reference"}
    assert refusal_of(make, view) == f"needs the channel {channel}, which curious outsider does not see"


@pytest.mark.parametrize("make", [GradientNorm, Embedding, Trajectory], ids=lambda make: make.card.name)
def test_who_was_told_nothing_cannot_fit_to_it(make: type[MembershipAttack]) -> None:
    untold = replace(SERVER, knowledge=frozenset())
    assert "needs to know the hints" in refusal_of(make, member_stand(20).view(untold))


@pytest.mark.parametrize("make", [Loss, Lira, LiraOffline, OneRun], ids=lambda make: make.card.name)
def test_very_sure_models_tie_nobody(make: type[MembershipAttack]) -> None:
    """Every model surer of every true answer by 40: losses of 1e-17 and less, in the same order as before."""
    stand = member_stand(26)
    view = stand.view(SERVER)
    towards = np.float32(40) * (2 * np.asarray(view.arrays[f"outputs/{TASK}/labels"], np.float32) - 1)
    surer = changed(view, lambda name, array: array + towards if name.endswith(f"outputs/{TASK}") else array)
    assert record_losses(surer.arrays).max() < 1e-12
    assert stand.auc(scores_of(make, surer)) == pytest.approx(stand.auc(scores_of(make, view)), abs=0.03)


# One run


def canaries(seed: int, m: int, shift: float, hard: float = 1.0) -> tuple[View, npt.NDArray[np.uint8]]:
    """m records and their logits, before training N(0, hard^2) but for a little noise, and after it with noise of 1; a
    member's is `shift` higher. What is recorded of a coin is what a Gaussian mechanism of mu = shift releases.
    """
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, m).astype(np.uint8)
    logits = rng.normal(0, hard, m)
    first, last = logits + rng.normal(0, 0.1, m), logits + shift * coins + rng.standard_normal(m)
    arrays = {
        "outputs/ill": last[:, None].astype(np.float32),
        "outputs/ill/labels": np.ones((m, 1), np.int64),
        "checkpoints/outputs/ill": first[None, :, None].astype(np.float32),
    }
    rows = np.arange(m)
    return view_of(SERVER, Transcript(arrays), secret=MEMBER, moved=(), candidates=rows, hints=Hints.none()), coins


def limit(seed: int, m: int, shift: float) -> OneRunBound:
    view, coins = canaries(seed, m, shift)
    return steinke_eps(one_run_guesses(scores_of(OneRun, view), coins), delta=DELTA, alpha=1 - LEVEL)


def test_a_one_run_audit_seldom_finds_what_is_not_there() -> None:
    """200 runs of 400 coins at level .05: an honest error rate shows more than 21 of them less than once in 1,000."""
    most = int(stats.binom.isf(1e-3, 200, 0.05))
    assert most == 21
    assert sum(limit(seed, 400, 0.0).eps > 0 for seed in range(200)) <= most


@pytest.mark.parametrize("shift", [1.5, 3.0])
def test_a_one_run_audit_finds_some_of_what_is_there(shift: float) -> None:
    """The truth is known; at level .05 more than 5 of 20 runs above it are seen one time in 3,000."""
    truth = gdp_eps(shift, DELTA)
    found = [limit(seed, 2_000, shift).eps for seed in range(20)]
    assert min(found) > 0.5
    assert sum(eps > truth for eps in found) <= 5


def test_a_fifth_of_the_canaries_is_guessed_whatever_the_scores() -> None:
    view, coins = canaries(0, 1_003, 1.0)
    guesses = one_run_guesses(scores_of(OneRun, view), coins)
    assert (guesses.m, guesses.guessed) == (1_003, 2 * (1_003 // (2 * GUESSED)))
    order = np.argsort(scores_of(OneRun, view))
    assert guesses.right == coins[order[-100:]].sum() + (1 - coins[order[:100]]).sum()


def test_the_trajectory_reads_every_checkpoint() -> None:
    """What shows in the middle of the training only, and is gone at its end, is found too."""
    stand = member_stand(21, 0.0)
    name = f"checkpoints/outputs/{TASK}"
    logits = np.array(stand.transcript.array(name))
    labels = stand.transcript.array(f"outputs/{TASK}/labels")
    assert len(logits) == CHECKPOINTS
    logits[1] += 5 * stand.coins[:, None] * (2 * labels - 1)
    view = replace(stand.view(SERVER), arrays={**stand.view(SERVER).arrays, name: logits})
    found = {make: auc(scores_of(make, view), stand.coins[stand.scored]).value for make in (Trajectory, OneRun)}
    assert found[Trajectory] > 0.9
    assert found[OneRun] == pytest.approx(0.5, abs=4 / np.sqrt(3 * (RECORDS - 100)))

"""Faults that membership inference once had: each stays mended."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privbench.attack import Hints, NotApplicable
from privbench.attacks.membership.cut_layer import Embedding, GradientNorm
from privbench.attacks.membership.lira import Lira
from privbench.attacks.membership.loss import Loss
from privbench.attacks.membership.trajectory import Trajectory
from privbench.blind import blind_scores
from privbench.conformance.members import TASK, member_stand
from privbench.errors import InputError
from privbench.findings import Header
from privbench.findings_members import DELTA, assemble_members, one_run_guesses
from privbench.losses import record_losses, scaled_logits
from privbench.membership import Exposed, Membership, ask_all
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.registry import default_registry
from privbench.stats.auc import auc
from privbench.stats.one_run import steinke_eps
from privbench.target import TargetRun
from privbench.threat import curious_outsider, server_with_patients
from privbench.workers import Job, _keep, _kept

RNG = np.random.default_rng
OUT, SRV = curious_outsider(), server_with_patients()


def test_scaled_logits_of_a_large_loss() -> None:
    assert scaled_logits(np.array([1_000.0]))[0] == pytest.approx(-1_000)


def test_lira_of_a_model_that_is_surely_wrong() -> None:
    view = member_stand(1).view(OUT)
    sure = {k: np.asarray(a) * np.float32(1000) if k.endswith(f"outputs/{TASK}") else a for k, a in view.arrays.items()}
    assert np.isfinite(Lira()(replace(view, arrays=sure), RNG(0))).all()


def test_a_label_of_2_in_a_column_of_yes_or_no() -> None:
    with pytest.raises(InputError):
        record_losses({"outputs/a": np.zeros((3, 3)), "outputs/a/labels": np.array([[2, 0, 1]] * 3)})


def test_one_label_per_record_for_one_logit() -> None:
    with pytest.raises(InputError, match="outputs/a/labels"):
        record_losses({"outputs/a": np.zeros((3, 1)), "outputs/a/labels": np.array([0, 1, 0])})


def asked(scores: np.ndarray, coins: np.ndarray) -> Membership:
    name, m = "membership/one-run", len(coins)
    exposed = Exposed(replace(Loss.card, name=name), OUT, scores.astype(np.float32))
    return Membership({name: exposed}, {}, np.arange(m), coins, None, m, 0)


@pytest.mark.parametrize("members", [0, 19, 181, 200])
def test_too_few_on_a_side_are_refused(members: int) -> None:
    """Members and others are told apart by their scores: a handful on a side shows nothing."""
    coins = np.zeros(200, np.uint8)
    coins[:members] = 1
    made = run(coins) if 0 < members < len(coins) else None
    if made is None:
        with pytest.raises(InputError, match="needs records that were trained on and others"):
            run(coins)
        return
    with pytest.raises(InputError, match=f"membership: a coin put {members} of 200 candidates"):
        ask_all((), default_registry(), (OUT,), made, 0, lambda stage, share: None)


@pytest.mark.parametrize("m", [1_062, 1_043])
def test_equal_scores_are_no_evidence(m: int) -> None:
    tossed = [RNG(seed).integers(0, 2, m).astype(np.uint8) for seed in range(200)]
    guesses = [one_run_guesses(np.zeros(m), coins) for coins in tossed]
    assert sum(steinke_eps(item, delta=DELTA, alpha=0.05).eps > 0 for item in guesses) <= 21


def test_the_blind_of_a_small_cohort_is_centred() -> None:
    values = []
    for seed in range(100):
        rng = RNG(seed)
        coins = rng.integers(0, 2, 40).astype(np.uint8)
        s = Secrets({MEMBER: coins, "inputs/A": rng.standard_normal((40, 4, 3)).astype(np.float32)})
        values.append(auc(blind_scores(s, *s.memberships(), np.arange(40), rng), coins).value)
    assert abs(np.mean(values) - 0.5) < 4 / np.sqrt(3 * 40 * 100)


def test_a_score_of_1e39_is_refused() -> None:
    class Large(Loss):
        def run(self, view, rng):
            return super().run(view, rng) * 1e39

    with pytest.raises(ValueError, match="not finite in 32 bits"):
        Large()(member_stand(2).view(OUT), RNG(0))


@pytest.mark.parametrize("make", [Embedding, GradientNorm, Trajectory])
@pytest.mark.parametrize("told", [0, 3])
def test_hints_of_one_class_or_none_are_a_refusal(make, told: int) -> None:
    view = member_stand(3).view(SRV)
    one = replace(view, hints=Hints(view.hints.index[:told], np.ones(told, np.int64)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(make()(one, RNG(0)), NotApplicable)


def test_token_activations_are_a_refusal_or_are_read() -> None:
    view = member_stand(4).view(SRV)
    tokens = RNG(0).standard_normal((1, 800, 5, 8)).astype(np.float32)
    found = Embedding()(replace(view, arrays={**view.arrays, "activations/A": tokens}), RNG(0))
    assert isinstance(found, NotApplicable) or found.shape == view.candidates.shape


def run(coins: np.ndarray | None = None) -> TargetRun:
    member = np.array([0, 1, 0, 1, 1], np.uint8) if coins is None else coins
    n = len(member)
    t = Transcript({"outputs/y": np.zeros((n, 1), np.float32), "outputs/y/labels": np.zeros((n, 1), np.int64)})
    return TargetRun(t, None, Secrets({MEMBER: member}), (), {}, "")


@pytest.mark.parametrize("keys", ["aaaa", "abcd"])
def test_audits_side_by_side_share_a_cache(tmp_path: Path, keys: str) -> None:
    wrong: list[Exception] = []

    def keep(key: str) -> None:
        for _ in range(60):
            try:
                _keep(run(), Job("reference-1", None, None, 0, tmp_path / "references" / key))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=keep, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_stray_link_in_the_cache_does_not_end_an_audit(tmp_path: Path) -> None:
    job = Job("reference-1", None, None, 0, tmp_path / "references" / "a")
    job.kept.parent.mkdir(parents=True)
    (job.kept.parent / "stray").symlink_to("nowhere")
    _keep(run(), job)


def test_a_run_file_that_lacks_keys_is_made_anew(tmp_path: Path) -> None:
    job = Job("reference-1", None, None, 0, tmp_path / "references" / "a")
    _keep(run(), job)
    (job.kept / "run.json").write_text("{}")
    assert _kept(job) is None


def test_lopsided_memberships_raise_a_flag() -> None:
    coins = (RNG(0).random(2_000) < 0.9).astype(np.uint8)
    assert (
        "COINS_NOT_FAIR"
        in assemble_members(Header("x", 0, "none", None), asked(RNG(1).random(2_000), coins), default_registry()).flags
    )

"""A whole audit, small: findings, controls, determinism, and broken mechanisms that must be caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMALL, measured

from privbench.errors import InputError
from privbench.gate import gate
from privbench.options import AuditOptions
from privbench.record import Audit
from privbench.registry import Registry
from privbench.runner import AuditResult, run_audit
from privbench.scoring import count_right
from privbench.stats import binomial
from privbench.targets.prism.tape import Tape
from privbench.targets.prism.train import Trainer

MEDIUM = {**SMALL, "train": "300", "canaries": "240", "epochs": "10", "clip_factor": "2"}


def audit(registry: Registry, settings: dict[str, str] | None = None, **options: Any) -> Audit:
    """Of label attacks, unless others are asked for: what is judged here is theirs."""
    options = {"eps": 0.5, "attacks": ("label",)} | options
    if "noise_multiplier" in options:
        del options["eps"]
    return run_audit(AuditOptions("prism", settings=settings or SMALL, **options), registry, parallel=1).audit


def test_every_planned_cell_has_exactly_one_finding(small_audit: AuditResult) -> None:
    found = [finding.id for finding in small_audit.audit.findings]
    assert found == list(small_audit.audit.planned)
    assert len(set(found)) == len(found)
    assert small_audit.audit.missing == ()


def test_the_confirmatory_set_is_the_designs_six(small_audit: AuditResult) -> None:
    judged = {(f.attack, f.id.rsplit("/", 1)[1]) for f in small_audit.audit.findings if f.role == "confirmatory"}
    assert judged == {
        ("label/oracle-lr", "g"),
        ("label/oracle-lr", "g-composed"),
        ("label/oracle-lr", "dp-cap"),
        ("label/oracle-lr", "nominal-curve"),
        ("label/spectral", "dp-cap"),
        ("label/spectral", "nominal-curve"),
    }


def test_a_site_claim_is_held_against_its_own_cap_only(registry: Registry) -> None:
    findings = audit(registry, eps_for="site").findings
    assert {f.id.rsplit("/", 1)[1] for f in findings if f.role == "confirmatory"} == {"g", "g-composed", "dp-cap"}
    cap = next(f.bound for f in findings if f.id.endswith("dp-cap") and f.bound is not None)
    assert cap["value"] == pytest.approx(0.6225, abs=1e-4)


def test_values_and_p_values_follow_from_the_stored_scores(small_audit: AuditResult) -> None:
    for finding in measured(small_audit.audit):
        key = f"{finding.attack}/joint/{finding.releases}"
        right, n = count_right(small_audit.scores[f"scores/{key}"], small_audit.scores[f"coins/{key}"])
        assert finding.n == n
        assert finding.value == right / n
        assert (finding.low, finding.high) == binomial.clopper_pearson(right, n)
        assert finding.bound is not None
        assert finding.bound["p_value"] == binomial.p_value(right, n, finding.bound["value"])


def test_an_eighth_of_the_canaries_calibrates_and_is_not_scored(small_audit: AuditResult) -> None:
    canaries = int(SMALL["canaries"])
    assert {finding.canaries for finding in measured(small_audit.audit)} == {canaries - canaries // 8}


def test_controls_of_the_oracle_work(small_audit: AuditResult) -> None:
    for finding in small_audit.audit.findings:
        if finding.attack == "label/oracle-lr":
            positive, negative = finding.controls["positive"], finding.controls["negative"]
            assert positive is not None
            assert negative is not None
            assert positive["value"] >= 0.99
            assert negative["low"] <= 0.5 <= negative["high"]


def test_leaving_an_attack_out_changes_no_other_finding(registry: Registry, small_audit: AuditResult) -> None:
    alone = audit(registry, attacks=("label/spectral",))
    for finding in alone.findings:
        twin = next(item for item in small_audit.audit.findings if item.id == finding.id)
        assert (finding.value, finding.low, finding.high) == (twin.value, twin.low, twin.high)
        assert finding.strength is None  # there is no oracle to compare with


def test_without_noise_nothing_reads_as_a_pass(registry: Registry) -> None:
    vacuous = audit(registry, noise_multiplier=0.0)
    assert {f.verdict for f in vacuous.findings if f.role == "confirmatory"} == {"VACUOUS"}
    assert gate(vacuous, strict=True).code == 3


def test_eps_inf_is_uncovered_but_measured(registry: Registry) -> None:
    free = audit(registry, eps=float("inf"))
    assert {finding.verdict for finding in measured(free)} == {"UNCOVERED"}
    assert max(finding.value or 0 for finding in free.findings) > 0.9
    assert gate(free, strict=True).code == 3


def test_noise_left_out_in_every_fifth_release_is_exceeded(registry: Registry) -> None:
    broken = registry.add("defenses", "skips", "broken:SkipsEveryFifth")
    found = audit(broken, MEDIUM, defenses=("skips",))
    assert found.finding("label/oracle-lr", "g").verdict == "EXCEEDED"
    assert "ORACLE_ABOVE_PREDICTION" in {flag["name"] for flag in found.flags}
    assert gate(found).code == 1


@pytest.mark.parametrize(
    ("broken", "flag"),
    [
        ("HalfTheNoise", "NOISE_NOT_AS_DECLARED"),
        ("TooMuchNoise", "NOISE_NOT_AS_DECLARED"),
        ("SilentForSomeRecords", "NOISE_NOT_AS_DECLARED"),
        ("SkipsEveryFifth", "NOISE_NOT_AS_DECLARED"),
        ("ReusesNoise", "NOISE_REUSED"),
        ("OneDrawPerBatch", "NOISE_REUSED"),
        ("ClipsByTheBatchMaximum", "CLIP_DEPENDS_ON_BATCH"),
        ("ClipsTheSumOnly", "MOVES_EXCEED_CLIP"),
    ],
)
def test_a_mechanism_that_is_not_as_declared_is_flagged_and_never_passes(
    registry: Registry, broken: str, flag: str
) -> None:
    settings = {**SMALL, "epochs": "5", "clip_factor": "0.5"}
    found = audit(registry.add("defenses", "broken", f"broken:{broken}"), settings, defenses=("broken",))
    assert flag in {item["name"] for item in found.flags}
    assert {f.verdict for f in found.findings if f.role == "confirmatory"} <= {"FAILED", "EXCEEDED"}
    assert gate(found).code in (1, 3)


def test_a_clip_after_the_sum_is_flagged(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's noise-free releases, clipped after summing, behind a mechanism that declares a clip per task."""
    honest = Tape.hypotheses

    def clipped(self: Tape, *arguments: Any) -> None:
        honest(self, *arguments)
        rows = arguments[0]
        for name, array in self._epoch.items():
            if name.endswith(("/0", "/1")):
                norm = np.linalg.norm(array[rows], axis=1, keepdims=True)
                array[rows] *= np.minimum(1, CLIP / np.maximum(norm, 1e-30))

    CLIP = audit(registry, {**MEDIUM, "epochs": "1"}).mechanisms[0]["clip"]  # noqa: N806 - set before the first epoch
    monkeypatch.setattr(Tape, "hypotheses", clipped)
    found = audit(registry, MEDIUM)
    assert "CLIP_AFTER_SUM" in {flag["name"] for flag in found.flags}
    assert {f.verdict for f in found.findings if f.role == "confirmatory"} <= {"FAILED", "EXCEEDED"}


@pytest.mark.parametrize("fault", ["mean-reduced loss", "batch-level loss"])
def test_a_loss_that_mixes_records_is_flagged(registry: Registry, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    honest = Trainer._losses

    def mixed(self: Trainer, logits: Any, batch: Any) -> Any:
        losses = honest(self, logits, batch)
        if fault == "mean-reduced loss":
            return {task: loss / len(batch) for task, loss in losses.items()}
        return {task: loss * (1 + loss.mean()) for task, loss in losses.items()}

    monkeypatch.setattr(Trainer, "_losses", mixed)
    found = audit(registry)
    assert "CLIP_DEPENDS_ON_BATCH" in {flag["name"] for flag in found.flags}
    assert {f.verdict for f in found.findings if f.role == "confirmatory"} <= {"FAILED", "EXCEEDED"}


def test_a_bound_of_another_unit_is_refused(registry: Registry) -> None:
    with pytest.raises(InputError, match="answers in auc where accuracy was asked"):
        audit(registry.add("bounds", "wrong-unit", "broken_attacks:WrongUnit"))


def test_many_attacks_share_the_error_rate(registry: Registry, small_audit: AuditResult) -> None:
    """Best-of-many without correction is a mistake: every attack that counts makes each test's share smaller."""
    crowded = audit(registry.add("attacks", "label/again", "broken_attacks:SpectralAgain"))
    shares = [
        min(f.bound["alpha"] for f in found.findings if f.role == "confirmatory" and f.bound)
        for found in (small_audit.audit, crowded)
    ]
    assert shares[0] == pytest.approx(0.045 / 6)
    assert shares[1] == pytest.approx(0.045 / 8)


def test_encoders_that_never_move_are_seen_to_have_learned_nothing(registry: Registry) -> None:
    """The control differs from the treatment in one thing only: same start, same order, same choice of epoch."""
    still = audit(registry, {**SMALL, "encoder_rate": "1e-30"})
    # Embeddings of a batch and of the whole cohort round differently on some processors: a pair of stays in 10^4.
    assert all(abs(item["gain"]) < 1e-4 for item in still.utility)
    assert "ENCODERS_LEARNED_NOTHING" in {flag["name"] for flag in still.flags}


def test_an_honest_audit_raises_no_flag_about_its_noise(small_audit: AuditResult) -> None:
    names = {flag["name"] for flag in small_audit.audit.flags}
    assert not names & {"NOISE_NOT_AS_DECLARED", "NOISE_REUSED", "MOVES_EXCEED_CLIP", "ORACLE_WEAK"}
    assert small_audit.audit.noise is not None
    assert small_audit.audit.noise["sites"] == 3


def test_a_clip_that_never_binds_is_flagged(registry: Registry) -> None:
    loose = audit(registry, {**SMALL, "clip_factor": "100000"}, noise_multiplier=1.0)
    assert "CLIP_NEVER_BINDS" in {flag["name"] for flag in loose.flags}


def test_an_attack_that_raises_is_failed_and_never_missing(registry: Registry) -> None:
    broken = registry.add("attacks", "label/raises", "broken_attacks:Raises")
    found = audit(broken, attacks=("label/raises", "label/oracle-lr"))
    failed = [finding for finding in found.findings if finding.attack == "label/raises"]
    assert {finding.verdict for finding in failed} == {"FAILED"}
    assert all("ValueError: out of luck" in finding.reason for finding in failed)
    assert gate(found).code in (1, 3)
    assert found.missing == ()


def test_a_single_release_plans_g_only_once(registry: Registry) -> None:
    single = audit(registry, {**SMALL, "epochs": "1"}, noise_multiplier=2.0)
    bounds = [finding.id.rsplit("/", 1)[1] for finding in single.findings if finding.attack == "label/oracle-lr"]
    assert bounds.count("g") == 1
    assert "g-composed" not in bounds


def test_unknown_attack_is_refused_before_training(registry: Registry) -> None:
    with pytest.raises(InputError, match="unknown attack 'lable'"):
        audit(registry, attacks=("lable",))


def test_series_hold_the_whole_curve(small_audit: AuditResult) -> None:
    for name in ("label/oracle-lr", "label/spectral", "oracle, predicted", "bound g-composed"):
        assert list(small_audit.audit.series[name].x) == [1.0, 2.0, 3.0]
    curve = small_audit.scores["curve/label/oracle-lr/joint"]
    assert np.array_equal(curve[-1], small_audit.scores["scores/label/oracle-lr/joint/3"])

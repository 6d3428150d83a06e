"""Estimated inputs: against closed forms, naive twins, null and broken cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL

from privbench.attack import Hints, NotApplicable, View, view_of
from privbench.attacks.inversion.decoders import Mlp, Sequence
from privbench.attacks.inversion.ridge import Ridge
from privbench.errors import InputError
from privbench.estimated import Measured
from privbench.estimates import Estimation, Floats, Known, known_to
from privbench.estimating import Estimates, estimate_all
from privbench.findings import Header, Judged
from privbench.findings_estimates import assemble_estimates
from privbench.options import AuditOptions, RecordingFiles
from privbench.record import Finding, write
from privbench.recording import Secrets, Transcript
from privbench.registry import Registry
from privbench.report.pages import PAGES, render
from privbench.runner import AuditResult, prepare, run_audit, run_prepared
from privbench.stats.binomial import clopper_pearson
from privbench.target import TargetRun
from privbench.threat import curious_server, malicious_server, server_with_patients
from privbench.verify import verify

RECORDS, WIDTH, INPUTS = 3_000, 24, 6
HALF = RECORDS // 2


def audited(registry: Registry, seed: int = 0, **settings: str) -> Mapping[str, Finding]:
    """The findings of ridge regression on a linear cut, by metric."""
    given = {"records": str(RECORDS), "width": str(WIDTH), "inputs": str(INPUTS), "releases": "1", **settings}
    options = AuditOptions("gaussian", attacks=("inversion/ridge",), sigma=4.0, seed=seed, settings=given)
    return {item.metric: item for item in run_audit(options, registry).audit.findings}


@pytest.mark.parametrize("noise", ["0.25", "0.5", "1", "2"])
def test_ridge_reaches_the_closed_form_of_a_linear_cut(registry: Registry, noise: str) -> None:
    """R2 = 1 / (1 + s^2), within 1%; learning from 6,000 known records costs d / A of the rest, .4% of it."""
    found = [audited(registry, seed, cut_noise=noise, records="12000")["r2"].value for seed in range(3)]
    assert np.mean([value for value in found if value is not None]) == pytest.approx(
        1 / (1 + float(noise) ** 2), abs=0.01
    )


def test_the_interval_holds_the_closed_form(registry: Registry) -> None:
    """Of 40 runs at 95% at least 33 do; fewer happens once in 500. .02 is allowed for what is still to be learned."""
    held = 0
    for seed in range(40):
        found = audited(registry, seed, cut_noise="0.5", records="1200")["r2"]
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.8 <= found.high + 0.02
    assert held >= 33


def test_a_silent_cut_tells_nothing(registry: Registry) -> None:
    found = audited(registry, cut_noise="1000")
    assert found["r2"].value == pytest.approx(0.0, abs=0.03)
    assert found["r2-share"].value == 0.0
    again = found["re-identification"]
    assert again.value is not None
    assert again.low is not None
    assert again.low <= 1 / HALF


def test_records_are_found_again_where_little_is_lost(registry: Registry) -> None:
    found = audited(registry, cut_noise="0.05")["re-identification"]
    assert found.value is not None
    assert found.value > 0.9
    assert found.chance == pytest.approx(1 / HALF)
    assert (found.low, found.high) == clopper_pearson(round(found.value * HALF), HALF)


@pytest.fixture
def drawn() -> Measured:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((60, 5, 3)) * [1, 10, 100] + [0, 50, -7]
    return Measured(values, rng.random(values.shape) < 0.7)


def test_r2_is_that_of_a_loop(drawn: Measured) -> None:
    rng = np.random.default_rng(4)
    estimate = drawn.values + rng.standard_normal(drawn.values.shape) * [0.5, 3, 90]
    for k, found in enumerate(drawn.fit(estimate).r2):
        seen = drawn.observed[:, :, k]
        truth, guess = drawn.values[:, :, k][seen], estimate[:, :, k][seen]
        assert found == pytest.approx(1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


def test_the_mean_explains_nothing_and_the_truth_all(drawn: Measured) -> None:
    mean = (drawn.values * drawn.observed).sum(axis=(0, 1)) / drawn.observed.sum(axis=(0, 1))
    assert drawn.fit(np.broadcast_to(mean, drawn.values.shape)).r2 == pytest.approx(np.zeros(3), abs=1e-12)
    exact = drawn.fit(drawn.values)
    assert exact.r2 == pytest.approx(np.ones(3))
    assert exact.hit == len(drawn.values)


def test_what_was_not_measured_does_not_count(drawn: Measured) -> None:
    rng = np.random.default_rng(5)
    estimate = drawn.values + rng.standard_normal(drawn.values.shape)
    noise = np.where(drawn.observed, 0.0, 1e6)
    changed, other = drawn.fit(estimate + noise), replace(drawn, values=drawn.values + noise).fit(estimate)
    for found in (changed, other):
        assert found.r2 == pytest.approx(drawn.fit(estimate).r2)


def test_the_nearest_record_is_that_of_a_loop(drawn: Measured) -> None:
    rng = np.random.default_rng(6)
    estimate = drawn.values + 1.2 * rng.standard_normal(drawn.values.shape) * [1, 10, 100]
    spread = np.array([drawn.values[:, :, k][drawn.observed[:, :, k]].std() for k in range(3)])
    hits = 0
    for i in range(len(estimate)):
        far = [
            (((estimate[i] - drawn.values[j]) / spread) ** 2)[drawn.observed[j]].mean() for j in range(len(estimate))
        ]
        hits += int(np.argmin(far)) == i
    assert drawn.fit(estimate).hit == hits
    assert 0 < hits < len(estimate)


def _held(records: int, freedom: int, features: int) -> float:
    """How often, of 500, the interval of R2 holds the truth: of inputs and noise of one law half their sum is the best
    estimate, and explains half.
    """
    rng, found = np.random.default_rng(records + freedom), 0
    for _ in range(500):
        drawn = [
            rng.standard_t(freedom, (records, 1, features)) if freedom else rng.standard_normal((records, 1, features))
            for _ in range(2)
        ]
        low, high = Measured(drawn[0], np.ones(drawn[0].shape, bool)).fit((drawn[0] + drawn[1]) / 2).interval()
        found += low <= 0.5 <= high
    return found / 500


@pytest.mark.parametrize("features", [1, 8])
@pytest.mark.parametrize(("records", "freedom", "least"), [(64, 0, 0.93), (400, 0, 0.93), (64, 3, 0.86), (400, 5, 0.9)])
def test_intervals_hold_the_truth_as_often_as_is_said(records: int, freedom: int, least: float, features: int) -> None:
    """docs/membership-and-inversion.md says so; 4 standard errors of a share of 500 are allowed below."""
    assert least - 4 * (least * (1 - least) / 500) ** 0.5 <= _held(records, freedom, features) <= 0.99


def test_a_feature_that_does_not_vary_is_left_out() -> None:
    rng = np.random.default_rng(7)
    values = rng.standard_normal((40, 2, 3))
    values[:, :, 1] = 5.0
    found = Measured(values, np.ones(values.shape, np.bool_)).fit(values + 0.1)
    assert len(found.r2) == 2
    assert np.isfinite(found.r2).all()


def server_view(known: int = 100, overlap: bool = False, **arrays: np.ndarray) -> View:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4, 2)).astype(np.float32)
    e = (x.reshape(300, 8) @ rng.standard_normal((8, 12)))[None].astype(np.float32)
    held = {
        "activations/A": e,
        "auxiliary/index": np.arange(known),
        "auxiliary/server/inputs/A": x[:known],
        **arrays,
    }
    rows = np.arange(0 if overlap else known, 300)
    transcript = Transcript({name: array for name, array in held.items() if array is not None})
    return view_of(server_with_patients(), transcript, secret="A", moved=(), candidates=rows, hints=Hints.none())


ATTACKS: tuple[Estimation, ...] = (Ridge(), Mlp(epochs=15), Sequence(epochs=3))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda item: item.card.name)
def test_a_seed_gives_the_same_estimates_in_the_inputs_own_units(attack: Estimation) -> None:
    view = server_view()
    first, second = (attack(view, np.random.default_rng(1)) for _ in range(2))
    assert isinstance(first, np.ndarray)
    assert first.shape == (200, 4, 2)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("attack", ATTACKS[:2], ids=lambda item: item.card.name)
def test_units_come_back(attack: Estimation) -> None:
    """Inputs of another unit and zero are estimated in that unit: every step is affine in them."""
    view = server_view()
    scaled = server_view(**{"auxiliary/server/inputs/A": np.asarray(view.arrays["auxiliary/server/inputs/A"]) * 40 + 7})
    plain, other = (attack(item, np.random.default_rng(1)) for item in (view, scaled))
    assert isinstance(plain, np.ndarray)
    assert other == pytest.approx(plain * 40 + 7, rel=1e-2, abs=0.5)


def test_who_is_known_is_never_scored() -> None:
    with pytest.raises(InputError, match="auxiliary/index names records that are to be estimated"):
        Ridge()(server_view(overlap=True), np.random.default_rng(0))


@pytest.mark.parametrize("missing", ["activations/A", "auxiliary/index", "auxiliary/server/inputs/A"])
def test_what_is_missing_is_named(missing: str) -> None:
    view = server_view()
    less = replace(view, arrays={name: array for name, array in view.arrays.items() if name != missing})
    found = known_to(less)
    assert isinstance(found, NotApplicable)
    assert missing in found.reason


def test_too_few_known_records_are_refused() -> None:
    found = Ridge()(server_view(known=12), np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert "12 are recorded" in found.reason


def test_a_server_without_records_of_its_own_cannot_learn() -> None:
    view = replace(server_view(), threat=curious_server())
    found = Ridge()(view, np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert "auxiliary" in found.reason


def test_constant_features_and_gaps_are_no_trouble() -> None:
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((100, 4, 2)).astype(np.float32)
    inputs[:, :, 1] = 3.0
    mask = (rng.random(inputs.shape) < 0.5).astype(np.uint8)
    mask[:, :, 0] = 0
    view = server_view(**{"auxiliary/server/inputs/A": inputs, "auxiliary/server/inputs/A/observed": mask})
    for attack in ATTACKS:
        found = attack(view, np.random.default_rng(0))
        assert isinstance(found, np.ndarray)
        assert np.isfinite(found).all()


class Short(Ridge):
    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return super().run(known, rng)[:-1]


class Lost(Ridge):
    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return super().run(known, rng) * np.nan


@pytest.mark.parametrize(("broken", "said"), [(Short(), "expected"), (Lost(), "not finite")])
def test_broken_estimates_are_refused(broken: Estimation, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broken(server_view(), np.random.default_rng(0))


HIJACKED = AuditOptions("prism", eps=0.5, attacks=("inversion/fsha",), settings=SMALL)


@dataclass(frozen=True)
class Acted:
    """An audit by the attack that acts alone: its record, and the folder of its runs."""

    result: AuditResult
    runs: Path


@pytest.fixture(scope="module")
def acted(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Acted:
    folder = tmp_path_factory.mktemp("runs")
    return Acted(run_prepared(prepare(HIJACKED, registry), registry, parallel=1, folder=folder), folder)


def test_an_attack_that_acts_trains_the_members_run_twice_and_no_references(acted: Acted) -> None:
    """Beside the audited and the clean run, which every audit has."""
    assert {item.name for item in acted.runs.iterdir()} == {"clean", "audited", "members", "active-fsha"}


def test_an_attack_that_acts_says_what_it_did_to_every_task(acted: Acted) -> None:
    audit = acted.result.audit
    assert audit.estimates is not None
    assert list(audit.estimates["harms"]) == ["inversion/fsha"]
    found = audit.estimates["harms"]["inversion/fsha"]
    assert [item["task"] for item in found] == ["decompensation", "ihm", "phenotyping"]
    for item in found:
        assert item["change"] == pytest.approx(item["acted"] - item["honest"])
        assert item["low"] < item["change"] < item["high"]
        assert item["n"] == int(SMALL["test"])


def test_an_attack_that_acts_is_a_malicious_servers(acted: Acted) -> None:
    found = acted.result.audit.findings
    assert [item.metric for item in found] == ["r2", "r2-share", "re-identification"]
    assert {item.threat_model for item in found} == {"malicious server"}
    assert {item.n for item in found if item.metric != "r2-share"} == {2 * int(SMALL["train"])}


def test_a_record_with_harms_agrees_with_itself(acted: Acted, registry: Registry, tmp_path: Path) -> None:
    audit = acted.result.audit
    write(audit, acted.result.scores, render(audit, PAGES), tmp_path / "record")
    assert verify(tmp_path / "record", registry) == ()


@pytest.mark.slow
def test_an_attack_that_acts_does_the_same_in_processes(acted: Acted, registry: Registry) -> None:
    again = run_audit(HIJACKED, registry, parallel=2).audit
    assert again.findings == acted.result.audit.findings
    assert again.estimates == acted.result.audit.estimates


def made(seed: int, **arrays: np.ndarray) -> TargetRun:
    """A run about the records of `server_view`, with inputs of this seed for its secrets."""
    held = {name: np.asarray(values) for name, values in server_view().arrays.items()}
    inputs = np.random.default_rng(seed).standard_normal((300, 4, 2)).astype(np.float32)
    return TargetRun(Transcript(held | arrays), None, Secrets({"inputs/A": inputs}), (), {}, "")


def test_an_attack_is_scored_on_its_own_run_which_must_have_the_same_records(registry: Registry) -> None:
    """The estimates come from the run in which it acted; one about other records is no evidence, and is refused."""
    steered = {"adversary/steered": np.ones(1, np.float32), "activations/A": np.zeros((1, 300, 12), np.float32)}

    def asked(own: TargetRun) -> Estimates:
        names, threats = ("inversion/fsha", "inversion/ridge"), (server_with_patients(), malicious_server())
        runs = {"active-fsha": own}
        return estimate_all(names, registry, threats, made(0), runs, 0, False, lambda stage, share: None)

    found = asked(made(0, **steered)).outcomes
    assert found["inversion/fsha"].fit.mean <= 0
    assert found["inversion/ridge"].fit.mean > 0.9
    assert found["inversion/fsha"].threat == malicious_server()
    with pytest.raises(InputError, match="has other records than the run beside it: 'inputs/A'"):
        asked(made(1, **steered))


class ByOrder(Ridge):
    """Cheats: takes the records that it is asked about for sorted by what it estimates, and looks at no activation."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        spread = np.linspace(-1.7, 1.7, len(known.asked))
        return np.broadcast_to(spread[:, None, None], (len(spread), *known.inputs.shape[1:])).copy()


class Trend(Ridge):
    """Says of every record the hourly means of those that it knows."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        return np.repeat(known.inputs.mean(axis=0)[None], len(known.asked), axis=0)


def controls(registry: Registry, attack: str, inputs: np.ndarray) -> Estimates:
    """`attack` on the records of `server_view`, with these inputs for its secrets and for what the server knows."""
    held = inputs.astype(np.float32)
    run = made(0, **{"auxiliary/server/inputs/A": held[:100]})
    run = replace(run, secrets=Secrets({"inputs/A": held}))
    added = registry.add("attacks", "inversion/mine", f"test_estimates:{attack}")
    quiet = lambda stage, share: None  # noqa: E731
    return estimate_all(("inversion/mine",), added, (server_with_patients(),), run, {}, 0, False, quiet)


def judged(found: Estimates, registry: Registry) -> Judged:
    return assemble_estimates(Header("gaussian", 0, "none", None), found, registry)


def test_an_attack_that_reads_the_order_of_records_is_caught(registry: Registry) -> None:
    """It reads nothing of the records that it was asked about, and all of those in whose places they were."""
    drawn = np.random.default_rng(2).uniform(-1.7, 1.7, 300)
    rising = np.concatenate([drawn[:100], np.sort(drawn[100:])])
    found = controls(registry, "ByOrder", rising[:, None, None] * np.ones((300, 4, 2)))
    (outcome,) = found.outcomes.values()
    assert outcome.fit.mean < 0.1
    assert outcome.wrong.mean > 0.9
    assert judged(found, registry).flags == ("SHUFFLED_CONTROL_FAILED",)


@pytest.mark.parametrize("attack", ["Trend", "Ridge"])
def test_hours_that_differ_in_all_records_are_no_fault(registry: Registry, attack: str) -> None:
    """R2 of the hourly means is .8 and stays so for whatever record: what no constant estimate beats is no leak."""
    trend = np.random.default_rng(2).standard_normal((300, 4, 2)) + 2 * np.arange(4)[:, None]
    found = controls(registry, attack, trend)
    (outcome,) = found.outcomes.values()
    assert outcome.constant.mean == pytest.approx(0.83, abs=0.02)
    assert outcome.wrong.mean > 0.5
    assert judged(found, registry).flags == ()


def test_nobody_stands_in_the_own_place(registry: Registry) -> None:
    """The estimates come back to whose they are, each from another's place: a loop over records says the same."""
    inputs = np.random.default_rng(0).standard_normal((300, 4, 2))
    exact = controls(registry, "Ridge", inputs).outcomes["inversion/mine"]
    assert exact.wrong.mean < 0 < exact.fit.mean
    assert exact.wrong.hit == 0


def test_one_record_that_decides_is_flagged(registry: Registry) -> None:
    """200 records that are read alike, or one of them off by what no other is."""
    inputs = np.random.default_rng(0).standard_normal((300, 4, 2))
    assert judged(controls(registry, "Ridge", inputs), registry).flags == ()
    inputs[250] += 10
    assert judged(controls(registry, "Ridge", inputs), registry).flags == ("R2_RESTS_ON_ONE_RECORD",)


def saved(folder: Path, view: View) -> RecordingFiles:
    """A recording of the server's view, and the inputs behind it."""
    arrays = {name: np.asarray(values) for name, values in view.arrays.items()}
    inputs = np.random.default_rng(0).standard_normal((300, 4, 2)).astype(np.float32)
    files = RecordingFiles(folder / Transcript.file_name(), folder / Secrets.file_name())
    Transcript(arrays).save(files.transcript)
    Secrets({"inputs/A": inputs}).save(files.secrets)
    return files


def test_nobody_acts_in_a_recording(registry: Registry, tmp_path: Path) -> None:
    """What was recorded was not steered: the attack says so, and those that look on run beside it."""
    attacks = ("inversion/fsha", "inversion/ridge")
    options = AuditOptions("recorded", attacks=attacks, recording=saved(tmp_path, server_view()))
    found = {item.attack: item for item in run_audit(options, registry).audit.findings if item.metric == "r2"}
    assert found["inversion/fsha"].verdict == "NOT_APPLICABLE"
    assert "needs a party that changes what it sends" in found["inversion/fsha"].reason
    assert found["inversion/ridge"].value is not None


def test_nobody_acts_in_a_target_without_a_training(registry: Registry) -> None:
    options = AuditOptions(
        "gaussian", attacks=("inversion/fsha", "inversion/ridge"), sigma=4.0, settings={"inputs": "3", "records": "400"}
    )
    found = next(item for item in run_audit(options, registry).audit.findings if item.attack == "inversion/fsha")
    assert found.verdict == "NOT_APPLICABLE"
    assert "needs a party that changes what it sends" in found.reason


def test_of_whom_nothing_was_measured_is_near_to_nobody() -> None:
    values, seen = np.random.default_rng(0).standard_normal((300, 4, 3)), np.ones((300, 4, 3), np.bool_)
    seen[0] = False
    assert Measured(values, seen).fit(values).hit == 299


def test_a_recordings_name_makes_nobody_invented(registry: Registry, tmp_path: Path) -> None:
    """Whose records these are, nobody here knows: nothing of a single one is kept."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 1, 2)).astype(np.float32)
    known = np.arange(100)
    arrays = {"activations/A": x[None, :, 0], "auxiliary/index": known, "auxiliary/server/inputs/A": x[known]}
    Transcript(arrays).save(tmp_path / "synthetic")
    Secrets({"inputs/A": x}).save(tmp_path / "secrets.safetensors")
    files = RecordingFiles(tmp_path / "synthetic", tmp_path / "secrets.safetensors")
    found = run_audit(AuditOptions("recorded", recording=files, attacks=("inversion/ridge",)), registry).audit
    assert found.estimates is not None
    assert found.estimates["r2"]["inversion/ridge"][0] > 0.9
    assert found.estimates["examples"] == []
    assert found.estimates["shown"] is None

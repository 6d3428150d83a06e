"""Clients of several surveys: who holds what, how right the answers are over all of them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandLine
from small_llama import SETTINGS, save_llama

from privbench.data.surveys.splits import parts, portions
from privbench.data.surveys.synthetic import SURVEYS
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import Target, TargetRun, Utility
from privbench.targets.fedavg import running as fed_running
from privbench.targets.fedavg.rounds import Whole
from privbench.targets.fedavg.target import FedAvg
from privbench.targets.split_llama import running as split_running
from privbench.targets.split_llama.answering import ALL_SURVEYS, pooled
from privbench.targets.split_llama.config import Tuning
from privbench.targets.split_llama.material import UNASKED, Material
from privbench.targets.split_llama.respondents import load
from privbench.targets.split_llama.schemas import Part, parts_of, unseen_of
from privbench.targets.split_llama.target import SplitLlama

GRID: Mapping[str, str] = {
    "train": "120", "validation": "16", "test": "40", "clients": "10", "schema": "heterogeneous", "share": "power",
    "batch": "4", "rank": "4", "bottleneck": "8", "prompting": "no", "members": "no",
}  # fmt: skip
SPLIT: Mapping[str, str] = {**GRID, "steps": "140", "record": "8", "public": "0", "prior": "no"}
FED: Mapping[str, str] = {**GRID, "rounds": "1", "local_steps": "1"}
NAMES = list(SURVEYS)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def tuning(**given: Any) -> Tuning:
    several = {"train": 200, "validation": 20, "test": 50, "clients": 10, "members": "no"}
    return Tuning(**{**several, "schema": "heterogeneous", **given})


def ran(target: Target, llama: str, settings: Mapping[str, str], data: str | None = None) -> TargetRun:
    options = AuditOptions(target.card.name, data=data, model=llama, settings=settings)
    return target.run(target.configure(options, default_registry()), stream(0, "run"))


# Who holds what


@pytest.mark.parametrize("share", ["even", "power", "one-large", "9:1:2:3:4:5:6:7:8:9"])
@pytest.mark.parametrize(("schema", "count"), [("homogeneous", 1), ("moderate", 2), ("heterogeneous", 4)])
def test_every_client_holds_as_many_whatever_it_holds(share: str, schema: str, count: int) -> None:
    asked = tuning(share=share, schema=schema)
    found = load("synthetic", asked, np.random.default_rng(0))
    held = np.bincount(np.concatenate([people.holder for people in found]), minlength=10)
    wanted = portions(asked.train, parts(asked.shares, 10))
    assert held.tolist() == wanted.tolist()
    assert [people.splits.train.schema.name for people in found] == NAMES[:count]
    assert [people.clients for people in found] == [tuple(range(first, 10, count)) for first in range(count)]
    for side, total in (("validation", asked.validation), ("test", asked.test)):
        sizes = np.array([len(getattr(people.splits, side)) for people in found])
        assert sizes.sum() == total
        exact = [total * len(people.splits.train) / asked.train for people in found]
        assert np.abs(sizes - exact).max() <= 1.5  # both are rounded


def test_the_named_survey_is_the_first_client_s() -> None:
    found = [part.data for part in parts_of("synthetic:sleep", tuning())]
    assert found == ["synthetic:sleep", "synthetic:social", "synthetic:wellbeing", "synthetic:campus"]


def test_one_survey_is_read_as_it_is_asked_for() -> None:
    asked = tuning(schema="homogeneous", outcome="a:b", share="power")
    whole = tuple(range(10))
    assert parts_of("survey:a.csv", asked) == (Part("survey:a.csv", "a:b", whole, 200, 20, 50, "power"),)


def test_outcomes_are_named_one_each() -> None:
    asked = tuning(schema="moderate", outcome="exhaustion:low mood")
    found = load("synthetic", asked, np.random.default_rng(0))
    assert [people.outcome.name for people in found] == ["exhaustion", "low mood"]


# Both targets


def test_both_targets_start_from_the_same(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten clients of four surveys: the same shards, test respondents and weights, and the questions of their own."""
    kept: dict[str, list[Any]] = {"material": [], "shards": [], "weights": []}
    load_material, build, shards_of = Material.load, split_running.System.build, fed_running.shards_of
    whole = Whole.__init__

    def loaded(*given: Any) -> Material:
        kept["material"].append(load_material(*given))
        return kept["material"][-1]

    def built(*given: Any) -> Any:
        made = build(*given)
        kept["shards"].append(made.shards)
        kept["weights"].append(weights(made.clients[0], made.server))
        return made

    def sharded(*given: Any) -> Any:
        kept["shards"].append(shards_of(*given))
        return kept["shards"][-1]

    def started(self: Whole, *given: Any) -> None:
        whole(self, *given)
        kept["weights"].append(weights(*given))

    monkeypatch.setattr(split_running, "Material", type("Loaded", (), {"load": staticmethod(loaded)}))
    monkeypatch.setattr(fed_running, "Material", type("Loaded", (), {"load": staticmethod(loaded)}))
    monkeypatch.setattr(split_running, "System", type("Built", (), {"build": staticmethod(built)}))
    monkeypatch.setattr(fed_running, "shards_of", sharded)
    monkeypatch.setattr(Whole, "__init__", started)
    there, here = ran(SplitLlama(), llama, SPLIT), ran(FedAvg(), llama, FED)
    split, fed = kept["material"]
    assert here.fingerprint == there.fingerprint
    assert kept["shards"][0] == kept["shards"][1]
    held = [len(shard.samples) for shard in kept["shards"][0]]
    assert held == portions(120, parts("power", 10)).tolist()
    assert [survey.test for survey in split.surveys] == [survey.test for survey in fed.surveys]
    assert kept["weights"][0] == kept["weights"][1]
    ours, theirs = ({(item.task, item.metric): item for item in run.utility} for run in (here, there))
    assert list(ours) == list(theirs)
    for name, item in ours.items():
        assert (item.n, item.references) == (theirs[name].n, theirs[name].references)
        assert item.baseline == pytest.approx(theirs[name].baseline)
    assert UNASKED in here.notes
    heads = [{sample.prompt[: sample.head] for sample in shard.samples} for shard in kept["shards"][0]]
    surveys = [survey.train[0].prompt[: survey.train[0].head] for survey in split.surveys]
    assert heads == [{surveys[client % 4]} for client in range(10)]
    assert there.transcript.metadata["questions"]["client-1"][0] == "age"
    labels = fed.natural(np.arange(len(fed.train)))["labels/outcome"]
    answers = [split.surveys[client % 4].options[label] for client, label in zip(split.holder, labels, strict=True)]
    assert tuple(answers) == split.said
    assert len(here.secrets.array("labels/outcome")) == here.transcript.array("updates/client-1/shown").sum() == 4


def weights(client: Any, server: Any) -> list[list[float]]:
    """All numbers of both halves."""
    return [values.flatten().tolist() for half in (client, server) for values in half.parameters()]


def test_utilities_are_over_all_surveys_and_of_each(llama: str) -> None:
    asked = {**FED, "schema": "moderate", "share": "even", "outcome": "exhaustion:thought of leaving"}
    found = ran(FedAvg(), llama, {**asked, "clients": "2"}).utility
    tasks = list(dict.fromkeys(item.task for item in found))
    assert tasks == [ALL_SURVEYS, "exhaustion", "thought of leaving"]
    by = {(item.task, item.metric): item for item in found}
    assert "quadratic kappa" in {metric for task, metric in by if task == "exhaustion"}
    for metric in ("accuracy", "macro F1", "ANLS, generated"):
        one, two = by["exhaustion", metric], by["thought of leaving", metric]
        both = by[ALL_SURVEYS, metric]
        assert both.n == one.n + two.n == 40
        for name in ("value", "baseline", "gain"):
            mean = (getattr(one, name) * one.n + getattr(two, name) * two.n) / 40
            assert getattr(both, name) == pytest.approx(mean)
    assert (ALL_SURVEYS, "quadratic kappa") not in by  # two answers have no order


def utility(metric: str = "accuracy", **given: Any) -> Utility:
    known = {
        "task": "a", "metric": metric, "value": 0.5, "low": 0.3, "high": 0.7, "n": 10, "split": "test",
        "baseline_name": "most frequent answer", "baseline": 0.4, "baseline_other_seed": None, "gain": 0.1,
        "gain_low": -0.1, "gain_high": 0.3, "references": {},
    }  # fmt: skip
    return Utility(**{**known, **given})


def test_what_one_survey_lacks_is_not_pooled() -> None:
    one = (utility(references={"a": 0.2, "b": 0.3}), utility("quadratic kappa"))
    two = (utility(n=30, value=0.9, baseline=0.8, references={"a": 0.6}),)
    (found,) = pooled([one, two])
    assert (found.metric, found.n, found.references) == ("accuracy", 40, {"a": pytest.approx(0.5)})
    assert (found.value, found.baseline) == pytest.approx((0.8, 0.7))


def test_coins_are_between_answers_of_the_first_client_s_survey(llama: str) -> None:
    coined = {**SPLIT, "labels": "client", "share": "even", "outcome": "low mood:tired by day:lonely:exhaustion"}
    run = ran(SplitLlama(), llama, {**coined, "record": "12"}, "synthetic:campus")
    (note,) = [note for note in run.notes if note.startswith("A coin says ")]
    said = note.split("'")[1::2][:2]
    assert set(said) < {"never", "rarely", "sometimes", "often", "always"}


# What is refused


@pytest.mark.parametrize("target", [SplitLlama(), FedAvg()], ids=lambda target: target.card.name)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schema": "heterogenous"}, "unknown value of schema 'heterogenous'; did you mean heterogeneous"),
        ({"clients": "3"}, "schema=heterogeneous has 4 surveys, got 3 clients: use 4 clients or more"),
        (
            {"outcome": "lonely"},
            "outcome lonely: with schema=heterogeneous name 4 outcomes, one of each",
        ),
        ({"members": "yes"}, "members=yes asks about one survey: with schema=heterogeneous leave it out"),
    ],
)
def test_settings_that_are_refused(target: Target, settings: Mapping[str, str], message: str) -> None:
    given = {"clients": "10", "schema": "heterogeneous", **settings}
    with pytest.raises(InputError, match=message):
        target.configure(AuditOptions(target.card.name, settings=given), default_registry())


@pytest.mark.parametrize("target", [SplitLlama(), FedAvg()], ids=lambda target: target.card.name)
def test_real_surveys_are_one_for_all(target: Target) -> None:
    options = AuditOptions(target.card.name, data="osmi:a.csv", settings={"schema": "moderate"})
    with pytest.raises(InputError, match=r"schema=moderate takes the invented surveys, got osmi:a\.csv: leave"):
        target.configure(options, default_registry())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": "100:1:1:1:1:1:1:1:1:1", "train": 20}, r"train = 20 gives client \d+ no respondent with schema="),
        ({"test": 3}, "test = 3 gives (campus|sleep|social) no respondent .*; use more \\(--set test=N\\)"),
        ({"validation": 2}, "validation = 2 gives "),
    ],
)
def test_nobody_is_left_without_respondents(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parts_of("synthetic", tuning(**given))


def test_nobody_asks_about_members_of_several_surveys() -> None:
    options = AuditOptions("fedavg", settings={"schema": "moderate"})
    config = FedAvg().configure(options, default_registry())
    assert list(FedAvg().roles(config)) == ["audited"]


def test_an_audit_by_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    settings = [f"--set={name}={value}" for name, value in {**SETTINGS, "schema": "moderate", "public": "0"}.items()]
    given = ["--model", llama, "--target", "split-llama", "--attacks", "inversion", "--out", str(tmp_path / "out")]
    done = command_line("audit", *given, *settings)
    assert done.returncode == 3, done.stderr
    record = read(tmp_path / "out")
    assert {item["task"] for item in record.utility} == {ALL_SURVEYS, "sought help", "thought of leaving"}
    text = (tmp_path / "out" / "audit.md").read_text(encoding="utf-8")
    assert "Survey Student Life, client 2: 12 respondents for training over 1 client (12)" in text
    assert command_line("verify", str(tmp_path / "out")).returncode == 0


# A survey that no client holds


@pytest.mark.parametrize(("target", "settings"), [(SplitLlama(), SPLIT), (FedAvg(), FED)])
def test_a_survey_that_no_client_holds_is_asked_about_and_changes_nothing_else(
    llama: str, target: Target, settings: Mapping[str, str]
) -> None:
    given = {**settings, "schema": "moderate", "prompting": "yes", "shots": "1"}
    without = ran(target, llama, given)
    beside = ran(target, llama, {**given, "unseen": "social:satisfied with life"})
    count = len(without.utility)
    assert beside.utility[:count] == without.utility
    assert beside.diagnostics == without.diagnostics
    apart = beside.utility[count:]
    assert {item.task for item in apart} == {"satisfied with life, held by no client"}
    assert {item.n for item in apart} == {int(settings["test"])}
    assert {"logistic regression", "0-shot prompting"} <= set(apart[0].references)
    assert any("Living Together, held by no client" in note for note in beside.notes)
    assert beside.fingerprint != without.fingerprint


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"unseen": "sleep"}, "unseen=sleep: clients hold it"),
        ({"unseen": "weather"}, "weather"),
        ({"unseen": "campus", "schema": "homogeneous"}, ""),
        ({"unseen": "wellbeing", "schema": "homogeneous"}, "unseen=wellbeing: clients hold it; they hold wellbeing"),
    ],
)
def test_only_a_survey_that_nobody_holds_is_unseen(settings: Mapping[str, str], said: str) -> None:
    if not said:
        assert unseen_of("synthetic", tuning(**settings)) is not None
        return
    with pytest.raises(InputError, match=said):
        unseen_of("synthetic", tuning(**settings))

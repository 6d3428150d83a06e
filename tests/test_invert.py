"""Inversions on a run: what is scored, what breaks without breaking the rest, and controls that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import surveyed as surveys

from privbench.attack import Inversion
from privbench.errors import InputError
from privbench.findings import Header
from privbench.findings_inputs import ROWS, assemble_inputs
from privbench.invert import Inversions, invert_all
from privbench.measure import Failure
from privbench.options import AuditOptions
from privbench.parts import by_kind
from privbench.recording import Secrets, Transcript
from privbench.registry import Registry
from privbench.runner import run_audit
from privbench.seeds import stream
from privbench.stats.shares import share_interval
from privbench.target import Target, TargetRun
from privbench.threat import curious_server, curious_site

NEAREST = "inversion/nearest-token"
HEADER = Header("surveyed", 0, "none", None)


@pytest.fixture
def registry() -> Registry:
    """With two inversions that break."""
    found = surveys.registry().add("attacks", "inversion/broken", "surveyed:Broken")
    return found.add("attacks", "inversion/too-short", "surveyed:TooShort")


def run_of(registry: Registry, **settings: str) -> TargetRun:
    target: Target = registry.get("targets", "surveyed")()
    return target.run(target.configure(AuditOptions("surveyed", settings=settings), registry), stream(0, "run"))


def invert(registry: Registry, run: TargetRun, names: tuple[str, ...] = (NEAREST,), seed: int = 0) -> Inversions:
    return invert_all(names, registry, (curious_server(),), run, seed, False, lambda stage, share: None)


def test_an_inversion_that_breaks_is_failed_and_the_rest_goes_on(registry: Registry) -> None:
    names = by_kind(registry.names("attacks"), registry)[Inversion]
    found = invert(registry, run_of(registry), names)
    read = ("affine-token", "learned-token", "nearest-token", "relaxation", "rescaled-token", "searched-token")
    assert set(found.outcomes) == {f"inversion/{name}" for name in read}
    assert {name: why for name, (_, _, why) in found.refused.items() if isinstance(why, Failure)} == {
        "inversion/broken": Failure("ZeroDivisionError: the table is a wall"),
        "inversion/too-short": Failure("ValueError: `single` is [2, 150, 29], it must be [2, 150, 30]"),
    }
    judged = assemble_inputs(HEADER, found)
    failed = {item.attack: item for item in judged.findings if item.verdict == "FAILED"}
    assert set(failed) == {"inversion/broken", "inversion/too-short"}
    assert failed["inversion/broken"].reason == "ZeroDivisionError: the table is a wall"
    assert all(item.value is None for item in failed.values())
    assert sum(item.value is not None for item in judged.findings) == 24


def test_a_broken_inversion_makes_the_audit_incomplete(registry: Registry) -> None:
    audit = run_audit(AuditOptions("surveyed", settings={}), registry).audit
    assert {item.attack: str(item.verdict) for item in audit.findings}["inversion/broken"] == "FAILED"
    assert audit.missing == ()


@pytest.mark.parametrize(("passes", "cells"), [("1", [1]), ("3", [1, 3])])
def test_one_release_and_several(registry: Registry, passes: str, cells: list[int]) -> None:
    found = invert(registry, run_of(registry, passes=passes, noise="1.5"))
    outcome = found.outcomes[NEAREST]
    metrics = ("token-accuracy", "answer-accuracy")
    assert list(outcome.found) == [(over, metric) for over in cells for metric in metrics]
    assert outcome.curve.shape == (int(passes),)
    assert found.releases == int(passes)
    judged = assemble_inputs(HEADER, found)
    assert judged.planned == tuple(
        f"{NEAREST}/input/client-1/{over}/{metric}/none" for over in cells for metric in metrics
    )
    assert set(judged.scores) == {
        "index/input/client-1",
        f"curve/{NEAREST}/input/client-1",
        *(f"recovered/{NEAREST}/input/client-1/{over}/{metric}" for over in cells for metric in metrics),
    }


def test_one_release_is_drawn_per_record(registry: Registry) -> None:
    """Between what the releases read on average: a mean over records of one release each."""
    outcome = invert(registry, run_of(registry, passes="3", noise="1.5")).outcomes[NEAREST]
    assert outcome.found[1, "token-accuracy"].value == pytest.approx(outcome.curve.mean(), abs=0.05)
    assert outcome.found[3, "token-accuracy"].value > outcome.curve.max()


def test_findings_are_what_the_records_add_up_to(registry: Registry) -> None:
    found = invert(registry, run_of(registry, noise="1.5"))
    judged = assemble_inputs(HEADER, found)
    for item in judged.findings:
        sums = judged.scores[f"recovered/{item.id.removesuffix('/none')}"]
        assert sums.shape == (len(ROWS),)
        value, shuffled, base, squares = map(float, sums)
        assert item.value == value
        assert (item.low, item.high) == share_interval(value, 150, squares)
        assert item.baseline == base
        assert item.canaries == 150
        assert item.n == {"token-accuracy": 1500, "answer-accuracy": 750}[item.metric]
        control = item.controls["negative"]
        assert control is not None
        assert control["value"] == shuffled
        assert control["passed"]
        assert (item.verdict, item.role, item.bound, item.strength) == ("UNCOVERED", "descriptive", None, None)
    assert judged.flags == ()


def test_a_shuffled_control_that_reads_more_than_the_most_frequent_answers_is_flagged(registry: Registry) -> None:
    found = invert(registry, run_of(registry))
    outcome = found.outcomes[NEAREST]
    key = (2, "token-accuracy")
    psychic = replace(outcome.found[key], shuffled=1.0)
    broken = replace(outcome, found={**outcome.found, key: psychic})
    judged = assemble_inputs(HEADER, replace(found, outcomes={NEAREST: broken}))
    assert judged.flags == ("SHUFFLED_CONTROL_FAILED",)
    passed = {
        (item.releases, item.metric): item.controls["negative"]["passed"]  # type: ignore[index]
        for item in judged.findings
    }
    assert [cell for cell, fine in passed.items() if not fine] == [key]


def test_the_same_seed_scores_the_same(registry: Registry) -> None:
    run = run_of(registry, passes="3", noise="1.5")
    first, again, other = (
        invert(registry, run, seed=seed).outcomes[NEAREST].found[1, "token-accuracy"] for seed in (0, 0, 1)
    )
    assert first == again
    assert first.value != other.value


def without(run: TargetRun, *names: str) -> TargetRun:
    kept = {name: array for name, array in run.transcript.arrays.items() if name not in names}
    return replace(run, transcript=Transcript(kept))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("public/embedding",), "no public embedding table"),
        (("activations/client-1", "activations/client-1/mask"), "no token activations of client-1"),
    ],
)
def test_what_a_run_lacks_is_said(registry: Registry, names: tuple[str, ...], said: str) -> None:
    found = invert(registry, without(run_of(registry), *names))
    (_, _, why) = found.refused[NEAREST]
    assert not isinstance(why, Failure)
    assert said in why.reason
    (finding,) = assemble_inputs(HEADER, found).findings
    assert (finding.verdict, finding.secret) == ("NOT_APPLICABLE", "input/client-1")


def test_public_texts_that_hold_a_scored_record_are_refused(registry: Registry) -> None:
    """Alone, and within a longer text; a shorter one is none. Another record happens to say the same."""
    run = run_of(registry)
    record = run.secrets.array("inputs/client-1")[7]

    def told(*text: int) -> TargetRun:
        texts = np.full((3, len(record) + 2), -1)
        texts[0, : len(record)] = record[::-1]
        texts[1, : len(text)] = text
        public = {"public/tokens": texts, "public/activations": np.zeros((*texts.shape, 24), np.float32)}
        return replace(run, transcript=Transcript({**run.transcript.arrays, **public}))

    for text in (record, [5, *record], [*record, 5], [5, *record, 5]):
        with pytest.raises(InputError, match="hold the tokens of 2 scored records of client-1, the first is record 7"):
            invert(registry, told(*text))
    invert(registry, told(*record[:-1]))


def test_a_site_that_sees_no_activations_reads_nothing(registry: Registry) -> None:
    found = invert_all(
        (NEAREST,), registry, (curious_site("A"),), run_of(registry), 0, False, lambda stage, share: None
    )
    (_, _, why) = found.refused[NEAREST]
    assert why.reason == "needs the channel activations, which curious site A does not see"


def test_the_first_party_with_inputs_is_the_victim(registry: Registry) -> None:
    run = run_of(registry)
    hidden: dict[str, Any] = {
        name.replace("client-1", client): array
        for name, array in run.secrets.arrays.items()
        for client in ("client-1", "client-2")
    }
    assert invert(registry, replace(run, secrets=Secrets(hidden))).victim == "client-1"


def test_a_prior_that_reads_more_than_one_reply_is_the_baseline(registry: Registry) -> None:
    """Every second respondent's tokens: half of all tokens, where one reply reads fewer; what an attack read stays."""
    plain, told = (assemble_inputs(HEADER, invert(registry, run_of(registry, prior=prior))) for prior in ("0", "1"))
    assert not any(name.startswith("prior/") for name in plain.scores)
    for before, item in zip(plain.findings, told.findings, strict=True):
        assert item.baseline is not None
        assert before.baseline is not None
        sums = told.scores[f"prior/input/client-1/{item.metric}"]
        assert item.baseline == max(before.baseline, sums[ROWS.index("value")])
        assert sums[ROWS.index("baseline")] == before.baseline
        assert replace(item, baseline=before.baseline) == before
    tokens = told.scores["prior/input/client-1/token-accuracy"]
    assert tokens[ROWS.index("value")] == pytest.approx(0.5)
    assert tokens[ROWS.index("value")] > tokens[ROWS.index("baseline")]

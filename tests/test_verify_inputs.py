"""Records of reconstructed inputs: an honest one agrees, and every way of changing one is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import surveyed as surveys
from forging import Arrays, Data, Edit, forge, made

from privbench.errors import RecordError
from privbench.options import AuditOptions
from privbench.record import write
from privbench.recording import Secrets
from privbench.registry import BUILT_IN, Registry
from privbench.report.pages import PAGES, render
from privbench.runner import AuditResult, run_audit
from privbench.verify import _compare_members, verify

ATTACK, SECRET = "inversion/nearest-token", "input/client-1"
ONE, ALL = (f"recovered/{ATTACK}/{SECRET}/{over}/token-accuracy" for over in (1, 2))
ANSWERS = ONE.replace("token-accuracy", "answer-accuracy")
CURVE, INDEX = f"curve/{ATTACK}/{SECRET}", f"index/{SECRET}"
FIRST = f"{ATTACK}/{SECRET}/1/token-accuracy/none"
VALUE, SHUFFLED, BASELINE, SQUARES = range(4)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return surveys.registry()


@pytest.fixture(scope="module")
def records(surveyed: Mapping[str, AuditResult], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("surveyed")
    for kind, result in surveyed.items():
        write(result.audit, result.scores, render(result.audit, PAGES), folder / kind)
    return {kind: folder / kind for kind in surveyed}


@pytest.mark.parametrize("kind", ["inputs", "both"])
def test_an_honest_record_agrees(records: dict[str, Path], registry: Registry, kind: str) -> None:
    assert verify(records[kind], registry) == ()


@pytest.mark.parametrize("kind", ["inputs", "both"])
def test_a_forger_who_edits_nothing_agrees(
    records: dict[str, Path], registry: Registry, kind: str, tmp_path: Path
) -> None:
    assert verify(forge(records[kind], tmp_path / "f", lambda data, scores: None, registry), registry) == ()


@pytest.mark.parametrize(
    "settings", [{"passes": "1"}, {"noise": "3", "described": "1"}, {"passes": "1", "coins": "1"}, {"prior": "1"}]
)
def test_other_honest_records_agree(registry: Registry, tmp_path: Path, settings: dict[str, str]) -> None:
    assert verify(made(tmp_path / "r", registry, "surveyed", settings=settings), registry) == ()


def on(name: str, change: Callable[[np.ndarray], Any]) -> Edit:
    """Change an array in place, or replace it by what is returned."""

    def edit(data: Data, scores: Arrays) -> None:
        array = scores[name].copy()
        result = change(array)
        scores[name] = array if result is None else result

    return edit


def put(row: int, value: float) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[row] = value

    return change


def half(row: int) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[row] /= 2

    return change


def finding(**changes: Any) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        next(item for item in data["findings"] if item["id"] == FIRST).update(changes)

    return edit


def control(data: Data, scores: Arrays) -> None:
    next(item for item in data["findings"] if item["id"] == FIRST)["controls"]["negative"]["value"] = 0.0


def unplanned(data: Data, scores: Arrays) -> None:
    data["planned"].remove(FIRST)


def planned(data: Data, scores: Arrays) -> None:
    data["planned"].append(f"{ATTACK}/{SECRET}/7/token-accuracy/none")


def removed(data: Data, scores: Arrays) -> None:
    data["findings"] = [item for item in data["findings"] if item["id"] != FIRST]
    unplanned(data, scores)


def removed_with_scores(data: Data, scores: Arrays) -> None:
    removed(data, scores)
    del scores[ONE]


def no_inputs(data: Data, scores: Arrays) -> None:
    data["inputs"] = None


def no_inputs_at_all(data: Data, scores: Arrays) -> None:
    no_inputs(data, scores)
    data["series"] = {name: line for name, line in data["series"].items() if not name.startswith("inversion/")}
    for name in [name for name in scores if SECRET in name]:
        del scores[name]


def refused(secret: str, reason: str, key: str = FIRST) -> Edit:
    """The inversion was not run, it is said: one finding without numbers, nothing beside it."""

    def edit(data: Data, scores: Arrays) -> None:
        own = [item for item in data["findings"] if item["attack"] == ATTACK]
        blank = dict.fromkeys(("value", "low", "high", "level", "n", "canaries", "baseline"))
        blank |= {"verdict": "NOT_APPLICABLE", "reason": reason, "secret": secret, "id": key, "releases": 1}
        said = {**own[0], **blank, "controls": {"positive": None, "negative": None}}
        data["findings"] = [item for item in data["findings"] if item["attack"] != ATTACK] + [said]
        data["planned"] = [item["id"] for item in data["findings"]]
        answers = [
            item for item in data["findings"] if item["metric"] == "answer-accuracy" and item["value"] is not None
        ]
        best = max(answers, key=lambda item: (item["releases"], item["value"]), default=None)
        if best is None:
            data["inputs"].update(by_question=[], strongest=None)
        else:  # one share for all questions: nobody but the scores can say more of another attack
            for item in data["inputs"]["by_question"]:
                item["read"] = best["value"]
            data["inputs"]["strongest"] = best["attack"]
        del data["series"][ATTACK]
        for name in [name for name in scores if ATTACK in name]:
            del scores[name]

    return edit


want = refused("none", "no party's token inputs were recorded in this run", f"{ATTACK}/none/1/token-accuracy/none")


def inputs_are(**changes: Any) -> Edit:
    return lambda data, scores: data["inputs"].update(changes)


def curve_in_series(data: Data, scores: Arrays) -> None:
    data["series"][ATTACK]["y"][0] = 0.0


TAMPERED: Mapping[str, tuple[Edit, str]] = {
    "sum": (on(ONE, half(VALUE)), f"{FIRST}: value"),
    "sum beyond a share": (on(ONE, put(VALUE, 1.5)), "a share lies between 0 and 1"),
    "sum below nothing": (on(ONE, put(VALUE, -0.001)), "a share lies between 0 and 1"),
    "sum that is no number": (on(ONE, put(VALUE, np.nan)), "1 scores are NaN or infinite"),
    "control beyond a share": (on(ALL, put(SHUFFLED, 1.5)), "a share lies between 0 and 1"),
    "squares": (on(ANSWERS, put(SQUARES, 0.001)), "that sum to 1 do not have squares that sum to 0.001"),
    "uneven weights": (on(ONE, put(SQUARES, 0.02)), "every record counts the same in token-accuracy"),
    "shape of sums": (on(ONE, lambda array: array[:3]), "it must be [4]"),
    "type of sums": (on(ONE, lambda array: array.astype(np.float16)), "has type float16"),
    "curve": (on(CURVE, lambda array: array / 2), f"series {ATTACK}/y"),
    "curve beyond 1": (on(CURVE, lambda array: array + 1), "a share lies between 0 and 1"),
    "length of the curve": (on(CURVE, lambda array: array[:1]), f"{CURVE}: has shape [1], it must be [2]"),
    "no index": (lambda data, scores: scores.pop(INDEX), f"{INDEX}: missing"),
    "index": (on(INDEX, np.zeros_like), f"{INDEX}: not every record once"),
    "lost sums": (lambda data, scores: scores.pop(ONE), f"{ONE}: missing; {ATTACK} was scored"),
    "lost curve": (lambda data, scores: scores.pop(CURVE), f"{CURVE}: missing; {ATTACK} was scored"),
    "value": (finding(value=0.123), f"{FIRST}: value"),
    "interval": (finding(low=0.0), f"{FIRST}: low"),
    "upper limit": (finding(high=1.0), f"{FIRST}: high"),
    "baseline": (finding(baseline=0.9), f"{FIRST}: baseline"),
    "records": (finding(canaries=7), f"{FIRST}: canaries"),
    "reason": (finding(reason="all is well"), f"{FIRST}: reason"),
    "verdict": (finding(verdict="REPORTED"), f"{FIRST}: verdict"),
    "control": (control, f"{FIRST}: controls/negative/value"),
    "unplanned": (unplanned, "planned"),
    "planned": (planned, "planned"),
    "removed": (removed, f"{FIRST}: planned, but missing"),
    "removed with its scores": (removed_with_scores, f"{ONE}: missing"),
    "no inputs": (no_inputs, "no attack of this record wrote it"),
    "no inputs at all": (no_inputs_at_all, "recorded, but not planned"),
    "for want of inputs": (want, "NOT_APPLICABLE for want of a secret that the record holds"),
    "releases": (inputs_are(releases=3), f"series {ATTACK}: has 2 points for 3 releases"),
    "fewer records": (inputs_are(records=149), "it must be [149]"),
    "another client": (inputs_are(name="input/client-2"), "index/input/client-2: missing"),
    "series": (curve_in_series, f"series {ATTACK}/y"),
}


FORGED: Mapping[str, tuple[Edit, str]] = {
    "baseline": (on(ALL, half(BASELINE)), f"{ALL}: the baseline and the weights are not those of"),
    "weights": (on(ANSWERS, put(SQUARES, 0.1)), "the baseline and the weights are not those of"),
    "index": (on(INDEX, lambda array: array + 1), f"{INDEX}: not every record once"),
    "for want of inputs": (want, f"{ATTACK}: planned by the manifest, but nothing is recorded of it"),
}


@pytest.mark.parametrize("kind", ["inputs", "both"])
@pytest.mark.parametrize(
    ("edit", "said", "assembled"),
    [
        pytest.param(*case, assembled, id=f"{name}, assembled again" if assembled else name)
        for cases, assembled in ((TAMPERED, False), (FORGED, True))
        for name, case in cases.items()
    ],
)
def test_what_was_changed_is_named(
    records: dict[str, Path], registry: Registry, tmp_path: Path, kind: str, edit: Edit, said: str, assembled: bool
) -> None:
    """Every hash is renewed, so that nothing but the content speaks; of the second kind findings and curves too."""
    folder = forge(records[kind], tmp_path / "f", edit, registry if assembled else None)
    found = verify(folder, registry)
    assert any(said in line for line in found), found


PRIOR = f"prior/{SECRET}/token-accuracy"


def said(model: float) -> Edit:
    return lambda data, scores: data["inputs"]["without_cut"]["token-accuracy"].update(language_model=model)


def no_prior(data: Data, scores: Arrays) -> None:
    for name in [name for name in scores if name.startswith("prior/")]:
        del scores[name]


def forged(data: Data, scores: Arrays) -> None:
    """A smaller prior in the sums and in words alike, the finding as it was."""
    on(PRIOR, put(VALUE, 0.4))(data, scores)
    said(0.4)(data, scores)


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (on(PRIOR, put(VALUE, 1.5)), f"{PRIOR}: a share lies between 0 and 1"),
        (on(PRIOR, put(SQUARES, 0.5)), f"{PRIOR}: every record counts the same"),
        (on(PRIOR, half(BASELINE)), "the baseline and the weights are not those of"),
        (on(PRIOR, put(VALUE, 0.4)), "inputs/without_cut/token-accuracy: not what"),
        (said(0.4), "inputs/without_cut/token-accuracy: not what"),
        (forged, f"{FIRST}: baseline"),
        (no_prior, f"{PRIOR}: missing, and inputs/prior says otherwise"),
        (inputs_are(prior=False), f"{PRIOR}: there, and inputs/prior says otherwise"),
        (inputs_are(without_cut={}), "inputs/without_cut/token-accuracy: not what"),
    ],
)
def test_a_changed_prior_is_named(registry: Registry, tmp_path: Path, edit: Edit, line: str) -> None:
    record = made(tmp_path / "r", registry, "surveyed", settings={"prior": "1"})
    found = verify(forge(record, tmp_path / "f", edit, None), registry)
    assert any(line in item for item in found), found


def questions(**changes: float) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        data["inputs"]["by_question"][0].update(changes)

    return edit


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (questions(read=0.0), "inputs/by_question/read: "),
        (questions(answers=40), "inputs/by_question/answers: "),
        (questions(language_model=0.0), "inputs/by_question/language_model: "),
        (inputs_are(by_question=[]), "inputs/by_question: there is some exactly where an inversion ran"),
        (inputs_are(strongest="inversion/affine-token"), "inputs/strongest: inversion/affine-token is not the attack"),
        (inputs_are(strongest="inversion/none"), "inputs/by_question: there is some exactly where an inversion ran"),
    ],
)
def test_changed_questions_are_named(registry: Registry, tmp_path: Path, edit: Edit, line: str) -> None:
    record = made(tmp_path / "r", registry, "surveyed", settings={"prior": "1", "noise": "1.5"})
    assert verify(record, registry) == ()
    found = verify(forge(record, tmp_path / "f", edit, None), registry)
    assert any(line in item for item in found), found


def test_of_one_release_the_curve_is_the_finding(registry: Registry, tmp_path: Path) -> None:
    record = made(tmp_path / "r", registry, "surveyed", settings={"passes": "1", "noise": "1.5"})
    found = verify(forge(record, tmp_path / "f", on(CURVE, lambda array: array / 2), registry), registry)
    assert found == (f"{CURVE}: not what {ONE} adds up to, and there is one release",)


def test_an_attack_that_had_all_it_needs_was_not_refused(
    records: dict[str, Path], registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a built-in target: of a stranger's nobody knows what its transcript held."""
    edit = refused(SECRET, "the transcript holds no public embedding table (public/embedding)")
    folder = forge(records["inputs"], tmp_path / "f", edit, registry)
    assert verify(folder, registry) == ()
    monkeypatch.setitem(BUILT_IN["targets"], "surveyed", "surveyed:Surveyed")  # type: ignore[arg-type]
    assert f"{ATTACK}: NOT_APPLICABLE, though curious server has all that it needs" in verify(folder, registry)


def test_changed_gains_are_found_by_their_hash(records: dict[str, Path], registry: Registry, tmp_path: Path) -> None:
    folder = forge(records["inputs"], tmp_path / "f", lambda data, scores: None, None)
    other = forge(records["inputs"], tmp_path / "o", on(ONE, half(VALUE)), None)
    (other / "scores.safetensors").replace(folder / "scores.safetensors")
    assert any(line.startswith("scores_sha256") for line in verify(folder, registry))


def test_a_finding_under_a_threat_model_that_is_not_there_is_refused(
    records: dict[str, Path], registry: Registry, tmp_path: Path
) -> None:
    folder = forge(records["inputs"], tmp_path / "f", finding(threat_model="curious cat"), None)
    with pytest.raises(RecordError, match="names a threat model that the record does not describe"):
        verify(folder, registry)


def test_an_attack_without_its_secret_is_no_contradiction(registry: Registry, tmp_path: Path) -> None:
    """Coins and numbers in one drawn run, and no membership: each attack is judged, or said to have none."""
    settings = {"inputs": "2", "records": "200", "releases": "2", "width": "8"}
    attacks = ("label/spectral", "membership/loss", "inversion/ridge")
    result = run_audit(AuditOptions("gaussian", sigma=4.0, settings=settings, attacks=attacks), registry)
    write(result.audit, result.scores, render(result.audit, PAGES), tmp_path)
    assert verify(tmp_path, registry) == ()


def test_coins_of_membership_are_held_against_the_secrets() -> None:
    member = np.array([1, 0, 1, 1, 0], np.uint8)
    scores = {"index/member": np.array([0, 1, 4]), "coins/member": np.array([1, 0, 0], np.uint8)}
    secrets = Secrets({"member": member})
    assert list(_compare_members(scores, secrets)) == []
    flipped = {**scores, "coins/member": np.array([1, 1, 0], np.uint8)}
    assert list(_compare_members(flipped, secrets)) == ["coins/member: the coins differ from the secrets in 1 records"]

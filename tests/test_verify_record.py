"""A forger edits a record, assembles it again and renews every hash: the record then contradicts itself, and verify
says where. Honest records of every target, with and without noise, agree."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BRIEF, SMALL, SMALLER
from forging import Arrays, Data, Edit, forge, made, set_at

from privbench import accounting
from privbench.errors import RecordError
from privbench.options import RecordingFiles
from privbench.registry import Registry
from privbench.verify import verify

DRAW: Mapping[str, str] = {
    "records": "400",
    "canaries": "300",
    "releases": "4",
    "width": "8",
    "tasks": "3",
    "moved": "2",
}
MANY: Mapping[str, str] = {"tasks": "33", "moved": "1", "width": "64", "inputs": "2", "releases": "2"}
"""As many natural labels as 64 records leave known."""
RIDGE = "inversion/ridge"
ORACLE, SPECTRAL = "label/oracle-lr", "label/spectral"


@pytest.fixture(scope="module", autouse=True)
def fast_accounting() -> Iterator[None]:
    """The same noise is asked for a hundred times here: found once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounting, "nominal_multiplier", cache(accounting.nominal_multiplier))
        patch.setattr(accounting, "nominal_eps", cache(accounting.nominal_eps))
        yield


@pytest.fixture(scope="module")
def drawn(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    return made(folder / "record", registry, "gaussian", eps=0.5, settings=DRAW, data=str(folder / "files"))


@pytest.fixture(scope="module")
def recorded(drawn: Path, registry: Registry) -> Path:
    files = [drawn.parent / "files" / f"{kind}.safetensors" for kind in ("transcript", "secrets", "oracle")]
    return made(drawn.parent / "recorded", registry, "recorded", recording=RecordingFiles(*files))


@pytest.fixture(scope="module")
def records(small_record: Path, drawn: Path, recorded: Path) -> dict[str, Path]:
    return {"prism": small_record, "gaussian": drawn, "recorded": recorded}


# Honest records


@pytest.mark.parametrize("name", ["prism", "gaussian", "recorded"])
def test_an_honest_record_agrees(records: dict[str, Path], name: str, registry: Registry) -> None:
    assert verify(records[name], registry) == ()
    assert verify(records[name] / "audit.json", registry) == ()


@pytest.mark.parametrize("name", ["prism", "gaussian", "recorded"])
def test_a_forger_who_edits_nothing_agrees(
    records: dict[str, Path], name: str, registry: Registry, tmp_path: Path
) -> None:
    """So what the tests below find is the edit, not the forging."""
    assert verify(forge(records[name], tmp_path / "f", lambda data, scores: None, registry), registry) == ()


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("gaussian", {"eps": 0.5, "eps_for": "site", "settings": DRAW}),
        ("gaussian", {"noise_multiplier": 2.0, "settings": {**DRAW, "sigma_ratio": "1:2:1.5", "clip": "0.7"}}),
        ("gaussian", {"sigma": 1.5, "settings": {**DRAW, "noise": "separate", "moved": "1"}}),
        ("gaussian", {"eps": 1.0, "settings": {**DRAW, "noise": "once", "releases": "1"}, "attacks": ("label",)}),
        ("gaussian", {"eps": math.inf, "settings": DRAW, "seed": 3}),
        ("gaussian", {"sigma": 0.0, "settings": {**DRAW, "broken": "no"}, "attacks": (SPECTRAL,)}),
        ("gaussian", {"eps": 2.0, "settings": {**DRAW, "broken": "clip-after-sum"}}),
        ("gaussian", {"sigma": 4.0, "settings": {**MANY, "records": "60"}, "attacks": ("label", RIDGE)}),
        ("gaussian", {"sigma": 4.0, "settings": {**MANY, "records": "80"}, "attacks": ("label", RIDGE)}),
        ("prism", {"noise_multiplier": 3.0, "settings": SMALL, "attacks": ("label",)}),
        ("prism", {"sigma": 0.5, "settings": SMALL, "attacks": (ORACLE,)}),
        pytest.param(
            "prism", {"eps": math.inf, "settings": SMALLER, "party": "B", "attacks": BRIEF}, marks=pytest.mark.slow
        ),
        ("prism", {"eps": 0.5, "eps_for": "site", "settings": SMALL, "attacks": ("label",)}),
    ],
)
def test_every_kind_of_honest_record_agrees(
    target: str, options: dict[str, Any], registry: Registry, tmp_path: Path
) -> None:
    assert verify(made(tmp_path / "record", registry, target, **options), registry) == ()


def test_a_recording_whose_coins_nobody_guesses_agrees(registry: Registry, tmp_path: Path) -> None:
    """What its labels' epsilon is follows from coins that are in no record then."""
    drawn = {"settings": {**DRAW, "inputs": "3"}, "sigma": 4.0, "attacks": ("label",), "data": str(tmp_path / "files")}
    made(tmp_path / "drawn", registry, "gaussian", **drawn)
    files = RecordingFiles(*(tmp_path / "files" / f"{kind}.safetensors" for kind in ("transcript", "secrets")))
    record = made(tmp_path / "recorded", registry, "recorded", recording=files, attacks=(RIDGE,))
    assert verify(record, registry) == ()


# Forgeries


def as_recorded(data: Data, scores: Arrays) -> None:
    """A drawn record that says it was a recording, of which a manifest promises nothing, with a claim of its own."""
    config = data["manifest"]["config"]
    config["given"]["recording"] = {"transcript": config["resolved"]["data"], "secrets": "s"}
    data["claims"][0]["sample_rate"] = 1.0
    for item in data["epsilons"]:
        if item["name"] == "nominal":
            item["name"] = "claimed, nominal"


def other_rate(data: Data, scores: Arrays) -> None:
    """A recording's claim says another rate than the epsilons that a reader sees."""
    data["claims"][0]["sample_rate"] = 1.0


def no_claims(data: Data, scores: Arrays) -> None:
    data["claims"] = []


def eightfold(data: Data, scores: Arrays) -> None:
    for item in data["mechanisms"]:
        item["sigma"] = {task: sigma / 8 for task, sigma in item["sigma"].items()}


def claim_of_eight(data: Data, scores: Arrays) -> None:
    for item in data["claims"]:
        item["eps"] = 8.0


def both(data: Data, scores: Arrays) -> None:
    eightfold(data, scores)
    claim_of_eight(data, scores)


def without(attack: str, verdict: str | None = None) -> Edit:
    """An attack that is not recorded, or that could not be run, with all of its scores gone."""

    def edit(data: Data, scores: Arrays) -> None:
        if verdict is None:
            data["findings"] = [item for item in data["findings"] if item["attack"] != attack]
        for item in data["findings"]:
            if item["attack"] == attack:
                item |= {"verdict": verdict, "reason": "could not be run"}
        for name in [name for name in scores if f"/{attack}/" in name]:
            del scores[name]

    return edit


def refused_with_scores(data: Data, scores: Arrays) -> None:
    for item in data["findings"]:
        if item["attack"] == SPECTRAL:
            item |= {"verdict": "NOT_APPLICABLE", "reason": "x", "role": "descriptive", "bound": None, "value": None}
    del scores[f"curve/{SPECTRAL}/joint"]


def other_last_row(data: Data, scores: Arrays) -> None:
    last = max(int(name.rsplit("/", 1)[1]) for name in scores if name.startswith("scores/"))
    scores[f"scores/{ORACLE}/joint/{last}"] = -scores[f"scores/{ORACLE}/joint/{last}"]


def tiled(data: Data, scores: Arrays) -> None:
    name = f"scores/{SPECTRAL}/joint/1"
    scores[name] = np.tile(scores[name], (50, 1))


def other_curve(data: Data, scores: Arrays) -> None:
    scores[f"curve/{ORACLE}/joint"][0] *= -1


def on_scores(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        scores[name] = change(scores[name])

    return edit


def first(value: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.concatenate([[value], array[1:]]).astype(array.dtype)


def no_rho(data: Data, scores: Arrays) -> None:
    data["moves"]["rho"] = None


def rho_of_one_record(data: Data, scores: Arrays) -> None:
    data["moves"]["rho"] |= {"records": 1, "upper": 1.0}


def another_seed(data: Data, scores: Arrays) -> None:
    for item in data["findings"]:
        item["seed"] = 9


def drop(name: str) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        del scores[name]

    return edit


def extra(data: Data, scores: Arrays) -> None:
    scores["scores/label/oracle-lr/joint/2"] = scores["scores/label/spectral/joint/1"]


COINS = f"coins/{SPECTRAL}/joint/1"
RESOLVED = ("manifest", "config", "resolved")
GIVEN = ("manifest", "config", "given")
ALL = ("prism", "gaussian", "recorded")
RUN = ("prism", "gaussian")
ONE = ("gaussian",)  # what is said of arrays has nothing to do with the target

FORGERIES: list[tuple[tuple[str, ...], Edit, str]] = [
    (RUN, no_claims, "there are none, though the manifest promises eps 0.5"),
    (RUN, no_claims, "nominal 0.5, and no claim says so"),
    (("recorded",), no_claims, "claims: the first eps is None, the manifest's 0.5"),
    (("recorded",), no_claims, "epsilons claimed"),
    (RUN, both, "noise_multiplier is"),
    (ALL, both, "epsilons: site"),
    (RUN, claim_of_eight, "claim for nominal: eps is 8.0, and by the manifest 0.5"),
    (RUN, claim_of_eight, "claim for nominal: eps 8, and the noise accounts for 0"),
    (("recorded",), claim_of_eight, "claims: the first eps is 8.0"),
    (ALL, eightfold, "and the noise accounts for"),
    (RUN, set_at("claims", 0, "for", value="site"), "for is 'site', and by the manifest 'nominal'"),
    (RUN, set_at("claims", 0, "delta", value=0.4), "delta is 0.4"),
    (RUN, set_at("claims", 0, "epochs", value=1), "epochs is 1"),
    (RUN, set_at("claims", 0, "sample_rate", value=1.0), "sample_rate is 1.0"),
    (RUN, set_at("claims", 0, "accountant", value="prv"), "no built-in target claims"),
    (RUN, set_at("mechanisms", 0, "colluding_sites", value=9), "colluding_sites"),
    (("prism",), set_at("mechanisms", 0, "server_noised", value=True), "server_noised"),
    (RUN, set_at("epsilons", 0, "value", value=0.1), "epsilons: nominal 0.1"),
    (("recorded",), set_at("epsilons", 1, "value", value=0.1), "epsilons: site 0.1"),
    (RUN, without(SPECTRAL), f"{SPECTRAL}: planned by the manifest"),
    (("recorded",), without(SPECTRAL), f"{SPECTRAL}: planned by the manifest"),
    (RUN, without(SPECTRAL, "NOT_APPLICABLE"), "has all that it needs"),
    (ALL, without(ORACLE, "NOT_APPLICABLE"), "has all that it needs"),
    (ALL, refused_with_scores, "NOT_APPLICABLE, and yet it has scores"),
    (ALL, set_at(*GIVEN, "attacks", value=[SPECTRAL]), f"{ORACLE}: recorded, but the manifest did not plan it"),
    (ONE, other_last_row, "not the last row of curve"),
    (ONE, tiled, "has shape [50, "),
    (ONE, other_curve, "not the running sum"),
    (ONE, on_scores(COINS, lambda coins: 1 - coins), "and every attack guesses the same ones"),
    (ONE, on_scores(COINS, first(7)), "a coin is 7"),
    (ONE, on_scores(COINS, lambda coins: coins[None, :]), "has shape [1, "),
    (ONE, on_scores("index/joint", lambda index: np.append(index[:-1], index[0])), "a record is scored twice"),
    (ONE, on_scores("index/joint", first(10**6)), "names a record outside"),
    (ONE, on_scores("index/joint", lambda index: index[:-1]), "index/joint: has shape"),
    (ONE, drop("index/joint"), "index/joint: missing"),
    (ONE, extra, "no attack of this record wrote it"),
    (ONE, on_scores(f"scores/{SPECTRAL}/joint/1", first(math.nan)), "1 scores are NaN or infinite"),
    (ONE, on_scores(f"curve/{SPECTRAL}/joint", lambda curve: curve * math.inf), "are NaN or infinite"),
    (ONE, on_scores(f"curve/{SPECTRAL}/joint", lambda curve: curve.astype(np.int64)), "has type int64"),
    (ONE, set_at("moves", "rho", "upper", value=1.0), "moves/rho/upper"),
    (ONE, rho_of_one_record, "moves/rho/records"),
    (ONE, set_at("moves", "rho", "alpha", value=0.04), "moves/rho/alpha"),
    (ONE, set_at("moves", "rho", "quantiles", value={"5%": 0.9, "50%": 0.1, "95%": 0.2}), "moves/rho/quantiles"),
    (RUN, no_rho, "moves/rho: missing where 2 tasks are moved"),
    (ONE, set_at("moves", "predicted", value=None), "moves/predicted"),
    (ONE, set_at("moves", "excess", value=None), "measured together"),
    (ONE, set_at("noise", value=None), "noise: no check is recorded"),
    (ONE, another_seed, "findings: seed"),
    (ALL, set_at("manifest", "seeds", value=[7]), "manifest/seeds"),
    (ALL, set_at(*GIVEN, "target", value="other"), "findings: target"),
    (RUN, set_at(*RESOLVED, "eps", value=8.0), "eps was given as 0.5 and resolved to 8.0"),
    (RUN, set_at(*RESOLVED, "delta", value=0.1), "delta was given as 1e-05"),
    (("prism",), set_at(*RESOLVED, "training", "batch", value=7), "batch was set to 32 and resolved to 7"),
    (("prism",), set_at(*RESOLVED, "training", "experts", value=7), "resolved/training/experts"),
    (("prism",), set_at("epsilons", 3, "value", value=0.1), "epsilons/outsider/value"),
    (("gaussian",), set_at(*RESOLVED, "draw", "releases", value=7), "releases was set to 4"),
    (RUN, set_at("secret", "moved", value=lambda moved: moved[:1]), "secret/moved"),
    (ALL, set_at("secret", "moved", value=lambda moved: moved[:1]), "epsilons: site"),
    (ALL, set_at("secret", "canaries", value=lambda count: count + 1), "secret/"),
    (("prism", "gaussian"), set_at("secret", "records", value=10**6), "secret/records"),
    (("prism",), set_at("utility", 0, "value", value=0.99), "utility: ihm, AUC: baseline is"),
    (
        ("prism",),
        set_at("utility", 1, "gain", value=lambda gain: gain + 1e-4),
        "utility: decompensation, AUC: baseline",
    ),
    (("prism",), set_at("utility", 2, "baseline", value=0.5), "baseline is 0.5, and value less gain"),
    (ONE, set_at("flags", 0, "means", value="nothing to see here"), "is explained in other words"),
    (ONE, set_at("threats", 0, "description", value="a toothless adversary"), "is described in other words"),
    (("gaussian", "prism"), as_recorded, "with a recording"),
    (("recorded",), other_rate, "epsilons claimed"),
    (("gaussian",), set_at("manifest", "config", "given", "target", value="recorded"), "recorded"),
    (ONE, set_at("threats", 0, "knowledge", value=[]), "described in other words"),
]


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [pytest.param(name, edit, said, id=f"{name}-{said}") for names, edit, said in FORGERIES for name in names],
)
def test_a_forged_record_contradicts_itself(
    records: dict[str, Path], name: str, edit: Edit, said: str, registry: Registry, tmp_path: Path
) -> None:
    found = verify(forge(records[name], tmp_path / "forged", edit, registry), registry)
    assert not [line for line in found if "sha256" in line]  # the forger did renew them
    assert said in "\n".join(found)


@pytest.mark.parametrize(
    "edit",
    [
        set_at("threats", 0, "party", value="nobody"),
        set_at("threats", 0, "behaviour", value="kind"),
        set_at("threats", 0, "channels", value=["telepathy"]),
        set_at("threats", 0, "knowledge", value=["everything"]),
        set_at("mechanisms", 0, "eps", value="x"),
        set_at("mechanisms", 0, "sigma", value={}),
        set_at("mechanisms", 0, "clip", value=-1),
        set_at("claims", 0, "eps", value=-1),
        set_at("moves", "rho", "mean_absolute", value=1.5),
        set_at("moves", "rho", "quantiles", "5%", value=-2),
        set_at("series", "oracle, predicted", "y", 0, value=1.5),
        set_at("series", "oracle, predicted", "y", value=[]),
        set_at("utility", 0, "value", value=1.2),
        set_at("findings", 0, "low", value=-0.1),
        set_at("findings", 0, "threat_model", value="a ghost"),
        set_at(*RESOLVED, value={}),
        set_at("threats", value=[]),
    ],
)
def test_what_no_record_can_hold_is_refused_or_named(
    small_record: Path, edit: Edit, registry: Registry, tmp_path: Path
) -> None:
    folder = forge(small_record, tmp_path / "forged", edit, registry)
    with pytest.raises(RecordError):
        verify(folder, registry)


def test_a_curve_of_another_length_is_named(small_record: Path, registry: Registry, tmp_path: Path) -> None:
    shorter = set_at("series", "oracle, predicted", value=lambda line: {**line, "x": [1.0, 2.0], "y": [0.5, 0.6]})
    found = verify(forge(small_record, tmp_path / "forged", shorter, registry), registry)
    assert any("has 2 points for 3 releases" in line for line in found)


@pytest.mark.parametrize("page", ["audit.md", "audit.html"])
def test_a_page_that_says_something_else_is_named(
    small_record: Path, page: str, registry: Registry, tmp_path: Path
) -> None:
    shutil.copytree(small_record, tmp_path / "record")
    file = tmp_path / "record" / page
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("EXCEEDED", "WITHIN"), encoding="utf-8")
    assert [line.partition(":")[0] for line in verify(tmp_path / "record", registry)] == [page]
    file.unlink()
    assert verify(tmp_path / "record", registry) == ()

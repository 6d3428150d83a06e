"""Defences of federated averaging in whole audits: what is recorded, claimed, judged and said, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandLine
from forging import Arrays, Data, Edit, forge, made
from small_llama import save_llama
from test_fedavg import ASKED, SMALL, arguments, options

from privbench import accounting
from privbench.defenses.dp_sgd import DpSgd
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.record import read
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.target import MEMBERS, TargetRun
from privbench.targets.fedavg.config import FedConfig
from privbench.targets.fedavg.target import FedAvg
from privbench.verify import verify

CLIENTS = ("client-1", "client-2", "client-3")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small')}"


def configured(
    llama: str, defense: str, base: Mapping[str, str] = SMALL, eps: float | None = None, **settings: str
) -> FedConfig:
    asked = AuditOptions("fedavg", model=llama, defenses=(defense,), eps=eps, settings={**base, **settings})
    return FedAvg().configure(asked, default_registry())


def ran(llama: str, defense: str, role: str = "audited", base: Mapping[str, str] = SMALL, **settings: str) -> TargetRun:
    return FedAvg().run(configured(llama, defense, base, **settings).as_role(role), stream(0, "run"))


# What is claimed


def test_an_eps_sets_the_noise(llama: str) -> None:
    """Of 3 rounds of 2 steps, in which a record is drawn with 4 * 3 / 36: noise as the accountants have it."""
    config = configured(llama, "dp-sgd:clip=0.5", eps=2.0)
    assert isinstance(config.defense, DpSgd)
    assert config.defense.clip == 0.5
    assert accounting.nominal_eps(config.defense.noise, 1 / 3, 6, 1e-5) == pytest.approx(2.0, rel=1e-4)
    (entry,) = FedAvg().epsilons(config)
    assert (entry.name, entry.releases, entry.sampling) == ("server", 6, "Poisson, q = 0.3333")
    updates = configured(llama, "update-gaussian", eps=2.0)
    mu = 2 * np.sqrt(3) / updates.to_json()["multiplier"]
    assert accounting.gdp_eps(mu, 1e-5) == pytest.approx(2.0, rel=1e-6)
    (entry,) = FedAvg().epsilons(updates)
    assert (entry.name, entry.releases, entry.accountant) == ("server", 3, "Gaussian DP")
    assert FedAvg().epsilons(configured(llama, "top-k")) == ()


def test_runs_about_members_have_claims_of_their_own(llama: str) -> None:
    """Over their own rounds, which no coin decides: one pass over 12 expected respondents of a client is 2 rounds."""
    config = configured(llama, "update-gaussian:noise=2", ASKED, reference_rounds="7")
    held: Any = FedAvg().held(config)
    assert held["members"]["claim"]["eps"] == pytest.approx(accounting.gdp_eps(np.sqrt(7), 1e-5))
    assert config.member_rounds([1, 1, 1]) == config.member_rounds([40, 40, 40]) == 7
    assert configured(llama, "top-k", ASKED).member_rounds([40, 40, 40]) == 5
    central: Any = FedAvg().held(configured(llama, "update-gaussian:where=server", ASKED))
    assert central["members"]["claim"]["for"] == "outsider"


# What is recorded


def test_a_recording_says_what_was_done(llama: str) -> None:
    run = ran(llama, "update-gaussian:clip=0.5,noise=2")
    (mechanism,) = run.mechanisms
    assert (mechanism.channel, mechanism.kind, mechanism.clip, mechanism.total_sigma) == ("updates", "gaussian", 0.5, 1)
    assert [item.audience for item in run.claims] == ["server"]
    assert run.transcript.metadata["samples"] == dict.fromkeys(CLIENTS, 1)
    sent = np.array([run.transcript.array(f"updates/{name}") for name in CLIENTS], np.float64)
    assert abs(sent.std() - 1) < 4 / np.sqrt(2 * sent.size) + 0.5**2 / sent.shape[-1]
    assert any("how many respondents each holds is not told" in note for note in run.notes)


def test_of_sums_there_is_one_sender(llama: str) -> None:
    run = ran(llama, "secure-aggregation", drop="2@2:2@3:3@3")
    assert {name.split("/")[1] for name in run.transcript.arrays if name.startswith("updates/")} == {"sum"}
    assert run.transcript.array("updates/sum/mask").tolist() == [1, 1, 0]
    assert run.transcript.metadata["samples"] == {"sum": 36}
    assert any("no cryptography is run" in note for note in run.notes)
    asked = ran(llama, "secure-aggregation", MEMBERS, ASKED)
    names = {name for name in asked.transcript.arrays if name.startswith(("asked/", "updates/"))}
    whole = {"asked/losses", "asked/squares", "asked/products/sum", "updates/sum/mask", "updates/sum/squares"}
    blocks = {name.removeprefix("asked/squares/") for name in names if name.startswith("asked/squares/")}
    assert blocks
    parts = {f"{name}/{b}" for name in ("asked/squares", "asked/products/sum", "updates/sum/squares") for b in blocks}
    assert names == whole | parts


# What is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"defenses": ("dp-sgd", "top-k")}, "takes one --defense, got 2: dp-sgd, top-k; what several"),
        (
            {"defenses": ("dp-sgd",), "eps": 1e-4},
            "Use a larger eps or delta, or give the noise itself",
        ),
        ({"defenses": ("dp-sgd",), "eps": 1e6}, "asks for almost no noise .* or give the noise itself"),
        ({"defenses": ("dp-sgd:noise=1",), "eps": 1.0}, "--eps sets the noise of dp-sgd: leave noise= out, or --eps"),
        ({"defenses": ("top-k",), "eps": 1.0}, "defence top-k promises no eps: leave --eps out"),
        ({"defenses": ("dp-sgd",), "eps": float("inf")}, "--eps inf says that nothing is promised"),
        ({"defenses": ("gaussian",)}, "defence gaussian acts on gradients, which target fedavg has no place for"),
        ({"defenses": ("dp-sgd",), "noise_multiplier": 1.0}, "have noise of their own"),
        (
            {"defenses": ("secure-aggregation",), "settings": {"fraction": "0.3"}},
            "secure-aggregation needs two clients or more in a round, and 1 of 4 is drawn",
        ),
    ],
)
def test_options_that_are_refused(llama: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FedAvg().configure(AuditOptions("fedavg", model=llama, **given), default_registry())


# By the command line


def test_an_audit_with_a_promise_by_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    """Eight attacks are held against the claim; with 63 records and eps 0.1 twelve right guesses would exceed it."""
    out = tmp_path / "out"
    asked = ("--defense", "update-gaussian:clip=1e-4", "--eps", "0.1", "--out", str(out))
    done = command_line(*arguments(llama, ASKED, *asked))
    assert done.returncode == 0, done.stderr
    record = read(out)
    held = [item for item in record.findings if item.metric == "guesses"]
    assert {item.attack.partition("/")[2] for item in held} == {
        "fedmia", "lira", "lira-offline", "loss", "nasr", "rmia", "update-cosine", "update-difference",
    }  # fmt: skip
    assert {item.verdict for item in held} == {"INCONCLUSIVE"}
    assert all(item.bound is not None and item.bound["value"] < 0.53 for item in held)
    assert record.claims[0]["eps"] == pytest.approx(0.1)
    assert record.members is not None
    assert record.members["claim"]["for"] == "server"
    said = (out / "audit.md").read_text(encoding="utf-8")
    assert "guesses about members that it is surest of; dp-members allows" in said
    assert command_line("verify", str(out)).returncode == 0
    assert command_line("gate", str(out)).returncode == 0
    assert command_line("gate", str(out), "--strict").returncode == 3


@pytest.fixture(scope="module")
def accounted(llama: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a survey that is named, with noise that was searched for by its eps."""
    asked: dict[str, Any] = {"data": "synthetic:wellbeing", "defenses": ("dp-sgd:clip=1",), "eps": 2.0}
    folder, attacks = tmp_path_factory.mktemp("accounted") / "record", ("inversion/embedding-columns",)
    return made(folder, default_registry(), "fedavg", model=llama, settings=SMALL, attacks=attacks, **asked)


def test_a_record_whose_noise_was_searched_for_agrees(accounted: Path) -> None:
    assert verify(accounted, default_registry()) == ()


def every(part: str, key: str, value: object) -> Edit:
    def edit(data: Data, scores: Arrays) -> None:
        for item in data[part]:
            item[key] = value

    return edit


def less_promised(data: Data, scores: Arrays) -> None:
    every("claims", "eps", 0.01)(data, scores)
    every("epsilons", "value", 0.01)(data, scores)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (less_promised, "epsilons"),
        (every("epsilons", "value", 0.01), "epsilons"),
        (every("claims", "sample_rate", 1e-4), "claims"),
        (every("mechanisms", "sigma", {"gradient": 50.0}), "mechanisms"),
        (every("mechanisms", "clip", 1e-3), "mechanisms"),
        (lambda data, scores: data["mechanisms"].clear(), "mechanisms"),
    ],
)
def test_a_forged_promise_is_found_whatever_the_data(accounted: Path, tmp_path: Path, edit: Edit, said: str) -> None:
    found = verify(forge(accounted, tmp_path / "forged", edit, default_registry()), default_registry())
    assert any(item.startswith(said) for item in found), found


def test_exit_codes_of_the_command_line(command_line: CommandLine, llama: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    looked = command_line(*arguments(llama, SMALL, "--defense", "secure-aggregation", "--out", out, "--exit-zero"))
    assert looked.returncode == 0, looked.stderr
    assert command_line("verify", out).returncode == 0
    for spec, message in {
        "update-gaussian:clip=0": "clip of defence update-gaussian must be a positive number, got 0;",
        "dp-sgd:noise=-1": "noise of defence dp-sgd must be a positive number, got -1;",
        "quantisation:bits=0": "bits of defence quantisation must be a positive number, got 0;",
        "top-k:share=2": "share of defence top-k must be above 0 and at most 1, got 2.",
        "top-k:shares=1": "unknown option of defence top-k 'shares'; did you mean share?",
    }.items():
        done = command_line(*arguments(llama, SMALL, "--defense", spec, "--out", str(tmp_path / "refused")))
        assert done.returncode == 2, (spec, done.stderr)
        assert message in done.stderr
        assert not (tmp_path / "refused").exists()


def test_a_defence_changes_the_cell(llama: str) -> None:
    from privbench.runner import prepare

    registry, plain = default_registry(), options(llama)
    cells = {prepare(plain, registry).cell}
    for spec in ("top-k", "top-k:share=0.2", "dp-sgd", "secure-aggregation"):
        asked = AuditOptions("fedavg", model=llama, defenses=(spec,), settings=SMALL)
        cells.add(prepare(asked, registry).cell)
    assert len(cells) == 5

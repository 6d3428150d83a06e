"""Options that some targets ask for and others refuse, by the real command line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import CommandLine

from privbench.errors import InputError
from privbench.options import AuditOptions, RecordingFiles, Setting, read_settings, settings_of
from privbench.registry import Registry

FILES = RecordingFiles(Path("t"), Path("s"))
DRAW = ["--set", "records=100", "--set", "releases=2", "--set", "width=4"]


def test_no_noise_is_an_option_until_a_target_asks_for_some() -> None:
    options = AuditOptions("anything")
    with pytest.raises(InputError, match="give exactly one of --eps, --noise-multiplier and --sigma; given: none"):
        options.require_noise()


@pytest.mark.parametrize("noise", [{"eps": 1.0}, {"eps": float("inf")}, {"noise_multiplier": 0.0}, {"sigma": 2.0}])
def test_one_noise_is_enough(noise: dict[str, float]) -> None:
    AuditOptions("anything", **noise).require_noise()  # type: ignore[arg-type]


def test_two_noises_are_refused_whatever_the_target() -> None:
    with pytest.raises(InputError, match="given: --eps and --sigma"):
        AuditOptions("anything", eps=1.0, sigma=1.0)


def test_a_model_is_refused_by_who_has_a_network_of_its_own() -> None:
    AuditOptions("prism").refuse_model()
    with pytest.raises(InputError, match="target prism takes no --model; leave it out"):
        AuditOptions("prism", model="m").refuse_model()
    with pytest.raises(InputError, match="--model is empty"):
        AuditOptions("prism", model=" ")


def test_a_recording_has_its_noise_and_its_model() -> None:
    with pytest.raises(InputError, match=r"leave out --eps, --model\."):
        AuditOptions("recorded", recording=FILES, eps=1.0, model="m")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "prism"], "exactly one of --eps, --noise-multiplier and --sigma; given: none"),
        (["--target", "gaussian"], "exactly one of --eps, --noise-multiplier and --sigma; given: none"),
        (["--target", "prism", "--eps", "1", "--model", "m"], "target prism takes no --model; leave it out"),
        (["--target", "gaussian", "--sigma", "1", "--model", "m"], "target gaussian takes no --model; leave it out"),
        (["--target", "gaussian", "--sigma", "1", "--model", ""], "--model is empty"),
        (["--transcript", "t", "--secrets", "s", "--model", "m"], "leave out --model"),
        (["--target", "gaussian", "--sigma", "1", "--attacks", "inversion/nearest"], "did you mean inversion/nearest-"),
    ],
)
def test_what_is_refused_ends_with_two_and_writes_nothing(
    command_line: CommandLine, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = command_line("audit", *arguments, "--out", "out")
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in " ".join(done.stderr.split())
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not (tmp_path / "out").exists()


def test_inversions_alone_on_a_run_without_inputs_are_refused(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line("audit", "--target", "gaussian", "--sigma", "2", *DRAW, "--attacks", "inversion", "--out", "o")
    assert done.returncode == 2
    assert "no party's token inputs were recorded in this run" in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_model_in_a_sweep_is_refused_too(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line("sweep", "--target", "gaussian", "--sigma", "1", "--model", "m", "--out", "o")
    assert done.returncode == 2
    assert "takes no --model" in done.stderr
    assert not (tmp_path / "o").exists()


# What --set may change


@dataclass(frozen=True)
class Noise:
    """No setting: it has no default."""

    scale: float


@dataclass(frozen=True)
class Own:
    """What my target takes."""

    name: str = ""
    size: int = 3
    rate: float = 0.5


@dataclass(frozen=True)
class Config:
    data: str
    noise: Noise
    own: Own


def test_settings_are_the_part_of_a_configuration_that_is_read_from_them() -> None:
    said, found = settings_of(Config("d", Noise(1.0), Own(size=9)))
    assert said == "What my target takes."
    assert found == (Setting("name", "text", ""), Setting("size", "whole number", 3), Setting("rate", "number", 0.5))
    assert read_settings(Own, {item.name: str(item.default) for item in found}, "own") == vars(Own())


@pytest.mark.parametrize("config", [None, {"a": 1}, Noise(1.0), Own()])
def test_a_configuration_without_such_a_part_has_no_settings(config: object) -> None:
    assert settings_of(config) == ("", ())


@pytest.mark.parametrize("target", ["fedavg", "gaussian", "prism", "split-llama"])
def test_every_setting_is_listed_with_its_default(registry: Registry, command_line: CommandLine, target: str) -> None:
    """Given as they are listed they change nothing; none is left out; the table and the JSON say the same."""
    rows = json.loads(command_line("list", "settings", "--target", target, "--json").stdout)
    table = command_line("list", "settings", "--target", target).stdout
    assert {row["target"] for row in rows} == {target}
    for row in rows:
        default = str(row["default"]) or "(empty)"
        assert [row["name"], *row["kind"].split(), default] in [line.split() for line in table.splitlines()]
    found = registry.get("targets", target)()
    defaults = {row["name"]: str(row["default"]) for row in rows}
    plain, given = (
        found.describe(found.configure(AuditOptions(target, eps=math.inf, settings=settings), registry))
        for settings in ({}, defaults)
    )
    assert plain == given
    assert any(value.keys() == defaults.keys() for value in plain.values() if isinstance(value, dict))


def test_all_targets_are_listed_one_after_another(command_line: CommandLine) -> None:
    table = command_line("list", "settings").stdout
    listed = ["fedavg", "gaussian", "prism", "split-llama"]
    assert [line for line in table.splitlines() if line in (*listed, "recorded")] == listed
    rows = json.loads(command_line("list", "settings", "--json").stdout)
    assert list(dict.fromkeys(row["target"] for row in rows)) == listed

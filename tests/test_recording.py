from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import AUDITOR, bench

from privbench.attack import Hints, view_of
from privbench.errors import InputError
from privbench.mechanism import Claim, Mechanism
from privbench.recording import Secrets, Transcript
from privbench.threat import Behaviour, Channel, Knowledge

EMPTY = Hints(np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    claim = Claim(0.5, 1e-5, "nominal", "add-remove", "rdp", 0.032, 20)
    mechanism = Mechanism("gradients", "A", "gaussian", 1.0, sigma={"a": 2.0})
    written = Transcript(
        {"gradients/A": np.ones((2, 3, 4), np.float32)},
        {"mechanisms": [mechanism.to_json()], "claims": [claim.to_json()]},
    )
    written.save(tmp_path / "t.safetensors")
    read = Transcript.load(tmp_path / "t.safetensors")
    assert read.mechanisms == (mechanism,)
    assert read.claims == (claim,)
    assert np.array_equal(read.arrays["gradients/A"], written.arrays["gradients/A"])


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    Secrets({"labels/joint": np.zeros(3, np.int64)}).save(tmp_path / "s.safetensors")
    with pytest.raises(InputError, match=r"schema is 'privbench/secrets/1', expected 'privbench/transcript/1'"):
        Transcript.load(tmp_path / "s.safetensors")
    (tmp_path / "x.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="not a readable safetensors recording"):
        Transcript.load(tmp_path / "x.safetensors")


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="'gradients/A' holds values that are not finite"):
        Transcript({"gradients/A": np.array([[[np.nan]]], np.float32)})


def test_recordings_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Transcript({"gradients/A": np.zeros((1, 1, 1), np.float32)}).array("gradients/A")[0] = 1


def test_unknown_keys_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="unknown key 'sgima' in a mechanism"):
        Mechanism.from_json({"channel": "gradients", "party": "A", "kind": "none", "sgima": 1})
    with pytest.raises(InputError, match="unknown key 'epsilon' in a claim"):
        Claim.from_json({"epsilon": 1})
    with pytest.raises(InputError, match=r"sigma of a mechanism is .* of the wrong type"):
        Mechanism.from_json({"channel": "gradients", "party": "A", "kind": "gaussian", "sigma": {"a": True}})
    claim = Claim(1.0, 1e-5, "site", "replace", "gdp").to_json()
    with pytest.raises(InputError, match="eps of a claim is 'inf'"):
        Claim.from_json({**claim, "eps": float("inf")})  # what JSON makes of 1e400


def test_a_view_holds_its_own_partys_share_only() -> None:
    transcript = Transcript(
        {
            "gradients/A": np.zeros((1, 4, 2), np.float32),
            "gradients/B": np.zeros((1, 4, 2), np.float32),
            "activations/A": np.zeros((1, 4, 2), np.float32),
            "auxiliary/A/labels/ihm": np.zeros(4, np.int64),
            "auxiliary/B/labels/x": np.zeros(4, np.int64),
            "outputs/ihm": np.zeros((4, 1), np.float32),
        }
    )
    view = view_of(AUDITOR, transcript, secret="joint", moved=(), candidates=np.arange(4), hints=EMPTY)
    assert sorted(view.arrays) == ["auxiliary/A/labels/ihm", "gradients/A"]


def test_the_oracle_is_shown_to_those_who_could_compute_it() -> None:
    stand = bench(seed=0, records=80)
    knows = any(name.startswith("oracle/") for name in stand.view().arrays)
    weak = replace(AUDITOR, knowledge=frozenset({Knowledge.MECHANISM}))
    assert knows
    assert not any(name.startswith("oracle/") for name in stand.view(threat=weak).arrays)


def test_threat_models_are_partially_ordered() -> None:
    less = replace(AUDITOR, knowledge=frozenset({Knowledge.HINTS}))
    other = replace(AUDITOR, name="B")
    malicious = replace(AUDITOR, behaviour=Behaviour.MALICIOUS)
    assert less <= AUDITOR <= malicious
    assert not less >= AUDITOR
    assert not malicious <= AUDITOR
    assert not other <= AUDITOR
    assert not replace(AUDITOR, channels=AUDITOR.channels | {Channel.OUTPUTS}) <= AUDITOR

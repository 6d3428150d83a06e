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
from privbench.threat import Behaviour, Channel, Knowledge, curious_server

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


# Tokens, answers and what is public

TOKENS = np.array([[5, 6, 7, -1], [5, 8, 9, 9]])
ANSWERS = np.array([[-1, 0, 1, -1], [-1, 0, 1, 1]])


def secrets(**changes: np.ndarray | None) -> Secrets:
    """Two respondents of client c; None leaves an array out."""
    arrays = {"inputs": TOKENS, "answers": ANSWERS, **changes}
    names = {"inputs": "inputs/c", "answers": "inputs/c/answers", "prior": "inputs/c/prior"}
    return Secrets({names[key]: array for key, array in arrays.items() if array is not None})


def test_tokens_and_answers_come_back_from_a_file(tmp_path: Path) -> None:
    secrets().save(tmp_path / "s.safetensors")
    read = Secrets.load(tmp_path / "s.safetensors")
    assert read.given == ("c",)
    assert read.coined == ()
    assert np.array_equal(read.array("inputs/c"), TOKENS)
    assert np.array_equal(read.array("inputs/c/answers"), ANSWERS)


def test_inputs_without_answers_are_no_token_inputs() -> None:
    assert secrets(answers=None).given == ()
    assert Secrets({"inputs/c": np.ones((2, 3), np.float32)}).given == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answers": ANSWERS[:, :3]}, r"'inputs/c/answers' needs 'inputs/c' of the same shape \[2, 3\]"),
        ({"inputs": TOKENS[:1]}, "'inputs/c/answers' has N = 2 where 'inputs/c' has 1"),
        ({"inputs": None}, r"'inputs/c/answers' needs 'inputs/c' of the same shape \[2, 4\]"),
        ({"inputs": TOKENS - 1}, "'inputs/c' holds -2; labels and tokens are 0 and above, -1 for none"),
        ({"answers": ANSWERS - 1}, "'inputs/c/answers' holds -2; labels and tokens are 0 and above, -1 for none"),
        ({"answers": np.full((2, 4), -1)}, "'inputs/c/answers' marks no answer of record 0; leave it out"),
        (
            {"answers": np.stack([ANSWERS[0], np.full(4, -1)])},
            "'inputs/c/answers' marks no answer of record 1; leave it out",
        ),
        (
            {"inputs": np.where(ANSWERS >= 0, -1, TOKENS)},
            r"marks place \d of record 0 as an answer to question 0, and 'inputs/c' holds no token there",
        ),
        ({"inputs": TOKENS.astype(np.uint8)}, "'inputs/c' has type uint8; allowed: float32, float16, bfloat16, int64"),
        ({"answers": ANSWERS.astype(np.float32)}, "'inputs/c/answers' has type float32; allowed: int64"),
        ({"answers": ANSWERS[:, :, None]}, r"'inputs/c/answers' has shape \[2, 4, 1\]; it must be \[N, L\]"),
        ({"prior": TOKENS[:, :3]}, "'inputs/c/prior' has L of c = 3 where 'inputs/c/answers' has 4"),
        ({"prior": TOKENS, "answers": None}, "'inputs/c/prior' says what stands where 'inputs/c/answers' marks"),
        ({"prior": TOKENS - 2}, "'inputs/c/prior' holds -3; labels and tokens are 0 and above, -1 for none"),
        ({"answers": ANSWERS[:, :0], "inputs": TOKENS[:, :0]}, r"'inputs/c' has shape \[2, 0\]: nothing is in it"),
    ],
)
def test_tokens_and_answers_that_do_not_fit_are_refused(changes: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(InputError, match=said):
        secrets(**changes)


def test_two_clients_hold_the_same_number_of_records() -> None:
    with pytest.raises(InputError, match="'inputs/d' has N = 1 where 'inputs/c' has 2"):
        Secrets({"inputs/c": TOKENS, "inputs/d": TOKENS[:1]})


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("public/embedding", np.ones((3, 2), np.int64), "'public/embedding' has type int64; allowed: float32"),
        ("public/embedding", np.full((3, 2), np.inf, np.float32), "'public/embedding' holds values that are not fin"),
        ("public/embedding", np.ones((0, 2), np.float32), "nothing is in it"),
        ("public/tokens", np.ones((3, 2), np.float32), "'public/tokens' has type float32; allowed: int64"),
        ("public/tokens", np.full((3, 2), -2), "'public/tokens' holds -2; labels and tokens are 0 and above"),
        ("public/activations", np.ones((3, 2), np.float32), r"has shape \[3, 2\]; it must be \[A, L, d\]"),
        ("public", np.ones((3, 2), np.float32), "array 'public' is not part of a transcript"),
        ("public/a/b", np.ones((3, 2), np.float32), "array 'public/a/b' is not part of a transcript"),
        ("activations/c/mask", np.full((2, 4), 2, np.uint8), "'activations/c/mask' holds 2; it may hold 0 and 1 only"),
    ],
)
def test_public_arrays_and_masks_that_do_not_fit_are_refused(name: str, array: np.ndarray, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Transcript({name: array})


def test_public_texts_and_their_activations_are_of_one_size() -> None:
    texts, made = np.zeros((3, 2), np.int64), np.zeros((3, 4, 5), np.float32)
    Transcript({"public/tokens": texts, "public/activations": made[:, :2]})
    with pytest.raises(InputError, match="'public/activations' has L public = 4 where 'public/tokens' has 2"):
        Transcript({"public/tokens": texts, "public/activations": made})


def test_public_arrays_have_their_own_sizes_and_are_seen_by_who_knows_the_base() -> None:
    transcript = Transcript(
        {
            "activations/c": np.zeros((1, 4, 3, 2), np.float32),
            "public/embedding": np.zeros((9, 2), np.float32),
            "public/position": np.zeros(7, np.float16),
        }
    )
    server = curious_server()
    for threat, seen in ((server, 3), (replace(server, knowledge=frozenset()), 1), (AUDITOR, 2)):
        view = view_of(threat, transcript, secret="c", moved=(), candidates=np.arange(4), hints=EMPTY)
        assert len(view.arrays) == seen

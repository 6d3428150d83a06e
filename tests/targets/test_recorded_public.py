"""What everybody knows by a recording: answers of a coin and layers that are of the recorded base, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privbench.conformance.inversions import VICTIM, token_stand
from privbench.errors import InputError
from privbench.options import AuditOptions, RecordingFiles
from privbench.recording import Secrets, Transcript
from privbench.registry import default_registry
from privbench.targets.recorded.target import Recorded, RecordedConfig
from privbench.trunks import PREFIX

Arrays = dict[str, Any]
LABELS, TABLE, HEAD = "public/labels/joint", "public/embedding", "public/head"


def configured(folder: Path, edit: Callable[[Arrays], None]) -> RecordedConfig:
    """A client's tokens, and the server's outputs at two places, behind which one of two answers follows."""
    here = token_stand(0, 1.0)
    sent: Arrays = {**here.transcript.arrays, LABELS: np.array([[3, 4], [5, -1]])}
    edit(sent)
    files = RecordingFiles(folder / Transcript.file_name(), folder / Secrets.file_name())
    Transcript(sent).save(files.transcript)
    Secrets({f"inputs/{VICTIM}": here.truth.tokens, f"inputs/{VICTIM}/answers": here.truth.answers}).save(files.secrets)
    return Recorded().configure(AuditOptions("recorded", recording=files), default_registry())


def given(*answers: list[int]) -> Callable[[Arrays], None]:
    return lambda sent: sent.update({LABELS: np.array(answers)})


def last_token(sent: Arrays) -> None:
    sent[LABELS][0, 0] = len(sent[TABLE]) - 1


def beyond_table(sent: Arrays) -> None:
    sent[LABELS][0, 0] = len(sent[TABLE])


def beyond_head(sent: Arrays) -> None:
    """A token of the table for which the head has no row."""
    sent[HEAD] = np.asarray(sent[TABLE])[:5]


def without_outputs(sent: Arrays) -> None:
    for name in ("gradients/server", "activations/server", "activations/server/mask"):
        sent.pop(name)
    sent[LABELS] = np.array([[3], [5]])


def without_table(sent: Arrays) -> None:
    sent.pop(TABLE)


@pytest.mark.parametrize("edit", [lambda sent: None, last_token, without_outputs, without_table])
def test_what_fits_is_read(tmp_path: Path, edit: Callable[[Arrays], None]) -> None:
    assert configured(tmp_path, edit).secrets.given == (VICTIM,)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (given([3], [5]), r"has answers of 1 places, 'activations/server' outputs at 2, \[T, N, A, d\]"),
        (given([3, 4, -1], [5, -1, -1]), "has answers of 3 places, 'activations/server' outputs at 2"),
        (given([-1, -1], [-1, -1]), r"holds \[-1, -1\] as the tokens of label 0; an answer has one token or more"),
        (given([3, 4], [-1, 5]), r"holds \[-1, 5\] as the tokens of label 1; .* -1 only behind its last"),
        (given([3, 4], [3, 4]), "holds the tokens of label 1 twice"),
        (given([5, -1], [3, 4], [5, -1]), "holds the tokens of label 2 twice"),
        (beyond_table, rf"'{LABELS}' holds token (\d+); '{TABLE}' has \1 rows, and they count from 0"),
        (beyond_head, f"'{LABELS}' holds token 5; '{HEAD}' has 5 rows"),
    ],
)
def test_answers_that_no_coin_can_stand_for_are_refused(
    tmp_path: Path, edit: Callable[[Arrays], None], said: str
) -> None:
    """They would read as a label that is well hidden."""
    with pytest.raises(InputError, match=f"^transcript.safetensors: .*{said}"):
        configured(tmp_path, edit)


@pytest.mark.parametrize("name", ["3000000.x", "\u00b2.x"])
def test_layers_that_are_of_no_base_are_refused(tmp_path: Path, name: str) -> None:
    """All else that is wrong with them is in tests/test_trunks.py."""
    said = f"^transcript.safetensors: '{PREFIX}{name}' is no parameter of LLaMA layers"
    with pytest.raises(InputError, match=said):
        configured(tmp_path, lambda sent: sent.update({f"{PREFIX}{name}": np.ones(3, np.float32)}))

"""What everybody knows by a recording: answers of a coin and layers that are of the recorded base, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privbench import trunks
from privbench.conformance.inversions import VICTIM, token_stand
from privbench.errors import InputError
from privbench.options import AuditOptions, RecordingFiles
from privbench.recording import Secrets, Transcript
from privbench.registry import default_registry
from privbench.targets.recorded.public import require_public
from privbench.targets.recorded.target import Recorded, RecordedConfig
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.tensors import RELEASE_TYPES
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


def based(sent: Arrays, *, rotary: int, kind: str = "float32") -> None:
    """A base of 4 heads of width 8, what it makes of a text, and angles for heads of width `rotary`."""
    shape = Shape(vocabulary=50, width=32, layers=2, heads=4, kv_heads=4, head_dim=8, intermediate=48, tied=True)
    model = random_llama(shape, 3).model
    with torch.no_grad():  # weights of a start make next to nothing of other tokens
        for parameter in model.layers.parameters():
            parameter.mul_(8)
    ids = torch.randint(0, 50, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        made = model(input_ids=ids, output_hidden_states=True).hidden_states[1]
    sent |= trunks.recorded(model, 1)
    sent[TABLE] = model.embed_tokens.weight.detach().numpy()
    sent[f"{PREFIX}rotary"] = (10_000.0 ** -(np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    sent["public/tokens"], sent["public/activations"] = ids.numpy(), made.numpy()
    for name in [name for name in sent if name.startswith("public/") and name != "public/tokens"]:
        sent[name] = np.asarray(sent[name]).astype(RELEASE_TYPES[kind])


@pytest.mark.parametrize("kind", RELEASE_TYPES)
def test_layers_that_make_what_is_recorded_are_read(kind: str) -> None:
    sent: Arrays = {}
    based(sent, rotary=8, kind=kind)
    require_public(Transcript(sent))


@pytest.mark.parametrize(("kind", "moved"), [("float32", 0.002), ("float16", 0.03), ("bfloat16", 0.2)])
def test_what_no_rounding_of_a_type_does_is_refused(kind: str, moved: float) -> None:
    sent: Arrays = {}
    based(sent, rotary=8)
    sent["public/activations"] = sent["public/activations"] * np.float32(1 + moved)
    sent[TABLE] = sent[TABLE].astype(RELEASE_TYPES[kind])
    with pytest.raises(InputError, match=r"the public layers make of text 0 of 'public/tokens' what is .* away from"):
        require_public(Transcript(sent))


@pytest.mark.parametrize("rotary", [4, 16])
def test_angles_for_heads_of_another_width_are_refused(rotary: int) -> None:
    """Eight heads of 4 or two of 16 have as many rows: what is made of a public text tells."""
    sent: Arrays = {}
    based(sent, rotary=rotary)
    with pytest.raises(InputError, match=r"the public layers make of text 0 of 'public/tokens' what is .* away from"):
        require_public(Transcript(sent))
    sent.pop("public/activations")
    require_public(Transcript(sent))  # without it nothing tells


def test_texts_beyond_the_table_are_refused() -> None:
    sent: Arrays = {}
    based(sent, rotary=8)
    sent["public/tokens"][0, 0] = 50
    with pytest.raises(InputError, match=r"are not of rows of 'public/embedding' \[50, 32\]"):
        require_public(Transcript(sent))


def test_texts_in_another_order_or_of_another_base_are_refused_wherever_they_stand() -> None:
    for broken in ("order", "last"):
        sent: Arrays = {}
        based(sent, rotary=8)
        made = sent["public/activations"]
        sent["public/activations"] = made[::-1].copy() if broken == "order" else np.stack([made[0], -made[1]])
        with pytest.raises(InputError, match=r"the public layers make of text \d of 'public/tokens' what is"):
            require_public(Transcript(sent))


def test_where_padding_stands_and_that_the_first_text_is_short_changes_nothing() -> None:
    """Layers see differences of places alone; and one token, which does not turn, tells nothing of the angles."""
    sent: Arrays = {}
    based(sent, rotary=8)
    sent["public/tokens"][0, :] = -1
    sent["public/tokens"] = np.pad(sent["public/tokens"], [(0, 0), (5, 0)], constant_values=-1)
    sent["public/activations"] = np.pad(sent["public/activations"], [(0, 0), (5, 0), (0, 0)])
    require_public(Transcript(sent))
    sent["public/tokens"][0, 0] = 3
    sent["public/activations"][0, 0] = sent["public/activations"][1, 5]
    with pytest.raises(InputError, match="make of text 0"):
        require_public(Transcript(sent))

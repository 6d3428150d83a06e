"""Damaged recordings: every one is audited or refused with a clear line, none ends in a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privbench.errors import InputError
from privbench.options import AuditOptions, RecordingFiles
from privbench.record import validate
from privbench.registry import Registry, default_registry
from privbench.runner import run_audit
from privbench.seeds import stream
from privbench.target import Target

Files = dict[str, bytes]
KINDS = ("transcript", "oracle", "secrets")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["gradients/A", "gradients/B", "gradients/A/task1", "gradients/A/seen", "labels/joint", "canary/x", "member", ""]
) | st.text(max_size=12)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A small recording of target gaussian, as bytes."""
    folder = tmp_path_factory.mktemp("honest") / "files"
    target: Target = default_registry().get("targets", "gaussian")()
    small = {"records": "32", "releases": "2", "width": "4"}
    options = AuditOptions("gaussian", sigma=1.0, data=str(folder), settings=small)
    target.run(target.configure(options, default_registry()), stream(0, "run"))
    return {kind: (folder / f"{kind}.safetensors").read_bytes() for kind in KINDS}


def audit(files: Files, folder: Path, registry: Registry) -> bool:
    """Whether the recording was audited; else it must have been refused in at most two printable lines."""
    for kind, content in files.items():
        (folder / f"{kind}.safetensors").write_bytes(content)
    paths = RecordingFiles(*(folder / f"{kind}.safetensors" for kind in ("transcript", "secrets", "oracle")))
    try:
        found = run_audit(AuditOptions("recorded", recording=paths), registry).audit
    except InputError as error:
        lines = str(error).splitlines()
        assert 1 <= len(lines) <= 2
        assert all(line.isprintable() for line in lines)
        return False
    validate(found.to_json())
    assert not [finding.reason for finding in found.findings if "Error:" in finding.reason]
    return True


def damaged(files: Files, seed: int) -> Files:
    """One file with bits turned, cut short, or with something after its end; headers are hit most."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    content = bytearray(files[kind])
    fault = rng.random()
    if fault < 0.75:
        for _ in range(rng.choice([1, 1, 2, 8])):
            place = rng.randrange(len(content) if rng.random() < 0.4 else min(len(content), 700))
            content[place] ^= 1 << rng.randrange(8)
    elif fault < 0.95:
        del content[rng.randrange(len(content)) :]
    else:
        content += bytes(rng.randrange(1, 64))
    return {**files, kind: bytes(content)}


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def rewritten(content: bytes, data: st.DataObject) -> bytes:
    """The file with one value, or one name, of its header or metadata replaced."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = json.loads(header["__metadata__"]["privbench"])
    inside = data.draw(st.booleans())
    tree = metadata if inside else header
    *way, last = data.draw(st.sampled_from(list(places(tree))))
    node = tree
    for key in way:
        node = node[key]
    if isinstance(node, dict) and data.draw(st.booleans()):
        node[data.draw(NAMES)] = node.pop(last)
    else:
        node[last] = data.draw(JSON)
    if inside:
        header["__metadata__"]["privbench"] = json.dumps(metadata)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def test_an_honest_recording_is_audited(honest: Files, tmp_path: Path, registry: Registry) -> None:
    assert audit(honest, tmp_path, registry)


def test_a_thousand_damaged_recordings(honest: Files, tmp_path: Path, registry: Registry) -> None:
    audited = sum(audit(damaged(honest, seed), tmp_path, registry) for seed in range(1_000))
    assert 0 < audited < 1_000


@pytest.mark.slow
def test_ten_thousand_damaged_recordings(honest: Files, tmp_path: Path, registry: Registry) -> None:
    audited = sum(audit(damaged(honest, seed), tmp_path, registry) for seed in range(1_000, 11_000))
    assert 0 < audited < 10_000


@settings(
    derandomize=True, deadline=None, max_examples=1_000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_rewritten_headers_and_metadata(honest: Files, tmp_path: Path, registry: Registry, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    audit({**honest, kind: rewritten(honest[kind], data)}, tmp_path, registry)

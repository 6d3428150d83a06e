"""The record of an audit: everything a report, a gate or a reviewer needs, and nothing they would have to compute.

audit.json by a published schema, scores.safetensors beside it. Written aside and renamed, so that a killed run
leaves either the old record or the new one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.errors import InputError, RecordError

SCHEMA = "privbench/audit/1"
AUDIT_FILE = "audit.json"
SWEEP_FILE = "sweep.json"
SCORES_FILE = "scores.safetensors"


@dataclass(frozen=True)
class Finding:
    """One planned cell: an attack on a secret over a number of releases, in one metric, against one bound.

    `value` is None exactly when `reason` says why. `bound` is None where no bound speaks about the cell.
    """

    id: str
    target: str
    party: str
    threat_model: str
    channel: str
    attack: str
    secret: str
    releases: int
    metric: str
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    n: int | None
    canaries: int | None
    chance: float | None
    baseline: float | None
    controls: Mapping[str, Mapping[str, Any] | None]
    role: str
    bound: Mapping[str, Any] | None
    verdict: str
    reason: str
    strength: float | None
    seed: int
    defense: str
    eps: float | str | None


@dataclass(frozen=True)
class Series:
    """A curve: y over x, with an interval where there is one."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Sequence[float] | None]) -> Series:
        low, high = data["low"], data["high"]
        return cls(
            tuple(data["x"] or ()),
            tuple(data["y"] or ()),
            None if low is None else tuple(low),
            None if high is None else tuple(high),
        )


@dataclass(frozen=True)
class Audit:
    """A whole record. The mappings are JSON objects as audit.json holds them.

    secret: whose coins were guessed; inputs: whose inputs were reconstructed; members: of how many records it was
    asked whether they were trained on; estimates: whose numbers were estimated; None where no run holds such a secret.
    """

    cell: str
    manifest: Mapping[str, Any]
    threats: Sequence[Mapping[str, Any]]
    mechanisms: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]
    epsilons: Sequence[Mapping[str, Any]]
    utility: Sequence[Mapping[str, Any]]
    secret: Mapping[str, Any] | None
    inputs: Mapping[str, Any] | None
    members: Mapping[str, Any] | None
    estimates: Mapping[str, Any] | None
    moves: Mapping[str, Any]
    noise: Mapping[str, Any] | None
    findings: tuple[Finding, ...]
    planned: tuple[str, ...]
    flags: Sequence[Mapping[str, str]]
    notes: Sequence[str]
    series: Mapping[str, Series]
    scores_sha256: str

    def finding(self, attack: str, bound: str) -> Finding:
        """The finding of this attack against this bound; KeyError when there is none."""
        for item in self.findings:
            if item.attack == attack and item.id.rsplit("/", 1)[1] == bound:
                return item
        raise KeyError(f"{attack} against {bound}")

    @property
    def missing(self) -> tuple[str, ...]:
        """Planned cells without a finding: never read as a pass."""
        present = {finding.id for finding in self.findings}
        return tuple(cell for cell in self.planned if cell not in present)

    def to_json(self) -> dict[str, Any]:
        """The object as audit.json holds it, with a hash of its own content."""
        data = {"schema": SCHEMA, **asdict(self)}
        return {**data, "record_sha256": hash_record(data)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Audit:
        """Raises `RecordError` for a newer schema by name, and for anything that the schema does not allow.

        The record's own hash is not checked here: `read` does, and `verify` says what differs.
        """
        validate(data)
        values = {"members": None, "estimates": None} | {f.name: data[f.name] for f in fields(cls) if f.name in data}
        values["findings"] = tuple(Finding(**item) for item in data["findings"])
        values["planned"] = tuple(data["planned"])
        values["series"] = {name: Series.from_json(item) for name, item in data["series"].items()}
        return cls(**values)


@cache
def _validator() -> Any:
    import jsonschema_rs

    text = (resources.files("privbench") / "schema" / "audit-1.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    return jsonschema_rs.Draft202012Validator(schema)


def validate(data: Mapping[str, Any]) -> None:
    """Check an audit.json object against the published schema."""
    found = data.get("schema") if isinstance(data, Mapping) else None
    if found != SCHEMA:
        raise RecordError(f"schema is {found!r}; this version of privbench reads {SCHEMA!r}.")
    # A round trip turns tuples into lists, as the file has them, and refuses NaN and Infinity.
    try:
        plain = json.loads(json.dumps(data, allow_nan=False))
    except (ValueError, TypeError, OverflowError) as error:
        raise RecordError(f"audit.json holds what JSON does not: {str(error)[:200]}") from error
    wrong = next(iter(_validator().iter_errors(plain)), None)
    if wrong is not None:
        where = "/".join(map(str, wrong.instance_path)) or "the record"
        raise RecordError(f"audit.json does not follow its schema at {where}: {wrong.message[:200]}")


def hash_record(data: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of everything but the hash itself: a changed digit anywhere changes it."""
    rest = {key: value for key, value in data.items() if key != "record_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def hash_scores(scores: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 over names, shapes, types and values, in name order."""
    digest = hashlib.sha256()
    for name in sorted(scores):
        array = np.ascontiguousarray(scores[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write(audit: Audit, scores: Mapping[str, npt.NDArray[Any]], pages: Mapping[str, str], out: Path) -> None:
    """Write audit.json, scores.safetensors and rendered pages into `out`; audit.json is renamed into place last."""
    from safetensors.numpy import save

    data = audit.to_json()
    validate(data)
    contiguous = {name: np.ascontiguousarray(array) for name, array in scores.items()}

    def put(aside: Path) -> list[str]:
        (aside / SCORES_FILE).write_bytes(save(contiguous))
        for name, text in pages.items():
            (aside / name).write_text(text, encoding="utf-8")
        text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
        (aside / AUDIT_FILE).write_text(text + "\n", encoding="utf-8")
        return [SCORES_FILE, *pages, AUDIT_FILE]

    write_aside(out, put)


def write_aside(out: Path, put: Callable[[Path], list[str]]) -> None:
    """Let `put` write files into a hidden folder inside `out`, then rename them into place in its order."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=out))
        try:
            for name in put(aside):
                (aside / name).replace(out / name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror or error}. Nothing was left half-written.") from error


def check_writable(out: Path) -> bool:
    """Refuse an output folder that is a file or cannot be written, before anything is computed. True: it was made."""
    try:
        there = out.exists()
        taken = there and not out.is_dir()
    except OSError as error:
        raise InputError(f"--out cannot be used: {error.strerror or error}.") from error
    if taken:
        raise InputError(f"--out {out} is a file; give a folder.")
    write_aside(out, lambda aside: [])
    return not there


def read(path: Path) -> Audit:
    """Read a record folder, or an audit.json; refuse one that was changed after it was written."""
    data = read_json(path)
    audit = Audit.from_json(data)
    if hash_record(data) != data["record_sha256"]:
        raise RecordError(f"{path} was changed after it was written; `privbench verify` says where.")
    return audit


def read_json(path: Path) -> dict[str, Any]:
    """The object in audit.json, unchecked."""
    file = path / AUDIT_FILE if path.is_dir() else path
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except FileNotFoundError:
        inside = "it holds a sweep: give the folder of one of its cells, cells/HASH" if holds_sweep(path) else ""
        raise RecordError(f"{path} holds no {AUDIT_FILE}; {inside or 'give the folder of an audit'}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file} cannot be read: {str(error)[:200]}") from error
    return data


def holds_sweep(folder: Path) -> bool:
    """Whether this is the folder of a sweep and of no audit."""
    return (folder / SWEEP_FILE).is_file() and not (folder / AUDIT_FILE).exists()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def read_scores(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """The score vectors of a record."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(folder / SCORES_FILE)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{folder / SCORES_FILE} cannot be read: {error}") from error

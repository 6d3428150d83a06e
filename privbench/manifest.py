"""The manifest: what was run, with which code, data and seeds. Two runs with one manifest give the same findings.

Data by base name and fingerprint, the kind of processor; never an absolute path, a host or a user name.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import privbench
from privbench.data.catalogue import without_folders
from privbench.options import AuditOptions
from privbench.record import SCHEMA
from privbench.registry import BUILT_IN, GROUPS, Registry

_PACKAGES = (
    "torch", "numpy", "scipy", "safetensors", "opacus", "dp-accounting", "transformers", "peft", "tokenizers",
)  # fmt: skip


def manifest(
    options: AuditOptions,
    resolved: Mapping[str, Any],
    attacks: Sequence[str],
    *,
    data_name: str,
    fingerprint: str,
    started: str,
    seconds: float,
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "privbench": privbench.__version__,
        "code": code_version(),
        "config": {"given": _given(options), "resolved": dict(resolved), "attacks": list(attacks)},
        "seeds": [options.seed],
        "git": _git(Path(__file__).resolve().parents[1]),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "data": {"name": data_name, "fingerprint": fingerprint},
        "machine": {
            "processor": _processor(),
            "system": platform.system(),
            "python": platform.python_version(),
            "cores": os.cpu_count() or 1,
        },
        "times": {"started": started, "seconds": round(seconds, 1)},
    }


def cell_hash(
    options: AuditOptions, resolved: Mapping[str, Any], attacks: Sequence[str], files: str, registry: Registry
) -> str:
    """Content address of an audit: configuration, attacks, seed, data and code. `files`: a hash of the data."""
    key = {
        "target": options.target,
        "config": dict(resolved),
        "attacks": list(attacks),
        "seed": options.seed,
        "data": files,
        "code": code_version(),
        "plugins": _plugins(registry),
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _plugins(registry: Registry) -> dict[str, str]:
    """A hash of the source of every member that is not built in, by what it is registered as."""
    found = {}
    for group in GROUPS:
        for name, reference in registry.entries[group].items():
            if BUILT_IN[group].get(name) != reference:
                spec = importlib.util.find_spec(reference.partition(":")[0])
                source = Path(spec.origin) if spec is not None and spec.origin else None
                content = source.read_bytes() if source is not None and source.is_file() else b""
                found[f"{group}/{name}={reference}"] = hashlib.sha256(content).hexdigest()
    return found


@cache
def code_version() -> str:
    """The release and a hash of the package's own source: a changed line of code is another version."""
    digest, root = hashlib.sha256(), Path(privbench.__file__).parent
    for folder, _, names in sorted(os.walk(root, followlinks=True)):
        for name in sorted(names):
            if name.endswith((".py", ".j2", ".json", ".toml")):
                file = Path(folder) / name
                digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return f"{privbench.__version__}+{digest.hexdigest()[:16]}"


def _given(options: AuditOptions) -> dict[str, Any]:
    plain: dict[str, Any] = {name: _plain(value) for name, value in vars(options).items()}
    if options.recording is not None:
        files = vars(options.recording)
        plain["recording"] = {kind: path.name for kind, path in files.items() if path is not None}
    for name in ("data", "model"):
        if plain[name] is not None:
            plain[name] = without_folders(plain[name])
    return plain


def _plain(value: object) -> object:
    """As JSON has it: lists, objects, and infinity spelled out."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return "inf" if value == math.inf else value


def _git(root: Path) -> dict[str, Any] | None:
    """Commit and dirty flag when the code runs from its own checkout."""
    if not (root / ".git").exists():
        return None

    def ask(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None  # no git on this machine, or no commit yet: the manifest then says null


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: platform knows something
    return platform.processor() or platform.machine()

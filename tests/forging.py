"""A forger's tools: edit a record, assemble it again from what was edited, renew every hash."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from privbench.errors import RecordError
from privbench.options import AuditOptions
from privbench.record import Audit, hash_record, hash_scores, write
from privbench.registry import Registry
from privbench.report.pages import PAGES, render
from privbench.runner import run_audit
from privbench.verify import assemble_again

Data = dict[str, Any]
Arrays = dict[str, np.ndarray]
Edit = Callable[[Data, Arrays], None]


def made(folder: Path, registry: Registry, target: str, **options: Any) -> Path:
    result = run_audit(AuditOptions(target, **options), registry, parallel=1)
    write(result.audit, result.scores, render(result.audit, PAGES), folder)
    return folder


def forge(record: Path, folder: Path, edit: Edit, registry: Registry | None) -> Path:
    """Edit, assemble again from the edited inputs (without a registry: not), leave the pages out, renew both hashes."""
    shutil.copytree(record, folder, ignore=shutil.ignore_patterns("audit.md", "audit.html"))
    data, scores = (
        json.loads((folder / "audit.json").read_text(encoding="utf-8")),
        load_file(folder / "scores.safetensors"),
    )
    edit(data, scores)
    save_file({name: np.ascontiguousarray(array) for name, array in scores.items()}, folder / "scores.safetensors")
    data["scores_sha256"] = hash_scores(scores)
    try:
        if registry is None:
            raise RecordError("not to be assembled")
        audit = Audit.from_json(data)
        judged = assemble_again(audit, scores, registry)
        again = Audit(
            **{**vars(audit), "findings": judged.findings, "planned": judged.planned, "series": judged.series}
        )
        known = {flag["name"]: flag for flag in data["flags"]}
        again = Audit(**{**vars(again), "flags": [known[name] for name in judged.flags if name in known]})
        data = again.to_json()
    except (RecordError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        pass  # the forger's edit cannot be assembled: the hashes alone are renewed
    data["record_sha256"] = hash_record(data)
    (folder / "audit.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def set_at(*path: Any, value: Any) -> Edit:
    """A value of the record, or what a function makes of the one that is there."""

    def edit(data: Data, scores: Arrays) -> None:
        holder: Any = data
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value(holder[path[-1]]) if callable(value) else value

    return edit

"""sweep.json: the grid in one file, judged together. No times in it: the same cells give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from privbench.errors import RecordError
from privbench.record import SWEEP_FILE

SCHEMA = "privbench/sweep/1"


@dataclass(frozen=True)
class Held:
    """One finding of a cell. `verdict` and `share` are those of the whole sweep, `cell_verdict` the cell's alone.

    bound, bound_value, p_value, share are None where nothing was held against a bound.
    """

    id: str
    attack: str
    releases: int
    role: str
    value: float | None
    low: float | None
    high: float | None
    bound: str | None
    bound_value: float | None
    p_value: float | None
    share: float | None
    verdict: str
    cell_verdict: str


@dataclass(frozen=True)
class Row:
    """One cell: what it was, how it ended, what it found. `reason`: why it is FAILED or missing."""

    cell: str
    target: str
    data: str
    defense: str
    eps: float | str | None
    noise_multiplier: float | None
    seed: int
    settings: Mapping[str, str]
    status: Literal["done", "failed", "missing"]
    reason: str | None
    findings: tuple[Held, ...]
    utility: tuple[Mapping[str, Any], ...]
    flags: tuple[str, ...]

    def value(self, attack: str, releases: Literal["one", "all"]) -> Held | None:
        """The attack's finding over one release or over all of them, whatever bound it is held against."""
        found = [item for item in self.findings if item.attack == attack and item.value is not None]
        wanted = [item for item in found if (item.releases == 1) == (releases == "one")] or (
            found if releases == "all" else []
        )
        return wanted[0] if wanted else None

    def bound(self, name: str) -> float | None:
        """What this bound allows in this cell."""
        return next((item.bound_value for item in self.findings if item.bound == name), None)

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """What the cell is besides its noise and its seed: cells that share it lie on one curve."""
        return (
            ("target", self.target),
            ("data", self.data),
            ("defence", self.defense),
            *sorted((key, str(value)) for key, value in self.settings.items()),
        )


@dataclass(frozen=True)
class Sweep:
    """All cells in the order of the grid. `tests`: how many share `alpha` by Holm, those of unfinished cells among
    them; `version` of privbench.
    """

    version: str
    alpha: float
    tests: int
    rows: tuple[Row, ...]

    def count(self, verdict: str) -> int:
        return sum(item.verdict == verdict for row in self.rows for item in row.findings if item.role == "confirmatory")

    @property
    def judged(self) -> int:
        """Tests that were judged: those with a share."""
        return sum(item.share is not None for row in self.rows for item in row.findings)

    def ended(self, status: str) -> int:
        return sum(row.status == status for row in self.rows)

    def to_text(self) -> str:
        data = {"schema": SCHEMA, **asdict(self)}
        return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def read_sweep(folder: Path) -> Sweep:
    """Read DIR/sweep.json; `RecordError` for anything else."""
    file = folder / SWEEP_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data.get("schema") != SCHEMA:
            raise RecordError(f"{file}: schema is {data.get('schema')!r}; this version of privbench reads {SCHEMA!r}.")
        return Sweep(
            str(data["version"]), float(data["alpha"]), int(data["tests"]), tuple(_row(item) for item in data["rows"])
        )
    except FileNotFoundError:
        raise RecordError(f"{folder} holds no {SWEEP_FILE}; give the folder of a sweep.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} cannot be read: {str(error)[:200]}") from error


def _row(data: Mapping[str, Any]) -> Row:
    lists: Mapping[str, Sequence[Any]] = {
        "findings": tuple(Held(**item) for item in data["findings"]),
        "utility": tuple(data["utility"]),
        "flags": tuple(data["flags"]),
    }
    return Row(**{**data, **lists})
